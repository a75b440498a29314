"""prefill-translate on broken input: exit code not 0, one line `error: ...` that names the thing, and no output file.

The unit tests (test/unit/import) have more cases, in one process; here the tool itself is judged, on files as they lie on
a disk: shards, indices, truncated and hostile safetensors, and the command line.
"""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "test" / "python"))
import safetensors_file  # noqa: E402

GOLDEN = ROOT / "test" / "golden"
TRANSLATE = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin")) / "prefill-translate"

CASES = {}


def case(*expected, golden="llama-gqa3"):
    """A function that breaks a copy of a golden; `expected` are parts of the error line."""

    def register(function):
        CASES[function.__name__] = (function, expected, golden)
        return function

    return register


def edit(directory, **keys):
    path = directory / "config.json"
    config = json.loads(path.read_text())
    config.update(keys)
    path.write_text(json.dumps(config))


def edit_tensors(directory, change):
    path = directory / "model.safetensors"
    tensors = safetensors_file.read(path)
    change(tensors)
    path.unlink()
    safetensors_file.write(path, tensors)


def edit_header(directory, change):
    path = directory / "model.safetensors"
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header = change(header) or header
    path.write_bytes(safetensors_file.pack(header, raw[8 + length:]))


def edit_index(directory, change):
    path = directory / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))


NORM = "model.norm.weight"
Q0 = "model.layers.0.self_attn.q_proj.weight"


# config.json
@case("model_type", "gpt_neox", "qwen3")
def unknown_model_type(directory):
    edit(directory, model_type="gpt_neox")


@case("architectures", "LlamaForSequenceClassification", "LlamaForCausalLM")
def unknown_architecture(directory):
    edit(directory, architectures=["LlamaForSequenceClassification"])


@case("quantization_config", "awq")
def quantised(directory):
    edit(directory, quantization_config={"quant_method": "awq", "bits": 4})


@case("rope_type", "yarn", "llama3")
def unknown_rope(directory):
    edit(directory, rope_scaling={"rope_type": "yarn", "factor": 4.0})


@case("num_attention_heads is 6", "num_key_value_heads (4)")
def heads_do_not_divide(directory):
    edit(directory, num_key_value_heads=4)


@case("hidden_size", "\"96\"", "whole number")
def string_for_a_number(directory):
    edit(directory, hidden_size="96")


@case("num_hidden_layers is 1000000000000", "4096")
def a_million_million_layers(directory):
    edit(directory, num_hidden_layers=10**12)


@case("vocab_size is -131")
def negative(directory):
    edit(directory, vocab_size=-131)


@case("head_dim 23", "even")
def odd_head_dim(directory):
    edit(directory, head_dim=23)


@case("hidden_act", "relu", "silu")
def unknown_activation(directory):
    edit(directory, hidden_act="relu")


@case("attn_logit_softcapping is 50.0", "not supported")
def softcap(directory):
    edit(directory, attn_logit_softcapping=50.0)


@case("config.json", "No such file")
def no_config(directory):
    (directory / "config.json").unlink()


@case("config.json", "JSON")
def half_a_config(directory):
    path = directory / "config.json"
    path.write_text(path.read_text()[:100])


@case("config.json", "JSON")
def config_is_binary(directory):
    (directory / "config.json").write_bytes(bytes(range(256)))


@case("config.json", "expected an object")
def config_is_a_list(directory):
    (directory / "config.json").write_text("[]")


# The weights
@case("model.safetensors")
def no_weights(directory):
    (directory / "model.safetensors").unlink()


@case("model.safetensors")
def empty_weights(directory):
    (directory / "model.safetensors").write_bytes(b"")


@case("model.safetensors")
def truncated_weights(directory):
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


@case("model.safetensors")
def header_longer_than_file(directory):
    path = directory / "model.safetensors"
    path.write_bytes(struct.pack("<Q", 2**63) + path.read_bytes()[8:])


@case("model.safetensors", "JSON")
def header_is_not_json(directory):
    (directory / "model.safetensors").write_bytes(safetensors_file.pack(b"{\"a\": ", b""))


@case(NORM)
def shape_overflows(directory):
    def change(header):
        header[NORM]["shape"] = [2**40, 2**40]

    edit_header(directory, change)


@case(NORM)
def negative_dimension(directory):
    def change(header):
        header[NORM]["shape"] = [-96]

    edit_header(directory, change)


@case("safetensors")
def overlapping_tensors(directory):
    def change(header):
        header[NORM]["data_offsets"] = [0, 192]

    edit_header(directory, change)


@case(NORM, "BF15")
def unknown_stored_type(directory):
    def change(header):
        header[NORM]["dtype"] = "BF15"

    edit_header(directory, change)


@case(Q0, "[144, 96]", "missing")
def missing_tensor(directory):
    edit_tensors(directory, lambda tensors: tensors.pop(Q0))


