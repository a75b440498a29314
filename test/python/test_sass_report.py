"""scripts/sass-report: loops, units and rates, on machine code in nvdisasm's form. nvdisasm itself is not needed."""
import json
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
from sass_report import disassembly, loops, report, units  # noqa: E402


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
        text = report.markdown(report.rows_of([kernel(*INNER, "BRA 0x0")]))
        self.assertIn("| `k` | sm_80 | 0 | 2 | 1 | 1 | 1 | 1 | 1 | 0 | 1 | 8 | 16 | shared (32) | 0.50 |", text)
        columns = {line.count("|") for line in text.splitlines()}
        self.assertEqual(len(columns), 1, text)

    def test_chip_without_rates(self):
        with self.assertRaisesRegex(ValueError, "sm_75, expected one of sm_80"):
            report.rows_of([kernel(*INNER, chip=(7, 5))])


if __name__ == "__main__":
    unittest.main()
