// Whole calls through the backend `cuda`: Session, KV cache and weights on the
// recording driver, whose "GPU" runs the kernels of TestKernels.cpp. The logits
// are those of the CPU, bit for bit.
#include "CudaModule.h"
#include "StubBlas.h"
#include "StubDriver.h"
#include "core/Device.h"
#include "core/Session.h"
#include "core/TensorSource.h"
#include "cuda/CudaBackend.h"

#include <gmock/gmock.h>

#include <map>
#include <sstream>

using namespace prefill;
using namespace prefill::rt;
using namespace prefill::test;
using testing::HasSubstr;

namespace {

constexpr const char *withKernels = "kernels=" PREFILL_TEST_KERNELS;

struct Running {
  std::unique_ptr<Device> device;
  std::unique_ptr<LoadedModule> module;
  std::unique_ptr<ResidentWeights> weights;
  std::unique_ptr<KVCache> cache;
  std::unique_ptr<Session> session;
  std::string error; ///< of the step that failed

  /// On the stub, or on the CPU.
  Running(const module::ModuleT &file, bool onStub, int64_t sequences = 1) {
    std::vector<uint8_t> bytes = serialize(file);
    take(device, onStub ? Device::create(1, Topology::ofThisMachine(),
                                         [](ThreadPool &) {
                                           return cuda::CudaBackend::create(
                                               "cuda",
                                               {PREFILL_CUDA_STUB_LIBRARY,
                                                {PREFILL_CUBLASLT_STUB_LIBRARY},
                                                ""});
                                         })
                        : Device::create("cpu:avx2", 1));
    if (device)
      take(module,
           LoadedModule::loadMemory(*device, bytes.data(), bytes.size()));
    if (module)
      take(weights, ResidentWeights::load(*module, RandomSource(7), nullptr));
    if (weights)
      take(cache, KVCache::create(*module, sequences, 0));
    if (cache)
      take(session, Session::create(*module, *weights, *cache));
  }

  /// Empty, with `error`, when the call failed.
  std::vector<float> call(const std::vector<std::vector<int32_t>> &prompts,
                          bool allLogits = false) {
    std::vector<int32_t> tokens, cuSeqlens = {0}, sequences;
    for (const std::vector<int32_t> &prompt : prompts) {
      tokens.insert(tokens.end(), prompt.begin(), prompt.end());
      sequences.push_back(static_cast<int32_t>(sequences.size()));
      cuSeqlens.push_back(static_cast<int32_t>(tokens.size()));
    }
    std::vector<float> logits((allLogits ? tokens.size() : prompts.size()) *
                              testVocab);
    Result<void> ok = session->run(
        tokens.data(), cuSeqlens.data(), sequences.data(),
        static_cast<int64_t>(prompts.size()), allLogits, logits.data());
    if (ok)
      return logits;
    error = ok.error().message;
    return {};
  }

private:
  template <typename T>
  void take(std::unique_ptr<T> &target, Result<std::unique_ptr<T>> result) {
    if (result)
      target = std::move(*result);
    else
      error = result.error().message;
  }
};

std::vector<int32_t> prompt(int count, int step = 5) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < count; ++i)
    tokens.push_back(i * step % int32_t(testVocab));
  return tokens;
}

/// The last launch is called a plain product, though its kernel also selects
/// rows: with a row for every token that is the same.
module::ModuleT makeProductModule() {
  module::ModuleT file = makeCudaModule();
  module::ScheduleT &schedule = *file.plans.front()->schedules.front();
  auto product = std::make_unique<module::MatrixProductT>();
  product->input = 1;
  product->weight = 2;
  product->output = 3;
  schedule.launches.back()->product = std::move(product);
  schedule.buffers[0]->domain = module::RowDomain::logits;
  schedule.buffers[2]->row_offset = schedule.buffers[0]->row_bytes;
  return file;
}

/// A prompt in two chunks and three decoded tokens: buckets 16, 4 and 1.
std::string runEverything(Running &run) {
  for (const std::vector<int32_t> &tokens :
       {prompt(11), prompt(3), prompt(1), prompt(1), prompt(1)})
    if (!run.session || run.call({tokens}).empty())
      return run.error;
  return "";
}

} // namespace

