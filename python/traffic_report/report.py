"""Runs a model's layer through the emulator without arithmetic and compares what it counted with the formulas."""
import dataclasses
import json
import pathlib
import re
import subprocess
import tempfile

from traffic_report import formulas
from traffic_report.kernels import parse_kernels

SECTOR_BYTES = formulas.SECTOR_BYTES
# Moves ops into the epilogues of gemms; what is left without them is one kernel for each op of the model.
FUSING_PASSES = ["prefill-fold-scale", "prefill-fuse-qkv-projection", "prefill-fuse-gate-up", "prefill-fold-norm",
                 "prefill-fold-kv-append-into-epilogue", "prefill-fold-residual-into-epilogue",
                 "prefill-fold-activation-into-epilogue"]
MOST_OVER_COMPULSORY = 1.15
# Behind the names of kernels that calls of so many tokens at most launch; the plan is that of one schedule.
_SCHEDULE = re.compile(r"_upto\d+$")
# Of a launch's traffic: scalars of rows.
MOST_REST = 0.05
# Scalars and what several lanes ask for: bytes are not those of the sectors.
NOT_WHOLE_SECTORS = ("epilogue.load", "epilogue.load_angle", "epilogue.load_sumsq")
# Sites of mainloops; epilogues may conflict where a tile's rows don't fill the banks.
MAINLOOP_PREFIXES = ("gemm.", "attention.")


def run(command):
    """The command's standard output; raises with its error line when it fails."""
    result = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{pathlib.Path(command[0]).name}: exit code {result.returncode}: {result.stderr.strip()}")
    return result.stdout


@dataclasses.dataclass(frozen=True)
class Setup:
    shape: str
    tokens: int
    chip: str
    kv_layout: str
    binaries: pathlib.Path


