// The file of packed weights: what it depends on, what it survives.
#include "SafetensorsFile.h"
#include "TestModel.h"

#include "core/LoadedModule.h"
#include "core/ResidentWeights.h"
#include "core/WeightsCacheFile.h"
#include "core/WeightsCachePlaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>

using namespace prefill;
using namespace prefill::test;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;
namespace fs = std::filesystem;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> filesIn(const std::string &directory) {
  std::vector<std::string> names;
  for (const fs::directory_entry &entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class Environment {
public:
  Environment(const char *name, const std::string &value) : name(name) {
    if (const char *old = std::getenv(name))
      before = old;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before)
      ::setenv(name, before->c_str(), 1);
    else
      ::unsetenv(name);
  }

private:
  const char *name;
  std::optional<std::string> before;
};

// ---- The file by itself.

/// A module with weights smaller than a piece of the file, of a piece exactly,
/// and of pieces and a rest; its launches are gone.
class CacheFileTest : public testing::Test {
protected:
  CacheFileTest() {
    module::ModuleT table = makeTestModule();
    table.plans[0]->schedules[0]->launches.clear();
    table.plans[0]->weights.clear();
    int64_t index = 0;
    for (int64_t rows : {3, 700, 5, 512, 1600, 1}) {
      auto weight = std::make_unique<module::WeightT>();
      weight->name = "w" + std::to_string(index++);
      weight->shape = {rows, 1024}; // a row is 4 KiB
      weight->dtype = module::DType::f32;
      module::CheckpointSourceT source;
      source.name = weight->name;
      weight->source.Set(source);
      weight->resident = rows != 1;
      table.plans[0]->weights.push_back(std::move(weight));
    }
    std::vector<uint8_t> bytes = serialize(table);
    device = std::move(*rt::Device::create("cpu", 2));
    module = std::move(
        *rt::LoadedModule::loadMemory(*device, bytes.data(), bytes.size()));
    weights = std::move(
        *rt::ResidentWeights::load(*module, rt::RandomSource(5), nullptr));
    path = directory.path() + "/w";
  }

  std::string write() {
    auto written = rt::writeWeightsCache(
        path, module->plan(), key,
        [&](uint32_t weight) { return weights->data(weight); }, nullptr);
    return written ? "" : written.error().message;
  }
  /// What open says, or "used".
  std::string open() {
    auto file = rt::WeightsCacheFile::open(path, module->plan(), key);
    if (!file)
      return file.error().message;
    return *file ? "used" : "absent";
  }
  std::string verify() {
    auto file = rt::WeightsCacheFile::open(path, module->plan(), key);
    auto intact = (*file)->verify(module->plan(), device->threads(), nullptr);
    return intact ? "" : intact.error().message;
  }

