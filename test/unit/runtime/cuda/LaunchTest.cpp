// Code images, kernels, launches, graphs and tensor maps through the recording
// driver.
#include "StubDriver.h"
#include "cuda/DeviceBuffer.h"
#include "cuda/GraphCache.h"
#include "cuda/KernelFunction.h"
#include "cuda/TensorMap.h"

#include <cstring>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;
using prefill::test::emptyPtx;
using prefill::test::StubDriver;

namespace {

constexpr auto cubin = CodeImage::Format::cubin, ptx = CodeImage::Format::ptx;

std::string order(std::vector<CodeImage> images, int chip) {
  std::string text;
  for (const CodeImage *image : suitableImages(images, chip))
    text += (text.empty() ? "" : ", ") +
            listImages(std::span<const CodeImage>(image, 1));
  return text;
}

/// A device with a stream and one PTX module.
struct Launching {
  std::unique_ptr<CudaDevice> device = StubDriver::device();
  std::optional<CommandStream> commands;
  std::optional<CodeModule> code;

  explicit Launching(const std::string &text) {
    auto stream = CommandStream::create(*device);
    EXPECT_TRUE(stream) << stream.error().message;
    commands.emplace(std::move(*stream));
    CodeImage image{ptx, "sm_80", text};
    auto loaded = CodeModule::load(*device, {&image, 1});
    EXPECT_TRUE(loaded) << loaded.error().message;
    code.emplace(std::move(*loaded));
  }
  // The code goes before the stream.
  ~Launching() { (void)commands->synchronize("the end of a test"); }
  KernelFunction kernel(const KernelShape &shape) {
    auto made = KernelFunction::create(*code, shape);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::string refusal(const KernelShape &shape) {
    auto made = KernelFunction::create(*code, shape);
    return made ? "" : made.error().message;
  }
};

} // namespace

TEST(CodeModule, WhichImageIsTaken) {
  std::vector<CodeImage> fat = {{cubin, "sm_80", ""}, {ptx, "sm_80", ""},
                                {cubin, "sm_86", ""}, {cubin, "sm_90a", ""},
                                {ptx, "sm_90", ""},   {cubin, "sm_90", ""}};
  EXPECT_EQ(order(fat, 80), "cubin sm_80, ptx sm_80");
  EXPECT_EQ(order(fat, 86), "cubin sm_86, ptx sm_80, cubin sm_80");
  EXPECT_EQ(order(fat, 89), "ptx sm_80, cubin sm_86, cubin sm_80");
  EXPECT_EQ(order(fat, 90), "cubin sm_90a, cubin sm_90, ptx sm_90, ptx sm_80");
  EXPECT_EQ(order(fat, 100), "ptx sm_90, ptx sm_80");
  EXPECT_EQ(order(fat, 75), "");
  EXPECT_EQ(order({{cubin, "avx2", ""}, {ptx, "sm_", ""}}, 80), "");
}

TEST(CodeModule, NoImageForTheChip) {
  StubDriver stub("chip=75");
  auto device = StubDriver::device();
  std::vector<CodeImage> images = {{cubin, "sm_80", ""}, {ptx, "sm_80", ""}};
  auto code = CodeModule::load(*device, images);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message,
            "the module has no code for sm_75 (Recording stub), it has 'cubin "
            "sm_80, ptx sm_80'");
}

TEST(CodeModule, TheCompilersLogIsInTheErrorInOneLine) {
  StubDriver stub("jit-log=ptxas application ptx input, line 7\n  fatal");
  auto device = StubDriver::device();
  std::string text = emptyPtx("sm_80", {{"k", 1}});
  CodeImage image{ptx, "sm_80", text};
  auto code = CodeModule::load(*device, {&image, 1});
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message,
            "cuModuleLoadDataEx, ptx sm_80: CUDA_ERROR_INVALID_PTX: 'ptxas "
            "application ptx input, line 7 fatal'");
}

TEST(CodeModule, TextThatIsNoPtx) {
  StubDriver stub;
  auto device = StubDriver::device();
  std::string text = "nothing";
  CodeImage image{ptx, "sm_80", text};
  auto code = CodeModule::load(*device, {&image, 1});
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message,
            "cuModuleLoadDataEx, ptx sm_80: CUDA_ERROR_INVALID_IMAGE");
}

