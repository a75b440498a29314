// Devices, memory, copies and events through the recording driver.
#include "StubDriver.h"
#include "cuda/DeviceBuffer.h"
#include "cuda/Event.h"
#include "cuda/PinnedStaging.h"

#include <numeric>
#include <vector>

using namespace prefill::rt;
using namespace prefill::rt::cuda;
using prefill::test::StubDriver;

namespace {

std::string
createError(const std::string &name,
            const std::string &library = PREFILL_CUDA_STUB_LIBRARY) {
  auto device = CudaDevice::create(name, library);
  return device ? "" : device.error().message;
}

CommandStream stream(const CudaDevice &device) {
  Result<CommandStream> made = CommandStream::create(device);
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

} // namespace

TEST(CudaDevice, Properties) {
  StubDriver stub("devices=2;chip=86");
  auto device = StubDriver::device("cuda:1");
  ASSERT_TRUE(device);
  EXPECT_EQ(device->properties().ordinal, 1);
  EXPECT_EQ(device->properties().chip, 86);
  EXPECT_EQ(device->properties().name, "Recording stub");
  EXPECT_EQ(device->properties().maxSharedBytes, 101376);
  EXPECT_EQ(device->properties().memoryBytes, uint64_t(1) << 30);
}

TEST(CudaDevice, NamesThatAreNone) {
  StubDriver stub("devices=2");
  for (const char *name : {"cuda:", "cuda:-1", "cuda:1x", "cuda:x", "gpu",
                           "cuda:99999999999", "cud"})
    EXPECT_EQ(createError(name), "unknown device '" + std::string(name) +
                                     "', expected cuda or cuda:N, N from 0");
  EXPECT_EQ(createError("cuda:2"),
            "device 'cuda:2': no CUDA device 2, expected 0 to 1");
}

TEST(CudaDevice, NoLibraryNoDeviceNoSymbol) {
  std::string error = createError("cuda", "libprefill-absent.so.1");
  EXPECT_TRUE(
      error.starts_with("device 'cuda': no CUDA device: NVIDIA's driver "
                        "cannot be opened: "))
      << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
  {
    StubDriver stub("devices=0");
    EXPECT_EQ(createError("cuda"),
              "device 'cuda': no CUDA device: cuInit: CUDA_ERROR_NO_DEVICE (no "
              "CUDA-capable device is detected)");
  }
  // Any library that is none of NVIDIA's.
  error = createError("cuda", PREFILL_TEST_KERNELS);
  EXPECT_TRUE(error.starts_with("device 'cuda': no CUDA device: the driver '"))
      << error;
  EXPECT_TRUE(
      error.ends_with("has no cuInit, expected one of CUDA 12.0 or newer"))
      << error;
}

TEST(CudaDevice, EveryStepMayFail) {
  for (const char *call :
       {"cuDriverGetVersion:1", "cuDeviceGetCount:1", "cuDeviceGet:1",
        "cuDeviceGetName:1", "cuDeviceTotalMem:1", "cuDeviceGetAttribute:3",
        "cuDevicePrimaryCtxRetain:1"}) {
    StubDriver stub(std::string("fail=") + call);
    std::string name = call;
    name.resize(name.size() - 2);
    EXPECT_NE(createError("cuda").find(
                  name + (name == "cuDeviceGetAttribute" ? " 16: " : ": ")),
              std::string::npos)
        << createError("cuda");
  }
}

TEST(DeviceBuffer, ComesAndGoesInTheOrderOfTheStream) {
  StubDriver stub;
  auto device = StubDriver::device();
  CommandStream commands = stream(*device);
  {
    auto buffer = DeviceBuffer::allocate(commands, 1000, "a test");
    ASSERT_TRUE(buffer);
    EXPECT_EQ(buffer->address() % 256, 0u);
    ASSERT_TRUE(commands.fill(buffer->address(), 7, 1000, "a test"));
    DeviceBuffer moved = std::move(*buffer);
    EXPECT_EQ(buffer->size(), 0u);
    EXPECT_EQ(moved.size(), 1000u);
    // Freed while the fill is yet to run: that is what the order is for.
  }
  EXPECT_TRUE(commands.synchronize("a test"));
  EXPECT_EQ(device->availableBytes(), uint64_t(1) << 30);
}

TEST(DeviceBuffer, OutOfMemory) {
  StubDriver stub("memory=4096");
  auto device = StubDriver::device();
  CommandStream commands = stream(*device);
  auto first = DeviceBuffer::allocate(commands, 4000, "weight 'a'");
  ASSERT_TRUE(first);
  auto second = DeviceBuffer::allocate(commands, 97, "weight 'b'");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::outOfMemory);
  EXPECT_EQ(second.error().message,
            "cuMemAllocAsync of 97 bytes, weight 'b', 96 of 4096 are free: "
            "CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
  EXPECT_TRUE(DeviceBuffer::allocate(commands, 0, "nothing"));
}

TEST(PinnedStaging, BytesArriveThoughTheStreamIsLate) {
  StubDriver stub;
  auto device = StubDriver::device();
  CommandStream commands = stream(*device);
  auto staging = PinnedStaging::create(commands, 64);
  ASSERT_TRUE(staging);
  auto buffer = DeviceBuffer::allocate(commands, 1000, "a test");
  ASSERT_TRUE(buffer);
  for (uint64_t bytes : {0, 1, 63, 64, 65, 128, 129, 1000}) {
    std::vector<unsigned char> sent(bytes), received(bytes);
    std::iota(sent.begin(), sent.end(), static_cast<unsigned char>(bytes));
    std::vector<unsigned char> copy = sent;
    ASSERT_TRUE(
        staging->upload(buffer->address(), copy.data(), bytes, "a test"));
    std::fill(copy.begin(), copy.end(), 0); // the caller's again
    ASSERT_TRUE(
        staging->download(received.data(), buffer->address(), bytes, "a test"));
    EXPECT_EQ(received, sent) << bytes;
  }
  // More than two chunks: the host waited for an event, not for the stream.
  EXPECT_EQ(stub.count("cuStreamSynchronize"), 0u);
}

TEST(PinnedStaging, EveryStepMayFail) {
  for (const char *call :
       {"cuMemHostAlloc:1", "cuMemHostAlloc:2", "cuEventCreate:1",
        "cuEventCreate:2", "cuEventRecord:1", "cuEventRecord:2",
        "cuEventSynchronize:3", "cuMemcpyHtoDAsync:1", "cuMemcpyHtoDAsync:3"}) {
    StubDriver stub(std::string("fail=") + call);
    auto device = StubDriver::device();
    CommandStream commands = stream(*device);
    auto buffer = DeviceBuffer::allocate(commands, 256, "a test");
    ASSERT_TRUE(buffer);
    std::vector<char> bytes(256);
    auto staging = PinnedStaging::create(commands, 64);
    bool ok = staging &&
              staging->upload(buffer->address(), bytes.data(), 256, "a test");
    EXPECT_FALSE(ok) << call;
  }
}

TEST(Event, TimesWhatLiesBetween) {
  StubDriver stub;
  auto device = StubDriver::device();
  CommandStream commands = stream(*device);
  auto buffer = DeviceBuffer::allocate(commands, 64, "a test");
  auto start = Event::create(*device, Event::Purpose::timing),
       end = Event::create(*device, Event::Purpose::timing);
  ASSERT_TRUE(buffer && start && end);
  ASSERT_TRUE(start->record(commands));
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(commands.fill(buffer->address(), 0, 64, "a test"));
  ASSERT_TRUE(end->record(commands));
  EXPECT_FALSE(end->millisecondsSince(*start)); // not there yet
  ASSERT_TRUE(end->wait());
  auto time = end->millisecondsSince(*start);
  ASSERT_TRUE(time);
  EXPECT_EQ(*time, 3);
}
