"""The command line of scripts/sass-report."""
import json
import pathlib
import sys

from command_line import ArgumentParser
from sass_report import docs, report, shipped
from sass_report.disassembly import disassemble

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse_arguments(arguments):
    parser = ArgumentParser(prog="scripts/sass-report")
    parser.add_argument("cubins", nargs="*", type=pathlib.Path, metavar="FILE.cubin")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--shipped", action="store_true")
    parser.add_argument("--bin", type=pathlib.Path, metavar="DIR")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true")
    what.add_argument("--update-docs", action="store_true")
    options = parser.parse_args(arguments)
    if options.shipped == bool(options.cubins):
        parser.error("expected cubins, or --shipped, and not both")
    for name, given in (("--bin", options.bin), ("--check", options.check), ("--update-docs", options.update_docs)):
        if given and not options.shipped:
            parser.error(f"{name} is for --shipped")
    return options


def main(arguments):
    options = parse_arguments(arguments)
    text = difference = ""
    try:
        if options.shipped:
            text = f"Assembled by ptxas {shipped.assembler_version()}.\n\n"
            kernels = list(shipped.kernels_of(options.bin or ROOT / "build/release/bin"))
        else:
            kernels = [(kernel.name, kernel) for cubin in options.cubins for kernel in disassemble(cubin)]
        rows = report.rows_of(kernels)
        text += report.markdown(rows)
        if options.json:
            options.json.write_text(json.dumps(report.as_json(rows), indent=1) + "\n")
        if options.update_docs:
            docs.update(text)
        if options.check:
            difference = docs.difference(text)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"error: {error}")
    print(text, end="")
    if difference:
        sys.exit(f"error: {difference}")


if __name__ == "__main__":
    main(sys.argv[1:])