  TemporaryDirectory directory;
  std::unique_ptr<rt::Device> device;
  std::unique_ptr<rt::LoadedModule> module;
  std::unique_ptr<rt::ResidentWeights> weights;
  rt::WeightsCacheKey key{{1, 2}, {3, 4}};
  std::string path;
};

TEST_F(CacheFileTest, GivesBackEveryByte) {
  EXPECT_EQ(open(), "absent");
  ASSERT_EQ(write(), "");
  auto file = rt::WeightsCacheFile::open(path, module->plan(), key);
  ASSERT_TRUE(file) << file.error().message;
  auto mapped =
      std::move(*rt::ResidentWeights::map(*module, std::move(**file), nullptr));
  EXPECT_EQ(mapped->bytes(), weights->bytes());
  EXPECT_EQ(mapped->damagedWeight(), -1);
  const module::Plan &table = module->plan();
  for (uint32_t i = 0; i < table.weights()->size(); ++i) {
    if (!table.weights()->Get(i)->resident()) {
      EXPECT_EQ(mapped->data(i), nullptr);
      continue;
    }
    EXPECT_EQ(reinterpret_cast<uintptr_t>(mapped->data(i)) % 64, 0u);
    size_t bytes = table.weights()->Get(i)->shape()->Get(0) * 4096;
    EXPECT_EQ(std::memcmp(mapped->data(i), weights->data(i), bytes), 0) << i;
  }
  EXPECT_EQ(filesIn(directory.path()), std::vector<std::string>{"w"});
}

TEST_F(CacheFileTest, LargeWeightsLieAtWholePieces) {
  rt::WeightsCacheLayout layout(module->plan());
  ASSERT_EQ(layout.places.size(), 5u);
  uint64_t end = sizeof(rt::WeightsCacheHeader), bytes = 0;
  for (const auto &place : layout.places) {
    EXPECT_GE(place.offset, end);
    EXPECT_EQ(place.offset % 64, 0u);
    if (place.bytes >= rt::weightsCachePiece) {
      EXPECT_EQ(place.offset % rt::weightsCachePiece, 0u);
    }
    end = place.offset + place.bytes;
    bytes += place.bytes;
  }
  EXPECT_GE(layout.fileBytes, end + 64); // a vector past the last element
  EXPECT_EQ(layout.tensorBytes, bytes);
  EXPECT_EQ(bytes, weights->bytes());
}

TEST_F(CacheFileTest, EveryTruncationIsNoticed) {
  ASSERT_EQ(write(), "");
  uint64_t full = fs::file_size(path);
  for (uint64_t size :
       {full + 1, full - 1, full - 4096, full / 2,
        sizeof(rt::WeightsCacheHeader) + 8, sizeof(rt::WeightsCacheHeader),
        sizeof(rt::WeightsCacheHeader) - 1, size_t(9), size_t(3), size_t(0)}) {
    ASSERT_EQ(write(), "");
    fs::resize_file(path, size);
    std::string why = open();
    EXPECT_THAT(why, StartsWith("'" + path + "' ")) << size;
    EXPECT_EQ(why.find('\n'), std::string::npos);
  }
  EXPECT_THAT(open(), EndsWith("is empty"));
}

TEST_F(CacheFileTest, EveryBitOfTheHeaderCounts) {
  ASSERT_EQ(write(), "");
  std::string good = readFile(path);
  size_t checksums = 5 * sizeof(uint64_t);
  for (size_t at = 0; at < sizeof(rt::WeightsCacheHeader) + checksums; ++at)
    for (int bit : {0, 7}) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put(static_cast<char>(good[at] ^ (1 << bit)));
      file.close();
      EXPECT_NE(open(), "used") << "byte " << at;
      file.open(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put(good[at]);
    }
  EXPECT_EQ(open(), "used");
}

TEST_F(CacheFileTest, VerifyNamesTheDamagedWeight) {
  ASSERT_EQ(write(), "");
  EXPECT_EQ(verify(), "");
  rt::WeightsCacheLayout layout(module->plan());
  for (const auto &place : layout.places)
    for (uint64_t at : {uint64_t(0), place.bytes / 2, place.bytes - 1}) {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(place.offset + at);
      char before = static_cast<char>(file.get());
      file.seekp(place.offset + at);
      file.put(static_cast<char>(before ^ 4));
      file.flush();
      EXPECT_EQ(open(), "used"); // the data are not looked at
      EXPECT_THAT(verify(),
                  EndsWith("the checksum of weight 'w" +
                           std::to_string(place.weight) + "' is wrong"));
      file.seekp(place.offset + at);
      file.put(before);
    }
  EXPECT_EQ(verify(), "");
}

TEST_F(CacheFileTest, BelongsToItsKey) {
  ASSERT_EQ(write(), "");
  rt::WeightsCacheKey right = key;
  key.program.high ^= 1;
  EXPECT_THAT(open(), HasSubstr("another weight program"));
  key = right;
  key.checkpoint.low ^= 1;
  EXPECT_THAT(open(), HasSubstr("the checkpoint has changed"));
  key = right;
  EXPECT_EQ(open(), "used");
}

TEST_F(CacheFileTest, WhatIsNoFileIsRefusedAndKept) {
  fs::create_directory(path);
  EXPECT_THAT(open(), HasSubstr("not a regular file"));
  EXPECT_THAT(write(), HasSubstr("it is not a regular file"));
  EXPECT_TRUE(fs::is_directory(path));
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(open(), HasSubstr("not a regular file"));
  EXPECT_THAT(write(), HasSubstr("it is not a regular file"));
  path = directory.path() + "/no/such";
  EXPECT_EQ(open(), "absent");
  EXPECT_THAT(write(), HasSubstr("No such file or directory"));
}

// A limit on file sizes stands for a full disk.
TEST_F(CacheFileTest, AFullDiskLeavesWhatWasThere) {
  ASSERT_EQ(write(), "");
  std::string before = readFile(path);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old, small;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  small = old;
  small.rlim_cur = 1 << 20;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string error = write();
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "cannot write '" + path + "': File too large");
  EXPECT_EQ(readFile(path), before);
  EXPECT_EQ(filesIn(directory.path()), std::vector<std::string>{"w"});
}

