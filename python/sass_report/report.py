"""The table of docs/sass.md."""
from sass_report.loops import mainloops
from sass_report.units import RATES, analyse

HEAD = ("kernel", "chip", "loop", "HMMA", "MUFU", "FP32", "ALU", "shared", "cp.async", "global", "control", "issue slots",
        "matrix cycles", "busiest unit", "then", "most of the peak")


def rows_of(kernels):
    """One entry for each main loop: label, chip, number of the loop in the kernel and its report. `kernels`: pairs of a label
    and a kernel."""
    rows = []
    for label, kernel in kernels:
        if kernel.chip not in RATES:
            raise ValueError(f"kernel '{kernel.name}' is for {kernel.chip}, expected one of {', '.join(RATES)}")
        for number, loop in enumerate(mainloops(kernel.instructions)):
            rows.append((label, kernel.chip, number, analyse(kernel.instructions[loop.begin:loop.end], kernel.chip)))
    return rows


def markdown(rows):
    lines = ["| " + " | ".join(HEAD) + " |", "| --- | --- |" + " ---: |" * 11 + " --- | --- | ---: |"]
    for name, chip, number, loop in rows:
        counts = loop.counts
        busiest, then = (f"{unit} ({loop.cycles[unit]:.0f})" for unit in loop.units[:2])
        cells = [f"`{name}`", chip, number, *(counts[kind] for kind in ("matrix", "mufu", "fp32", "alu", "shared", "async_copy",
                                                                       "global", "control")),
                 loop.issue, f"{loop.cycles['matrix']:.0f}", busiest, then, f"{loop.matrix_share:.2f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def as_json(rows):
    return [{"kernel": name, "chip": chip, "loop": number, "instructions": loop.counts, "issue_slots": loop.issue,
             "cycles": loop.cycles, "bound": loop.bound, "matrix_share": loop.matrix_share}
            for name, chip, number, loop in rows]
