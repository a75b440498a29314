#include "TileList.h"
#include "prefill/checkpoint/JsonFile.h"
#include "prefill/checkpoint/Quote.h"

#include <algorithm>
#include <limits>
#include <tuple>

using namespace prefill::bench;
using prefill::rt::Error;
using prefill::rt::ErrorCode;
using prefill::rt::quote;

namespace {

TunedOp parseOp(const nlohmann::json &json, size_t numRows) {
  TunedOp op;
  op.isGemm = json.at("section") == "gemm";
  op.launch = json.at("name");
  op.dtype = json.at("dtype");
  if (op.isGemm) {
    op.n = json.at("n");
    op.k = json.at("k");
  } else {
    op.group = json.at("group");
    op.headDim = json.at("head_dim");
  }
  op.oneSecond = json.at(op.isGemm ? "one_block_n" : "one_block_kv");
  auto tileOf = [&](const nlohmann::json &tile) {
    return Tile{tile.at(op.isGemm ? "block_m" : "block_q"),
                tile.at(op.isGemm ? "block_n" : "block_kv")};
  };
  for (const nlohmann::json &tile : json.at("table"))
    op.table.push_back(tileOf(tile));

  struct Estimate {
    Tile tile;
    std::vector<double> times;
    double score;
  };
  std::vector<Estimate> estimates;
  std::vector<double> least(numRows, std::numeric_limits<double>::max());
  for (const nlohmann::json &tile : json.at("tiles")) {
    estimates.push_back({tileOf(tile), tile.at("times"), 0});
    for (size_t i = 0; i < numRows; ++i)
      least[i] = std::min(least[i], estimates.back().times.at(i));
  }
  for (Estimate &estimate : estimates) {
    estimate.score = std::numeric_limits<double>::max();
    for (size_t i = 0; i < numRows; ++i)
      estimate.score = std::min(estimate.score, estimate.times[i] / least[i]);
  }
  std::sort(estimates.begin(), estimates.end(),
            [](const Estimate &a, const Estimate &b) {
              return std::tie(a.score, b.tile) < std::tie(b.score, a.tile);
            });
  for (const Estimate &estimate : estimates)
    op.tiles.push_back(estimate.tile);
  return op;
}

} // namespace

std::string Tile::name() const {
  return std::to_string(first) + "x" + std::to_string(second);
}

std::string TunedOp::className(int64_t rows) const {
  if (isGemm)
    return "gemm/" + dtype + "/" + std::to_string(rows) + "x" +
           std::to_string(n) + "x" + std::to_string(k);
  return "attention/" + dtype + "/g" + std::to_string(group) + "/d" +
         std::to_string(headDim) + "/s" + std::to_string(rows);
}

bool TunedOp::sameOp(const TunedOp &other) const {
  return isGemm == other.isGemm && dtype == other.dtype && n == other.n &&
         k == other.k && group == other.group && headDim == other.headDim;
}

Result<TileList> prefill::bench::readTileList(const std::string &path) {
  Result<nlohmann::json> json = rt::readJsonFile(path);
  if (!json)
    return json.takeError();
  try {
    TileList list;
    list.rows = json->at("rows").get<std::vector<int64_t>>();
    for (const nlohmann::json &op : json->at("ops"))
      list.ops.push_back(parseOp(op, list.rows.size()));
    return list;
  } catch (const std::exception &error) {
    return Error{ErrorCode::io, quote(path) +
                                    " is no list of tiles, expected what "
                                    "prefill-opt --list-tiles writes: " +
                                    error.what()};
  }
}
