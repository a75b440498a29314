"""Scripts refuse what they do not know with one line, before they do anything."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from command_line import ArgumentParser, positive  # noqa: E402

# bench-peers installs its environment first; what stands after a name makes a complete command line of it.
SCRIPTS = ["scripts/bootstrap", "scripts/check-format", "scripts/demo", "scripts/emulate-model", "scripts/generate-docs",
           "scripts/measure-startup", "scripts/pass-ablation", "scripts/plot-bench rows.json", "scripts/run-python-tests",
           "scripts/sass-report a.cubin", "scripts/test", "scripts/traffic-report"]


class Refusals(unittest.TestCase):
    def refusal(self, *command):
        result = subprocess.run([ROOT / command[0], *command[1:]], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                timeout=60)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout, "")
        self.assertRegex(result.stderr, r"\Aerror: [^\n]+\n\Z")
        return result.stderr

    def test_unknown_option(self):
        for script in SCRIPTS:
            with self.subTest(script):
                self.assertIn("--no-such-option", self.refusal(*script.split(), "--no-such-option"))

    def test_numbers(self):
        for script in ("measure-startup", "pass-ablation"):
            for value in ("0", "-1", "1.5", "x", ""):
                self.assertIn(f"--rounds: '{value}' given, expected a whole number from 1",
                              self.refusal(f"scripts/{script}", f"--rounds={value}"))

    def test_missing_programs(self):
        self.assertIn("cannot run /nowhere/prefill-translate", self.refusal("scripts/pass-ablation", "--bin=/nowhere"))

    def test_number_of_arguments(self):
        for script in ("print-stats", "summarize-tests"):
            self.assertIn("got 2 arguments, expected", self.refusal(f"scripts/{script}", "a", "b"))

    def test_stats_that_are_none(self):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch, "stats.json")
            self.assertIn(f"cannot read '{file}'", self.refusal("scripts/print-stats", file))
            for text, message in (("{", "cannot read"), ("{}", "is not what prefill-run --stats=json writes"),
                                  ("[]", "is not what prefill-run --stats=json writes")):
                file.write_text(text)
                self.assertIn(message, self.refusal("scripts/print-stats", file))

    def test_files_of_the_traffic_report(self):
        with tempfile.TemporaryDirectory() as scratch:
            for path in (scratch, scratch + "/missing/counters.json"):
                self.assertIn(f"--save is '{path}', expected a file in a directory that can be written to",
                              self.refusal("scripts/traffic-report", "--bin=/nowhere", "--save", path))
            file = pathlib.Path(scratch, "counters.json")
            for text in (None, "{", "[]", '[["", []]]', '[["", []], ["", {}]]', "[1, 2]"):
                if text:
                    file.write_text(text)
                self.assertIn(f"'{file}'", self.refusal("scripts/traffic-report", "--load", file))
            self.assertIn("not allowed with", self.refusal("scripts/traffic-report", "--load", file, "--save", file))


class Numbers(unittest.TestCase):
    def test_positive(self):
        parser = ArgumentParser()
        parser.add_argument("--n", type=positive)
        self.assertEqual(parser.parse_args(["--n", "2147483647"]).n, 2147483647)


if __name__ == "__main__":
    unittest.main()
