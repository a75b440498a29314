"""Turns the rows into the table of docs/performance.md."""
import json
import math

from bench_peers import peers

SECTION = "bench-peers"  # of docs/performance.md


def dtype_of(result):
    """JSON of older runs has none."""
    return result.get("dtype", "bf16")


def section(result):
    """That of docs/performance.md where its table stands."""
    return SECTION if dtype_of(result) == "bf16" else f"{SECTION} {dtype_of(result)}"


def merge(results):
    """One result of several, of pieces of a measurement on one machine: later rows replace equal ones."""
    if len({dtype_of(result) for result in results}) > 1:
        raise ValueError("the results are of bf16 and of int8, expected those of one --dtype")
    merged = {"machine": results[0]["machine"], "dtype": dtype_of(results[0]), "probe_isa": results[0]["probe_isa"],
              "rows": [], "engines": {}, "failed": {}, "agreement": {}}
    rows = {}
    for result in results:
        for row in result["rows"]:
            rows[row["threads"], row["length"], row["peer"], row["variant"]] = row
        for key in ("engines", "failed", "agreement"):
            merged[key].update(result[key])
    merged["rows"] = list(rows.values())
    measured = {row["peer"] for row in merged["rows"]}
    merged["failed"] = {name: reason for name, reason in merged["failed"].items() if name not in measured}
    return merged


def best_rows(rows):
    """The fastest setting of each engine for each (threads, length), fastest engine first."""
    best = {}
    for row in rows:
        key = (row["threads"], row["length"], row["peer"])
        if key not in best or row["seconds"] < best[key]["seconds"]:
            best[key] = row
    return sorted(best.values(), key=lambda row: (row["threads"], row["length"], row["seconds"]))


def duration(seconds):
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def rounds(row):
    """How many, and of how many where --minutes had no room for all; JSON of older runs does not tell."""
    wanted = row.get("rounds_wanted", row["rounds"])
    return f"{row['rounds']}" + (f" of {wanted}" if row["rounds"] < wanted else "")


def why_not_run(result):
    """{peer: reason} of every known engine without a row, so that none vanishes unsaid."""
    reasons = dict(result["failed"])
    measured = {row["peer"] for row in result["rows"]}
    for peer in peers.PEERS:
        if peer.name not in measured and peer.name not in reasons:
            reasons[peer.name] = (("not asked for" if peer.in_all else "only when --peers names it")
                                  + (f": {peer.note}" if peer.note else ""))
    return reasons


# How the table's introduction calls them.
TYPES = {"bf16": "bf16", "int8": "weights, and activations where the engine can, in 8-bit integers"}


