"""Bad input to every tool: exit code not 0, one clear line, no crash, nothing left half written.

    PREFILL_BIN=build/release/bin python3 -m unittest discover -s test/python -p test_malformed_inputs.py

scripts/test runs this with the tools of the sanitized build as well. The single checks of the importer and of the
module loader have their own C++ tests; here the whole tools are run as a user runs them.
"""

import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")).resolve()
TINY = ROOT / "test" / "models" / "tiny"
SHARDED = ROOT / "test" / "golden" / "llama-sharded"
OTHER_CHECKPOINT = ROOT / "test" / "golden" / "llama-mha"
MAX_SEQ = 64
NUM_MUTATIONS = 80
TIMEOUT_S = 300

scratch = None  # a directory with tiny.mlir and tiny.pfm


def tool(name, *arguments):
    return subprocess.run([BIN / name, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True,
                          timeout=TIMEOUT_S)


def setUpModule():
    global scratch
    scratch = pathlib.Path(tempfile.mkdtemp())
    for command in (
        ("prefill-translate", "--import-hf", TINY, "-o", scratch / "tiny.mlir"),
        ("prefill-opt", scratch / "tiny.mlir", "--compile", "--target=cpu", "--dtype=f32", f"--max-seq={MAX_SEQ}",
         "-o", scratch / "tiny.pfm"),
        ("prefill-run", scratch / "tiny.pfm", "--weights", TINY, "--tokens", "1,2,3"),
    ):
        result = tool(*command)
        if result.returncode != 0:
            raise RuntimeError(f"{command[0]} fails on good input: {result.stderr.decode(errors='replace')[-500:]}")


def tearDownModule():
    if scratch is not None:
        shutil.rmtree(scratch)


class MalformedInput(unittest.TestCase):
    def refused(self, result, *names):
        """`names`: what the line must name."""
        stderr = result.stderr.decode(errors="replace")
        self.assertGreater(result.returncode, 0, f"killed by a signal or accepted:\n{stderr[-2000:]}")
        self.assertNotRegex(stderr, r"Sanitizer|runtime error:|Stack dump|LLVM ERROR|terminate called")
        lines = [line for line in stderr.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, f"expected one line 'error: …', got:\n{stderr[-2000:]}")
        for name in names:
            self.assertRegex(lines[0], re.compile(name), "the line does not name it")
        return lines[0]


# ---- Checkpoints, seen by the importer.

def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8:8 + length]), data[8 + length:]


