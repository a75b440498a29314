"""Which unit of an SM executes an instruction and for how long.

An SM has four partitions that issue one instruction of a warp in a cycle. Cycles are those that four warps need which run
through a loop once, one on each partition: units of a partition count one warp's instructions, units of the SM (shared memory,
the way to L2) those of four.

Sources of the rates: the arithmetic throughput table of the CUDA C++ Programming Guide; peak figures of the data sheets of
A100, A40, L40S and H100; for mma.sync on sm_90, which reaches 0.63 of wgmma: Luo et al. 2024, "Benchmarking and Dissecting the
Nvidia Hopper GPU Architecture via Microbenchmarking".
"""
import collections
import dataclasses

PARTITIONS = 4


@dataclasses.dataclass(frozen=True)
class Rates:
    matrix: float      # cycles of a partition for one m16n8k16 of f16 or bf16 with f32 sums
    fp32: float        # cycles of a partition for one warp's FADD, FMUL, FFMA
    alu: float = 2     # integers, logic, comparisons, selections, conversions
    mufu: float = 8    # exp2, reciprocals, ...
    shared_bytes: int = 128  # of the SM, in a cycle
    global_bytes: int = 64   # from L2 to the SM, in a cycle


RATES = {
    "sm_80": Rates(matrix=8, fp32=2),
    "sm_86": Rates(matrix=16, fp32=1),  # A40, A10; GeForce cards take twice as long
    "sm_89": Rates(matrix=16, fp32=1),  # L40S, L4; likewise
    "sm_90": Rates(matrix=4 / 0.63, fp32=1),
}

FP32 = {"FADD", "FMUL", "FFMA"}
SHARED = {"LDS", "STS", "LDSM", "STSM", "SHFL"}
GLOBAL = {"LDG", "STG", "LD", "ST"}
CONTROL = {"BRA", "BSSY", "BSYNC", "BAR", "EXIT", "NOP", "WARPSYNC", "DEPBAR", "LDGDEPBAR", "CALL", "RET", "YIELD", "BREAK", "ERRBAR",
           "MEMBAR"}
KINDS = ("matrix", "mufu", "fp32", "alu", "shared", "async_copy", "global", "control")


def kind_of(opcode):
    base = opcode.split(".")[0]
    if base in ("HMMA", "HGMMA"):
        return "matrix"
    if base == "MUFU":
        return "mufu"
    if base in FP32:
        return "fp32"
    if base == "LDGSTS":
        return "async_copy"
    if base in SHARED:
        return "shared"
    if base in GLOBAL:
        return "global"
    return "control" if base in CONTROL else "alu"


def bytes_of(opcode):
    """Bytes that one warp's instruction moves."""
    parts = opcode.split(".")
    if parts[0] in ("LDSM", "STSM"):
        return 128 * (int(parts[-1]) if parts[-1] in ("2", "4") else 1)
    for width, size in (("128", 16), ("64", 8), ("U16", 2), ("S16", 2), ("U8", 1), ("S8", 1)):
        if width in parts[1:]:
            return 32 * size
    return 128


@dataclasses.dataclass(frozen=True)
class LoopReport:
    counts: dict   # instructions by kind
    cycles: dict   # by unit
    issue: int

    @property
    def units(self):
        """The busiest first."""
        return sorted(self.cycles, key=self.cycles.get, reverse=True)

    @property
    def bound(self):
        return self.units[0]

    @property
    def matrix_share(self):
        """Of the time that the busiest unit needs, the matrix unit's part: the most that the loop can reach of the peak."""
        return self.cycles["matrix"] / self.cycles[self.bound]


def analyse(instructions, chip):
    """The report of one loop. Raises KeyError on a chip without rates."""
    rates = RATES[chip]
    counts = collections.Counter({kind: 0 for kind in KINDS})
    shared = from_l2 = 0
    for instruction in instructions:
        kind = kind_of(instruction.opcode)
        counts[kind] += 1
        if kind in ("shared", "async_copy"):
            shared += bytes_of(instruction.opcode)
        if kind in ("global", "async_copy"):
            from_l2 += bytes_of(instruction.opcode)
    cycles = {
        "matrix": counts["matrix"] * rates.matrix,
        "issue": len(instructions),
        "mufu": counts["mufu"] * rates.mufu,
        "fp32": counts["fp32"] * rates.fp32,
        "alu": counts["alu"] * rates.alu,
        "shared": PARTITIONS * shared / rates.shared_bytes,
        "global": PARTITIONS * from_l2 / rates.global_bytes,
    }
    return LoopReport(dict(counts), cycles, len(instructions))