def table(result):
    """Markdown: one table for each number of threads, then the engines, then those that did not run."""
    machine = result["machine"]
    lines = [f"Llama-3.2-1B's shape (hidden 2048, 32 query and 8 KV heads of 64, feed-forward 8192, vocabulary 128256, tied), "
             f"{TYPES[dtype_of(result)]}, random weights; time to first token of one prompt: empty cache, warm engine, "
             f"logits of the last token. {machine['cpu']}, {machine['cores']} cores, L2 {machine['l2']}, L3 {machine['l3']}, "
             f"{machine['memory_gib']} GiB, {', '.join(machine['isa'])}. Interleaved rounds, median; spread: half the distance "
             f"between the quartiles over the median; fraction of peak: all FLOPs that a prefill needs over time over the "
             f"register-only {result['probe_isa']} probe run before and after.", ""]
    rows = best_rows(result["rows"])
    if any(row["rounds"] < row.get("rounds_wanted", 0) for row in rows):
        lines[0] += " Rounds \"n of m\": the budget of time (`--minutes`) had room for n of the m asked for."
    for threads in sorted({row["threads"] for row in rows}):
        lines += [f"{threads} thread{'s' if threads > 1 else ''}:", "",
                  "| tokens | layers | engine | setting | TTFT | spread | rounds | fraction of peak | times Prefill's TTFT |",
                  "| ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
        for row in rows:
            if row["threads"] == threads:
                spread = f"{row['spread']:.1%}" if row["rounds"] > 1 else ""
                lines.append(f"| {row['length']} | {row['layers']} | {row['title']} | {row['variant']} | "
                             f"{duration(row['seconds'])} | {spread} | {rounds(row)} | {row['ratio']:.2f} | "
                             f"{row['times_ours']:.2f} |")
        lines.append("")
    reference = "PyTorch" if dtype_of(result) == "bf16" else "bf16"
    lines += [f"| engine | version | projections in | last-token agreement with {reference} | details |",
              "| --- | --- | --- | --- | --- |"]
    for name, engine in result["engines"].items():
        lines.append(f"| {engine['title']} | {engine['version']} | {engine['matmul']} | "
                     f"{result['agreement'].get(name, 'not compared')} | {engine['details']} |")
    if reasons := why_not_run(result):
        lines += ["", "| did not run | reason |", "| --- | --- |"]
        lines += [f"| {peers.BY_NAME[name].title} | {reason.replace('|', '/')} |"
                  for name, reason in sorted(reasons.items())]
    return "\n".join(lines) + "\n"


TEXTS, NUMBERS = "an object of texts", "a number"
# What the parts of a result hold, by name.
MACHINE = {"cpu": str, "cores": NUMBERS, "l2": str, "l3": str, "memory_gib": NUMBERS, "isa": [str]}
ENGINE = {"title": str, "version": str, "matmul": str, "details": str}
ROW = {"peer": str, "title": str, "variant": str, "layers": NUMBERS, "length": NUMBERS, "threads": NUMBERS,
       "rounds": NUMBERS, "seconds": NUMBERS, "spread": NUMBERS, "ratio": NUMBERS, "times_ours": NUMBERS}
OPTIONAL = {"rounds_wanted": NUMBERS}  # of a row: JSON of older runs has none
OPTIONAL_RESULT = {"dtype": str}
RESULT = {"machine": MACHINE, "probe_isa": str, "rows": [ROW], "engines": {None: ENGINE}, "failed": TEXTS,
          "agreement": TEXTS}


def check(value, kind, where):
    """Raises where a value is not of a kind: a type, [kind of the elements], {key: kind}, {None: kind of every value}."""
    def expected(what):
        raise ValueError(f"{where} is {json.dumps(value)[:40]}, expected {what}")

    if kind == TEXTS:
        kind = {None: str}
    if kind is str:
        if not isinstance(value, str):
            expected("a text")
    elif kind == NUMBERS:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            expected("a number")
    elif isinstance(kind, list):
        if not isinstance(value, list):
            expected("a list")
        for index, element in enumerate(value):
            check(element, kind[0], f"{where}[{index}]")
    else:
        if not isinstance(value, dict):
            expected("an object")
        for key in value if None in kind else kind:
            if key not in value:
                raise ValueError(f"{where} has no {key}, expected {', '.join(kind)}")
            check(value[key], kind.get(None) or kind[key], f"{where}.{key}")


def load(path):
    """What --json wrote."""
    try:
        with open(path) as file:
            result = json.load(file)
        check(result, RESULT, "the result")
        check(result, {key: kind for key, kind in OPTIONAL_RESULT.items() if key in result}, "the result")
        if dtype_of(result) not in TYPES:
            raise ValueError(f"the result.dtype is '{dtype_of(result)}', expected {' or '.join(TYPES)}")
        for index, row in enumerate(result["rows"]):
            check(row, {key: kind for key, kind in OPTIONAL.items() if key in row}, f"the result.rows[{index}]")
        for name in result["failed"]:
            if name not in peers.BY_NAME:
                raise ValueError(f"the result.failed names '{name}', expected some of {', '.join(peers.BY_NAME)}")
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"cannot read '{path}': {error}") from error
    return result