def write_safetensors(path, header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def edit_config(**changes):
    """A key set to None is removed."""
    def edit(directory):
        path = directory / "config.json"
        config = json.loads(path.read_text())
        for key, value in changes.items():
            config[key] = value
            if value is None:
                del config[key]
        path.write_text(json.dumps(config))
    return edit


def edit_header(change):
    def edit(directory):
        path = directory / "model.safetensors"
        header, data = read_safetensors(path)
        change(header)
        write_safetensors(path, header, data)
    return edit


def edit_file(name, change):
    def edit(directory):
        path = directory / name
        path.write_bytes(change(path.read_bytes()))
    return edit


def edit_index(change):
    def edit(directory):
        path = directory / "model.safetensors.index.json"
        index = json.loads(path.read_text())
        change(index["weight_map"])
        path.write_text(json.dumps(index))
    return edit


def remove(name):
    return lambda directory: (directory / name).unlink()


Q = "model.layers.0.self_attn.q_proj.weight"
K = "model.layers.0.self_attn.k_proj.weight"


def rename(header, old, new):
    header[new] = header.pop(old)


def first_shard(weight_map, name):
    weight_map[next(iter(weight_map))] = name


# name: (checkpoint, edit, what the error must name)
CHECKPOINTS = {
    "config_missing": (TINY, remove("config.json"), ["config.json"]),
    "config_empty": (TINY, edit_file("config.json", lambda data: b""), ["config.json"]),
    "config_then_nul": (TINY, edit_file("config.json", lambda data: data + b"\0{}"), ["config.json", "NUL"]),
    "config_then_garbage": (TINY, edit_file("config.json", lambda data: data + b"}"), ["config.json", "syntax error"]),
    "config_truncated": (TINY, edit_file("config.json", lambda data: data[:len(data) // 2]), ["config.json"]),
    "config_is_a_list": (TINY, edit_file("config.json", lambda data: b"[1, 2]"), ["config.json"]),
    "config_deeply_nested": (TINY, edit_file("config.json", lambda data: b"[" * 200000), ["config.json"]),
    "config_unknown_model_type": (TINY, edit_config(model_type="mamba", architectures=["MambaForCausalLM"]), ["[Mm]amba"]),
    "config_quantized": (TINY, edit_config(quantization_config={"quant_method": "gptq"}), ["quantization_config|gptq"]),
    "config_unknown_rope": (TINY, edit_config(rope_scaling={"rope_type": "spiral", "factor": 2.0}), ["spiral"]),
    "config_no_hidden_size": (TINY, edit_config(hidden_size=None), ["hidden_size"]),
    "config_negative_layers": (TINY, edit_config(num_hidden_layers=-3), ["num_hidden_layers", "-3"]),
    "config_heads_do_not_divide": (TINY, edit_config(num_key_value_heads=3), ["num_key_value_heads", "3"]),
    "config_huge_vocabulary": (TINY, edit_config(vocab_size=2**62), ["vocab_size", str(2**62)]),
    "config_text_for_number": (TINY, edit_config(intermediate_size="256"), ["intermediate_size"]),
    "config_eps_zero": (TINY, edit_config(rms_norm_eps=-1.0), ["rms_norm_eps", "-1"]),
    "config_unknown_activation": (TINY, edit_config(hidden_act="relu6"), ["hidden_act", "relu6"]),
    "tensors_missing_file": (TINY, remove("model.safetensors"), ["safetensors"]),
    "tensors_empty_file": (TINY, edit_file("model.safetensors", lambda data: b""), ["model.safetensors"]),
    "tensors_seven_bytes": (TINY, edit_file("model.safetensors", lambda data: data[:7]), ["model.safetensors"]),
    "tensors_truncated": (TINY, edit_file("model.safetensors", lambda data: data[:-1000]), ["model.safetensors|offset"]),
    "tensors_header_length_2_63": (
        TINY, edit_file("model.safetensors", lambda data: struct.pack("<Q", 2**63) + data[8:]), ["model.safetensors"]),
    "tensors_header_no_json": (
        TINY, edit_file("model.safetensors", lambda data: data[:8] + b"x" * 64 + data[72:]), ["model.safetensors"]),
    "tensors_trailing_bytes": (TINY, edit_file("model.safetensors", lambda data: data + b"\0" * 64), ["model.safetensors"]),
    "tensors_missing": (TINY, edit_header(lambda h: rename(h, Q, "model.layers.0.self_attn.q_prj.weight")), ["q_pro?j"]),
    "tensors_wrong_shape": (TINY, edit_header(lambda h: h[Q].update(shape=h[Q]["shape"][::-1])), ["q_proj"]),
    "tensors_negative_shape": (TINY, edit_header(lambda h: h[Q].update(shape=[-1, 96])), ["q_proj", "-1"]),
    "tensors_count_overflow": (TINY, edit_header(lambda h: h[Q].update(shape=[2**33, 2**33])), ["q_proj"]),
    "tensors_unknown_dtype": (TINY, edit_header(lambda h: h[Q].update(dtype="I3")), ["q_proj|I3"]),
    "tensors_offsets_out_of_range": (
        TINY, edit_header(lambda h: h[Q].update(data_offsets=[2**40, 2**40 + 24576])), ["q_proj"]),
    "tensors_offsets_reversed": (TINY, edit_header(lambda h: h[Q].update(data_offsets=h[Q]["data_offsets"][::-1])),
                                 ["q_proj"]),
    "tensors_overlap": (TINY, edit_header(lambda h: h[K].update(
        data_offsets=[h[Q]["data_offsets"][0], h[Q]["data_offsets"][0] + h[K]["data_offsets"][1] - h[K]["data_offsets"][0]])),
        ["_proj|belong to no tensor"]),
    "index_truncated": (SHARDED, edit_file("model.safetensors.index.json", lambda data: data[:40]), ["index.json"]),
    "index_leaves_the_directory": (SHARDED, edit_index(lambda m: first_shard(m, "../../evil.safetensors")), [r"\.\."]),
    "index_absolute_path": (SHARDED, edit_index(lambda m: first_shard(m, "/etc/passwd")), ["/etc/passwd"]),
    "index_names_missing_shard": (SHARDED, edit_index(lambda m: first_shard(m, "model-9.safetensors")), ["model-9"]),
    "index_names_number": (SHARDED, edit_index(lambda m: first_shard(m, 7)), ["index.json"]),
}


def checkpoint_test(source, edit, names):
    def test(self):
        with tempfile.TemporaryDirectory() as parent:
            directory = pathlib.Path(parent) / "checkpoint"
            shutil.copytree(source, directory, ignore=shutil.ignore_patterns("*.npy"))
            edit(directory)
            out = pathlib.Path(parent) / "out.mlir"
            self.refused(tool("prefill-translate", "--import-hf", directory, "-o", out), *names)
            self.assertEqual([file.name for file in pathlib.Path(parent).iterdir()], ["checkpoint"], "left something")
    return test


class Checkpoints(MalformedInput):
    pass


for name, case in CHECKPOINTS.items():
    setattr(Checkpoints, f"test_{name}", checkpoint_test(*case))


# ---- Graphs and options, seen by the compiler.

# name: (input IR or None for tiny.mlir, arguments, what the error must name)
COMPILATIONS = {
    "no_such_file": ("missing.mlir", ["--compile"], ["missing.mlir"]),
    "empty_ir": (b"", ["--compile"], []),
    "not_ir": (b"\x7fELF\x02\x01\x01\0\0\0", ["--compile"], []),
    "truncated_ir": ("half", ["--compile"], []),
    "no_model_in_ir": (b"func.func @f() { return }", ["--compile"], []),
    "wrong_operand": (b"""func.func @f(%x: tensor<?x64xbf16>, %g: tensor<32xbf16>) -> tensor<?x64xbf16> {
        %y = prefill.rms_norm %x, %g {eps = 1.0e-5 : f64} : tensor<?x64xbf16>, tensor<32xbf16> -> tensor<?x64xbf16>
        return %y : tensor<?x64xbf16> }""", ["--compile"], ["rms_norm", "32", "64"]),
    "wrong_signature": (b"func.func @prefill(%x: tensor<?x64xbf16>) { return }", ["--compile"], ["@prefill", "tensor"]),
    "unknown_target": (None, ["--compile", "--target=abacus"], ["--target", "abacus", "cpu"]),
    "unknown_dtype": (None, ["--compile", "--dtype=f8"], ["--dtype", "f8", "bf16"]),
    "unknown_layout": (None, ["--compile", "--kv-layout=spiral"], ["--kv-layout", "spiral", "contiguous"]),
    "block_size_zero": (None, ["--compile", "--kv-layout=paged_nhd:0"], ["--kv-layout", "0"]),
    "block_size_text": (None, ["--compile", "--kv-layout=paged_nhd:x"], ["--kv-layout", "x"]),
    "max_seq_zero": (None, ["--compile", "--max-seq=0"], ["--max-seq", "0"]),
    "max_seq_beyond_model": (None, ["--compile", "--max-seq=99999999"], ["max", "99999999", "4096"]),
    "unknown_pass": (None, ["--compile", "--disable-pass=make-it-fast"], ["--disable-pass", "make-it-fast"]),
    "unknown_level": (None, ["--compile-to=heaven"], ["--compile-to", "heaven", "fused"]),
    "unknown_option": (None, ["--compile", "--fast"], ["--fast"]),
}


def compilation_test(source, arguments, names):
    def test(self):
        with tempfile.TemporaryDirectory() as parent:
            path = pathlib.Path(parent) / "in.mlir"
            if source is None:
                path = scratch / "tiny.mlir"
            elif source == "half":
                text = (scratch / "tiny.mlir").read_bytes()
                path.write_bytes(text[:len(text) // 2])
            elif isinstance(source, bytes):
                path.write_bytes(source)
            else:
                path = pathlib.Path(parent) / source
            out = pathlib.Path(parent) / "out.pfm"
            self.refused(tool("prefill-opt", path, *arguments, "-o", out), *names)
            self.assertFalse(out.exists(), "a module was written")
    return test


class Compilations(MalformedInput):
    def test_output_directory_missing(self):
        out = scratch / "no" / "such" / "out.pfm"
        self.refused(tool("prefill-opt", scratch / "tiny.mlir", "--compile", "-o", out), r"no/such/out\.pfm")

    def test_synthesize_unknown_shape(self):
        self.refused(tool("prefill-translate", "--synthesize", "gpt-9"), "gpt-9", "llama-2-7b")

    def test_synthesize_zero_layers(self):
        self.refused(tool("prefill-translate", "--synthesize", "llama-2-7b", "--layers", "0"), "--layers", "0")


for name, case in COMPILATIONS.items():
    setattr(Compilations, f"test_{name}", compilation_test(*case))


# ---- Runs of a good module.

RUNS = {
    "no_weights": (["--tokens", "1"], ["--weights"]),
    "weights_missing": (["--weights", "no-such-directory", "--tokens", "1"], ["no-such-directory"]),
    "weights_of_another_model": (["--weights", OTHER_CHECKPOINT, "--tokens", "1"], ["llama-mha|tensor|shape|weight|hidden"]),
    "no_prompt": (["--weights", TINY], ["--tokens"]),
    "prompt_empty": (["--weights", TINY, "--tokens", ""], ["--tokens"]),
    "text_empty": (["--weights", TINY, "--text", ""], ["--text"]),
    "two_prompts": (["--weights", TINY, "--tokens", "1", "--text", "a"], ["prompt"]),
    "token_too_large": (["--weights", TINY, "--tokens", "1,256"], ["256"]),
    "token_negative": (["--weights", TINY, "--tokens", "1,-1"], ["-1"]),
    "token_text": (["--weights", TINY, "--tokens", "1,x"], ["x"]),
    "token_overflow": (["--weights", TINY, "--tokens", "99999999999999999999"], ["99999999999999999999"]),
    "tokens_file_missing": (["--weights", TINY, "--tokens-file", "no-such-file"], ["no-such-file"]),
    "prompt_too_long": (["--weights", TINY, "--tokens", ",".join(["1"] * (MAX_SEQ + 1))], [str(MAX_SEQ + 1), str(MAX_SEQ)]),
    "decode_too_long": (["--weights", TINY, "--tokens", "1", "--decode", MAX_SEQ + 1], [str(MAX_SEQ)]),
    "decode_negative": (["--weights", TINY, "--tokens", "1", "--decode", "-1"], ["--decode", "-1"]),
    "threads_zero": (["--weights", TINY, "--tokens", "1", "--threads", "0"], ["--threads", "0"]),
    "seed_text": (["--random-weights", "x", "--tokens", "1"], ["--random-weights", "x"]),
    "device_unknown": (["--weights", TINY, "--tokens", "1", "--device", "abacus"], ["abacus", "cpu"]),
    "device_cuda": (["--weights", TINY, "--tokens", "1", "--device", "cuda"], ["cuda"]),
    "stats_xml": (["--weights", TINY, "--tokens", "1", "--stats=xml"], ["--stats", "xml", "json"]),
    "token_missing": (["--weights", TINY, "--tokens", "1,,2"], ["--tokens", "token 1 is missing at character 3"]),
    "token_trailing_comma": (["--weights", TINY, "--tokens", "1,2,"], ["--tokens", "token 2 is missing at character 5"]),
    "logits_out_empty": (["--weights", TINY, "--tokens", "1", "--logits-out", ""], ["--logits-out is ''"]),
    "outputs_collide": (["--weights", TINY, "--tokens", "1", "--logits-out", "same", "--save-kv", "./same"],
                        ["--logits-out 'same' and --save-kv './same'"]),
    "newline_in_path": (["--weights", TINY, "--tokens-file", "two\nlines"], [r"two\\x0alines"]),
    "option_unknown": (["--weights", TINY, "--tokens", "1", "--fast"], ["--fast"]),
    "logits_out_nowhere": (["--weights", TINY, "--tokens", "1", "--logits-out", "no/such/dir/l.npy"], ["no/such/dir/l.npy"]),
}


class Runs(MalformedInput):
    def test_output_at_the_place_of_the_weights_cache(self):
        place = scratch / "tiny.pfm.weights"
        self.refused(tool("prefill-run", scratch / "tiny.pfm", "--weights", TINY, "--tokens", "1", "--logits-out", place),
                     f"the weights cache '.*tiny.pfm.weights' and --logits-out '{place}' name the same file")


for name, (arguments, names) in RUNS.items():
    setattr(Runs, f"test_{name}", lambda self, arguments=arguments, names=names: self.refused(
        tool("prefill-run", scratch / "tiny.pfm", *arguments), *names))


# ---- Module files.

MODULES = {
    "empty": lambda data: b"",
    "one_byte": lambda data: data[:1],
    "truncated_header": lambda data: data[:64],
    "truncated_half": lambda data: data[:len(data) // 2],
    "truncated_by_64": lambda data: data[:-64],
    "other_identifier": lambda data: data[:4] + b"ELF!" + data[8:],
    "text": lambda data: b"module {}\n" * 100,
    "root_out_of_range": lambda data: struct.pack("<I", 0xfffffff0) + data[4:],
    "appended": lambda data: data + b"\0",
    "all_ones": lambda data: data[:8] + b"\xff" * (len(data) - 8),
}


class Modules(MalformedInput):
    def run_module(self, data):
        with tempfile.TemporaryDirectory() as parent:
            path = pathlib.Path(parent) / "bad.pfm"
            path.write_bytes(data)
            return tool("prefill-run", path, "--weights", TINY, "--tokens", "1,2,3")

    def test_missing(self):
        self.refused(tool("prefill-run", "missing.pfm", "--weights", TINY, "--tokens", "1"), r"missing\.pfm")

    def test_directory(self):
        self.refused(tool("prefill-run", TINY, "--weights", TINY, "--tokens", "1"), "tiny")

    def test_code_changed(self):
        """One bit of the machine code: the checksum finds it before it is run."""
        data = bytearray((scratch / "tiny.pfm").read_bytes())
        data[data.index(b"\x7fELF") + 4096] ^= 1
        self.refused(self.run_module(bytes(data)), "bad.pfm.*the file is damaged: checksum 0x[0-9a-f]{16}, expected 0x")

    def test_mutations(self):
        """Random bytes changed anywhere: always refused, before anything runs."""
        good = (scratch / "tiny.pfm").read_bytes()
        chooser = random.Random(20240607)
        for _ in range(NUM_MUTATIONS):
            data = bytearray(good)
            # Half of them in the tables behind or before the machine code, which is most of the file.
            places = range(len(good)) if chooser.random() < 0.5 else [*range(4096), *range(len(good) - 4096, len(good))]
            changed = {chooser.choice(places): chooser.randrange(1, 256) for _ in range(chooser.choice([1, 1, 4]))}
            for position, change in changed.items():
                data[position] ^= change
            with self.subTest(changed=changed):
                self.refused(self.run_module(bytes(data)), "bad.pfm")

    def test_pipe(self):
        """Nobody writes to it: refused, not waited for."""
        with tempfile.TemporaryDirectory() as parent:
            path = pathlib.Path(parent) / "pipe.pfm"
            os.mkfifo(path)
            self.refused(tool("prefill-run", path, "--weights", TINY, "--tokens", "1"), "pipe.pfm.*not a regular file")


for name, change in MODULES.items():
    setattr(Modules, f"test_{name}", lambda self, change=change: self.refused(
        self.run_module(change((scratch / "tiny.pfm").read_bytes())), r"bad\.pfm|module"))


if __name__ == "__main__":
    unittest.main()