TEST(KernelFunction, WhatTheDeviceCannotGive) {
  StubDriver stub;
  Launching on(emptyPtx("sm_80", {{"k", 3}}, ".maxntid 256, 1, 1\n"));
  EXPECT_EQ(on.refusal({"absent", 3, 128, 0}),
            "ptx sm_80: kernel 'absent': CUDA_ERROR_NOT_FOUND");
  EXPECT_EQ(on.refusal({"k", 3, 257, 0}),
            "kernel 'k' needs blocks of 257 threads, its registers allow 1 to "
            "256 on Recording stub");
  EXPECT_EQ(
      on.refusal({"k", 3, 128, 166913}),
      "kernel 'k' needs 166913 bytes of shared memory, a block has 166912 "
      "on Recording stub");
  EXPECT_EQ(on.refusal({"k", 4, 128, 0}),
            "kernel 'k' has no 64-bit parameter 3, expected 4 words as the "
            "module says");
  EXPECT_EQ(on.refusal({"k", 2, 128, 0}),
            "kernel 'k' has more parameters than the 2 words that the module "
            "says");
  EXPECT_EQ(on.refusal({"k", 3, 256, 166912}), "");
}

TEST(KernelFunction, OptsInToMoreThan48KiB) {
  StubDriver stub;
  Launching on(emptyPtx("sm_80", {{"k", 1}}));
  uint64_t word = 5;
  KernelFunction small = on.kernel({"k", 1, 32, 48 << 10});
  EXPECT_EQ(stub.count("cuFuncSetAttribute"), 0u);
  EXPECT_TRUE(small.launch(*on.commands, 1, {&word, 1}));
  KernelFunction large = on.kernel({"k", 1, 32, (48 << 10) + 1});
  EXPECT_EQ(stub.count("cuFuncSetAttribute"), 1u);
  EXPECT_TRUE(large.launch(*on.commands, 1, {&word, 1}));
}

TEST(KernelFunction, WrongLaunchesAreRefused) {
  StubDriver stub("fail=cuLaunchKernelEx:1");
  Launching on(emptyPtx("sm_80", {{"k", 2}}));
  KernelFunction kernel = on.kernel({"k", 2, 64, 1024});
  auto launch = [&](uint64_t blocks, std::vector<uint64_t> words,
                    LaunchOptions options = {}) {
    auto ok = kernel.launch(*on.commands, blocks, words, options);
    return ok ? "" : ok.error().message;
  };
  EXPECT_EQ(launch(4, {1}), "kernel 'k' is given 1 words, expected 2");
  EXPECT_EQ(launch(uint64_t(1) << 31, {1, 2}),
            "kernel 'k' is launched with 2147483648 blocks, expected less than "
            "2^31");
  EXPECT_EQ(launch(3, {1, 2}, {2, false}),
            "kernel 'k' is launched with 3 blocks, expected a multiple of the "
            "cluster's 2");
  EXPECT_EQ(launch(0, {1, 2}), ""); // no launch
  EXPECT_EQ(stub.count("cuLaunchKernelEx"), 0u);
  EXPECT_EQ(launch(4, {0x7f0000001000, 16}),
            "cuLaunchKernelEx, kernel 'k', grid 4, block 64, 1024 bytes of "
            "shared memory, arguments [0x7f0000001000, 16]: "
            "CUDA_ERROR_LAUNCH_FAILED");
}

TEST(KernelFunction, ClustersAndProgrammaticLaunch) {
  StubDriver stub("chip=90");
  Launching on(emptyPtx("sm_80", {{"k", 1}}));
  KernelFunction kernel = on.kernel({"k", 1, 64, 0});
  uint64_t word = 1;
  ASSERT_TRUE(kernel.launch(*on.commands, 4, {&word, 1}, {2, true}));
  EXPECT_NE(stub.calls().find("cuLaunchKernelEx k\n  cluster 2\n  overlaps\n"),
            std::string::npos)
      << stub.calls();
}

