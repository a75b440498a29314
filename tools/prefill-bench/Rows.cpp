#include "Rows.h"

#include <algorithm>

using namespace prefill::bench;

namespace {

/// What prefill-opt takes when nobody asks for another.
constexpr const char *defaultLayout = "contiguous";
/// What attention reads fastest on a CPU: rows whose name has no layout.
constexpr const char *fastLayout = "paged_vnni";

/// As names of rows spell a layout.
std::string spelled(std::string layout) {
  std::replace(layout.begin(), layout.end(), ':', '_');
  return layout;
}

class Catalogue {
public:
  std::vector<Row> rows;

  void addGemms(const std::string &family, const ModelShape &shape,
                const std::string &dtype, int64_t m, const std::string &isa,
                bool onlyWhenNamed) {
    for (const Projection &projection : projections(shape)) {
      Row row;
      row.name = family + "/" + dtype + "/" + std::to_string(m) + "x" +
                 std::to_string(projection.n) + "x" +
                 std::to_string(projection.k);
      row.kind = RowKind::gemm;
      row.shape = &shape;
      row.dtype = dtype;
      row.isa = isa;
      row.layout = defaultLayout;
      row.tokens = m;
      row.projection = projection;
      row.onlyWhenNamed = onlyWhenNamed;
      row.peer = isa.empty();
      rows.push_back(row);
    }
  }

  void add(RowKind kind, const std::string &name, const ModelShape &shape,
           const std::string &dtype, int64_t tokens, bool onlyWhenNamed,
           const std::string &layout = defaultLayout) {
    Row row;
    row.name = name;
    row.kind = kind;
    row.shape = &shape;
    row.dtype = dtype;
    row.layout = layout;
    row.tokens = tokens;
    row.onlyWhenNamed = onlyWhenNamed;
    rows.push_back(row);
  }
};

void addGemms(Catalogue &catalogue) {
  for (const char *dtype : {"bf16", "f32"})
    for (const ModelShape *shape : {&llama32_1b, &llama3_8b}) {
      for (int64_t m : {512, 2048})
        catalogue.addGemms("gemm", *shape, dtype, m, "", false);
      for (int64_t m : {37, 130})
        catalogue.addGemms("gemm-small", *shape, dtype, m, "", false);
    }
  // Of int8 a run without a filter has one M.
  for (const ModelShape *shape : {&llama32_1b, &llama3_8b}) {
    for (int64_t m : {512, 2048})
      catalogue.addGemms("gemm", *shape, "int8", m, "", m > 512);
    for (int64_t m : {37, 130})
      catalogue.addGemms("gemm-small", *shape, "int8", m, "", true);
  }
  // Few rows, where the weight's way from memory is what takes the time.
  for (const char *dtype : {"bf16", "int8"})
    for (const ModelShape *shape : {&llama32_1b, &llama3_8b})
      for (int64_t m : {1, 2, 4, 8, 9, 16, 24})
        catalogue.addGemms("gemm-small", *shape, dtype, m, "", true);
  // Multiplied by the instructions of f32: panels of weights stay f16 in memory
  // and are widened in every step of K, activations once a tile. oneDNN's CPU
  // matmul has no f16.
  for (const ModelShape *shape : {&llama32_1b, &llama3_8b})
    for (int64_t m : {512, 2048})
      catalogue.addGemms("gemm", *shape, "f16", m, "", true);
  for (const char *isa : {"avx512", "avx2"})
    for (const ModelShape *shape : {&llama32_1b, &llama3_8b})
      for (int64_t m : {512, 2048})
        catalogue.addGemms(std::string("gemm-") + isa, *shape, "bf16", m, isa,
                           m > 512);
  // A model that loads in a moment; the tests of this tool run it.
  for (const char *dtype : {"bf16", "f32", "int8"})
    for (int64_t m : {37, 512})
      catalogue.addGemms("gemm-qwen2.5-0.5b", qwen25_05b, dtype, m, "", true);
}

void addAttention(Catalogue &catalogue) {
  for (const char *dtype : {"bf16", "f32"})
    for (const ModelShape *shape : {&llama32_1b, &llama3_8b})
      for (int64_t tokens : {2048, 8192}) {
        std::string name = std::string("attention/") + dtype + "/d" +
                           std::to_string(shape->headDim) + "/s" +
                           std::to_string(tokens);
        bool slow = tokens > 2048 && std::string(dtype) == "f32";
        catalogue.add(RowKind::attention, name, *shape, dtype, tokens, slow,
                      fastLayout);
        catalogue.add(RowKind::attention, name + "/" + defaultLayout, *shape,
                      dtype, tokens, tokens > 2048, defaultLayout);
        for (const char *layout : {"head_major", "paged_nhd:16"})
          catalogue.add(RowKind::attention, name + "/" + spelled(layout),
                        *shape, dtype, tokens, true, layout);
      }
}

/// A model that loads in a moment; the tests of this tool run it.
void addSmallAttention(Catalogue &catalogue) {
  for (const char *layout : {fastLayout, defaultLayout, "paged_nhd:16"})
    catalogue.add(RowKind::attention,
                  "attention-qwen2.5-0.5b/bf16/d64/s128" +
                      (layout == fastLayout ? "" : "/" + spelled(layout)),
                  qwen25_05b, "bf16", 128, true, layout);
}

void addModels(Catalogue &catalogue) {
  for (const std::string dtype : {"bf16", "int8"})
    for (const char *layout : {fastLayout, defaultLayout}) {
      std::string name = "llama-3.2-1b/" + dtype + "/s";
      bool fast = std::string(layout) == fastLayout;
      std::string suffix = fast ? "" : std::string("/") + layout;
      for (int64_t tokens : {128, 512, 1024, 2048, 4096, 8192, 16384})
        catalogue.add(
            RowKind::model, "model/" + name + std::to_string(tokens) + suffix,
            llama32_1b, dtype, tokens,
            tokens > 512 || !fast || (dtype == "int8" && tokens < 512), layout);
      for (int64_t tokens : {512, 2048, 4096, 8192})
        catalogue.add(RowKind::decode,
                      "decode/" + name + std::to_string(tokens) + suffix,
                      llama32_1b, dtype, tokens, tokens > 512 || !fast, layout);
    }
  for (int64_t tokens : {128, 512, 2048}) {
    std::string length = "/s" + std::to_string(tokens);
    catalogue.add(RowKind::model, "model/llama-3.2-1b/f32" + length, llama32_1b,
                  "f32", tokens, true, fastLayout);
    // fastLayout holds no f16.
    catalogue.add(RowKind::model,
                  "model/llama-3.2-1b/f16" + length + "/" + defaultLayout,
                  llama32_1b, "f16", tokens, true, defaultLayout);
    if (tokens >= 512) // 16 GB of packed weights, of int8 9 GB
      for (const std::string dtype : {"bf16", "int8"})
        catalogue.add(RowKind::model, "model/llama-3-8b/" + dtype + length,
                      llama3_8b, dtype, tokens, true, fastLayout);
  }
  for (const std::string dtype : {"bf16", "int8"}) {
    catalogue.add(RowKind::model, "model/qwen2.5-0.5b/" + dtype + "/s128",
                  qwen25_05b, dtype, 128, true, fastLayout);
    for (int64_t tokens : {32, 128})
      catalogue.add(RowKind::decode,
                    "decode/qwen2.5-0.5b/" + dtype + "/s" +
                        std::to_string(tokens),
                    qwen25_05b, dtype, tokens, true, fastLayout);
    for (const ModelShape *shape : {&llama32_1b, &qwen25_05b})
      catalogue.add(RowKind::startup,
                    std::string("startup/") + shape->name + "/" + dtype, *shape,
                    dtype, 1, true);
  }
}

} // namespace

