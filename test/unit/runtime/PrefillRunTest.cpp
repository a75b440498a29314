// The tool from outside: exit code, standard output and standard error, files.
#include "SafetensorsFile.h"
#include "TestModel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/stat.h>
#include <sys/wait.h>

using namespace prefill;
using namespace prefill::test;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class PrefillRun : public testing::Test {
protected:
  struct Result {
    int exitCode;
    std::string out, err;
  };

  void SetUp() override { writeModule(makeTestModule()); }

  void writeModule(const module::ModuleT &file) {
    std::vector<uint8_t> bytes = serialize(file);
    module = directory.write("model.pfm", {bytes.begin(), bytes.end()});
  }

  /// `before` and `standardOutput` are for the shell: "ulimit -f 1; ", "&-".
  Result run(const std::string &arguments,
             const std::string &standardOutput = "",
             const std::string &before = "") {
    std::string out = directory.path() + "/out",
                err = directory.path() + "/err";
    std::string command =
        before + PREFILL_BIN_DIR + "/prefill-run " + arguments + " >" +
        (standardOutput.empty() ? out : standardOutput) + " 2>" + err;
    std::remove(out.c_str());
    int status = std::system(command.c_str());
    EXPECT_TRUE(WIFEXITED(status)) << command << "\n" << readFile(err);
    return {WEXITSTATUS(status), readFile(out), readFile(err)};
  }

  /// One line on standard error, nothing on standard output.
  std::string errorOf(const std::string &arguments,
                      const std::string &standardOutput = "",
                      const std::string &before = "") {
    Result result = run(arguments, standardOutput, before);
    EXPECT_NE(result.exitCode, 0) << arguments;
    EXPECT_EQ(result.out, "") << arguments;
    EXPECT_THAT(result.err, StartsWith("error: ")) << arguments;
    EXPECT_EQ(result.err.find('\n'), result.err.size() - 1) << result.err;
    return result.err;
  }

  /// The f32 values of a .npy file and its header's shape text.
  std::vector<float> readNpy(const std::string &path, std::string &shape) {
    std::string content = readFile(path);
    EXPECT_THAT(content, StartsWith(std::string("\x93NUMPY\x01\x00", 8)));
    size_t header = static_cast<unsigned char>(content[8]) +
                    256 * static_cast<unsigned char>(content[9]);
    EXPECT_EQ((10 + header) % 64, 0u);
    std::string text = content.substr(10, header);
    EXPECT_THAT(text, HasSubstr("'descr': '<f4', 'fortran_order': False"));
    size_t open = text.find('(');
    shape = text.substr(open, text.find(')') - open + 1);
    std::vector<float> values((content.size() - 10 - header) / sizeof(float));
    std::memcpy(values.data(), content.data() + 10 + header,
                values.size() * sizeof(float));
    return values;
  }

  TemporaryDirectory directory;
  std::string module;
};

TEST_F(PrefillRun, StatsAreJsonAndNothingElse) {
  Result result = run(
      module + " --random-weights=7 --tokens 1,2,3 --stats=json --threads 2");
  ASSERT_EQ(result.exitCode, 0) << result.err;
  nlohmann::json stats = nlohmann::json::parse(result.out);
  EXPECT_EQ(stats["tokens"], 3);
  EXPECT_GT(stats["ttft_ms"].get<double>(), 0);
  EXPECT_EQ(stats["flops"], 3000 + 100 + 10 * 6 + 3);
  EXPECT_EQ(stats["kernels_per_layer"], 3);
  ASSERT_EQ(stats["launches"].size(), 8u);
  EXPECT_EQ(stats["launches"][1]["name"], "tk_append_64");
  EXPECT_EQ(stats["launches"][1]["layer"], 0);
  EXPECT_EQ(stats["launches"][7]["layer"], -1);
  // Room for the prompt, not for max_seq.
  EXPECT_EQ(stats["memory"]["kv_cache_bytes"],
            4 * 2 * testLayers * 3 * testKVHeads * testHeadDim);
  for (const char *key :
       {"weights_bytes", "activation_peak_bytes", "temporaries_bytes"})
    EXPECT_GT(stats["memory"][key].get<uint64_t>(), 0u) << key;
}