TEST_F(CacheFileTest, ALinkStaysALink) {
  fs::create_directory(directory.path() + "/elsewhere");
  std::string target = directory.path() + "/elsewhere/w";
  fs::create_symlink("elsewhere/w", path); // relative, and dangling at first
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(write(), "");
    EXPECT_TRUE(fs::is_symlink(path));
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(target)));
    EXPECT_EQ(open(), "used");
  }
  EXPECT_EQ(filesIn(directory.path() + "/elsewhere"),
            std::vector<std::string>{"w"});
}

TEST_F(CacheFileTest, WritersAndReadersDoNotDisturbEachOther) {
  std::atomic<bool> done{false};
  std::atomic<int> used{0};
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 3; ++writer)
    threads.emplace_back([&] {
      for (int i = 0; i < 4; ++i)
        EXPECT_EQ(write(), "");
    });
  std::thread reader([&] {
    while (!done) {
      std::string state = open();
      EXPECT_TRUE(state == "used" || state == "absent") << state;
      if (state == "used") {
        ++used;
        EXPECT_EQ(verify(), "");
      }
    }
  });
  for (std::thread &thread : threads)
    thread.join();
  while (used == 0)
    std::this_thread::yield();
  done = true;
  reader.join();
  EXPECT_EQ(filesIn(directory.path()), std::vector<std::string>{"w"});
}

TEST_F(CacheFileTest, AFileInUseMayBeReplaced) {
  ASSERT_EQ(write(), "");
  auto file = rt::WeightsCacheFile::open(path, module->plan(), key);
  ASSERT_TRUE(file && *file);
  const auto &place = (*file)->layout().places.back();
  ASSERT_EQ(write(), "");
  EXPECT_EQ(std::memcmp((*file)->data(place), weights->data(place.weight),
                        place.bytes),
            0);
}

// ---- The key.

rt::Hash128 programHash(const module::ModuleT &table) {
  std::vector<uint8_t> bytes = serialize(table);
  return rt::hashWeightProgram(
      *module::GetModule(bytes.data())->plans()->Get(0));
}

/// A weight of every source.
module::ModuleT everySource() {
  module::ModuleT table = makeTestModule();
  auto add = [&](auto source, std::vector<int64_t> shape) {
    auto weight = std::make_unique<module::WeightT>();
    weight->name = "w" + std::to_string(table.plans[0]->weights.size());
    weight->shape = std::move(shape);
    weight->source.Set(std::move(source));
    table.plans[0]->weights.push_back(std::move(weight));
  };
  module::ConcatSourceT concat;
  concat.inputs = {2, 3};
  add(concat, {4, 4});
  module::InterleaveSourceT interleave;
  interleave.inputs = {2, 3};
  interleave.granularity = 16;
  add(interleave, {4, 4});
  module::QuantizeSourceT quantize;
  quantize.input = 2;
  add(quantize, {4, 4});
  module::QuantizeScaleSourceT quantizeScale;
  quantizeScale.input = 2;
  add(quantizeScale, {4});
  module::RopeTableSourceT rope;
  rope.inv_freq = {0.5f, 0.25f};
  rope.max_position = 64;
  add(rope, {64, 4});
  return table;
}

