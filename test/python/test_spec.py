"""Every numbered constraint of docs/spec.md is enforced by a verifier and has a negative test, and nothing else is."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\b([A-Z][A-Z_]*-C\d+)\b")


def numbers_in(paths):
    return {number for path in paths for number in NUMBER.findall(path.read_text())}


class Constraints(unittest.TestCase):
    def setUp(self):
        text = (ROOT / "docs" / "spec.md").read_text()
        self.defined = re.findall(r"^- \*\*([A-Z][A-Z_]*-C\d+)\*\* ", text, re.MULTILINE)
        dialect, tests = ROOT / "lib" / "Dialect" / "Prefill", ROOT / "test" / "Dialect" / "Prefill"
        # The ops' and types' verifiers, and prefill-verify-model.
        self.verified = numbers_in([*dialect.glob("IR/*.cpp"), *dialect.glob("Transforms/Model*.cpp")])
        self.tested = numbers_in([*tests.glob("invalid-*.mlir"), tests / "verify-model-contract.mlir"])

    def test_each_is_defined_once(self):
        self.assertGreater(len(self.defined), 80)
        twice = {number for number in self.defined if self.defined.count(number) > 1}
        self.assertEqual(twice, set())

    def test_numbers_have_no_gaps(self):
        for prefix in {number.rsplit("-C", 1)[0] for number in self.defined}:
            count = sum(number.rsplit("-C", 1)[0] == prefix for number in self.defined)
            for index in range(1, count + 1):
                self.assertIn(f"{prefix}-C{index}", self.defined)

    def test_each_is_in_a_verifier(self):
        self.assertEqual(set(self.defined) - self.verified, set())

    def test_each_has_a_negative_test(self):
        self.assertEqual(set(self.defined) - self.tested, set())

    def test_verifiers_and_tests_invent_none(self):
        self.assertEqual((self.verified | self.tested) - set(self.defined), set())


class Status(unittest.TestCase):
    """docs/status.md has one row for each op of the dialect, and no empty column."""

    COLUMNS = ["op", "spec", "verify", "interpret", "cpu", "cuda"]

    def setUp(self):
        sources = (ROOT / "include" / "prefill" / "Dialect" / "Prefill" / "IR").glob("*.td")
        text = "".join(path.read_text() for path in sources)
        # The C++ class of each op by its name.
        self.ops = {name: cls for cls, name in re.findall(r'^def Prefill_(\w+Op)\s*:[^"]*"(\w+)"', text, re.MULTILINE)}
        self.definitions = len(re.findall(r"^def Prefill_\w+Op\b", text, re.MULTILINE))
        lines = (ROOT / "docs" / "status.md").read_text().splitlines()
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
        self.header, self.rows = rows[0], rows[2:]

    def test_finds_every_op(self):
        self.assertGreater(self.definitions, 25)
        self.assertEqual(len(self.ops), self.definitions)

    def test_each_op_has_one_row(self):
        self.assertEqual(sorted(row[0] for row in self.rows), sorted(f"`{op}`" for op in self.ops))

    def test_columns_are_filled(self):
        self.assertEqual(self.header, self.COLUMNS)
        for row in self.rows:
            self.assertEqual(len(row), len(self.COLUMNS), row)
            for cell in row[1:]:
                self.assertRegex(cell, r"^(yes|no|nothing to check)\b", row[0])

    def test_columns_tell_the_truth(self):
        spec_text = (ROOT / "docs" / "spec.md").read_text()
        interpreter = "".join(path.read_text() for path in (ROOT / "lib" / "Reference").glob("*.cpp"))
        for name, spec, verify, interpret, *_ in self.rows:
            op = name.strip("`")
            # The rules of a terminator are its region's, and gemm and rowwise read it.
            if op == "yield":
                continue
            self.assertTrue(spec.startswith("yes"), op)
            self.assertEqual(f"**{op.upper()}-C1**" in spec_text, verify.startswith("yes"), op)
            self.assertEqual(re.search(rf"\b{self.ops[op]}\b", interpreter) is not None, interpret.startswith("yes"), op)


if __name__ == "__main__":
    unittest.main()
