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
        self.verified = numbers_in((ROOT / "lib" / "Dialect" / "Prefill" / "IR").glob("*.cpp"))
        self.tested = numbers_in((ROOT / "test" / "Dialect" / "Prefill").glob("invalid-*.mlir"))

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


if __name__ == "__main__":
    unittest.main()
