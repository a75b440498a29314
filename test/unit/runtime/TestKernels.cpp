// Hand-written kernels of a tiny decoder, built into a shared object and
// embedded in test modules: the runtime is tested without the compiler. They
// follow the kernel ABI of module.fbs to the letter and are as plain as can be.
#include <cmath>
#include <cstdint>

#define KERNEL extern "C" __attribute__((visibility("default"))) void

namespace {

// Fixed by TestModel.h.
constexpr int64_t hidden = 32, qHeads = 4, kvHeads = 2, headDim = 8;
constexpr int64_t rowBlock = 4;

struct Batch {
  int64_t rowsPad, numSeqs, logitRowsPad;
  const int32_t *tokens, *positions;
  const int64_t *slotMapping;
  const int32_t *cuSeqlens, *kvLens, *blockTable;
  int64_t blockTableStride;
  const int32_t *logitsIndices;

  explicit Batch(const uint64_t *w)
      : rowsPad(w[0]), numSeqs(w[1]), logitRowsPad(w[2]),
        tokens(reinterpret_cast<const int32_t *>(w[3])),
        positions(reinterpret_cast<const int32_t *>(w[4])),
        slotMapping(reinterpret_cast<const int64_t *>(w[5])),
        cuSeqlens(reinterpret_cast<const int32_t *>(w[6])),
        kvLens(reinterpret_cast<const int32_t *>(w[7])),
        blockTable(reinterpret_cast<const int32_t *>(w[8])),
        blockTableStride(w[9]),
        logitsIndices(reinterpret_cast<const int32_t *>(w[10])) {}
};

struct Cache {
  float *k, *v;
  int64_t blockStride, tokenStride, headStride;

  explicit Cache(const uint64_t *w)
      : k(reinterpret_cast<float *>(w[0])), v(reinterpret_cast<float *>(w[1])),
        blockStride(w[2]), tokenStride(w[3]), headStride(w[4]) {}
  int64_t at(int64_t block, int64_t offset, int64_t head) const {
    return block * blockStride + offset * tokenStride + head * headStride;
  }
};

float *pointer(uint64_t word) { return reinterpret_cast<float *>(word); }

/// Rows [first, last) of workgroup wg, padded ones included.
struct Rows {
  int64_t first, last;
  Rows(int64_t wg, int64_t rowsPad)
      : first(wg * rowBlock),
        last(first + rowBlock < rowsPad ? first + rowBlock : rowsPad) {}
};

/// One query row and head: softmax(q k^T / sqrt(d)) v over the visible keys,
/// with the scores in `scores`.
void attendRow(const float *query, int64_t head, const int32_t *blocks,
               int64_t visible, int64_t blockSize, const Cache &cache,
               float *scores, float *out) {
  int64_t kvHead = head / (qHeads / kvHeads);
  float max = -INFINITY, sum = 0;
  for (int64_t t = 0; t < visible; ++t) {
    const float *key =
        cache.k + cache.at(blocks[t / blockSize], t % blockSize, kvHead);
    float dot = 0;
    for (int64_t d = 0; d < headDim; ++d)
      dot += query[d] * key[d];
    scores[t] = dot / std::sqrt(float(headDim));
    max = scores[t] > max ? scores[t] : max;
  }
  for (int64_t d = 0; d < headDim; ++d)
    out[d] = 0;
  for (int64_t t = 0; t < visible; ++t) {
    const float *value =
        cache.v + cache.at(blocks[t / blockSize], t % blockSize, kvHead);
    float p = std::exp(scores[t] - max);
    sum += p;
    for (int64_t d = 0; d < headDim; ++d)
      out[d] += p * value[d];
  }
  for (int64_t d = 0; d < headDim; ++d)
    out[d] /= sum;
}

/// Workgroups are (tile of rowBlock query rows of one sequence, head); tiles
/// past the last sequence's end have nothing to do.
template <typename Body>
void forEachQuery(const Batch &batch, int64_t begin, int64_t end, Body body) {
  for (int64_t wg = begin; wg < end; ++wg) {
    int64_t tile = wg / qHeads, head = wg % qHeads;
    for (int64_t s = 0; s < batch.numSeqs; ++s) {
      int64_t queries = batch.cuSeqlens[s + 1] - batch.cuSeqlens[s];
      int64_t tiles = (queries + rowBlock - 1) / rowBlock;
      if (tile >= tiles) {
        tile -= tiles;
        continue;
      }
      for (int64_t i = tile * rowBlock;
           i < queries && i < (tile + 1) * rowBlock; ++i)
        body(s, head, batch.cuSeqlens[s] + i,
             batch.kvLens[s] - queries + i + 1);
      break;
    }
  }
}

} // namespace

// [batch, embedding, hidden]
KERNEL tk_embed(const uint64_t *args, int64_t begin, int64_t end, void *) {
  Batch batch(args);
  const float *table = pointer(args[11]);
  float *out = pointer(args[12]);
  for (int64_t wg = begin; wg < end; ++wg)
    for (Rows rows(wg, batch.rowsPad); rows.first < rows.last; ++rows.first)
      for (int64_t i = 0; i < hidden; ++i)
        out[rows.first * hidden + i] =
            table[batch.tokens[rows.first] * hidden + i];
}