class CudaSession : public testing::TestWithParam<module::KVLayout> {};

TEST_P(CudaSession, ComputesWhatTheCpuComputes) {
  StubDriver stub(withKernels);
  TestModelOptions options;
  options.layout = GetParam();
  options.shortRows = 6;
  Running gpu(makeCudaModule(options), true, 2);
  Running cpu(makeTestModule(options), false, 2);
  ASSERT_TRUE(gpu.session && cpu.session) << gpu.error << cpu.error;
  // Prefill of two lengths, a chunk, decoding of both, one row of logits and
  // all of them.
  const std::vector<std::vector<std::vector<int32_t>>> calls = {
      {prompt(11), prompt(3)}, {prompt(2), prompt(17)}, {prompt(1), prompt(1)},
      {prompt(1), prompt(1)},  {prompt(1), prompt(1)},  {prompt(1), prompt(5)}};
  for (bool allLogits : {false, true})
    for (const auto &call : calls) {
      std::vector<float> logits = gpu.call(call, allLogits);
      ASSERT_EQ(logits, cpu.call(call, allLogits)) << gpu.error;
    }
  std::vector<float> keys(gpu.cache->length(0) * testKVHeads * testHeadDim),
      same = keys, values = keys, sameValues = keys;
  ASSERT_TRUE(gpu.cache->read(1, 0, keys.data(), values.data()));
  ASSERT_TRUE(cpu.cache->read(1, 0, same.data(), sameValues.data()));
  EXPECT_EQ(keys, same);
  EXPECT_EQ(values, sameValues);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaSession,
                         testing::Values(module::KVLayout::contiguous,
                                         module::KVLayout::head_major,
                                         module::KVLayout::paged_nhd));

TEST(CudaSession, TheFourClassesAreCounted) {
  StubDriver stub(withKernels);
  Running gpu(makeCudaModule(), true), cpu(makeTestModule(), false);
  ASSERT_TRUE(gpu.session && cpu.session) << gpu.error;
  gpu.call({prompt(11)});
  cpu.call({prompt(11)});
  for (MemoryClass memory : {MemoryClass::weights, MemoryClass::activationPeak,
                             MemoryClass::kvCache})
    EXPECT_EQ(gpu.session->memory(memory), cpu.session->memory(memory));
  EXPECT_GT(gpu.session->memory(MemoryClass::temporaries), 0u);
}

// Packing for a device is told as it goes, to the last byte on the device.
TEST(CudaSession, StagingOfWeightsReportsItsProgress) {
  StubDriver stub(withKernels);
  Running gpu(makeCudaModule(), true);
  ASSERT_TRUE(gpu.session) << gpu.error;
  std::vector<uint64_t> reported;
  uint64_t total = 0, before = stub.count("cuMemcpyHtoDAsync");
  auto progress = [&](const char *phase, uint64_t done, uint64_t all) {
    EXPECT_STREQ(phase, "pack");
    EXPECT_TRUE(total == 0 || total == all);
    EXPECT_TRUE(reported.empty() || reported.back() <= done);
    reported.push_back(done);
    total = all;
    if (done == all) {
      EXPECT_GT(stub.count("cuMemcpyHtoDAsync"), before);
    }
  };
  ASSERT_TRUE(ResidentWeights::load(*gpu.module, RandomSource(8), progress));
  ASSERT_GE(reported.size(), 2u);
  EXPECT_EQ(reported.front(), 0u);
  EXPECT_EQ(reported.back(), total);
  EXPECT_EQ(total, gpu.weights->bytes());
}

