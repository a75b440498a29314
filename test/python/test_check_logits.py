"""python/check_logits.py: the number every golden test relies on."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from check_logits import rel_error  # noqa: E402


class RelError(unittest.TestCase):
    def test_value(self):
        self.assertAlmostEqual(rel_error([3.0, 4.5], [3.0, 4.0]), 0.1)

    def test_equal_is_zero(self):
        self.assertEqual(rel_error([1.0, -2.0], [1.0, -2.0]), 0.0)

    def test_not_finite_is_infinite(self):
        for bad in (float("nan"), float("inf")):
            self.assertEqual(rel_error([1.0, bad], [1.0, 2.0]), float("inf"))
            self.assertEqual(rel_error([1.0, 2.0], [1.0, bad]), float("inf"))

    def test_zero_expected(self):
        self.assertEqual(rel_error([0.0], [0.0]), 0.0)
        self.assertEqual(rel_error([1e-30], [0.0]), float("inf"))

    def test_refuses_shapes(self):
        with self.assertRaises(ValueError):
            rel_error(np.zeros((1, 3)), np.zeros(3))
        with self.assertRaises(ValueError):
            rel_error(np.zeros(0), np.zeros(0))


class CommandLine(unittest.TestCase):
    def run_tool(self, actual, expected, *options):
        with tempfile.TemporaryDirectory() as scratch:
            paths = [str(pathlib.Path(scratch, name)) for name in ("a.npy", "e.npy")]
            for path, array in zip(paths, (actual, expected)):
                if array is not None:
                    np.save(path, array)
            return subprocess.run([sys.executable, str(ROOT / "python" / "check_logits.py"), *paths, *options],
                                  capture_output=True, text=True)

    def test_exit_codes(self):
        one = np.array([3.0, 4.0], np.float32)
        off = np.array([3.0, 4.5], np.float32)
        self.assertEqual(self.run_tool(one, one, "--max-rel", "0").returncode, 0)
        self.assertEqual(self.run_tool(off, one, "--max-rel", "0.11").returncode, 0)
        self.assertEqual(self.run_tool(off, one, "--max-rel", "0.09").returncode, 1)
        self.assertEqual(self.run_tool(off[None], np.stack([off, one]), "--row", "1", "--max-rel", "0.09").returncode, 1)
        missing = self.run_tool(None, one, "--max-rel", "1")
        self.assertEqual(missing.returncode, 2)
        self.assertTrue(missing.stderr.startswith("error: "), missing.stderr)
        self.assertEqual(self.run_tool(one, one, "--max-rel", "x").stderr, "error: argument --max-rel: invalid float value: 'x'\n")


if __name__ == "__main__":
    unittest.main()