// [batch, hidden, rope table [max_seq, 2], kv_cache]. Key: the first kvHeads *
// headDim features times the cosine of the position, plus its sine; value: the
// next ones.
template <int64_t blockSize>
static void append(const uint64_t *args, int64_t begin, int64_t end) {
  Batch batch(args);
  const float *in = pointer(args[11]), *rope = pointer(args[12]);
  Cache cache(args + 13);
  for (int64_t wg = begin; wg < end; ++wg)
    for (Rows rows(wg, batch.rowsPad); rows.first < rows.last; ++rows.first) {
      int64_t slot = batch.slotMapping[rows.first];
      if (slot < 0)
        continue;
      const float *row = in + rows.first * hidden;
      const float *angles = rope + batch.positions[rows.first] * 2;
      for (int64_t h = 0; h < kvHeads; ++h)
        for (int64_t d = 0; d < headDim; ++d) {
          int64_t at = cache.at(slot / blockSize, slot % blockSize, h) + d;
          cache.k[at] = row[h * headDim + d] * angles[0] + angles[1];
          cache.v[at] = row[(kvHeads + h) * headDim + d];
        }
    }
}
KERNEL tk_append_64(const uint64_t *args, int64_t begin, int64_t end, void *) {
  append<64>(args, begin, end);
}
KERNEL tk_append_4(const uint64_t *args, int64_t begin, int64_t end, void *) {
  append<4>(args, begin, end);
}

// [batch, query, kv_cache, out]; scratch: f32 [max_seq]
template <int64_t blockSize>
static void attention(const uint64_t *args, int64_t begin, int64_t end,
                      void *scratch) {
  Batch batch(args);
  const float *query = pointer(args[11]);
  Cache cache(args + 12);
  float *out = pointer(args[17]);
  forEachQuery(batch, begin, end,
               [&](int64_t s, int64_t head, int64_t row, int64_t visible) {
                 int64_t at = row * hidden + head * headDim;
                 attendRow(query + at, head,
                           batch.blockTable + s * batch.blockTableStride,
                           visible, blockSize, cache,
                           static_cast<float *>(scratch), out + at);
               });
}
KERNEL tk_attention_64(const uint64_t *args, int64_t begin, int64_t end,
                       void *scratch) {
  attention<64>(args, begin, end, scratch);
}
KERNEL tk_attention_4(const uint64_t *args, int64_t begin, int64_t end,
                      void *scratch) {
  attention<4>(args, begin, end, scratch);
}

// [batch, query, kv_cache, out, score]: the scores live in the score matrix.
KERNEL tk_attention_unfused(const uint64_t *args, int64_t begin, int64_t end,
                            void *) {
  Batch batch(args);
  const float *query = pointer(args[11]);
  Cache cache(args + 12);
  float *out = pointer(args[17]), *score = pointer(args[18]);
  int64_t maxKV = static_cast<int64_t>(args[19]);
  forEachQuery(batch, begin, end,
               [&](int64_t s, int64_t head, int64_t row, int64_t visible) {
                 int64_t at = row * hidden + head * headDim;
                 attendRow(query + at, head,
                           batch.blockTable + s * batch.blockTableStride,
                           visible, 64, cache,
                           score + (head * batch.rowsPad + row) * maxKV,
                           out + at);
               });
}

// [batch, in, weight packed [hidden / 8][hidden / 2][8][2], residual and out]
KERNEL tk_linear(const uint64_t *args, int64_t begin, int64_t end, void *) {
  Batch batch(args);
  const float *in = pointer(args[11]), *packed = pointer(args[12]);
  float *out = pointer(args[13]);
  for (int64_t wg = begin; wg < end; ++wg)
    for (Rows rows(wg, batch.rowsPad); rows.first < rows.last; ++rows.first)
      for (int64_t n = 0; n < hidden; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < hidden; ++k)
          sum +=
              in[rows.first * hidden + k] *
              packed[((n / 8 * (hidden / 2) + k / 2) * 8 + n % 8) * 2 + k % 2];
        out[rows.first * hidden + n] += sum;
      }
}

// [batch, hidden, embedding, logits]; vocabulary of 13
KERNEL tk_logits(const uint64_t *args, int64_t begin, int64_t end, void *) {
  constexpr int64_t vocab = 13;
  Batch batch(args);
  const float *in = pointer(args[11]), *table = pointer(args[12]);
  float *out = pointer(args[13]);
  for (int64_t wg = begin; wg < end; ++wg)
    for (Rows rows(wg, batch.logitRowsPad); rows.first < rows.last;
         ++rows.first)
      for (int64_t n = 0; n < vocab; ++n) {
        const float *row = in + batch.logitsIndices[rows.first] * hidden;
        float sum = 0;
        for (int64_t k = 0; k < hidden; ++k)
          sum += row[k] * table[n * hidden + k];
        out[rows.first * vocab + n] = sum;
      }
}

// ---- Kernels that misbehave, in the place of tk_linear.

KERNEL tk_linear_past_buffer(const uint64_t *args, int64_t begin, int64_t end,
                             void *scratch) {
  tk_linear(args, begin, end, scratch);
  pointer(args[13])[Batch(args).rowsPad * hidden] = 1;
}
KERNEL tk_linear_before_buffer(const uint64_t *args, int64_t begin, int64_t end,
                               void *scratch) {
  tk_linear(args, begin, end, scratch);
  pointer(args[13])[-1] = 1;
}
KERNEL tk_linear_past_scratch(const uint64_t *args, int64_t begin, int64_t end,
                              void *scratch) {
  tk_linear(args, begin, end, scratch);
  static_cast<float *>(scratch)[64] = 1; // scratch_bytes 256
}
KERNEL tk_linear_past_weight(const uint64_t *args, int64_t begin, int64_t end,
                             void *scratch) {
  tk_linear(args, begin, end, scratch);
  pointer(args[12])[hidden * hidden] = 1;
}
// Mixes all rows: what a padded row holds reaches the others.
KERNEL tk_linear_reads_padding(const uint64_t *args, int64_t begin, int64_t end,
                               void *scratch) {
  tk_linear(args, begin, end, scratch);
  Batch batch(args);
  pointer(args[13])[0] += 0 * pointer(args[11])[(batch.rowsPad - 1) * hidden];
}