double Row::flops() const {
  double m = double(tokens);
  if (kind == RowKind::gemm)
    return 2 * m * double(projection.n) * double(projection.k);
  // Both products over the causal half, the diagonal included.
  return 2 * double(shape->headDim) * double(shape->qHeads) * m * (m + 1);
}

std::string Row::group() const {
  const char *what = kind == RowKind::startup     ? "startup"
                     : kind == RowKind::gemm      ? "gemm"
                     : kind == RowKind::attention ? "attention"
                                                  : "model";
  // Attention is compared between layouts, so these take turns.
  return std::string(what) + "/" + shape->name + "/" + dtype +
         (kind == RowKind::attention ? "" : "/" + layout) +
         (isa.empty() ? "" : "/" + isa);
}

std::vector<Row> prefill::bench::allRows() {
  Catalogue catalogue;
  addGemms(catalogue);
  addAttention(catalogue);
  addSmallAttention(catalogue);
  addModels(catalogue);
  return std::move(catalogue.rows);
}

void prefill::bench::forceIsa(std::vector<Row> &rows, const std::string &isa) {
  auto usable = [&](const std::string &dtype) -> std::string {
    if (isa == "amx_bf16" && (dtype == "f32" || dtype == "f16"))
      return "avx512_bf16";
    if (isa == "avx_vnni" && dtype != "int8")
      return "avx2";
    if (isa == "avx512_vnni" && dtype != "int8")
      return "avx512";
    return isa;
  };
  for (Row &row : rows)
    if (row.isa.empty())
      row.isa = usable(row.dtype);
}

std::vector<Row>
prefill::bench::tunedRows(const std::string &section,
                          const std::vector<std::string> &shapes) {
  std::vector<Row> chosen;
  for (Row &row : allRows()) {
    bool small = row.shape == &llama32_1b;
    bool asked = shapes.empty() || std::find(shapes.begin(), shapes.end(),
                                             row.shape->name) != shapes.end();
    if (row.dtype != "bf16" || !row.isa.empty() ||
        row.layout != defaultLayout || !asked ||
        (!small && row.shape != &llama3_8b))
      continue;
    // All products of the smaller shape. Of the larger one that with the
    // longest K, where block_m matters most: about as much work as the others.
    bool gemm = row.kind == RowKind::gemm && row.tokens == 512 &&
                (small || row.projection.k == row.shape->intermediate);
    bool attention = row.kind == RowKind::attention && row.tokens == 2048;
    if (section == "gemm" ? gemm : attention)
      chosen.push_back(std::move(row));
  }
  return chosen;
}