@case("model.extra.weight", "[96]", "unexpected")
def unexpected_tensor(directory):
    edit_tensors(directory, lambda tensors: tensors.update({"model.extra.weight": tensors[NORM]}))


@case("up_proj", "[96, 176]", "[176, 96]", "transposed")
def transposed(directory):
    name = "model.layers.1.mlp.up_proj.weight"

    def change(tensors):
        dtype, array = tensors[name]
        tensors[name] = (dtype, array.T)

    edit_tensors(directory, change)


@case("qkv_proj", "fuses Q, K and V", "[48, 96]")
def fused_projection(directory):
    def change(tensors):
        tensors["model.layers.0.self_attn.qkv_proj.weight"] = tensors.pop(Q0)

    edit_tensors(directory, change)


@case("a\\nerror: b", "unexpected")
def line_break_in_a_name(directory):
    edit_tensors(directory, lambda tensors: tensors.update({"a\nerror: b": tensors[NORM]}))


# Shards
@case("model-00002-of-00003.safetensors", golden="llama-sharded")
def missing_shard(directory):
    (directory / "model-00002-of-00003.safetensors").unlink()


@case("../evil.safetensors", golden="llama-sharded")
def shard_outside(directory):
    edit_index(directory, lambda index: index["weight_map"].update({NORM: "../evil.safetensors"}))


@case("weight_map", golden="llama-sharded")
def no_weight_map(directory):
    edit_index(directory, lambda index: index.pop("weight_map"))


@case(NORM, golden="llama-sharded")
def tensor_not_in_its_shard(directory):
    def change(index):
        others = sorted(set(index["weight_map"].values()) - {index["weight_map"][NORM]})
        index["weight_map"][NORM] = others[0]

    edit_index(directory, change)


@case("weight_map", golden="llama-sharded")
def weight_map_is_a_list(directory):
    edit_index(directory, lambda index: index.update(weight_map=[]))


class ToolErrors(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)

    def expect_error(self, arguments, expected):
        done = subprocess.run([str(TRANSLATE), *map(str, arguments)], capture_output=True, timeout=60)
        error = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, 1, error)  # a crash is another number
        self.assertEqual(done.stdout, b"")
        self.assertTrue(error.startswith("error: ") and error.endswith("\n"), error)
        self.assertEqual(len(error.splitlines()), 1, error)
        for part in expected:
            self.assertIn(part, error)

    def check_broken(self, name):
        change, expected, golden = CASES[name]
        directory = self.scratch / "model"
        shutil.copytree(GOLDEN / golden, directory)
        change(directory)
        out = self.scratch / "out"
        out.mkdir()
        self.expect_error(["--import-hf", directory, "-o", out / "model.mlir"], expected)
        self.assertEqual(list(out.iterdir()), [])

    def test_there_are_enough_cases(self):
        self.assertGreaterEqual(len(CASES), 25)

    def test_unbroken_copy_imports(self):
        for golden in sorted({entry[2] for entry in CASES.values()}):
            done = subprocess.run([str(TRANSLATE), "--import-hf", GOLDEN / golden], capture_output=True)
            self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_command_line(self):
        shapes = "llama-2-7b, llama-3-8b, llama-3-70b, llama-3.2-1b, qwen2.5-0.5b"
        for arguments, expected in (
            ([], ["--import-hf", "--synthesize", "--interpret"]),
            (["model"], ["'model'", "--import-hf"]),
            (["--import-hf"], ["--import-hf needs a value"]),
            (["--import-hf="], ["--import-hf needs a value"]),
            (["--import-hf", self.scratch / "none"], ["none"]),
            (["--import-hf", self.scratch, "--laers", "2"], ["'--laers'", "-o"]),
            (["--synthesize", "llama-9"], ["'llama-9'", shapes]),
            (["--synthesize", "llama-2-7b", "--layers", "0"], ["--layers is 0", "4096"]),
            (["--synthesize", "llama-2-7b", "--layers", "two"], ["--layers", "'two'"]),
            (["--synthesize", "llama-2-7b", "--vocab", "9" * 30], ["--vocab", "9" * 30]),
            (["--synthesize", "llama-2-7b", "--layers", "1", "-o", self.scratch / "no" / "x"], ["no/x"]),
            (["--synthesize", "llama-2-7b", "--layers", "1", "-o", self.scratch], [str(self.scratch)]),
        ):
            with self.subTest(arguments=arguments):
                self.expect_error(arguments, expected)

    def test_full_disk(self):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([str(TRANSLATE), "--synthesize", "llama-3.2-1b"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, rb"^error: cannot write to stdout: .*\n$")


def add_case(name):
    setattr(ToolErrors, "test_" + name, lambda self: self.check_broken(name))


for case_name in CASES:
    add_case(case_name)

if __name__ == "__main__":
    unittest.main()
