// prefill-run --device cuda from outside: without a driver, without a device,
// and on the recording driver, which is found as the real one is.
#include "../SafetensorsFile.h"
#include "CudaModule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/wait.h>

using namespace prefill;
using namespace prefill::test;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PrefillRunCuda : public testing::Test {
protected:
  struct Result {
    int exitCode;
    std::string out, err;
  };

  void SetUp() override {
    std::vector<uint8_t> cuda = serialize(makeCudaModule()),
                         cpu = serialize(makeTestModule());
    cudaModule = directory.write("cuda.pfm", {cuda.begin(), cuda.end()});
    cpuModule = directory.write("cpu.pfm", {cpu.begin(), cpu.end()});
  }

  /// On the recording driver with these settings.
  Result runOnStub(const std::string &settings, const std::string &arguments) {
    std::string libraries =
        std::filesystem::path(PREFILL_CUDA_STUB_LIBRARY).parent_path();
    return run("LD_LIBRARY_PATH='" + libraries + "' PREFILL_CUDA_STUB='" +
                   settings + "' ",
               arguments);
  }
  Result run(const std::string &before, const std::string &arguments) {
    std::string out = directory.path() + "/out",
                err = directory.path() + "/err";
    std::string command = before + PREFILL_BIN_DIR + "/prefill-run " +
                          arguments + weights + " >" + out + " 2>" + err;
    int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status)) << command << "\n" << readFile(err);
    return {WEXITSTATUS(status), readFile(out), readFile(err)};
  }

  std::string path(const std::string &name) const {
    return directory.path() + "/" + name;
  }

  TemporaryDirectory directory;
  std::string weights = " --random-weights 7";
  std::string cudaModule, cpuModule;
};

} // namespace

TEST_F(PrefillRunCuda, NoDeviceIsOneLine) {
  for (const char *device : {"cuda", "cuda:0"}) {
    Result result =
        runOnStub("devices=0",
                  cudaModule + " --tokens 1 --device " + std::string(device));
    EXPECT_EQ(result.exitCode, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, StartsWith("error: "));
    EXPECT_THAT(result.err, HasSubstr("no CUDA device"));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1);
  }
  Result result = runOnStub("", cudaModule + " --tokens 1 --device cuda:1");
  EXPECT_EQ(result.err, "error: device 'cuda:1': no CUDA device 1, expected 0 "
                        "to 0\n");
}

TEST_F(PrefillRunCuda, LogitsAreTheCpusAndNothingIsLeftBehind) {
  std::string settings =
      std::string("kernels=" PREFILL_TEST_KERNELS ";log=") + path("log");
  std::string arguments = " --tokens 1,2,3,4,5 --decode 3 --stats=json";
  Result gpu =
      runOnStub(settings, cudaModule + arguments +
                              " --device cuda --logits-out " + path("gpu.npy"));
  EXPECT_EQ(gpu.exitCode, 0) << gpu.err;
  Result cpu = run("", cpuModule + arguments + " --device cpu:avx2 " +
                           "--logits-out " + path("cpu.npy"));
  EXPECT_EQ(cpu.exitCode, 0) << cpu.err;
  EXPECT_EQ(readFile(path("gpu.npy")), readFile(path("cpu.npy")));
  EXPECT_THAT(gpu.out, HasSubstr("\"launches\""));
  std::string log = readFile(path("log"));
  EXPECT_THAT(log, HasSubstr("cuLaunchKernelEx tk_attention_64\n"));
  EXPECT_THAT(log, HasSubstr("cuGraphLaunch\n")); // of the decoded tokens
  EXPECT_THAT(log, EndsWith("-- report\n"));      // and nothing in it
}

// Decoded tokens would be graphs, whose launches have no times.
TEST_F(PrefillRunCuda, ProfilesTimeEveryLaunch) {
  std::string settings =
      std::string("kernels=" PREFILL_TEST_KERNELS ";log=") + path("log");
  Result result = runOnStub(settings, cudaModule +
                                          " --tokens 1,2,3 --decode 4 "
                                          "--device cuda --profile " +
                                          path("trace.json"));
  EXPECT_EQ(result.exitCode, 0) << result.err;
  EXPECT_EQ(readFile(path("log")).find("cuGraphLaunch"), std::string::npos);
  std::string trace = readFile(path("trace.json"));
  auto count = [&](const std::string &text) {
    size_t found = 0;
    for (size_t at = trace.find(text); at != std::string::npos;
         at = trace.find(text, at + 1))
      ++found;
    return found;
  };
  // The recording driver's launches take a millisecond each: 8 of each call.
  EXPECT_EQ(count("\"dur\":1000"), 4u * 8) << trace;
}

TEST_F(PrefillRunCuda, WeightsCacheIsUploaded) {
  directory.write("model.safetensors", checkpointFile(7));
  directory.write("config.json", checkpointConfig());
  weights = " --weights " + directory.path();
  std::string arguments =
      " --tokens 1,2,3 --weights-cache=" + path("weights") + " --logits-out ";
  std::string settings = "kernels=" PREFILL_TEST_KERNELS;
  Result first = runOnStub(settings, cudaModule + " --device cuda" + arguments +
                                         path("a.npy"));
  Result second = runOnStub(settings, cudaModule + " --device cuda" +
                                          arguments + path("b.npy"));
  EXPECT_EQ(first.exitCode, 0) << first.err;
  EXPECT_EQ(second.exitCode, 0) << second.err;
  EXPECT_TRUE(std::filesystem::exists(path("weights")));
  EXPECT_NE(readFile(path("a.npy")), "");
  EXPECT_EQ(readFile(path("a.npy")), readFile(path("b.npy")));
}

TEST_F(PrefillRunCuda, ErrorsAreOneLine) {
  struct {
    const char *settings, *line;
  } cases[] = {
      {"memory=9000", "out of memory: class weights: "},
      {"fail=execute:2", "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {"jit-log=line 3", "CUDA_ERROR_INVALID_PTX: 'line 3'"},
      {"chip=70", "no code for cuda:sm_70 (Recording stub), it has"},
  };
  for (const auto &[settings, line] : cases) {
    Result result =
        runOnStub(settings, cudaModule + " --tokens 1,2 --device cuda");
    EXPECT_EQ(result.exitCode, 1) << settings;
    EXPECT_THAT(result.err, StartsWith("error: "));
    EXPECT_THAT(result.err, HasSubstr(line));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1)
        << result.err;
  }
}
