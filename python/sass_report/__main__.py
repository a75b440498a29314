"""The command line of scripts/sass-report, run in an environment with nvdisasm."""
import argparse
import json
import pathlib
import sys

from sass_report import report
from sass_report.disassembly import disassemble


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="scripts/sass-report", allow_abbrev=False)
    parser.error = lambda message: sys.exit(f"error: {message}")
    parser.add_argument("cubins", nargs="+", type=pathlib.Path, metavar="FILE.cubin")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse_arguments(arguments)
    try:
        rows = report.rows_of([kernel for cubin in options.cubins for kernel in disassemble(cubin)])
        if options.json:
            options.json.write_text(json.dumps(report.as_json(rows), indent=1) + "\n")
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(report.markdown(rows), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
