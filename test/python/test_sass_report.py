"""scripts/sass-report: loops, units and rates, on machine code in nvdisasm's form; docs/sass.md where the tools are at hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from sass_report import disassembly, docs, loops, report, shipped, units  # noqa: E402


def kernel(*lines, chip=(8, 0)):
    """One kernel; a line is 'OPCODE operands'."""
    instructions = []
    for line in lines:
        opcode, _, operands = line.partition(" ")
        instructions.append({"opcode": opcode, "operands": operands} if operands else {"opcode": opcode})
    head = {"SM": {"version": {"major": chip[0], "minor": chip[1]}}}
    return disassembly.parse(json.dumps([head, [{"function-name": "k", "sass-instructions": instructions}]]))[0]


INNER = ["LDSM.16.M88.4 R0,[R1]", "LDGSTS.E.BYPASS.128 [R2],[R4.64]", "HMMA.16816.F32.BF16 R0,R1,R2,R3", "HMMA.16816.F32.BF16 R4,R5,R6,R7",
         "FFMA R1,R2,R3,R4", "MUFU.EX2 R1,R2", "IADD3 R1,R2,R3,R4"]


class Loops(unittest.TestCase):
    def test_innermost_loop_with_matrix_instructions(self):
        code = kernel("S2R R0,SR_TID.X",           # 0
                      "MOV R1,R2",                 # 1: outer loop
                      *INNER, "BRA 0x20",  # 2 to 9: main loop
                      "FADD R1,R2,R3", "BRA 0xa0",  # 10, 11: a loop without matrix instructions
                      "BRA 0x10",                  # 12
                      "EXIT", "BRA 0xe0")          # 13, 14: padding, a branch to itself
        self.assertEqual(loops.find_loops(code.instructions), [loops.Loop(1, 13), loops.Loop(2, 10), loops.Loop(10, 12)])
        self.assertEqual(loops.mainloops(code.instructions), [loops.Loop(2, 10)])

    def test_branches_to_one_target_are_one_loop(self):
        code = kernel("HMMA.16816.F32 R0,R1,R2,R3", "BRA P0,0x0", "FADD R1,R2,R3", "BRA 0x0", "EXIT")
        self.assertEqual(loops.mainloops(code.instructions), [loops.Loop(0, 4)])

    def test_straight_code_has_no_loop(self):
        self.assertEqual(loops.mainloops(kernel(*INNER, "BRA 0x80", "EXIT").instructions), [])


class Units(unittest.TestCase):
    def test_kinds(self):
        for opcode, kind in {"HMMA.16816.F32": "matrix", "MUFU.EX2": "mufu", "FFMA.FTZ": "fp32", "FMNMX": "alu", "IMAD.WIDE": "alu",
                             "F2FP.BF16.F32.PACK_AB": "alu", "LDSM.16.MT88.4": "shared", "STS.128": "shared", "SHFL.BFLY": "shared",
                             "LDGSTS.E.BYPASS.128": "async_copy", "LDG.E.128": "global", "STG.E": "global", "BAR.SYNC": "control",
                             "LDGDEPBAR": "control"}.items():
            self.assertEqual(units.kind_of(opcode), kind, opcode)

    def test_bytes_of_a_warp(self):
        for opcode, size in {"LDSM.16.M88.4": 512, "LDSM.16.M88.2": 256, "LDSM.16.M88": 128, "LDS.128": 512, "LDS.64": 256, "LDS": 128,
                             "LDS.U16": 64, "SHFL.BFLY": 128, "LDGSTS.E.BYPASS.128": 512, "STG.E.64": 256}.items():
            self.assertEqual(units.bytes_of(opcode), size, opcode)

    def test_cycles(self):
        code = kernel(*INNER)
        loop = units.analyse(code.instructions, "sm_80")
        self.assertEqual(loop.cycles, {"matrix": 16, "issue": 7, "mufu": 8, "fp32": 2, "alu": 2, "shared": 32, "global": 32})
        self.assertEqual(loop.bound, "shared")
        self.assertEqual(loop.matrix_share, 0.5)
        self.assertEqual(units.analyse(code.instructions, "sm_86").cycles["matrix"], 32)


class Report(unittest.TestCase):
    def test_table(self):
        text = report.markdown(report.rows_of([("a k", kernel(*INNER, "BRA 0x0"))]))
        self.assertIn("| `a k` | sm_80 | 0 | 2 | 1 | 1 | 1 | 1 | 1 | 0 | 1 | 8 | 16 | shared (32) | global (32) | 0.50 |", text)
        columns = {line.count("|") for line in text.splitlines()}
        self.assertEqual(len(columns), 1, text)

    def test_chip_without_rates(self):
        with self.assertRaisesRegex(ValueError, "sm_75, expected one of sm_80"):
            report.rows_of([("k", kernel(*INNER, chip=(7, 5)))])


class Docs(unittest.TestCase):
    def page(self, between):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        page = pathlib.Path(directory.name) / "sass.md"
        page.write_text("before\n" + docs.BEGIN + between + docs.END + "after\n")
        return page

    def test_update_leaves_the_rest(self):
        page = self.page("old\n")
        docs.update("a\nb\n", page)
        self.assertEqual(page.read_text(), "before\n" + docs.BEGIN + "a\nb\n" + docs.END + "after\n")
        self.assertIsNone(docs.difference("a\nb\n", page))

    def test_first_difference(self):
        page = self.page("a\nb\nc\n")
        self.assertIn("sass.md has 'b', expected 'x'", docs.difference("a\nx\ny\n", page))
        self.assertIn("sass.md has 'c', expected 'nothing'", docs.difference("a\nb\n", page))
        self.assertIn("sass.md has 'nothing', expected 'd'", docs.difference("a\nb\nc\nd\n", page))

    def test_page_without_markers(self):
        page = self.page("")
        page.write_text("no table")
        with self.assertRaisesRegex(ValueError, "sass.md has no place for the table, expected the lines"):
            docs.difference("", page)


class Shipped(unittest.TestCase):
    def test_spills(self):
        line = "kernel=attention chip=sm_90 registers=255 spill_bytes={} shared_bytes=8 occupancy=0.125\n"
        shipped.verify_spills("m", "kernels\n" + line.format(0))
        with self.assertRaisesRegex(RuntimeError, "kernel attention of m spills 8 bytes on sm_90, expected 0"):
            shipped.verify_spills("m", line.format(0) + line.format(8))
        with self.assertRaisesRegex(RuntimeError, "lists no kernel of m"):
            shipped.verify_spills("m", "")

    def test_missing_tools(self):
        with self.assertRaisesRegex(RuntimeError, "nowhere/prefill-translate is no program"):
            list(shipped.kernels_of(pathlib.Path("/nowhere")))

    def test_missing_nvdisasm(self):
        with unittest.mock.patch("shutil.which", return_value=None), self.assertRaisesRegex(RuntimeError, "nvdisasm was not found"):
            disassembly.disassemble("a.cubin")

    def test_docs_are_up_to_date(self):
        """The whole of it, for the version of ptxas that made the page."""
        tools = os.environ.get("PREFILL_BIN")
        cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "prefill/sass-report"
        if not tools:
            self.skipTest("PREFILL_BIN is not set")
        for tool in ("ptxas", "nvdisasm"):
            if not disassembly.find_tool(tool):
                self.skipTest(f"no {tool}")
        version = shipped.assembler_version()
        if f"Assembled by ptxas {version}." not in docs.split()[1]:
            self.skipTest(f"ptxas is {version}, docs/sass.md is of another")
        result = subprocess.run([ROOT / "scripts/sass-report", "--shipped", "--check", "--bin", tools], stdin=subprocess.DEVNULL,
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


class CommandLine(unittest.TestCase):
    def refusal(self, *arguments):
        result = subprocess.run([sys.executable, "-m", "sass_report", *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                                text=True, cwd=ROOT, env=dict(os.environ, PYTHONPATH=str(ROOT / "python")))
        self.assertNotEqual(result.returncode, 0, result.stdout)
        return result.stderr

    def test_refusals(self):
        for arguments, message in {(): "expected cubins, or --shipped, and not both",
                                   ("--shipped", "a.cubin"): "expected cubins, or --shipped, and not both",
                                   ("a.cubin", "--check"): "--check is for --shipped",
                                   ("a.cubin", "--bin", "b"): "--bin is for --shipped",
                                   ("--shipped", "--check", "--update-docs"): "not allowed with argument"}.items():
            with self.subTest(arguments):
                refusal = self.refusal(*arguments)
                self.assertTrue(refusal.startswith("error: "), refusal)
                self.assertIn(message, refusal)
                self.assertEqual(refusal.count("\n"), 1, refusal)


if __name__ == "__main__":
    unittest.main()