TEST(WeightsCacheKey, SeesEverythingThatDecidesBytes) {
  rt::Hash128 original = programHash(everySource());
  EXPECT_EQ(programHash(everySource()), original);
  auto find = [](module::ModuleT &table, module::WeightSource type) {
    for (auto &weight : table.plans[0]->weights)
      if (weight->source.type == type)
        return weight.get();
    ADD_FAILURE() << "no weight of source " << int(type);
    return table.plans[0]->weights[0].get();
  };
  using Edit = std::function<void(module::ModuleT &)>;
  using module::WeightSource;
  const std::vector<std::pair<const char *, Edit>> edits = {
      {"name", [](auto &table) { table.plans[0]->weights[1]->name += "x"; }},
      {"shape", [](auto &table) { ++table.plans[0]->weights[1]->shape[0]; }},
      {"rank",
       [](auto &table) { table.plans[0]->weights[1]->shape.push_back(1); }},
      {"dtype",
       [](auto &table) {
         table.plans[0]->weights[0]->dtype = module::DType::bf16;
       }},
      {"resident",
       [](auto &table) {
         table.plans[0]->weights[0]->resident =
             !table.plans[0]->weights[0]->resident;
       }},
      {"one less", [](auto &table) { table.plans[0]->weights.pop_back(); }},
      {"order",
       [](auto &table) {
         std::swap(table.plans[0]->weights[0], table.plans[0]->weights[1]);
       }},
      {"checkpoint name",
       [&](auto &table) {
         find(table, WeightSource::CheckpointSource)
             ->source.AsCheckpointSource()
             ->name += "x";
       }},
      {"concat order",
       [&](auto &table) {
         find(table, WeightSource::ConcatSource)
             ->source.AsConcatSource()
             ->inputs = {3, 2};
       }},
      {"interleave granularity",
       [&](auto &table) {
         find(table, WeightSource::InterleaveSource)
             ->source.AsInterleaveSource()
             ->granularity = 32;
       }},
      {"scaled input",
       [&](auto &table) {
         ++find(table, WeightSource::ScaleColumnsSource)
               ->source.AsScaleColumnsSource()
               ->input;
       }},
      {"gain",
       [&](auto &table) {
         ++find(table, WeightSource::ScaleColumnsSource)
               ->source.AsScaleColumnsSource()
               ->gain;
       }},
      {"panel_n",
       [&](auto &table) {
         ++find(table, WeightSource::PackSource)
               ->source.AsPackSource()
               ->panel_n;
       }},
      {"k_pack",
       [&](auto &table) {
         ++find(table, WeightSource::PackSource)->source.AsPackSource()->k_pack;
       }},
      {"group_n",
       [&](auto &table) {
         ++find(table, WeightSource::PackSource)
               ->source.AsPackSource()
               ->group_n;
       }},
      {"pack input",
       [&](auto &table) {
         ++find(table, WeightSource::PackSource)->source.AsPackSource()->input;
       }},
      {"quantized input",
       [&](auto &table) {
         ++find(table, WeightSource::QuantizeSource)
               ->source.AsQuantizeSource()
               ->input;
       }},
      {"input of scales",
       [&](auto &table) {
         ++find(table, WeightSource::QuantizeScaleSource)
               ->source.AsQuantizeScaleSource()
               ->input;
       }},
      {"frequencies",
       [&](auto &table) {
         table.plans[0]
             ->weights.back()
             ->source.AsRopeTableSource()
             ->inv_freq[1] = 0.125f;
       }},
      {"positions",
       [&](auto &table) {
         ++table.plans[0]
               ->weights.back()
               ->source.AsRopeTableSource()
               ->max_position;
       }},
      {"source",
       [&](auto &table) {
         module::ConcatSourceT concat;
         concat.inputs = {2, 3};
         find(table, WeightSource::InterleaveSource)->source.Set(concat);
       }},
  };
  for (const auto &[what, edit] : edits) {
    module::ModuleT table = everySource();
    edit(table);
    EXPECT_FALSE(programHash(table) == original) << what;
  }
  // Recompiling the kernels alone keeps the file.
  module::ModuleT table = everySource();
  table.plans[0]->schedules[0]->launches.pop_back();
  table.producer = "another";
  table.plans[0]->code[0]->object.push_back(0);
  table.plans[0]->schedules[0]->row_buckets = {1, 2};
  EXPECT_EQ(programHash(table), original);
}

