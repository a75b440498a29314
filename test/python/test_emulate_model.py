"""scripts/emulate-model on a model that is small enough for CI, and what it says about a plan of another form."""
import importlib.machinery
import importlib.util
import os
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build/release/bin"))
SCRIPT = ROOT / "scripts/emulate-model"


def load_script():
    loader = importlib.machinery.SourceFileLoader("emulate_model", str(SCRIPT))
    loader_spec = importlib.util.spec_from_loader("emulate_model", loader)
    module = importlib.util.module_from_spec(loader_spec)
    loader.exec_module(module)
    return module


class EmulateModel(unittest.TestCase):
    def test_two_layers(self):
        result = subprocess.run([sys.executable, SCRIPT, "--shape", "qwen2.5-0.5b", "--layers", "2", "--vocab", "512",
                                 "--tokens", "17", "--seed", "3", "--bin", BIN], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("17 tokens, cuda-emu:sm_80, seed 3: no finding", result.stdout)
        self.assertIn("each of 2 layers: qkv_proj, attention, o_proj, gate_up_proj, down_proj", result.stdout)
        self.assertIn("relative error of 17 rows of logits", result.stdout)

    def test_errors_are_one_line(self):
        for arguments, said in ((["--bin", "/nonexistent"], "cannot run '/nonexistent/prefill-translate': No such file"),
                                (["--vocab", "0"], "argument --vocab: '0' given, expected a whole number from 1"),
                                (["--layers", "-1"], "argument --layers: '-1' given, expected a whole number from 1"),
                                (["--tokens", "1.5"], "argument --tokens: '1.5' given, expected a whole number from 1"),
                                (["--shap", "x"], "unrecognized arguments: --shap x"),
                                (["--bin", BIN, "--shape", "x"], "prefill-translate: exit code 1: unknown shape 'x'"),
                                (["--bin", BIN, "--chip", "sm_75"], "prefill-opt: exit code 1: --target is 'cuda-emu:sm_75'")):
            result = subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True)
            self.assertNotEqual(result.returncode, 0)
            self.assertEqual(result.stdout, "")
            self.assertTrue(result.stderr.startswith(f"error: {said}"), result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_launches(self):
        script = load_script()
        names = ["qkv_proj", "attention", "o_proj", "gate_up_proj", "down_proj"]

        def plan(*layers):
            return [{"layer": layer, "name": name} for layer, name in layers]
        layers = [(layer, name) for layer in range(2) for name in names]
        good = plan((-1, "embed"), *layers, (-1, "final_norm"), (-1, "lm_head"))
        self.assertEqual(script.launches_by_layer(good), {0: names, 1: names})
        for bad in (plan(*layers[:5], (-1, "copy"), *layers[5:]),  # between layers
                    plan(*layers, (1, "add")),                     # six in one
                    plan(*layers[5:], *layers[:5])):               # in another order
            with self.assertRaises(SystemExit) as raised:
                script.launches_by_layer(bad)
            self.assertIn("expected 5 a layer and none between", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