def count(setup, disabled):
    """Compiles and runs one layer; (IR at level config, counters of every launch)."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        model, module, tokens = scratch / "model.mlir", scratch / "model.pfm", scratch / "tokens.txt"
        vocabulary = max(4096, setup.tokens)
        run([setup.binaries / "prefill-translate", "--synthesize", setup.shape, "--layers", "1", "--vocab", vocabulary,
             "-o", model])
        options = [model, f"--target=cuda-emu:{setup.chip}", f"--max-seq={setup.tokens}", f"--kv-layout={setup.kv_layout}",
                   *(f"--disable-pass={name}" for name in disabled)]
        plan = run([setup.binaries / "prefill-opt", *options, "--deterministic", f"--rows={setup.tokens}", "--compile-to=config"])
        run([setup.binaries / "prefill-opt", *options, "--deterministic", "--compile", "-o", module])
        # Every token once, so that the embedding's rows are distinct.
        tokens.write_text(",".join(map(str, range(setup.tokens))))
        stats = json.loads(run([setup.binaries / "prefill-run", module, "--device", f"cuda-emu:{setup.chip}",
                                "--random-weights", "1", "--tokens-file", tokens, "--counters", "--count-only",
                                "--stats=json"]))
    return plan, stats["counters"]


@dataclasses.dataclass
class Row:
    """A launch of the layer; bytes."""
    name: str
    tile: str
    compulsory: int
    distinct: int
    formula: int   # of the sites that it names
    counted: int   # at those sites
    rest: int      # sectors at other sites
    conflicts: int
    errors: list

    @property
    def traffic(self):
        return self.counted + self.rest


def _sites(launch):
    """Global bytes, sectors in bytes, distinct sectors in bytes and conflicts, by name."""
    sites = {}
    for site in launch["sites"]:
        sums = sites.setdefault(site["name"], [0, 0, 0, 0])
        for i, (key, scale) in enumerate((("global_bytes", 1), ("sectors", SECTOR_BYTES),
                                          ("distinct_sectors", SECTOR_BYTES), ("bank_conflicts", 1))):
            sums[i] += site.get(key, 0) * scale
    return sites


def row_of(launch, kernel, call):
    """Compares one launch with the formulas."""
    errors = []

    def expect(what, value, expected):
        if value != expected:
            errors.append(f"launch '{launch['name']}': {what} is {value}, expected {expected}")

    sites = _sites(launch)
    formula = formulas.tile_traffic(kernel, call)
    for name, expected in formula.items():
        global_bytes, sectors, distinct, _ = sites.get(name, (0, 0, 0, 0))
        expect(f"bytes in sectors at {name}", sectors, expected)
        if name not in NOT_WHOLE_SECTORS:
            expect(f"bytes at {name} (whole sectors)", global_bytes, expected)
        if name.startswith("kv_append."):
            expect(f"distinct bytes at {name} (each address once)", distinct, expected)
    for name, (_, _, _, conflicts) in sites.items():
        if name.startswith(MAINLOOP_PREFIXES):
            expect(f"bank conflicts at {name}", conflicts, 0)
    if (instructions := formulas.matrix_instructions(kernel, call)) is not None:
        expect("matrix instructions", launch["matrix_instructions"], instructions)
    row = Row(launch["name"], "x".join(str(size) for size in (kernel.block_m, kernel.block_n, kernel.block_kv) if size),
              sum(formulas.compulsory(kernel, call)),
              (launch["distinct_load_sectors"] + launch["distinct_store_sectors"]) * SECTOR_BYTES, sum(formula.values()),
              sum(sites[name][1] for name in formula if name in sites),
              sum(sums[1] for name, sums in sites.items() if name not in formula), launch["bank_conflicts"], errors)
    if row.distinct > MOST_OVER_COMPULSORY * row.compulsory:
        errors.append(f"launch '{row.name}': {row.distinct} distinct bytes, expected at most {MOST_OVER_COMPULSORY} times "
                      f"the compulsory {row.compulsory}")
    if row.rest > MOST_REST * row.traffic:
        errors.append(f"launch '{row.name}': {row.rest} of {row.traffic} bytes at sites without a formula, expected at most "
                      f"{MOST_REST:.0%}")
    return row


def rows_of(plan, counters, tokens):
    """The launches of the layer, in order."""
    kernels = parse_kernels(plan)
    call = formulas.Call(tokens, 1)
    return [row_of(launch, kernels[_SCHEDULE.sub("", launch["kernel"])], call) for launch in counters if launch["layer"] >= 0]


def _mb(size):
    return f"{size / 1e6:.2f}"


def table(rows):
    lines = ["| launch | tile | compulsory MB | distinct MB | ratio | without caches MB | by the tiles MB | rest | bank conflicts |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for row in rows:
        lines.append(f"| {row.name} | {row.tile} | {_mb(row.compulsory)} | {_mb(row.distinct)} | {row.distinct / row.compulsory:.3f} | "
                     f"{_mb(row.traffic)} | {_mb(row.formula)} | {row.rest / row.traffic:.1%} | {row.conflicts} |")
    compulsory, distinct, traffic = (sum(getattr(row, key) for row in rows) for key in ("compulsory", "distinct", "traffic"))
    lines.append(f"| **{len(rows)} launches** | | {_mb(compulsory)} | {_mb(distinct)} | {distinct / compulsory:.3f} | "
                 f"{_mb(traffic)} | {_mb(sum(row.formula for row in rows))} | "
                 f"{sum(row.rest for row in rows) / traffic:.1%} | {sum(row.conflicts for row in rows)} |")
    return "\n".join(lines)


def comparison(fused, unfused):
    """What the fusing passes save."""
    lines = ["| | unfused | fused | ratio |", "| --- | ---: | ---: | ---: |",
             f"| launches | {len(unfused)} | {len(fused)} | {len(unfused) / len(fused):.2f} |"]
    for name, key in (("distinct sectors of each launch, MB", "distinct"), ("without caches, MB", "traffic")):
        a, b = (sum(getattr(row, key) for row in rows) for rows in (unfused, fused))
        lines.append(f"| {name} | {_mb(a)} | {_mb(b)} | {a / b:.2f} |")
    return lines


def weight_bytes(plan):
    """Bytes of the gemms' weights of a layer: what no fusing saves."""
    return sum(kernel.arguments[kernel.operands[1]].bytes(0) for kernel in parse_kernels(plan).values()
               if kernel.kind == "gemm" and kernel.domain == "tokens")


def markdown(setup, results):
    """`results`: (plan, rows) of the fused and the unfused form."""
    (plan, fused), (_, unfused) = results
    weights = weight_bytes(plan)
    compared = comparison(fused, unfused)
    a, b = (sum(row.distinct for row in rows) - weights for rows in (unfused, fused))
    compared.append(f"| the same without the {_mb(weights)} MB of weights, MB | {_mb(a)} | {_mb(b)} | {a / b:.2f} |")
    return (f"One layer of {setup.shape}, {setup.tokens} tokens, cache {setup.kv_layout}, tiles of {setup.chip}.\n\n"
            + "\n".join(compared) + "\n\nFused:\n\n" + table(fused) + "\n\nWithout the fusing passes:\n\n" + table(unfused)
            + "\n")