TEST(WeightsCacheKey, SeesEveryChangeOfTheCheckpoint) {
  TemporaryDirectory directory;
  std::string path = directory.path() + "/model.safetensors";
  auto hash = [](const std::string &where) {
    auto checkpoint = rt::Checkpoint::open(where);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    auto hash = rt::hashCheckpoint(where, *checkpoint);
    EXPECT_TRUE(hash) << hash.error().message;
    return *hash;
  };
  auto rewrite = [&](const std::string &content, fs::file_time_type time) {
    directory.write("model.safetensors", content);
    fs::last_write_time(path, time);
  };
  // Larger than what is sampled.
  std::string data(3 << 20, 'a');
  std::string header = tensorHeader(
      "t", "U8", "[" + std::to_string(data.size()) + "]", 0, data.size());
  directory.write("model.safetensors", safetensorsFile(header, data));
  fs::file_time_type time = fs::last_write_time(path);
  rt::Hash128 original = hash(directory.path());
  EXPECT_EQ(hash(directory.path()), original);

  fs::last_write_time(path, time + std::chrono::nanoseconds(1));
  EXPECT_FALSE(hash(directory.path()) == original) << "time";
  // All below with the time set back.
  rewrite(safetensorsFile(tensorHeader("u", "U8",
                                       "[" + std::to_string(data.size()) + "]",
                                       0, data.size()),
                          data),
          time);
  EXPECT_FALSE(hash(directory.path()) == original) << "header";
  rewrite(safetensorsFile(header, std::string(data.size(), 'b')), time);
  EXPECT_FALSE(hash(directory.path()) == original) << "data";
  for (size_t at : {size_t(0), data.size() - 1}) { // the first and last block
    std::string edited = data;
    edited[at] = 'b';
    rewrite(safetensorsFile(header, edited), time);
    EXPECT_FALSE(hash(directory.path()) == original) << "byte " << at;
  }
  std::string longer = data + "a";
  rewrite(safetensorsFile(
              tensorHeader("t", "U8", "[" + std::to_string(longer.size()) + "]",
                           0, longer.size()),
              longer),
          time);
  EXPECT_FALSE(hash(directory.path()) == original) << "size";

  // The same files in another place are the same checkpoint.
  rewrite(safetensorsFile(header, data), time);
  EXPECT_EQ(hash(directory.path()), original);
  TemporaryDirectory other;
  fs::copy_file(path, other.path() + "/model.safetensors");
  fs::last_write_time(other.path() + "/model.safetensors", time);
  EXPECT_EQ(hash(other.path()), original);
  // One shard of another name is another checkpoint.
  fs::rename(other.path() + "/model.safetensors",
             other.path() + "/a.safetensors");
  other.write("model.safetensors.index.json",
              R"({"weight_map":{"t":"a.safetensors"}})");
  EXPECT_FALSE(hash(other.path()) == original) << "file name";
}

TEST(WeightsCachePlaces, BesideTheModuleThenTheUsersDirectory) {
  TemporaryDirectory directory;
  std::string module = directory.write("m.pfm", "x");
  fs::create_symlink(module, directory.path() + "/link.pfm");
  {
    Environment cache("XDG_CACHE_HOME", "/cache");
    std::vector<std::string> places = rt::weightsCachePlaces(module);
    ASSERT_EQ(places.size(), 2u);
    EXPECT_EQ(places[0], fs::canonical(module).string() + ".weights");
    EXPECT_THAT(places[1], StartsWith("/cache/prefill/m.pfm-"));
    EXPECT_THAT(places[1], EndsWith(".weights"));
    EXPECT_EQ(rt::weightsCachePlaces(directory.path() + "/link.pfm"), places);
    directory.write("n.pfm", "x");
    EXPECT_NE(rt::weightsCachePlaces(directory.path() + "/n.pfm")[1],
              places[1]);
  }
  {
    Environment cache("XDG_CACHE_HOME", "relative"), home("HOME", "/home/u");
    EXPECT_THAT(rt::weightsCachePlaces(module)[1],
                StartsWith("/home/u/.cache/prefill/m.pfm-"));
  }
  {
    Environment cache("XDG_CACHE_HOME", ""), home("HOME", "");
    EXPECT_EQ(rt::weightsCachePlaces(module).size(), 1u);
  }
}

// ---- From outside.

class CachedRun : public testing::Test {
protected:
  CachedRun() {
    checkpoint.write("config.json", checkpointConfig());
    checkpoint.write("model.safetensors", checkpointFile(7));
    std::vector<uint8_t> bytes = serialize(makeTestModule());
    module = directory.write("model.pfm", {bytes.begin(), bytes.end()});
    cache = module + ".weights";
  }