TEST_F(PrefillRun, LogitsAreTheReferences) {
  std::vector<int32_t> tokens = {1, 12, 3, 4, 4, 0, 7};
  std::vector<float> expected = referenceLogits(tokens, 7);
  directory.write("tokens", "1 12 3\n4,4 0\n7\n");
  std::string npy = directory.path() + "/logits.npy";
  for (std::string how : {"", "--chunk 3", "--chunk=1 --poison", "--poison"}) {
    Result result =
        run(module + " --random-weights 7 --tokens-file " + directory.path() +
            "/tokens --all-logits --logits-out " + npy + " " + how);
    ASSERT_EQ(result.exitCode, 0) << result.err;
    std::string shape;
    std::vector<float> all = readNpy(npy, shape);
    EXPECT_EQ(shape, "(7,13,)");
    ASSERT_EQ(all.size(), expected.size());
    for (size_t i = 0; i < all.size(); ++i)
      ASSERT_NEAR(all[i], expected[i], 1e-5) << how;
    result = run(module + " --random-weights 7 --tokens-file " +
                 directory.path() + "/tokens --logits-out " + npy + " " + how);
    ASSERT_EQ(result.exitCode, 0) << result.err;
    std::vector<float> last = readNpy(npy, shape);
    EXPECT_EQ(shape, "(1,13,)");
    EXPECT_EQ(last, std::vector<float>(all.end() - testVocab, all.end()));
  }
}

TEST_F(PrefillRun, RunsWithTheInstructionsThatItIsToldTo) {
  Result result =
      run(module + " --random-weights 7 --tokens 1 --stats=json --isa avx2");
  ASSERT_EQ(result.exitCode, 0) << result.err;
  nlohmann::json stats = nlohmann::json::parse(result.out);
  EXPECT_EQ(stats["variant"], "avx2");
  EXPECT_GT(stats["start_ms"].get<double>(), 0);
  EXPECT_EQ(stats["weights_cache"], "");
  // The module has code for avx2 alone; a CPU without avx512 says so instead.
  EXPECT_THAT(errorOf(module + " --random-weights 7 --tokens 1 --isa=avx512"),
              AnyOf(HasSubstr("the module has no code for cpu:avx512"),
                    HasSubstr("this CPU supports avx2")));
  EXPECT_THAT(
      errorOf(module + " --random-weights 7 --tokens 1 --isa=amx_bf16"),
      AnyOf(HasSubstr("the module has no code for cpu:amx_bf16, it has "
                      "'cpu:avx2'"),
            HasSubstr("device 'cpu:amx_bf16': this CPU supports avx2")));
}

TEST_F(PrefillRun, DecodesGreedily) {
  std::vector<int32_t> tokens = {1, 2, 3};
  std::vector<int32_t> expected;
  for (int i = 0; i < 5; ++i) {
    std::vector<float> logits = referenceLogits(tokens, 7);
    expected.push_back(static_cast<int32_t>(
        std::max_element(logits.end() - testVocab, logits.end()) -
        (logits.end() - testVocab)));
    tokens.push_back(expected.back());
  }
  Result result = run(module + " --random-weights 7 --tokens 1,2,3 --decode 5 "
                               "--stats json");
  ASSERT_EQ(result.exitCode, 0) << result.err;
  nlohmann::json stats = nlohmann::json::parse(result.out);
  EXPECT_EQ(stats["generated"].get<std::vector<int32_t>>(), expected);
  EXPECT_EQ(stats["tokens"], 3);
  // Up to the very last slot of the module.
  EXPECT_EQ(run(module + " --random-weights 7 --tokens 1 --decode 64").exitCode,
            0);
}

TEST_F(PrefillRun, ReadsACheckpoint) {
  directory.write("config.json", checkpointConfig());
  directory.write("model.safetensors", checkpointFile(7));
  Result fromFile =
      run(module + " --weights " + directory.path() +
          " --tokens 1,2,3 --logits-out " + directory.path() + "/a.npy");
  ASSERT_EQ(fromFile.exitCode, 0) << fromFile.err;
  ASSERT_EQ(run(module + " --random-weights 7 --tokens 1,2,3 --logits-out " +
                directory.path() + "/b.npy")
                .exitCode,
            0);
  EXPECT_EQ(readFile(directory.path() + "/a.npy"),
            readFile(directory.path() + "/b.npy"));
}