TEST(CudaSession, BucketsThatComeAgainAreGraphs) {
  StubDriver stub(withKernels);
  Running gpu(makeCudaModule(), true);
  ASSERT_TRUE(gpu.session) << gpu.error;
  size_t launches = gpu.module->plan().schedules()->Get(0)->launches()->size();
  gpu.call({prompt(11)});
  EXPECT_EQ(stub.count("cuGraphLaunch"), 0u);
  EXPECT_EQ(stub.count("cuLaunchKernelEx"), launches);
  // An event before the first and after each: they are timed.
  ASSERT_EQ(gpu.session->launchTimes().size(), launches);
  EXPECT_EQ(gpu.session->launchTimes()[2].startNs, 2000000u);
  EXPECT_EQ(gpu.session->launchTimes()[2].durationNs, 1000000u);
  for (int i = 0; i < 4; ++i)
    gpu.call({prompt(1)});
  EXPECT_EQ(stub.count("cuGraphInstantiateWithFlags"), 1u);
  EXPECT_EQ(stub.count("cuGraphLaunch"), 3u);
  gpu.call({prompt(9)}); // the bucket of 11
  EXPECT_EQ(stub.count("cuGraphInstantiateWithFlags"), 2u);
  EXPECT_TRUE(gpu.session->launchTimes().empty());
  EXPECT_TRUE(gpu.session->ranUntimed());
  gpu.session->setTiming(true);
  gpu.call({prompt(9)});
  ASSERT_EQ(gpu.session->launchTimes().size(), launches);
  EXPECT_EQ(gpu.session->launchTimes()[2].durationNs, 1000000u);
}

TEST(CudaSession, NoCallOfTheDriverLeavesAnythingBehindWhenItFails) {
  module::ModuleT file = makeCudaModule();
  std::map<std::string, uint64_t> counts;
  {
    StubDriver stub(withKernels);
    Running gpu(file, true);
    EXPECT_EQ(runEverything(gpu), "");
    gpu.session.reset(); // so that the count has what it takes to clean up
    std::istringstream lines(stub.calls());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("cu"))
        ++counts[line.substr(0, line.find(' '))];
    counts["execute"] = counts["cuLaunchKernelEx"];
  }
  EXPECT_GT(counts["cuMemAllocAsync"], 5u);
  // What is called while cleaning up, or whose failure something else makes up
  // for.
  const std::vector<std::string> mayPass = {
      "cuMemFreeAsync",     "cuStreamDestroy",
      "cuModuleUnload",     "cuMemGetInfo",
      "cuGraphExecDestroy", "cuGraphDestroy",
      "cuGraphExecUpdate",  "cuEventDestroy",
      "cuMemFreeHost",      "cuDevicePrimaryCtxRelease",
      "cuFuncGetParamInfo", "cuStreamSynchronize"};
  for (const auto &[name, count] : counts)
    for (uint64_t call = 1; call <= count; call += 1 + call / 8) {
      StubDriver stub(std::string(withKernels) + ";fail=" + name + ":" +
                      std::to_string(call));
      std::string error;
      {
        Running gpu(file, true);
        error = gpu.session ? runEverything(gpu) : gpu.error;
      }
      if (std::find(mayPass.begin(), mayPass.end(), name) == mayPass.end()) {
        EXPECT_NE(error, "") << name << ":" << call;
      }
      EXPECT_EQ(error.find('\n'), std::string::npos);
      ASSERT_EQ(stub.report(), "") << name << ":" << call << ": " << error;
    }
}

TEST(CudaSession, OutOfMemoryNamesTheClass) {
  StubDriver stub(std::string(withKernels) + ";memory=20000");
  Running gpu(makeCudaModule(), true);
  EXPECT_FALSE(gpu.session);
  EXPECT_THAT(gpu.error, HasSubstr("out of memory: class kv_cache: "));
  EXPECT_THAT(gpu.error, HasSubstr("are free"));
}

