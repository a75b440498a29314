// The recording driver catches what it is there for: each test breaks one rule
// on purpose.
#include "StubDriver.h"
#include "cuda/DeviceBuffer.h"
#include "cuda/KernelFunction.h"

#include <cstring>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;
using prefill::test::emptyPtx;
using prefill::test::StubDriver;

namespace {

struct Raw {
  std::shared_ptr<const DriverApi> api;
  CUcontext context = nullptr;
  CUstream stream = nullptr;

  Raw() {
    auto loaded = DriverApi::load(PREFILL_CUDA_STUB_LIBRARY);
    EXPECT_TRUE(loaded) << loaded.error().message;
    api = *loaded;
    api->devicePrimaryCtxRetain(&context, 0);
    api->ctxPushCurrent(context);
    api->streamCreate(&stream, CU_STREAM_NON_BLOCKING);
  }
  ~Raw() {
    api->streamDestroy(stream);
    api->ctxPopCurrent(&context);
    api->devicePrimaryCtxRelease(0);
  }
  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr address = 0;
    api->memAllocAsync(&address, bytes, stream);
    return address;
  }
  CUfunction function(CUmodule &module, const std::string &text,
                      const char *name) {
    CUfunction function = nullptr;
    EXPECT_EQ(api->moduleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(api->moduleGetFunction(&function, module, name), CUDA_SUCCESS);
    return function;
  }
  CUresult launch(CUfunction function, std::vector<uint64_t> words,
                  unsigned shared = 0, bool defaultStream = false) {
    CUlaunchConfig config = {1, 1, 1, 32, 1, 1, shared, nullptr, nullptr, 0};
    config.hStream = defaultStream ? nullptr : stream;
    size_t bytes = words.size() * 8;
    void *extra[] = {
        reinterpret_cast<void *>(launchParamBufferPointer), words.data(),
        reinterpret_cast<void *>(launchParamBufferSize), &bytes, nullptr};
    return api->launchKernelEx(&config, function, nullptr, extra);
  }
};

} // namespace

TEST(Stub, LeaksAreListed) {
  StubDriver stub;
  {
    Raw raw;
    raw.allocate(16);
    void *pinned;
    raw.api->memHostAlloc(&pinned, 16, 0);
    CUevent event;
    raw.api->eventCreate(&event, 0);
    CUmodule module;
    raw.function(module, emptyPtx("sm_80", {{"k", 1}}), "k");
  }
  EXPECT_EQ(stub.takeReport(), "leak: 1 events\n"
                               "leak: 1 modules\n"
                               "leak: 1 device allocations\n"
                               "leak: 1 pinned allocations\n");
}

TEST(Stub, UseAfterFree) {
  StubDriver stub;
  {
    Raw raw;
    CUmodule module;
    CUfunction function =
        raw.function(module, emptyPtx("sm_80", {{"k", 2}}), "k");
    CUdeviceptr memory = raw.allocate(64);
    EXPECT_EQ(raw.launch(function, {memory, 64}), CUDA_SUCCESS);
    raw.api->memFreeAsync(memory, raw.stream);
    EXPECT_EQ(raw.launch(function, {memory + 8, 64}), CUDA_SUCCESS);
    raw.api->memFreeAsync(memory, raw.stream);
    raw.api->streamSynchronize(raw.stream);
    EXPECT_EQ(raw.launch(function, {uint64_t(1) << 40, 64}), CUDA_SUCCESS);
    raw.api->streamSynchronize(raw.stream);
    raw.api->moduleUnload(module);
  }
  EXPECT_EQ(stub.takeReport(),
            "finding: cuMemFreeAsync of what is freed already\n"
            "finding: k: word 0 is in memory that was freed\n"
            "finding: k: word 0 is no address of the device, 0x10000000000\n");
}

TEST(Stub, FreedWhileAnotherStreamUsesIt) {
  StubDriver stub;
  {
    Raw raw;
    CUmodule module;
    CUfunction function =
        raw.function(module, emptyPtx("sm_80", {{"k", 1}}), "k");
    CUstream other;
    raw.api->streamCreate(&other, CU_STREAM_NON_BLOCKING);
    CUdeviceptr memory = raw.allocate(64);
    raw.launch(function, {memory});
    raw.api->memFreeAsync(memory, other);
    raw.api->moduleUnload(module);
    raw.api->streamSynchronize(raw.stream);
    raw.api->streamDestroy(other);
  }
  EXPECT_EQ(stub.takeReport(),
            "finding: memory freed while k of another stream uses it\n"
            "finding: a module unloaded while k is to run\n");
}