TEST_F(PrefillRun, SavesTheCache) {
  for (module::KVLayout layout :
       {module::KVLayout::contiguous, module::KVLayout::paged_nhd}) {
    TestModelOptions options;
    options.layout = layout;
    writeModule(makeTestModule(options));
    std::string npy =
        directory.path() + "/" + module::EnumNameKVLayout(layout) + ".npy";
    Result result = run(module +
                        " --random-weights 7 --tokens 1,2,3,4,5 "
                        "--decode 3 --save-kv=" +
                        npy);
    ASSERT_EQ(result.exitCode, 0) << result.err;
    std::string shape;
    EXPECT_EQ(readNpy(npy, shape).size(),
              size_t(testLayers) * 2 * 7 * testKVHeads * testHeadDim);
    EXPECT_EQ(shape, "(2,2,7,2,8,)");
  }
  EXPECT_EQ(readFile(directory.path() + "/contiguous.npy"),
            readFile(directory.path() + "/paged_nhd.npy"));
}

TEST_F(PrefillRun, WritesAChromeTrace) {
  std::string path = directory.path() + "/trace.json";
  Result result = run(module +
                      " --random-weights 7 --tokens 1,2,3,4,5 --chunk "
                      "2 --decode 2 --profile " +
                      path);
  ASSERT_EQ(result.exitCode, 0) << result.err;
  nlohmann::json trace = nlohmann::json::parse(readFile(path));
  int calls = 0, launches = 0;
  double end = 0;
  for (const auto &event : trace["traceEvents"]) {
    if (event["ph"] != "X")
      continue;
    if (event["tid"] == 1) {
      ++calls;
    } else {
      ++launches;
      EXPECT_GE(event["ts"].get<double>(), end - 1e-3);
      end = event["ts"].get<double>() + event["dur"].get<double>();
    }
  }
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(launches, 4 * 8);
}