TEST(CudaSession, AFailingKernelIsNamedInPoisonMode) {
  {
    StubDriver stub(std::string(withKernels) + ";fail=execute:3");
    Running gpu(makeCudaModule(), true);
    ASSERT_TRUE(gpu.session) << gpu.error;
    EXPECT_TRUE(gpu.call({prompt(3)}).empty());
    EXPECT_THAT(gpu.error,
                HasSubstr("one of 8 launches (tk_embed, tk_append_64, "
                          "tk_attention_64, tk_linear, tk_logits; poison mode "
                          "tells which): CUDA_ERROR_ILLEGAL_ADDRESS"));
  }
  StubDriver stub(std::string(withKernels) + ";fail=execute:3");
  Running gpu(makeCudaModule(), true);
  ASSERT_TRUE(gpu.session) << gpu.error;
  gpu.session->setPoison(true);
  EXPECT_TRUE(gpu.call({prompt(3)}).empty());
  EXPECT_THAT(gpu.error, HasSubstr("kernel 'tk_attention_64', grid "));
  EXPECT_THAT(gpu.error,
              HasSubstr(", block 128, 65536 bytes of shared memory, arguments "
                        "[4, 1, 1, 0x"));
  EXPECT_THAT(gpu.error, HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"));
}

TEST(CudaSession, PoisonModeFindsWhoWritesOutside) {
  StubDriver stub(withKernels);
  TestModelOptions options;
  options.linearKernel = "tk_linear_past_buffer";
  Running gpu(makeCudaModule(options), true);
  ASSERT_TRUE(gpu.session) << gpu.error;
  gpu.session->setPoison(true);
  EXPECT_TRUE(gpu.call({prompt(3)}).empty());
  EXPECT_THAT(gpu.error, HasSubstr("kernel 'tk_linear_past_buffer'"));
  EXPECT_THAT(gpu.error, HasSubstr("wrote behind buffer 'hidden'"));
}

TEST(CudaSession, PoisonModeComputesTheSame) {
  StubDriver stub(withKernels);
  Running gpu(makeCudaModule(), true), cpu(makeTestModule(), false);
  ASSERT_TRUE(gpu.session && cpu.session) << gpu.error;
  gpu.session->setPoison(true);
  for (int count : {5, 1, 1, 16})
    EXPECT_EQ(gpu.call({prompt(count)}), cpu.call({prompt(count)}));
}

TEST(CudaSession, SchedulesShareNoGraph) {
  StubDriver stub(withKernels);
  TestModelOptions options; // both schedules pad these calls to 16 rows
  options.shortRows = 9;
  module::ModuleT file = makeCudaModule(options);
  for (auto &schedule : file.plans[0]->schedules)
    schedule->row_buckets = {16};
  Running gpu(file, true);
  ASSERT_TRUE(gpu.session) << gpu.error;
  for (int count : {9, 10, 9, 10, 9, 10})
    ASSERT_FALSE(gpu.call({prompt(count)}).empty()) << gpu.error;
  EXPECT_EQ(stub.count("cuGraphInstantiateWithFlags"), 2u);
}

TEST(CudaSession, PlainProductsAreCuBlasLts) {
  module::ModuleT file = makeProductModule();
  StubDriver stub(withKernels);
  StubBlas blas;
  Running gpu(file, true), cpu(makeTestModule(), false);
  ASSERT_TRUE(gpu.session && cpu.session) << gpu.error;
  for (int count : {9, 1, 1, 1, 11}) {
    std::vector<float> logits = gpu.call({prompt(count)}, true);
    EXPECT_THAT(logits, testing::Pointwise(testing::FloatNear(1e-4f),
                                           cpu.call({prompt(count)}, true)))
        << gpu.error;
  }
  // A kernel less in each call that was not replayed.
  EXPECT_EQ(
      stub.count("cuLaunchKernelEx"),
      4 * (gpu.module->plan().schedules()->Get(0)->launches()->size() - 1));
  EXPECT_EQ(stub.count("cublasLtMatmul") >= 5, true);
  EXPECT_EQ(blas.calls(), "heuristic 1\nmatmul 1\n" // 16 rows
                          "heuristic 1\nmatmul 1\n" // 1 row
                          "matmul 1\nmatmul 1\n");  // two captures
  gpu.session->setPoison(true);
  EXPECT_FALSE(gpu.call({prompt(3)}, true).empty()) << gpu.error;
}

TEST(CudaSession, ProductsThatCuBlasLtRefusesAreKernels) {
  module::ModuleT file = makeProductModule();
  StubDriver stub(withKernels);
  StubBlas blas("refuse-n=13");
  Running gpu(file, true), cpu(makeTestModule(), false);
  ASSERT_TRUE(gpu.session && cpu.session) << gpu.error;
  testing::internal::CaptureStderr();
  for (int count : {9, 9}) {
    EXPECT_EQ(gpu.call({prompt(count)}, true), cpu.call({prompt(count)}, true));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "warning: cuBLASLt has no algorithm for 16x13x32 f32 -> f32: "
            "CUBLAS_STATUS_NOT_SUPPORTED; the compiled kernel does it\n");
}

TEST(CudaSession, CuBlasLtMayBeSwitchedOff) {
  module::ModuleT file = makeProductModule();
  struct Setting {
    explicit Setting(const char *value) {
      ::setenv("PREFILL_CUBLASLT", value, /*overwrite=*/1);
    }
    ~Setting() { ::unsetenv("PREFILL_CUBLASLT"); }
  };
  StubDriver stub(withKernels);
  StubBlas blas;
  {
    Setting off("off");
    Running gpu(file, true), cpu(makeTestModule(), false);
    ASSERT_TRUE(gpu.session && cpu.session) << gpu.error;
    EXPECT_EQ(gpu.call({prompt(9)}, true), cpu.call({prompt(9)}, true));
    EXPECT_EQ(blas.calls(), "");
  }
  Setting unknown("maybe");
  EXPECT_EQ(
      Running(file, true).error,
      "the environment's PREFILL_CUBLASLT is 'maybe', expected on or off");
}

TEST(CudaSession, ProductsThatMakeNoSense) {
  auto refusal = [](auto edit) {
    module::ModuleT file = makeProductModule();
    edit(*file.plans.front()->schedules.front());
    StubDriver stub;
    return Running(file, true).error;
  };
  using Schedule = module::ScheduleT &;
  EXPECT_EQ(refusal([](Schedule) {}), "");
  EXPECT_THAT(refusal([](Schedule schedule) {
                schedule.launches.back()->product->weight = 3;
              }),
              HasSubstr("product: weight is argument 3, which is no weight"));
  EXPECT_THAT(refusal([](Schedule schedule) {
                schedule.launches.back()->product->input = 99;
              }),
              HasSubstr("product: input is argument 99, which is no buffer"));
  EXPECT_THAT(refusal([](Schedule schedule) {
                schedule.buffers[0]->domain = module::RowDomain::tokens;
              }),
              HasSubstr("product: the input has another row domain than the "
                        "output"));
  EXPECT_THAT(
      refusal([](Schedule schedule) { schedule.buffers[0]->row_bytes = 64; }),
      HasSubstr("product: rows of 64 and 52 bytes, but the weight's "
                "shape asks for 128 and 52"));
  EXPECT_THAT(refusal([](Schedule schedule) {
                schedule.launches[1]->product =
                    std::make_unique<module::MatrixProductT>();
              }),
              HasSubstr("product: input is argument 0, which is no buffer"));
}

TEST(CudaSession, ModulesThatDoNotFit) {
  {
    StubDriver stub;
    Running gpu(makeTestModule(), true);
    EXPECT_EQ(gpu.error, "the module has no code for cuda:sm_80 (Recording "
                         "stub), it has 'cpu:avx2'");
  }
  {
    StubDriver stub("chip=75");
    Running gpu(makeCudaModule(), true);
    EXPECT_EQ(gpu.error, "the module has no code for cuda:sm_75 (Recording "
                         "stub), it has 'cuda:sm_80 (ptx)'");
  }
  {
    StubDriver stub("chip=120"); // PTX runs on what is newer
    Running gpu(makeCudaModule(), true);
    EXPECT_TRUE(gpu.session) << gpu.error;
  }
  StubDriver stub;
  module::ModuleT file = makeCudaModule();
  file.plans.front()->kernels.front()->name = "absent";
  Running gpu(file, true);
  EXPECT_EQ(gpu.error, "ptx sm_80: kernel 'absent': CUDA_ERROR_NOT_FOUND");
}
