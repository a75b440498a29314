#include "AttentionProblem.h"
#include "prefill/checkpoint/FloatConversion.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <sstream>

using namespace prefill::rt;

namespace prefill_test {

const char *name(Dtype dtype) {
  return dtype == Dtype::F32 ? "f32" : dtype == Dtype::BF16 ? "bf16" : "f16";
}
int64_t bytesOf(Dtype dtype) { return dtype == Dtype::F32 ? 4 : 2; }
double unitRoundoff(Dtype dtype) {
  return dtype == Dtype::F32    ? 0x1p-24
         : dtype == Dtype::BF16 ? 0x1p-8
                                : 0x1p-11;
}

static Bits toBits(Dtype dtype, float value) {
  if (dtype == Dtype::BF16)
    return floatToBf16(value);
  if (dtype == Dtype::F16)
    return floatToF16(value);
  Bits bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
static float fromBits(Dtype dtype, Bits bits) {
  if (dtype == Dtype::BF16)
    return bf16ToFloat(uint16_t(bits));
  if (dtype == Dtype::F16)
    return f16ToFloat(uint16_t(bits));
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
double roundTo(Dtype dtype, double value) {
  return fromBits(dtype, toBits(dtype, float(value)));
}

std::string AttentionProblem::describe() const {
  std::ostringstream out;
  out << name(dtype) << " " << layout << ":" << blockSize << " kv_heads "
      << kvHeads << " group " << group << " head_dim " << headDimQk << "/"
      << headDimV << (causal ? " causal" : "") << " window " << window
      << " scale " << scale << (base2 ? " base2" : "") << " tile " << blockQ
      << "x" << blockKv << " form " << int(form)
      << (selectedRows ? " selected rows" : "");
  if (numSplits > 1)
    out << " splits " << numSplits;
  out << moreAttributes;
  return out.str();
}

std::string AttentionProblem::source() const {
  std::ostringstream out;
  auto tensor = [&](int64_t columns) {
    return "tensor<?x" + std::to_string(columns) + "x" + name(dtype) + ">";
  };
  std::string q = tensor(heads() * headDimQk), o = tensor(heads() * headDimV);
  std::string results = o, values = "%o", returned = "%o";
  if (numSplits > 1) {
    auto ofSplits = [&](int64_t columns) {
      return "tensor<?x" + std::to_string(numSplits * columns) + "xf32>";
    };
    o = ofSplits(heads() * headDimV) + ", " + ofSplits(heads());
    results = "(" + o + ")";
    values = "%o:2";
    returned = "%o#0, %o#1";
  }
  out.precision(17);
  out << "!cache = !prefill.kv_cache<" << layout
      << ", num_kv_heads = " << kvHeads << ", head_dim_qk = " << headDimQk
      << ", head_dim_v = " << headDimV << ", dtype = " << name(dtype)
      << ", block_size = " << blockSize
      << ">\nfunc.func private @attention(%q: " << q
      << ", %cache: !cache, %batch: !prefill.batch) -> " << results
      << " attributes {prefill.kernel} {\n  " << values
      << " = prefill.attention %q, %cache, %batch {scale = " << std::scientific
      << scale << " : f64" << (causal ? ", causal" : "")
      << (base2 ? ", base2" : "");
  if (window)
    out << ", sliding_window = " << window << " : i64";
  out << moreAttributes;
  if (selectedRows)
    out << ", selected_rows";
  if (numSplits > 1)
    out << ", num_splits = " << numSplits;
  out << ", lowering_config = #prefill.lowering_config<"
      << (selectedRows ? "logits" : "tokens") << ", block_m = " << blockQ
      << ", block_n = 0, block_kv = " << blockKv
      << ", panel_n = 32, row_buckets = [1, 4, 8]>} : " << q << ", !cache -> "
      << o << "\n  return " << returned << " : " << o << "\n}\n";
  return out.str();
}

std::string AttentionProblem::pipeline() const {
  std::string passes;
  if (form != Form::Plain)
    passes += "func.func(prefill-convert-attention-to-online),";
  passes += "prefill-tile";
  if (form == Form::Specialized)
    passes += ",func.func(prefill-specialize-causal-blocks)";
  return passes + ",canonicalize,cse";
}

//===----------------------------------------------------------------------===//
// Data
//===----------------------------------------------------------------------===//

/// Value of channel `channel` of a token: the same in every call and chunk.
static double datum(unsigned seed, int kind, int64_t token, int64_t channel,
                    Dtype dtype) {
  uint64_t x = (seed * 4 + uint64_t(kind)) * 0x9e3779b97f4a7c15ull +
               uint64_t(token) * 0xbf58476d1ce4e5b9ull +
               uint64_t(channel) * 0x94d049bb133111ebull;
  for (int i = 0; i < 2; ++i) {
    x ^= x >> 31;
    x *= 0xd6e8feb86659fd93ull;
  }
  x ^= x >> 32;
  // Sum of two uniforms: a triangle on [-1, 1].
  float value = float(int64_t(x & 0xffffff) + int64_t((x >> 24) & 0xffffff)) /
                    16777216.0f -
                1.0f;
  if (kind == 2)
    value += 0.25f; // values with a mean, as real ones have
  return roundTo(dtype, value);
}
static double queryDatum(unsigned seed, int64_t position, int64_t channel,
                         Dtype dtype) {
  return datum(seed, 0, 1000 + position, channel, dtype);
}

AttentionBuffer::AttentionBuffer(int64_t count, Dtype dtype)
    : dtype(dtype), count(count), storage(count * bytesOf(dtype) + 256, 0xff) {
  offset = -reinterpret_cast<uintptr_t>(storage.data()) & 255;
}
void AttentionBuffer::set(int64_t i, double value) {
  Bits word = toBits(dtype, float(value));
  std::memcpy(at(i), &word, bytesOf(dtype));
}
Bits AttentionBuffer::bits(int64_t i) const {
  Bits word = 0;
  std::memcpy(&word, begin() + i * bytesOf(dtype), bytesOf(dtype));
  return word;
}
double AttentionBuffer::get(int64_t i) const {
  return fromBits(dtype, bits(i));
}

static uint64_t word(const void *pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}
static int64_t roundUp(int64_t size, int64_t unit) {
  return (size + unit - 1) / unit * unit;
}
static constexpr int64_t kGuard = 256; // elements around the output

AttentionBatch::AttentionBatch(const AttentionProblem &problem,
                               const std::vector<Sequence> &sequences,
                               int64_t paddedRows,
                               const std::vector<int32_t> &selection)
    : problem(problem) {
  Dtype dtype = problem.dtype;
  int64_t seqs = sequences.size();
  cuSeqlens.push_back(0);
  for (const Sequence &sequence : sequences) {
    cuSeqlens.push_back(int32_t(cuSeqlens.back() + sequence.seqlenQ));
    kvLens.push_back(int32_t(sequence.seqlenKv));
  }
  rowsPad = cuSeqlens.back() + paddedRows;
  outRows = problem.selectedRows ? int64_t(selection.size()) : cuSeqlens.back();
  outRowsPad = problem.selectedRows ? outRows : rowsPad;

  // The cache: blocks in shuffled order, a few of them unused.
  bool vnni = problem.layout == "paged_vnni";
  bool paged = problem.layout == "paged_nhd" || vnni;
  int64_t blockSize = problem.blockSize;
  int64_t longest = *std::max_element(kvLens.begin(), kvLens.end());
  int64_t stride = paged ? (longest + blockSize - 1) / blockSize + 1 : 1;
  EXPECT_TRUE(paged || longest <= blockSize);
  int64_t blocks = seqs * stride + 3;
  std::vector<int32_t> ids(blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  blockTable.assign(ids.begin(), ids.begin() + seqs * stride);
  int64_t pack = dtype == Dtype::BF16 ? 2 : 1;
  int64_t dim = vnni ? std::max(roundUp(problem.headDimQk, pack),
                                roundUp(problem.headDimV, 32))
                     : std::max(problem.headDimQk, problem.headDimV);
  int64_t perBlock = problem.kvHeads * blockSize * dim;
  int64_t tokenStride = problem.kvHeads * dim, headStride = dim;
  int64_t blockStride = perBlock;
  if (vnni)
    headStride = 32 * dim;
  if (problem.layout == "head_major") {
    tokenStride = dim;
    headStride = blockSize * dim;
  }
  if (paged)
    blockStride = 2 * perBlock;
  // Without block and head: element d of the token's key and value.
  auto keyElement = [&](int64_t t, int64_t d) {
    return vnni ? (d / pack * 32 + t) * pack + d % pack : t * tokenStride + d;
  };
  auto valueElement = [&](int64_t t, int64_t d) {
    return vnni ? d / 32 * 1024 + (t / pack * 32 + d % 32) * pack + t % pack
                : t * tokenStride + d;
  };
  cache = AttentionBuffer(2 * blocks * perBlock, dtype);
  int64_t valueBase = paged ? perBlock : blocks * perBlock;
  for (int64_t s = 0; s < seqs; ++s) {
    // Entries past a sequence's end are -1.
    if (paged)
      for (int64_t i = (kvLens[s] + blockSize - 1) / blockSize; i < stride; ++i)
        blockTable[s * stride + i] = -1;
    for (int64_t t = 0; t < kvLens[s]; ++t) {
      int64_t block = blockTable[s * stride + t / blockSize] * blockStride;
      int64_t inBlock = t % blockSize;
      unsigned seed = sequences[s].seed;
      for (int64_t h = 0; h < problem.kvHeads; ++h) {
        for (int64_t d = 0; d < problem.headDimQk; ++d)
          cache.set(block + h * headStride + keyElement(inBlock, d),
                    datum(seed, 1, t, h * problem.headDimQk + d, dtype));
        for (int64_t d = 0; d < problem.headDimV; ++d)
          cache.set(valueBase + block + h * headStride +
                        valueElement(inBlock, d),
                    datum(seed, 2, t, h * problem.headDimV + d, dtype));
        // A stored key is padded with zeros.
        if (vnni && problem.headDimQk % pack)
          cache.set(block + h * headStride +
                        keyElement(inBlock, problem.headDimQk),
                    0.0);
      }
    }
  }

  int64_t columnsQ = problem.heads() * problem.headDimQk;
  int64_t columnsOut = problem.heads() * problem.headDimV;
  query = AttentionBuffer(rowsPad * columnsQ, dtype);
  for (int64_t s = 0; s < seqs; ++s)
    for (int64_t i = 0; i < sequences[s].seqlenQ; ++i)
      for (int64_t c = 0; c < columnsQ; ++c)
        query.set((cuSeqlens[s] + i) * columnsQ + c,
                  queryDatum(sequences[s].seed,
                             sequences[s].seqlenKv - sequences[s].seqlenQ + i,
                             c, dtype));
  bool splits = problem.numSplits > 1;
  out =
      AttentionBuffer(outRowsPad * problem.numSplits * columnsOut + 2 * kGuard,
                      splits ? Dtype::F32 : dtype);

  tokens.assign(rowsPad, 0);
  positions.assign(rowsPad, 0);
  logitsIndices = selection;
  slots.assign(rowsPad, -1);
  words = {word(query.at(0)),          word(cache.at(0)),
           word(cache.at(valueBase)),  uint64_t(blockStride),
           uint64_t(tokenStride),      uint64_t(headStride),
           uint64_t(rowsPad),          uint64_t(seqs),
           logitsIndices.size(),       word(tokens.data()),
           word(positions.data()),     word(slots.data()),
           word(cuSeqlens.data()),     word(kvLens.data()),
           word(blockTable.data()),    uint64_t(stride),
           word(logitsIndices.data()), word(out.at(kGuard))};
  if (splits) {
    lse = AttentionBuffer(outRowsPad * problem.numSplits * problem.heads() +
                              2 * kGuard,
                          Dtype::F32);
    words.push_back(word(lse.at(kGuard)));
  }
  if (problem.form == Form::Plain) {
    int64_t maxKv = longest + 5;
    scores = AttentionBuffer(problem.heads() * rowsPad * maxKv, Dtype::F32);
    words.push_back(word(scores.at(0)));
    words.push_back(uint64_t(maxKv));
  }
  workgroups = ((rowsPad + problem.blockQ - 1) / problem.blockQ + seqs) *
               problem.kvHeads * problem.numSplits;
}

std::vector<AttentionBatch::Region> AttentionBatch::regions() {
  auto array = [](const char *name, auto &values) -> Region {
    return {name, values.data(), int64_t(values.size() * sizeof(values[0])),
            false};
  };
  std::vector<Region> all{{"query", query.at(0), query.numBytes(), false},
                          {"cache", cache.at(0), cache.numBytes(), false},
                          {"out", out.at(0), out.numBytes(), true},
                          array("tokens", tokens),
                          array("positions", positions),
                          array("slots", slots),
                          array("cu_seqlens", cuSeqlens),
                          array("kv_lens", kvLens),
                          array("block_table", blockTable),
                          array("logits_indices", logitsIndices)};
  if (lse.numBytes())
    all.push_back({"lse", lse.at(0), lse.numBytes(), true});
  if (scores.numBytes())
    all.push_back({"scores", scores.at(0), scores.numBytes(), true});
  // Padded rows may be none at all.
  std::erase_if(all, [](const Region &region) { return region.bytes == 0; });
  return all;
}

void AttentionBatch::expectUntouched(const AttentionBuffer &buffer,
                                     int64_t count, const char *name) {
  // Guards are filled as everything is at first.
  Bits untouched = buffer.bits(0);
  for (int64_t i = 0; i < buffer.numElements(); ++i) {
    bool belongs = i >= kGuard && i < kGuard + count;
    if (!belongs && buffer.bits(i) != untouched) {
      ADD_FAILURE() << "element " << i - kGuard << " of the " << name
                    << " belongs to no sequence, but changed";
      break;
    }
  }
}

AttentionResult AttentionBatch::result() const {
  if (problem.numSplits > 1)
    return splitResult();
  int64_t columns = problem.heads() * problem.headDimV;
  AttentionResult result;
  for (int64_t i = 0; i < outRows * columns; ++i) {
    result.values.push_back(out.get(kGuard + i));
    result.bits.push_back(out.bits(kGuard + i));
  }
  expectUntouched(out, outRows * columns, "output");
  return result;
}

/// What a split that sees no key left in the output is not looked at: it may be
/// NaN.
AttentionResult AttentionBatch::splitResult() const {
  int64_t heads = problem.heads(), splits = problem.numSplits;
  AttentionResult result;
  for (int64_t i = 0; i < outRows * splits * heads; ++i) {
    result.lse.push_back(lse.get(kGuard + i));
    result.bits.push_back(lse.bits(kGuard + i));
  }
  int64_t elements = outRows * splits * heads * problem.headDimV;
  for (int64_t i = 0; i < elements; ++i)
    result.bits.push_back(out.bits(kGuard + i));
  for (int64_t row = 0; row < outRows; ++row)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t d = 0; d < problem.headDimV; ++d) {
        double value = 0.0, sum = 0.0;
        for (int64_t split = 0; split < splits; ++split) {
          int64_t place = (row * splits + split) * heads + head;
          if (result.lse[place] == -INFINITY)
            continue;
          double weight = std::exp(result.lse[place]);
          value += weight * out.get(kGuard + place * problem.headDimV + d);
          sum += weight;
        }
        result.values.push_back(sum == 0.0 ? 0.0 : value / sum);
      }
  expectUntouched(out, elements, "output");
  expectUntouched(lse, outRows * splits * heads, "log-sum-exp");
  return result;
}

//===----------------------------------------------------------------------===//
// References
//===----------------------------------------------------------------------===//

namespace {
/// What the double loops make of a row's scores and values.
enum class Sum { Exact, Rounded, Magnitude, LogSumExp };
} // namespace

/// Log-sum-exps of each split, [splits], of a row's scores by key.
static std::vector<double>
logSumExps(const AttentionProblem &problem, int64_t seqlenKv,
           const std::vector<std::pair<int64_t, double>> &scores) {
  int64_t share = (seqlenKv + problem.numSplits - 1) / problem.numSplits;
  int64_t keys = (share + 127) / 128 * 128;
  std::vector<double> sums(problem.numSplits, 0.0);
  for (auto [key, score] : scores)
    sums[key / keys] += std::exp(score);
  for (double &sum : sums)
    sum = std::log(sum);
  return sums;
}

static std::vector<double>
attentionLoops(const AttentionProblem &problem,
               const std::vector<Sequence> &sequences, Sum kind) {
  std::vector<double> out;
  double scale = problem.scale * (problem.base2 ? std::log(2.0) : 1.0);
  for (const Sequence &sequence : sequences) {
    auto load = [&](int kind, int64_t tokens, int64_t columns) {
      std::vector<double> values(tokens * columns);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t c = 0; c < columns; ++c)
          values[t * columns + c] =
              datum(sequence.seed, kind, t, c, problem.dtype);
      return values;
    };
    int64_t keyColumns = problem.kvHeads * problem.headDimQk;
    int64_t valueColumns = problem.kvHeads * problem.headDimV;
    std::vector<double> keys = load(1, sequence.seqlenKv, keyColumns);
    std::vector<double> values = load(2, sequence.seqlenKv, valueColumns);
    for (int64_t i = 0; i < sequence.seqlenQ; ++i) {
      int64_t position = sequence.seqlenKv - sequence.seqlenQ + i;
      std::vector<std::vector<double>> ofHeads;
      for (int64_t h = 0; h < problem.heads(); ++h) {
        std::vector<double> query(problem.headDimQk);
        for (int64_t d = 0; d < problem.headDimQk; ++d)
          query[d] = queryDatum(sequence.seed, position,
                                h * problem.headDimQk + d, problem.dtype);
        int64_t kvHead = h / problem.group;
        std::vector<double> row(problem.headDimV, 0.0);
        std::vector<std::pair<int64_t, double>> scores;
        double largest = -INFINITY, sum = 0.0;
        for (int64_t t = 0; t < sequence.seqlenKv; ++t) {
          if (problem.causal && t > position)
            continue;
          if (problem.window && t <= position - problem.window)
            continue;
          double score = 0.0;
          for (int64_t d = 0; d < problem.headDimQk; ++d)
            score += query[d] *
                     keys[t * keyColumns + kvHead * problem.headDimQk + d];
          scores.push_back({t, score * scale});
          largest = std::max(largest, score * scale);
        }
        if (kind == Sum::LogSumExp) {
          ofHeads.push_back(logSumExps(problem, sequence.seqlenKv, scores));
          continue;
        }
        for (auto [t, score] : scores) {
          double p = std::exp(score - largest);
          sum += p;
          if (kind == Sum::Rounded)
            p = roundTo(problem.dtype, p);
          for (int64_t d = 0; d < problem.headDimV; ++d) {
            double v = values[t * valueColumns + kvHead * problem.headDimV + d];
            row[d] += p * (kind == Sum::Magnitude ? std::fabs(v) : v);
          }
        }
        for (double value : row) {
          value = scores.empty() ? 0.0 : value / sum;
          out.push_back(kind == Sum::Rounded ? roundTo(problem.dtype, value)
                                             : value);
        }
      }
      for (int64_t split = 0; split < problem.numSplits; ++split)
        for (const std::vector<double> &ofSplits : ofHeads)
          out.push_back(ofSplits[split]);
    }
  }
  return out;
}

std::vector<double> attentionReference(const AttentionProblem &problem,
                                       const std::vector<Sequence> &sequences) {
  return attentionLoops(problem, sequences, Sum::Exact);
}
std::vector<double>
roundedAttentionReference(const AttentionProblem &problem,
                          const std::vector<Sequence> &sequences) {
  return attentionLoops(problem, sequences, Sum::Rounded);
}
std::vector<double>
attentionMagnitudes(const AttentionProblem &problem,
                    const std::vector<Sequence> &sequences) {
  return attentionLoops(problem, sequences, Sum::Magnitude);
}

std::vector<double> splitLogSumExps(const AttentionProblem &problem,
                                    const std::vector<Sequence> &sequences) {
  return attentionLoops(problem, sequences, Sum::LogSumExp);
}

void expectEmptyRowsZero(const AttentionProblem &problem,
                         const std::vector<Sequence> &sequences,
                         const AttentionResult &result) {
  int64_t columns = problem.heads() * problem.headDimV;
  int64_t row = 0;
  for (const Sequence &sequence : sequences)
    for (int64_t i = 0; i < sequence.seqlenQ; ++i, ++row) {
      bool empty =
          sequence.seqlenKv == 0 ||
          (problem.causal && sequence.seqlenKv - sequence.seqlenQ + i < 0);
      for (int64_t c = 0; empty && c < columns; ++c) {
        double value = result.values[row * columns + c];
        ASSERT_TRUE(value == 0.0 && !std::signbit(value))
            << "row " << row << " sees no key, but is " << value;
      }
    }
}

double relativeError(const std::vector<double> &values,
                     const std::vector<double> &expected) {
  EXPECT_EQ(values.size(), expected.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(values[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / norm);
}

} // namespace prefill_test