TEST(Stub, LaunchesThatBreakRules) {
  StubDriver stub;
  {
    Raw raw;
    CUmodule module;
    CUfunction function =
        raw.function(module, emptyPtx("sm_80", {{"k", 2}}), "k");
    EXPECT_NE(raw.launch(function, {1}), CUDA_SUCCESS);
    EXPECT_NE(raw.launch(function, {1, 2}, (48 << 10) + 1), CUDA_SUCCESS);
    EXPECT_NE(raw.launch(function, {1, 2}, 0, true), CUDA_SUCCESS);
    raw.api->moduleUnload(module);
  }
  EXPECT_EQ(stub.takeReport(),
            "finding: launch of k: 1 words for 2 parameters\n"
            "finding: launch of k: 49153 bytes of shared memory without opting "
            "in\n"
            "finding: cuLaunchKernelEx on the default stream\n");
}

TEST(Stub, CopiesThatBreakRules) {
  StubDriver stub;
  {
    Raw raw;
    CUdeviceptr memory = raw.allocate(64);
    char unpinned[64] = {};
    raw.api->memcpyHtoDAsync(memory, unpinned, 64, raw.stream);
    void *pinned;
    raw.api->memHostAlloc(&pinned, 128, 0);
    std::memset(pinned, 0, 128);
    EXPECT_NE(raw.api->memcpyHtoDAsync(memory, pinned, 65, raw.stream),
              CUDA_SUCCESS);
    raw.api->memcpyHtoDAsync(memory, pinned, 64, raw.stream);
    raw.api->memFreeHost(pinned); // before the copy has run
    raw.api->streamSynchronize(raw.stream);
    raw.api->memFreeAsync(memory, raw.stream);
  }
  EXPECT_EQ(stub.takeReport(),
            "finding: cuMemcpyHtoDAsync from memory that is not pinned\n"
            "finding: cuMemcpyHtoDAsync: 65 bytes that are not in one "
            "allocation\n"
            "finding: a copy to the device runs when its memory is gone\n");
}

TEST(Stub, WritesBehindAnAllocation) {
  StubDriver stub;
  {
    Raw raw;
    CUdeviceptr memory = raw.allocate(64);
    reinterpret_cast<char *>(memory)[64] = 0;
    raw.api->memFreeAsync(memory, raw.stream);
  }
  EXPECT_EQ(stub.takeReport(),
            "finding: somebody wrote behind a device allocation of 64 bytes\n");
}

// The stub reads what ptxas wrote: the words of a kernel and its threads.
TEST(Stub, ReadsCubins) {
#ifndef PREFILL_PTXAS
  GTEST_SKIP() << "no ptxas at hand";
#else
  StubDriver stub;
  std::string text = emptyPtx("sm_80", {{"k", 3}}, ".reqntid 96, 1, 1\n");
  std::string source = testing::TempDir() + "/prefill-stub-test.ptx",
              object = testing::TempDir() + "/prefill-stub-test.cubin";
  FILE *file = std::fopen(source.c_str(), "w");
  ASSERT_TRUE(file);
  std::fputs(text.c_str(), file);
  std::fclose(file);
  std::string command =
      std::string(PREFILL_PTXAS) + " -arch=sm_80 -o " + object + " " + source;
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::string bytes(1 << 16, '\0');
  file = std::fopen(object.c_str(), "r");
  ASSERT_TRUE(file);
  bytes.resize(std::fread(bytes.data(), 1, bytes.size(), file));
  std::fclose(file);

  auto device = StubDriver::device();
  std::vector<CodeImage> images = {{CodeImage::Format::ptx, "sm_80", text},
                                   {CodeImage::Format::cubin, "sm_80", bytes}};
  auto code = CodeModule::load(*device, images);
  ASSERT_TRUE(code) << code.error().message;
  EXPECT_EQ(code->loaded(), "cubin sm_80");
  EXPECT_TRUE(KernelFunction::create(*code, {"k", 3, 96, 0}));
  EXPECT_FALSE(KernelFunction::create(*code, {"k", 4, 96, 0}));
  EXPECT_FALSE(KernelFunction::create(*code, {"k", 3, 128, 0}));
#endif
}
