#include "AttentionCase.h"
#include "gtest/gtest.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <sstream>

namespace prefill_test {

std::string AttentionConfig::describe() const {
  std::ostringstream out;
  out << isa->name.str() << (bf16 ? " bf16 " : " f32 ") << layout << ":"
      << blockSize << " kv_heads " << kvHeads << " group " << group
      << " head_dim " << headDimQk << "/" << headDimV
      << (causal ? " causal" : "") << " window " << window << " scale " << scale
      << (base2 ? " base2" : "") << " tile " << blockQ << "x" << blockKv
      << " form " << int(form);
  return out.str();
}

std::string AttentionConfig::source() const {
  std::string dtype = bf16 ? "bf16" : "f32";
  std::ostringstream out;
  auto tensor = [&](int64_t columns) {
    return "tensor<?x" + std::to_string(columns) + "x" + dtype + ">";
  };
  std::string q = tensor(heads() * headDimQk), o = tensor(heads() * headDimV);
  out.precision(17);
  out << "!cache = !prefill.kv_cache<" << layout
      << ", num_kv_heads = " << kvHeads << ", head_dim_qk = " << headDimQk
      << ", head_dim_v = " << headDimV << ", dtype = " << dtype
      << ", block_size = " << blockSize
      << ">\nfunc.func private @attention(%q: " << q
      << ", %cache: !cache, %batch: !prefill.batch) -> " << o
      << " attributes {prefill.kernel} {\n  %o = prefill.attention %q, %cache, "
         "%batch {scale = "
      << std::scientific << scale << " : f64" << (causal ? ", causal" : "")
      << (base2 ? ", base2" : "");
  if (window)
    out << ", sliding_window = " << window << " : i64";
  out << ", lowering_config = #prefill.lowering_config<tokens, block_m = "
      << blockQ << ", block_n = 0, block_kv = " << blockKv
      << ", panel_n = 32, row_buckets = [1, 4, 8]>} : " << q << ", !cache -> "
      << o << "\n  return %o : " << o << "\n}\n";
  return out.str();
}

static std::string pipeline(Form form) {
  std::string passes;
  if (form != Form::Plain)
    passes += "func.func(prefill-convert-attention-to-online),";
  passes += "prefill-tile";
  if (form == Form::Specialized)
    passes += ",func.func(prefill-specialize-causal-blocks)";
  return passes + ",canonicalize,cse";
}

AttentionCase::AttentionCase(const AttentionConfig &config) : config(config) {
  static std::map<std::string, std::shared_ptr<CompiledKernels>> compiled;
  auto &slot = compiled[config.describe()];
  if (!slot)
    slot = CompiledKernels::compile(config.source(), pipeline(config.form),
                                    *config.isa);
  kernels = slot;
}

static float fromBf16(uint16_t bits) {
  uint32_t word = uint32_t(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}
static uint16_t toBf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return uint16_t((word + 0x7fff + ((word >> 16) & 1)) >> 16);
}

/// Value of channel `channel` of a token: the same in every call and chunk.
static float datum(unsigned seed, int kind, int64_t token, int64_t channel,
                   bool bf16) {
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
  return bf16 ? fromBf16(toBf16(value)) : value;
}

namespace {
/// A buffer of f32 or bf16, filled with NaN.
class Buffer {
public:
  Buffer(int64_t count, bool bf16) : bf16(bf16) {
    bytes.assign(count * (bf16 ? 2 : 4), 0xff);
  }
  void set(int64_t i, float value) {
    uint16_t half = toBf16(value);
    std::memcpy(&bytes[i * size()], bf16 ? (void *)&half : (void *)&value,
                size());
  }
  Bits bits(int64_t i) const {
    Bits word = 0;
    std::memcpy(&word, &bytes[i * size()], size());
    return word;
  }
  float get(int64_t i) const {
    if (bf16)
      return fromBf16(uint16_t(bits(i)));
    Bits word = bits(i);
    float value;
    std::memcpy(&value, &word, 4);
    return value;
  }
  size_t size() const { return bf16 ? 2 : 4; }
  void *at(int64_t i) { return bytes.data() + i * size(); }
  bool bf16;
  std::vector<unsigned char> bytes;
};

uint64_t word(const void *pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}
} // namespace

AttentionResult AttentionCase::run(const std::vector<Sequence> &sequences,
                                   int64_t paddedRows) {
  int64_t seqs = sequences.size();
  std::vector<int32_t> cuSeqlens{0}, kvLens;
  for (const Sequence &sequence : sequences) {
    cuSeqlens.push_back(cuSeqlens.back() + sequence.seqlenQ);
    kvLens.push_back(sequence.seqlenKv);
  }
  int64_t rows = cuSeqlens.back(), rowsPad = rows + paddedRows;

  // The cache: blocks in shuffled order, a few of them unused.
  bool vnni = config.layout == "paged_vnni";
  bool paged = config.layout == "paged_nhd" || vnni;
  int64_t longest = *std::max_element(kvLens.begin(), kvLens.end());
  int64_t stride =
      paged ? (longest + config.blockSize - 1) / config.blockSize + 1 : 1;
  EXPECT_TRUE(paged || longest <= config.blockSize);
  int64_t blocks = seqs * stride + 3;
  std::vector<int32_t> ids(blocks);
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
  std::vector<int32_t> blockTable(ids.begin(), ids.begin() + seqs * stride);
  auto roundUp = [](int64_t size, int64_t unit) {
    return (size + unit - 1) / unit * unit;
  };
  int64_t pack = config.bf16 ? 2 : 1;
  int64_t dim = vnni ? std::max(roundUp(config.headDimQk, pack),
                                roundUp(config.headDimV, 32))
                     : std::max(config.headDimQk, config.headDimV);
  int64_t perBlock = config.kvHeads * config.blockSize * dim;
  int64_t tokenStride = config.kvHeads * dim, headStride = dim;
  int64_t blockStride = perBlock;
  if (vnni)
    headStride = 32 * dim;
  if (config.layout == "head_major") {
    tokenStride = dim;
    headStride = config.blockSize * dim;
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
  Buffer cache(2 * blocks * perBlock, config.bf16);
  int64_t valueBase = paged ? perBlock : blocks * perBlock;
  for (int64_t s = 0; s < seqs; ++s)
    for (int64_t t = 0; t < kvLens[s]; ++t) {
      int64_t block =
          blockTable[s * stride + t / config.blockSize] * blockStride;
      int64_t inBlock = t % config.blockSize;
      unsigned seed = sequences[s].seed;
      for (int64_t h = 0; h < config.kvHeads; ++h) {
        for (int64_t d = 0; d < config.headDimQk; ++d)
          cache.set(block + h * headStride + keyElement(inBlock, d),
                    datum(seed, 1, t, h * config.headDimQk + d, config.bf16));
        for (int64_t d = 0; d < config.headDimV; ++d)
          cache.set(valueBase + block + h * headStride +
                        valueElement(inBlock, d),
                    datum(seed, 2, t, h * config.headDimV + d, config.bf16));
        // A stored key is padded with zeros.
        if (vnni && config.headDimQk % pack)
          cache.set(block + h * headStride +
                        keyElement(inBlock, config.headDimQk),
                    0.0f);
      }
    }

  int64_t columnsQ = config.heads() * config.headDimQk;
  int64_t columnsOut = config.heads() * config.headDimV;
  Buffer query(rowsPad * columnsQ, config.bf16);
  for (int64_t s = 0; s < seqs; ++s)
    for (int64_t i = 0; i < sequences[s].seqlenQ; ++i)
      for (int64_t c = 0; c < columnsQ; ++c)
        query.set((cuSeqlens[s] + i) * columnsQ + c,
                  datum(sequences[s].seed, 0,
                        1000 + sequences[s].seqlenKv - sequences[s].seqlenQ + i,
                        c, config.bf16));
  constexpr int64_t kGuard = 256; // elements behind and before the output
  Buffer out(rowsPad * columnsOut + 2 * kGuard, config.bf16);

  std::vector<int32_t> tokens(rowsPad, 0), positions(rowsPad, 0), indices(1, 0);
  std::vector<int64_t> slots(rowsPad, -1);
  int64_t maxKv = longest + 5;
  std::vector<float> scores(
      config.form == Form::Plain ? config.heads() * rowsPad * maxKv : 0,
      std::numeric_limits<float>::quiet_NaN());
  std::vector<uint64_t> args{
      word(query.at(0)),      word(cache.at(0)),      word(cache.at(valueBase)),
      uint64_t(blockStride),  uint64_t(tokenStride),  uint64_t(headStride),
      uint64_t(rowsPad),      uint64_t(seqs),         1,
      word(tokens.data()),    word(positions.data()), word(slots.data()),
      word(cuSeqlens.data()), word(kvLens.data()),    word(blockTable.data()),
      uint64_t(stride),       word(indices.data()),   word(out.at(kGuard))};
  if (config.form == Form::Plain) {
    args.push_back(word(scores.data()));
    args.push_back(uint64_t(maxKv));
  }

  int64_t workgroups =
      ((rowsPad + config.blockQ - 1) / config.blockQ + seqs) * config.kvHeads;
  // Dirty scratch with a guard behind it, workgroups one by one from the last.
  constexpr size_t kScratchGuard = 4096;
  std::vector<unsigned char> scratch(
      kernels->scratchBytes() + 64 + kScratchGuard, 0xff);
  unsigned char *aligned = scratch.data();
  while (reinterpret_cast<uintptr_t>(aligned) % 64)
    ++aligned;
  KernelEntry entry = kernels->entry("attention");
  EXPECT_TRUE(entry);
  for (int64_t wg = workgroups; wg-- > 0;)
    entry(args.data(), wg, wg + 1, aligned);
  for (size_t i = 0; i < kScratchGuard; ++i)
    EXPECT_EQ(aligned[kernels->scratchBytes() + i], 0xff)
        << "written behind the scratch at " << i;

  AttentionResult result;
  for (int64_t i = 0; i < rows * columnsOut; ++i) {
    result.values.push_back(out.get(kGuard + i));
    result.bits.push_back(out.bits(kGuard + i));
  }
  Buffer untouched(1, config.bf16);
  auto belongs = [&](int64_t i) {
    return i >= kGuard && i < kGuard + rows * columnsOut;
  };
  for (int64_t i = 0; i < rowsPad * columnsOut + 2 * kGuard; ++i)
    if (!belongs(i) && out.bits(i) != untouched.bits(0)) {
      ADD_FAILURE() << "element " << i - kGuard
                    << " of the output belongs to no sequence, but changed";
      break;
    }
  return result;
}

std::vector<double>
AttentionCase::reference(const std::vector<Sequence> &sequences) const {
  std::vector<double> out;
  double scale = config.scale * (config.base2 ? std::log(2.0) : 1.0);
  for (const Sequence &sequence : sequences) {
    auto load = [&](int kind, int64_t tokens, int64_t columns) {
      std::vector<double> values(tokens * columns);
      for (int64_t t = 0; t < tokens; ++t)
        for (int64_t c = 0; c < columns; ++c)
          values[t * columns + c] =
              datum(sequence.seed, kind, t, c, config.bf16);
      return values;
    };
    int64_t keyColumns = config.kvHeads * config.headDimQk;
    int64_t valueColumns = config.kvHeads * config.headDimV;
    std::vector<double> keys = load(1, sequence.seqlenKv, keyColumns);
    std::vector<double> values = load(2, sequence.seqlenKv, valueColumns);
    for (int64_t i = 0; i < sequence.seqlenQ; ++i) {
      int64_t position = sequence.seqlenKv - sequence.seqlenQ + i;
      for (int64_t h = 0; h < config.heads(); ++h) {
        std::vector<double> query(config.headDimQk);
        for (int64_t d = 0; d < config.headDimQk; ++d)
          query[d] = datum(sequence.seed, 0, 1000 + position,
                           h * config.headDimQk + d, config.bf16);
        int64_t kvHead = h / config.group;
        std::vector<double> row(config.headDimV, 0.0);
        std::vector<std::pair<int64_t, double>> scores;
        double largest = -INFINITY, sum = 0.0;
        for (int64_t t = 0; t < sequence.seqlenKv; ++t) {
          if (config.causal && t > position)
            continue;
          if (config.window && t <= position - config.window)
            continue;
          double score = 0.0;
          for (int64_t d = 0; d < config.headDimQk; ++d)
            score +=
                query[d] * keys[t * keyColumns + kvHead * config.headDimQk + d];
          scores.push_back({t, score * scale});
          largest = std::max(largest, score * scale);
        }
        for (auto [t, score] : scores) {
          double p = std::exp(score - largest);
          sum += p;
          for (int64_t d = 0; d < config.headDimV; ++d)
            row[d] +=
                p * values[t * valueColumns + kvHead * config.headDimV + d];
        }
        for (double value : row)
          out.push_back(scores.empty() ? 0.0 : value / sum);
      }
    }
  }
  return out;
}

void AttentionCase::check(const std::vector<Sequence> &sequences,
                          int64_t paddedRows) {
  ASSERT_TRUE(ok()) << config.describe();
  std::string trace = config.describe();
  for (const Sequence &sequence : sequences)
    trace += " [" + std::to_string(sequence.seqlenQ) + " of " +
             std::to_string(sequence.seqlenKv) + "]";
  SCOPED_TRACE(trace);
  AttentionResult result = run(sequences, paddedRows);
  std::vector<double> expected = reference(sequences);
  ASSERT_EQ(result.values.size(), expected.size());
  double difference = 0.0, norm = 0.0;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(result.values[i])) << "element " << i;
    difference += std::pow(result.values[i] - expected[i], 2);
    norm += expected[i] * expected[i];
  }
  int64_t columns = config.heads() * config.headDimV;
  int64_t row = 0;
  for (const Sequence &sequence : sequences)
    for (int64_t i = 0; i < sequence.seqlenQ; ++i, ++row)
      if (sequence.seqlenKv - sequence.seqlenQ + i < 0 && config.causal)
        for (int64_t c = 0; c < columns; ++c)
          ASSERT_EQ(result.bits[row * columns + c], 0u)
              << "row " << row << " sees no key";
  // bf16: the output is rounded (half an ulp is 2^-9, on average less), and so
  // are the probabilities.
  double tolerance = config.bf16 ? 4e-3 : 1e-6;
  if (norm == 0.0)
    ASSERT_EQ(difference, 0.0);
  else
    ASSERT_LE(std::sqrt(difference / norm), tolerance);
}

} // namespace prefill_test
