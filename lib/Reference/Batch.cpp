//===- Batch.cpp - the ragged batch and the KV cache by slots -------------===//
#include "prefill/Reference/Batch.h"
#include "llvm/ADT/Twine.h"
#include <limits>

using namespace mlir;
using namespace mlir::prefill;
using namespace mlir::prefill::reference;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;

int64_t Batch::slotOf(int64_t sequence, int64_t position,
                      int64_t blockSize) const {
  const std::vector<int32_t> &blocks = blockTable[sequence];
  int64_t block = position / blockSize;
  if (position < 0 || block >= static_cast<int64_t>(blocks.size()))
    return -1;
  return blocks[block] * blockSize + position % blockSize;
}

Error Batch::verify() const {
  int64_t rows = numRows(), sequences = numSequences();
  auto wrong = [](const llvm::Twine &what) {
    return createStringError("batch: " + what);
  };
  auto length = [&](const char *name, size_t actual, int64_t expected) {
    return wrong(llvm::Twine(name) + " has " + llvm::Twine(actual) +
                 " elements, expected " + llvm::Twine(expected));
  };
  if (positions.size() != tokens.size())
    return length("positions", positions.size(), rows);
  if (slotMapping.size() != tokens.size())
    return length("slot_mapping", slotMapping.size(), rows);
  if (cuSeqlens.size() != kvLens.size() + 1)
    return length("cu_seqlens", cuSeqlens.size(), sequences + 1);
  if (blockTable.size() != kvLens.size())
    return length("block_table", blockTable.size(), sequences);
  if (cuSeqlens.front() != 0)
    return wrong("cu_seqlens starts at " + llvm::Twine(cuSeqlens.front()) +
                 ", expected 0");
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    if (queryLength(sequence) < 0)
      return wrong("cu_seqlens descends at sequence " + llvm::Twine(sequence));
    if (kvLens[sequence] < 0)
      return wrong("kv_lens of sequence " + llvm::Twine(sequence) + " is " +
                   llvm::Twine(kvLens[sequence]));
  }
  if (cuSeqlens.back() > rows)
    return wrong("cu_seqlens ends at " + llvm::Twine(cuSeqlens.back()) +
                 ", but there are " + llvm::Twine(rows) + " rows");
  for (int32_t index : logitsIndices)
    if (index < 0 || index >= rows)
      return wrong("logits index " + llvm::Twine(index) + " is outside the " +
                   llvm::Twine(rows) + " rows");
  return Error::success();
}

KVCache::KVCache(KVCacheType type, int64_t numBlocks)
    : numKvHeads(type.getNumKvHeads()), headDimQk(type.getHeadDimQk()),
      headDimV(type.getHeadDimV()), blockSize(type.getBlockSize()) {
  int64_t slots = numBlocks * blockSize;
  double unset = std::numeric_limits<double>::quiet_NaN();
  keys.assign(slots * numKvHeads * headDimQk, unset);
  vals.assign(slots * numKvHeads * headDimV, unset);
  written.assign(slots, false);
}

BatchBuilder::BatchBuilder(int64_t numSequences, int64_t maxLength,
                           int64_t blockSize)
    : maxLength(maxLength), blockSize(blockSize), lengths(numSequences),
      blockTable(numSequences) {
  int64_t blocksEach = (maxLength + blockSize - 1) / blockSize;
  int32_t next = numSequences * blocksEach;
  for (int64_t block = 0; block < blocksEach; ++block)
    for (std::vector<int32_t> &blocks : blockTable)
      blocks.push_back(--next);
}

int64_t BatchBuilder::numBlocks() const {
  return blockTable.empty() ? 0 : blockTable.size() * blockTable.front().size();
}

int64_t BatchBuilder::slotOf(int64_t sequence, int64_t position) const {
  return blockTable[sequence][position / blockSize] * blockSize +
         position % blockSize;
}

Expected<Batch> BatchBuilder::next(const Step &step) {
  if (step.tokens.size() != lengths.size())
    return createStringError("step has " + llvm::Twine(step.tokens.size()) +
                             " sequences, expected " +
                             llvm::Twine(lengths.size()));
  for (auto [sequence, tokens] : llvm::enumerate(step.tokens))
    if (lengths[sequence] + static_cast<int64_t>(tokens.size()) > maxLength)
      return createStringError(
          "sequence " + llvm::Twine(sequence) + " would have " +
          llvm::Twine(lengths[sequence] + tokens.size()) +
          " tokens, its maximum is " + llvm::Twine(maxLength));
  Batch batch;
  batch.blockTable = blockTable;
  for (auto [sequence, tokens] : llvm::enumerate(step.tokens)) {
    for (int32_t token : tokens) {
      int64_t position = lengths[sequence]++;
      batch.tokens.push_back(token);
      batch.positions.push_back(position);
      batch.slotMapping.push_back(slotOf(sequence, position));
      if (step.allRows)
        batch.logitsIndices.push_back(batch.numRows() - 1);
    }
    if (!step.allRows && !tokens.empty())
      batch.logitsIndices.push_back(batch.numRows() - 1);
    batch.cuSeqlens.push_back(batch.numRows());
    batch.kvLens.push_back(lengths[sequence]);
  }
  for (int64_t row = 0; row < step.paddedRows; ++row) {
    batch.tokens.push_back(0);
    batch.positions.push_back(0);
    batch.slotMapping.push_back(-1);
  }
  return batch;
}

Batch mlir::prefill::reference::makeSequenceBatch(int64_t past,
                                                  ArrayRef<int32_t> tokens,
                                                  bool allRows) {
  Batch batch;
  batch.tokens.assign(tokens.begin(), tokens.end());
  for (int64_t row = 0; row < batch.numRows(); ++row) {
    batch.positions.push_back(past + row);
    batch.slotMapping.push_back(past + row);
    if (allRows || row + 1 == batch.numRows())
      batch.logitsIndices.push_back(row);
  }
  batch.cuSeqlens.push_back(batch.numRows());
  batch.kvLens.push_back(past + batch.numRows());
  batch.blockTable = {{0}};
  return batch;
}