  /// Standard error of a run that succeeds; its logits are the seed's.
  std::string run(const std::string &options = "",
                  const std::string &before = "", uint64_t seed = 7) {
    auto [code, err] = execute(options, before);
    EXPECT_EQ(code, 0) << err;
    std::vector<float> expected = referenceLogits({1, 2, 3}, seed);
    std::string logits = readFile(directory.path() + "/l.npy");
    for (int64_t i = 0; i < testVocab; ++i) {
      float value;
      std::memcpy(&value, logits.data() + logits.size() - 4 * (testVocab - i),
                  4);
      EXPECT_NEAR(value, expected[2 * testVocab + i], 1e-5);
    }
    if (lastLogits.empty())
      lastLogits = logits;
    if (seed == 7) {
      EXPECT_EQ(logits, lastLogits) << "not the same bits";
    }
    return err;
  }
  std::pair<int, std::string> execute(const std::string &options,
                                      const std::string &before = "") {
    std::string err = directory.path() + "/err";
    std::string command = before + PREFILL_BIN_DIR "/prefill-run " + module +
                          " --weights " + checkpoint.path() +
                          " --tokens 1,2,3 --stats=json --logits-out " +
                          directory.path() + "/l.npy " + options + " >" +
                          directory.path() + "/out 2>" + err;
    int status = std::system(command.c_str());
    return {WEXITSTATUS(status), readFile(err)};
  }
  /// Whether the last run took its weights from the file.
  bool used() const {
    return readFile(directory.path() + "/out")
               .find("\"weights_cache\": \"\"") == std::string::npos;
  }

  TemporaryDirectory directory, checkpoint;
  std::string module, cache, lastLogits;
};

TEST_F(CachedRun, SecondStartMapsWhatTheFirstWrote) {
  EXPECT_EQ(run(), "");
  EXPECT_FALSE(used());
  ASSERT_TRUE(fs::exists(cache));
  fs::file_time_type time = fs::last_write_time(cache);
  for (const char *options : {"", "--verify-weights-cache", "--threads 3"}) {
    EXPECT_EQ(run(options), "");
    EXPECT_TRUE(used()) << options;
  }
  EXPECT_EQ(fs::last_write_time(cache), time) << "it was written again";
}

TEST_F(CachedRun, NothingIsKeptWhenNobodyWantsIt) {
  for (const char *options : {"--weights-cache off", "--weights-cache=OFF",
                              "--poison", "--poison --weights-cache=off"}) {
    EXPECT_EQ(run(options), "");
    EXPECT_FALSE(fs::exists(cache)) << options;
  }
  EXPECT_FALSE(fs::exists("OFF"));
  EXPECT_EQ(run(), "");
  EXPECT_EQ(run("--poison"), "");
  EXPECT_FALSE(used());
}

TEST_F(CachedRun, ANewCheckpointIsPackedAnew) {
  EXPECT_EQ(run(), "");
  checkpoint.write("model.safetensors", checkpointFile(8));
  std::string warning = run("", "", 8);
  EXPECT_THAT(warning, StartsWith("warning: '" + cache +
                                  "' was made from another checkpoint"));
  EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1);
  EXPECT_FALSE(used());
  EXPECT_EQ(run("", "", 8), "");
  EXPECT_TRUE(used());
}

TEST_F(CachedRun, WhatIsDamagedIsReplaced) {
  EXPECT_EQ(run(), "");
  std::string good = readFile(cache);
  std::string flipped = good, header = good;
  flipped[good.size() - 8192] ^= 1; // in a weight: only verifying sees it
  header[40] ^= 1;
  for (const auto &[content, options] :
       {std::pair<std::string, std::string>{good.substr(0, 5000), ""},
        {header, ""},
        {"something else", ""},
        {"", ""},
        {flipped, "--verify-weights-cache"}}) {
    directory.write("model.pfm.weights", content);
    std::string warning = run(options);
    EXPECT_THAT(warning, StartsWith("warning: '" + cache + "' "));
    EXPECT_THAT(warning, EndsWith(": packing the weights again\n"));
    EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1);
    EXPECT_FALSE(used());
    EXPECT_EQ(readFile(cache), good);
  }
}