TEST(KernelFunction, ErrorsOfTheKernelComeOutWhenItIsWaitedFor) {
  StubDriver stub("fail=execute:2");
  Launching on(emptyPtx("sm_80", {{"k", 1}}));
  KernelFunction kernel = on.kernel({"k", 1, 64, 0});
  uint64_t word = 1;
  EXPECT_TRUE(kernel.launch(*on.commands, 1, {&word, 1}));
  EXPECT_TRUE(on.commands->synchronize("first"));
  EXPECT_TRUE(kernel.launch(*on.commands, 1, {&word, 1}));
  auto ok = on.commands->synchronize("second");
  ASSERT_FALSE(ok);
  EXPECT_EQ(ok.error().message,
            "cuStreamSynchronize, second: CUDA_ERROR_ILLEGAL_ADDRESS (an "
            "illegal memory access was encountered)");
}

TEST(GraphCache, FirstDirectThenCapturedThenReplayed) {
  StubDriver stub(std::string("kernels=") + PREFILL_CUDA_STUB_KERNELS);
  Launching on(emptyPtx("sm_80", {{"stub_add", 2}, {"stub_double", 1}}));
  KernelFunction add = on.kernel({"stub_add", 2, 32, 0}),
                 twice = on.kernel({"stub_double", 1, 32, 0});
  auto buffer = DeviceBuffer::allocate(*on.commands, 8, "a number");
  ASSERT_TRUE(buffer);
  ASSERT_TRUE(on.commands->fill(buffer->address(), 0, 8, "a number"));
  int64_t *number = reinterpret_cast<int64_t *>(buffer->address());

  GraphCache graphs(*on.commands);
  auto call = [&](int64_t bucket, uint64_t summand) {
    std::vector<uint64_t> words = {buffer->address(), summand};
    auto ok = graphs.run({bucket}, words, [&]() -> Result<void> {
      if (auto ok = add.launch(*on.commands, 1, words); !ok)
        return ok;
      return twice.launch(*on.commands, 1, {words.data(), 1});
    });
    EXPECT_TRUE(ok) << ok.error().message;
    EXPECT_TRUE(on.commands->synchronize("a call"));
    return *number;
  };
  auto counts = [&] {
    const GraphCache::Statistics &s = graphs.statistics();
    return std::vector<uint64_t>{s.direct, s.instantiated, s.updated,
                                 s.replayed};
  };
  using Counts = std::vector<uint64_t>;
  EXPECT_EQ(call(16, 3), 6); // (0 + 3) * 2
  EXPECT_EQ(counts(), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(call(16, 3), 18);
  EXPECT_EQ(counts(), (Counts{1, 1, 0, 1}));
  EXPECT_EQ(call(16, 3), 42);
  EXPECT_EQ(counts(), (Counts{1, 1, 0, 2}));
  EXPECT_EQ(stub.count("cuLaunchKernelEx"), 4u); // direct, and the capture
  EXPECT_EQ(call(16, 5), 94);                    // other arguments
  EXPECT_EQ(counts(), (Counts{1, 1, 1, 3}));
  EXPECT_EQ(call(32, 1), 190); // another bucket
  EXPECT_EQ(counts(), (Counts{2, 1, 1, 3}));
  EXPECT_EQ(call(16, 5), 390); // is still there
  EXPECT_EQ(counts(), (Counts{2, 1, 1, 4}));
  EXPECT_EQ(stub.count("cuGraphInstantiateWithFlags"), 1u);
}

TEST(GraphCache, AGraphThatCannotBeUpdatedIsBuiltAnew) {
  StubDriver stub("no-update=1");
  Launching on(emptyPtx("sm_80", {{"k", 1}}));
  KernelFunction kernel = on.kernel({"k", 1, 32, 0});
  GraphCache graphs(*on.commands);
  for (uint64_t word : {1, 1, 2, 3}) {
    ASSERT_TRUE(graphs.run({1}, {word}, [&] {
      return kernel.launch(*on.commands, 1, {&word, 1});
    }));
    ASSERT_TRUE(on.commands->synchronize("a call"));
  }
  EXPECT_EQ(graphs.statistics().instantiated, 3u);
  EXPECT_EQ(stub.count("cuGraphExecDestroy"), 2u);
}

TEST(GraphCache, TheOldestBucketMakesRoom) {
  StubDriver stub;
  Launching on(emptyPtx("sm_80", {{"k", 1}}));
  KernelFunction kernel = on.kernel({"k", 1, 32, 0});
  GraphCache graphs(*on.commands, 2);
  auto call = [&](int64_t bucket) {
    uint64_t word = 1;
    EXPECT_TRUE(graphs.run({bucket}, {word}, [&] {
      return kernel.launch(*on.commands, 1, {&word, 1});
    }));
    EXPECT_TRUE(on.commands->synchronize("a call"));
  };
  for (int64_t bucket : {1, 1, 2, 2, 3, 3, 2, 1})
    call(bucket);
  EXPECT_EQ(graphs.statistics().instantiated, 3u);
  EXPECT_EQ(graphs.statistics().direct, 4u); // 1, 2, 3 and 1 again
}

TEST(GraphCache, EveryStepMayFailAndTheNextCallWorks) {
  for (const char *call :
       {"cuStreamBeginCapture:1", "cuLaunchKernelEx:2", "cuStreamEndCapture:1",
        "cuGraphInstantiateWithFlags:1", "cuGraphLaunch:1",
        "cuGraphExecUpdate:1"}) {
    StubDriver stub(std::string("fail=") + call);
    Launching on(emptyPtx("sm_80", {{"k", 1}}));
    KernelFunction kernel = on.kernel({"k", 1, 32, 0});
    GraphCache graphs(*on.commands);
    int failures = 0;
    for (uint64_t word : {1, 1, 1, 2, 2}) {
      failures += !graphs.run({1}, {word}, [&] {
        return kernel.launch(*on.commands, 1, {&word, 1});
      });
      EXPECT_TRUE(on.commands->synchronize("a call")) << call;
    }
    // A graph that cannot be updated is no failure.
    EXPECT_EQ(failures, std::strcmp(call, "cuGraphExecUpdate:1") ? 1 : 0)
        << call;
  }
}

TEST(TensorMap, LimitsAreNamed) {
  StubDriver stub("chip=90");
  auto device = StubDriver::device();
  TensorMapShape good{
      CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 0x1000, {4096, 1000}, {8192}, {64, 128},
      CU_TENSOR_MAP_SWIZZLE_128B};
  auto encode = [&](auto edit) {
    TensorMapShape shape = good;
    edit(shape);
    auto map = encodeTensorMap(*device, shape);
    return map ? "" : map.error().message;
  };
  using S = TensorMapShape &;
  EXPECT_EQ(encode([](S) {}), "");
  EXPECT_EQ(encode([](S s) { s.address = 8; }),
            "tensor map: address is 8, expected a multiple of 16");
  EXPECT_EQ(
      encode([](S s) { s.box[0] = 72; }),
      "tensor map: a row of the box in bytes is 144, expected at most the "
      "swizzle's 128");
  EXPECT_EQ(
      encode([](S s) { s.box[0] = 4; }),
      "tensor map: a row of the box in bytes is 8, expected a multiple of "
      "16");
  EXPECT_EQ(encode([](S s) { s.box[1] = 257; }),
            "tensor map: box extent 1 is 257, expected 1 to 256");
  EXPECT_EQ(encode([](S s) { s.extents[1] = 0; }),
            "tensor map: extent 1 is 0, expected 1 to 2^32");
  EXPECT_EQ(encode([](S s) { s.strides[0] = 8200; }),
            "tensor map: stride 0 is 8200, expected a multiple of 16 below "
            "2^40");
  EXPECT_EQ(encode([](S s) { s.strides.clear(); }),
            "tensor map: number of strides is 0, expected 1, one less than the "
            "rank");
  EXPECT_EQ(encode([](S s) { s.extents.resize(6); }),
            "tensor map: rank is 6, expected 1 to 5");
  EXPECT_EQ(stub.count("cuTensorMapEncodeTiled"), 1u);
}
