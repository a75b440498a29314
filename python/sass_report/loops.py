"""Loops of a kernel: what lies between a backward branch and its target."""
import dataclasses
import re

from sass_report.disassembly import INSTRUCTION_BYTES


@dataclasses.dataclass(frozen=True)
class Loop:
    begin: int  # index of the first instruction
    end: int    # index past the branch

    def __contains__(self, other):
        return self.begin <= other.begin and other.end <= self.end and other != self


def find_loops(instructions):
    """Every loop, by its first instruction. Branches to one target are one loop that ends with the last of them; a kernel's
    final branch to itself, which pads the code, is none."""
    ends = {}
    for index, instruction in enumerate(instructions):
        if instruction.opcode.split(".")[0] != "BRA":
            continue
        target = re.search(r"0x([0-9a-f]+)\s*$", instruction.operands)
        if not target:
            continue
        begin = int(target.group(1), 16) // INSTRUCTION_BYTES
        if begin < index:
            ends[begin] = max(ends.get(begin, 0), index + 1)
    return [Loop(begin, end) for begin, end in sorted(ends.items())]


def mainloops(instructions):
    """The innermost loops with matrix instructions."""
    def has_matrix(loop):
        return any(instruction.opcode.split(".")[0] in ("HMMA", "HGMMA") for instruction in instructions[loop.begin:loop.end])

    loops = [loop for loop in find_loops(instructions) if has_matrix(loop)]
    return [loop for loop in loops if not any(other in loop for other in loops)]