TEST_F(PrefillRun, TalksToPeople) {
  Result result = run(module + " --random-weights 7 --tokens 1,2,3");
  ASSERT_EQ(result.exitCode, 0);
  for (const char *text :
       {"next token (logit)", "time to first token", "3 tokens", "memory",
        "KV cache", "kernels              3 a layer, 2 layers, 8 launches"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_EQ(result.err, "");
  result =
      run(module + " --random-weights 7 --tokens-file /dev/stdin </dev/null");
  EXPECT_EQ(
      result.err,
      "error: '/dev/stdin': the prompt is empty, expected at least 1 token\n");
  result = run(module + " --describe");
  ASSERT_EQ(result.exitCode, 0);
  for (const char *text :
       {"llama, f32, 2 layers", "contiguous, f32, blocks of 64", "chosen here",
        "2 packed, 8.0 KiB", "1 rope table",
        "tk_attention_64: workgroups (ceil(M / 4) + sequences) * 4",
        "layer 1 tk_linear(batch, attended@128+128, "
        "%model.layers.1.packed, hidden@0+128)"})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_EQ(run("--help").exitCode, 0);
  EXPECT_THAT(run("--version").out, StartsWith("prefill-run "));
}

TEST_F(PrefillRun, RefusesWithOneLine) {
  std::string ok = module + " --random-weights 7 --tokens 1,2 ";
  std::pair<std::string, std::string> cases[] = {
      {"", "no module is given"},
      {"/nonexistent.pfm --describe", "cannot open '/nonexistent.pfm'"},
      {"/etc/passwd --describe",
       "'/etc/passwd': invalid module: not a compiled"},
      {ok + "--frobnicate", "unknown option '--frobnicate', expected one of "
                            "--weights, --random-weights"},
      {ok + "extra.pfm", "a second module 'extra.pfm'"},
      {ok + "--decode", "option --decode needs a value"},
      {ok + "--decode many", "--decode is 'many', expected an integer from 0"},
      {ok + "--decode=-1", "--decode is '-1'"},
      {ok + "--threads 0", "--threads is '0', expected an integer from 1"},
      {ok + "--chunk 0", "--chunk is '0'"},
      {ok + "--isa sse", "--isa is 'sse', expected avx2, avx_vnni, avx512, "
                         "avx512_vnni, avx512_bf16 or amx_bf16"},
      {ok + "--isa=", "--isa is ''"},
      {ok + "--isa avx2 --device cpu:avx2", "both --isa and --device"},
      {ok + "--all-logits=yes", "option --all-logits takes no value"},
      {ok + "--stats=xml", "--stats is 'xml', expected json"},
      {ok + "--text a", "more than one prompt is given"},
      {ok + "--weights .", "both --weights and --random-weights"},
      {ok + "--describe", "--describe runs nothing"},
      {ok + "--device cuda", "no CUDA device"},
      {ok + "--device cuda-emu:sm_80",
       "the module has no code for cuda-emu:sm_80, it has 'cpu:avx2'"},
      {ok + "--device cuda-emu", "expected cuda-emu:sm_XX"},
      {ok + "--device cuda-emu:ampere", "expected cuda-emu:sm_XX"},
      {ok + "--device=gpu", "unknown device 'gpu', expected cpu"},
      {ok + "--counters", "--counters is for emulated devices, but --device "
                          "is 'cpu', expected cuda-emu:sm_XX"},
      {ok + "--count-only", "--count-only is for emulated devices"},
      {ok + "--emulation-seed 3", "--emulation-seed is for emulated devices"},
      {ok + "--emulation-seed x", "--emulation-seed is 'x', expected a seed"},
      {ok + "--device cuda-emu:sm_80 --count-only --decode 2",
       "--count-only computes nothing"},
      {ok + "--logits-out /nonexistent/x.npy",
       "cannot write '/nonexistent/x.npy': No such file"},
      {ok + "--decode 64", "the prompt of 2 tokens and 64 to decode exceed the "
                           "module's maximum length 64"},
      {module + " --tokens 1", "no weights are given"},
      {module + " --random-weights 7", "no prompt is given"},
      {module + " --random-weights x --tokens 1",
       "--random-weights is 'x', expected a seed"},
      {module + " --random-weights 7 --tokens 1,x", "token 1 is 'x'"},
      {module + " --random-weights 7 --tokens ''",
       "--tokens: the prompt is empty"},
      {module + " --random-weights 7 --tokens ,",
       "--tokens: token 0 is missing at character 1, expected a number before "
       "and after every comma"},
      {module + " --random-weights 7 --tokens 1,,2",
       "--tokens: token 1 is missing at character 3"},
      {module + " --random-weights 7 --tokens 1,2,",
       "--tokens: token 2 is missing at character 5"},
      {module + " --random-weights 7 --tokens '1 , 2 , '",
       "--tokens: token 2 is missing at character 9"},
      {ok + "--logits-out ''", "--logits-out is '', expected the name"},
      {ok + "--profile=", "--profile is '', expected the name"},
      {ok + "--save-kv ''", "--save-kv is '', expected the name"},
      {"\"$(printf 'a\\nb\\tc')\" --describe", "cannot open 'a\\x0ab\\x09c'"},
      {module + " --random-weights 7 --tokens 1,13",
       "token 1 is 13, expected 0 to vocab_size - 1 = 12"},
      {module + " --random-weights 7 --tokens=-1", "token 0 is '-1'"},
      {module + " --random-weights 7 --tokens-file /nonexistent",
       "cannot read '/nonexistent': No such file or directory"},
      {module + " --random-weights 7 --tokens-file /", "cannot read '/': Is a"},
      {module + " --random-weights 7 --text hello",
       "--text needs a byte-level model with a vocabulary of 256"},
      {module + " --weights /nonexistent --tokens 1",
       "'/nonexistent' is not a directory with a checkpoint"},
      {module + " --weights " + directory.path() + " --tokens 1",
       "holds neither model.safetensors nor"},
  };
  for (const auto &[arguments, message] : cases)
    EXPECT_THAT(errorOf(arguments), HasSubstr(message));
  std::string longPrompt = "1";
  for (int i = 0; i < testMaxSeq; ++i)
    longPrompt += ",1";
  EXPECT_THAT(
      errorOf(module + " --random-weights 7 --tokens " + longPrompt),
      HasSubstr("the prompt of 65 tokens exceeds the module's maximum length "
                "64"));
}

TEST_F(PrefillRun, RefusesOutputsThatReplaceOneAnotherOrAnInput) {
  std::string d = directory.path() + "/";
  directory.write("tokens", "1 2");
  std::filesystem::create_symlink("new.npy", d + "link.npy");
  std::string ok =
      module + " --random-weights 7 --tokens-file " + d + "tokens ";
  std::pair<std::string, std::string> cases[] = {
      {"--logits-out " + d + "a --save-kv " + d + "a",
       "--logits-out '" + d + "a' and --save-kv '" + d + "a' name the same"},
      {"--logits-out " + d + "a --profile " + d + "./a", "name the same file"},
      {"--save-kv " + d + "new.npy --profile " + d + "link.npy",
       "--save-kv '" + d + "new.npy' and --profile '" + d + "link.npy' name"},
      {"--profile " + d + "./model.pfm",
       "the module '" + module + "' and --profile '" + d + "./model.pfm'"},
      {"--logits-out " + d + "tokens",
       "--tokens-file '" + d + "tokens' and --logits-out '" + d + "tokens'"},
  };
  for (const auto &[arguments, message] : cases)
    EXPECT_THAT(errorOf(ok + arguments), HasSubstr(message));
  EXPECT_EQ(readFile(d + "tokens"), "1 2");
  // A device is not replaced.
  EXPECT_EQ(run(ok + "--logits-out /dev/null --save-kv /dev/null").exitCode, 0);
  // A link stays one.
  EXPECT_EQ(run(ok + "--logits-out " + d + "link.npy").exitCode, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(d + "link.npy"));
  EXPECT_THAT(readFile(d + "new.npy"), StartsWith("\x93NUMPY"));
}

TEST_F(PrefillRun, NoticesThatNobodyGetsTheOutput) {
  std::string ok = module + " --random-weights 7 --tokens 1,2 ";
  for (std::string arguments :
       {ok, ok + "--stats=json", module + " --describe", std::string("--help"),
        std::string("--version")})
    for (const char *output : {"&-", "/dev/full"})
      EXPECT_THAT(errorOf(arguments, output),
                  HasSubstr("cannot write to standard output: "));
  // No file of the run takes the number of a closed stream.
  std::string npy = directory.path() + "/logits.npy";
  EXPECT_EQ(run(ok + "--logits-out " + npy).exitCode, 0);
  std::string expected = readFile(npy);
  errorOf(ok + "--logits-out " + npy + " <&-", "&-");
  EXPECT_EQ(readFile(npy), expected);
}

TEST_F(PrefillRun, ReportsTheLimitOfAFileSize) {
  // Not a death by SIGXFSZ. One block, 512 or 1024 bytes, is less than the help
  // and more than the error.
  Result result = run("--help", "", "ulimit -f 1; ");
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_EQ(result.err,
            "error: cannot write to standard output: File too large\n");
  std::string ok = module + " --random-weights 7 --tokens 1,2 ";
  EXPECT_THAT(errorOf(ok, "", "ulimit -f 1; "),
              HasSubstr("bytes of code to memory: File too large"));
  EXPECT_THAT(errorOf(ok + "--logits-out /dev/full"),
              HasSubstr("cannot write '/dev/full': No space left on device"));
}

TEST_F(PrefillRun, InputsArePlainFiles) {
  std::string d = directory.path() + "/";
  std::string patience = "timeout 60 "; // it once waited for ever
  ASSERT_EQ(::mkfifo((d + "pipe").c_str(), 0600), 0);
  for (const std::string &path : {d + "pipe", std::string("/dev/zero"), d})
    EXPECT_THAT(errorOf(path + " --describe", "", patience),
                HasSubstr("cannot read '" + path + "': not a regular file"));
  std::string ok = module + " --tokens 1 --weights " + d;
  ASSERT_EQ(::mkfifo((d + "config.json").c_str(), 0600), 0);
  directory.write("model.safetensors", checkpointFile(7));
  EXPECT_THAT(errorOf(ok, "", patience),
              HasSubstr("config.json': not a regular file"));
  std::remove((d + "config.json").c_str());
  std::remove((d + "model.safetensors").c_str());
  directory.write("config.json", checkpointConfig());
  ASSERT_EQ(::mkfifo((d + "model.safetensors").c_str(), 0600), 0);
  EXPECT_THAT(errorOf(ok, "", patience),
              HasSubstr("model.safetensors': not a regular file"));
  // Tokens may come through a pipe.
  EXPECT_EQ(run(module + " --random-weights 7 --tokens-file /dev/stdin", "",
                "printf '1, 2\n3' | ")
                .exitCode,
            0);
}

TEST_F(PrefillRun, RefusesADamagedModule) {
  std::string bytes = readFile(module);
  std::string run = " --random-weights 7 --tokens 1,2";
  std::string changed = bytes;
  changed[changed.find("\x7f"
                       "ELF") +
          5000] ^= 1;
  for (const std::string &damaged : {changed, bytes + '\0'})
    EXPECT_THAT(errorOf(directory.write("damaged.pfm", damaged) + run),
                HasSubstr("damaged.pfm': invalid module: the file is damaged: "
                          "checksum 0x"));
}

TEST_F(PrefillRun, NamesTheOtherModelType) {
  std::string config = checkpointConfig();
  config.replace(config.find("llama"), 5, "qwen2");
  directory.write("config.json", config);
  directory.write("model.safetensors", checkpointFile(7));
  EXPECT_THAT(
      errorOf(module + " --tokens 1 --weights " + directory.path()),
      HasSubstr("model_type is 'qwen2', but the module was compiled for "
                "'llama'"));
}

TEST_F(PrefillRun, StatsListTheLaunchesOfEveryCall) {
  Result result = run(module + " --random-weights 7 --tokens 1,2,3,4,5 --chunk "
                               "2 --decode 2 --stats=json");
  ASSERT_EQ(result.exitCode, 0) << result.err;
  nlohmann::json stats = nlohmann::json::parse(result.out);
  EXPECT_EQ(stats["kernels_per_layer"], 3);
  nlohmann::json launches = stats["launches"];
  ASSERT_EQ(launches.size(), 4u * 8); // three chunks and a decode step
  EXPECT_EQ(launches[0]["name"], "tk_embed");
  for (size_t i = 8; i < launches.size(); ++i) {
    EXPECT_EQ(launches[i]["name"], launches[i - 8]["name"]);
    EXPECT_EQ(launches[i]["layer"], launches[i - 8]["layer"]);
    EXPECT_NE(launches[i]["call"], launches[i - 8]["call"]);
  }
  EXPECT_EQ(launches[7]["call"], "prefill 0..2");
}

TEST_F(PrefillRun, LeavesNoFileBehindWhenItFails) {
  std::string npy = directory.path() + "/logits.npy";
  directory.write("logits.npy", "precious");
  TestModelOptions options;
  options.linearKernel = "tk_linear_past_buffer";
  writeModule(makeTestModule(options));
  EXPECT_THAT(errorOf(module +
                      " --random-weights 7 --tokens 1,2 --poison "
                      "--logits-out " +
                      npy + " --profile " + directory.path() + "/trace"),
              HasSubstr("kernel 'tk_linear_past_buffer' (launch 3, layer 0) "
                        "wrote behind buffer 'hidden'"));
  EXPECT_EQ(readFile(npy), "precious");
  for (const auto &entry :
       std::filesystem::directory_iterator(directory.path()))
    EXPECT_THAT(entry.path().filename().string(),
                testing::AnyOf("logits.npy", "model.pfm", "out", "err"));
}

TEST_F(PrefillRun, RefusesAPoisonedResult) {
  TestModelOptions options;
  options.linearKernel = "tk_linear_reads_padding";
  writeModule(makeTestModule(options));
  EXPECT_EQ(run(module + " --random-weights 7 --tokens 1,2,3").exitCode, 0);
  EXPECT_THAT(errorOf(module + " --random-weights 7 --tokens 1,2,3 --poison "
                               "--all-logits"),
              HasSubstr("prefill 0..3: the logits hold NaN"));
}

} // namespace
