"""Layers are equal, so their kernels are compiled once: sixteen take about as long to compile as two.

A ratio of processor times, never a time: it holds on any machine, however busy. Kernels for each layer would make it about
eight.
"""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("PREFILL_BIN", ROOT / "build" / "release" / "bin"))
BOUND = 1.5


def processor_seconds(command):
    """User time of a command and of what it runs."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
    message = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise AssertionError(f"{command}: {message}")
    return usage.ru_utime


class CompileTime(unittest.TestCase):
    def test_layers_share_their_kernels(self):
        with tempfile.TemporaryDirectory() as directory:
            seconds = {}
            for layers in (2, 16):
                model = os.path.join(directory, f"{layers}.mlir")
                processor_seconds([BIN / "prefill-translate", "--synthesize", "llama-3.2-1b", "--layers", str(layers), "-o",
                                   model])
                seconds[layers] = processor_seconds([BIN / "prefill-opt", model, "--compile", "--target=cpu", "--isa=avx2",
                                                     "--dtype=bf16", "-o", os.path.join(directory, "model.pfm")])
        self.assertLess(seconds[16], BOUND * seconds[2], seconds)


if __name__ == "__main__":
    unittest.main()
