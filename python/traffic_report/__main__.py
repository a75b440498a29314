"""The command line of scripts/traffic-report."""
import json
import os
import pathlib
import sys

from command_line import ArgumentParser, positive
from traffic_report import report
from traffic_report.kernels import PlanError

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/traffic.md"
BEGIN, END = "<!-- scripts/traffic-report: begin -->\n", "<!-- scripts/traffic-report: end -->\n"


def parse_arguments(arguments):
    parser = ArgumentParser(prog="scripts/traffic-report")
    parser.add_argument("--shape", default="llama-3-8b")
    parser.add_argument("--tokens", type=positive, default=1024)
    parser.add_argument("--chip", default="sm_80")
    parser.add_argument("--kv-layout", default="contiguous")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--save", type=pathlib.Path, metavar="FILE")
    files.add_argument("--load", type=pathlib.Path, metavar="FILE")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--update-docs", action="store_true")
    options = parser.parse_args(arguments)
    # Counting takes minutes.
    if options.save and (options.save.is_dir() or not os.access(options.save.parent, os.W_OK)):
        parser.error(f"--save is '{options.save}', expected a file in a directory that can be written to")
    return options


def load(path):
    """What --save wrote: (IR, counters) of the fused and the unfused form."""
    try:
        runs = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot read '{path}': {error}") from error
    if not isinstance(runs, list) or [list(map(type, run)) for run in runs if isinstance(run, list)] != [[str, list]] * 2:
        raise ValueError(f"'{path}' holds no counters of two runs, expected what --save writes")
    return runs


def split_docs():
    """The text before, between and after the markers."""
    text = DOCS.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"error: {DOCS.name} has no place for the table, expected the lines {BEGIN.strip()} and {END.strip()}")
    before, rest = text.split(BEGIN)
    between, after = rest.split(END)
    return before, between, after


def main(arguments):
    options = parse_arguments(arguments)
    setup = report.Setup(options.shape, options.tokens, options.chip, options.kv_layout, options.bin)
    try:
        if options.load:
            runs = load(options.load)
        else:
            runs = [report.count(setup, disabled) for disabled in ([], report.FUSING_PASSES)]
        if options.save:
            options.save.write_text(json.dumps(runs) + "\n")
        results = [(plan, report.rows_of(plan, counters, setup.tokens)) for plan, counters in runs]
    except (OSError, RuntimeError, ValueError, KeyError, PlanError) as error:
        sys.exit(f"error: {error}")
    text = report.markdown(setup, results)
    print(text, end="")
    errors = [error for _, rows in results for row in rows for error in row.errors]
    if options.update_docs and not errors:
        before, _, after = split_docs()
        DOCS.write_text(before + BEGIN + text + END + after)
    if options.check and not errors and split_docs()[1] != text:
        errors = [f"{DOCS.name} has another table; run scripts/traffic-report --update-docs"]
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    if errors:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