TEST_F(CachedRun, ANamedFile) {
  std::string named = directory.path() + "/named";
  EXPECT_EQ(run("--weights-cache " + named), "");
  EXPECT_FALSE(fs::exists(cache));
  EXPECT_EQ(run("--weights-cache=" + named), "");
  EXPECT_TRUE(used());
  // A slip of the hand must not cost a checkpoint.
  std::string victim = checkpoint.path() + "/model.safetensors";
  std::string before = readFile(victim);
  auto [code, err] = execute("--weights-cache " + victim);
  EXPECT_EQ(code, 1);
  EXPECT_EQ(err, "error: '" + victim +
                     "' is not a file of packed weights, expected one, or a "
                     "name that is free\n");
  EXPECT_EQ(readFile(victim), before);
}

TEST_F(CachedRun, ADefaultPlaceThatCannotBeWrittenIsAWarning) {
  fs::create_directory(directory.path() + "/home");
  std::string home = "XDG_CACHE_HOME=" + directory.path() + "/home ";
  // Beside the module nothing can be put: the user's directory takes it.
  fs::create_directory(cache);
  EXPECT_THAT(run("", home), HasSubstr("is not a regular file"));
  EXPECT_EQ(filesIn(directory.path() + "/home/prefill").size(), 1u);
  run("", home);
  EXPECT_TRUE(used());
}

TEST_F(CachedRun, ANamedPlaceThatCannotBeWrittenIsAnError) {
  for (const auto &[place, reason] :
       {std::pair<std::string, std::string>{
            "/no/such", "cannot make a file in directory '" + directory.path() +
                            "/no': No such file or directory"},
        {"/model.pfm/x", "Not a directory"},
        {"", "it is not a regular file, expected one or a new name"}}) {
    auto [code, err] = execute("--weights-cache " + directory.path() + place);
    EXPECT_EQ(code, 1) << place;
    EXPECT_THAT(err, AllOf(StartsWith("error: --weights-cache is '" +
                                      directory.path() + place + "': "),
                           HasSubstr(reason)));
  }
}

TEST_F(CachedRun, RefusesWhatMakesNoSense) {
  auto error = [&](const std::string &options) {
    auto [code, err] = execute(options);
    EXPECT_EQ(code, 1) << options;
    EXPECT_EQ(std::count(err.begin(), err.end(), '\n'), 1) << err;
    return err;
  };
  EXPECT_THAT(error("--weights-cache="), HasSubstr("--weights-cache is ''"));
  EXPECT_THAT(error("--weights-cache off --verify-weights-cache"),
              HasSubstr("--weights-cache off"));
  EXPECT_THAT(error("--poison --verify-weights-cache"), HasSubstr("--poison"));
  EXPECT_THAT(error("--weights-cache " + module),
              HasSubstr("the module '" + module + "' and --weights-cache"));
  EXPECT_THAT(error("--weights-cache x --profile x"),
              HasSubstr("name the same file"));
}

TEST_F(CachedRun, OfAModuleFromMemoryNeedsAName) {
  TestRun run;
  prefill_weights *weights = nullptr;
  EXPECT_EQ(prefill_weights_load_cached(run.module, checkpoint.path().c_str(),
                                        nullptr, 0, nullptr, nullptr, &weights),
            PREFILL_INVALID_ARGUMENT);
  EXPECT_THAT(prefill_last_error(), HasSubstr("loaded from memory"));
  std::string file = directory.path() + "/w";
  for (int used : {0, 1}) {
    ASSERT_EQ(prefill_weights_load_cached(run.module, checkpoint.path().c_str(),
                                          file.c_str(), 1, nullptr, nullptr,
                                          &weights),
              PREFILL_OK)
        << prefill_last_error();
    prefill_weights_cache state;
    ASSERT_EQ(prefill_weights_get_cache(weights, &state), PREFILL_OK);
    EXPECT_EQ(state.used, used);
    EXPECT_STREQ(state.file, used ? file.c_str() : "");
    EXPECT_STREQ(state.rejected, "");
    EXPECT_EQ(prefill_weights_write_cache(weights, nullptr, nullptr),
              PREFILL_OK);
    prefill_weights_destroy(weights);
  }
  EXPECT_EQ(prefill_weights_write_cache(run.weights, nullptr, nullptr),
            PREFILL_INVALID_ARGUMENT);
}

} // namespace
