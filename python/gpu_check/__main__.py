"""The command line of scripts/gpu-check and of a kit's."""
import argparse
import pathlib
import subprocess
import sys

from command_line import ArgumentParser, positive
from gpu_check import Failure, contents

ROOT = pathlib.Path(__file__).resolve().parents[2]


def names_of(valid):
    def parse(text):
        names = [part for part in text.split(",") if part]
        for name in names or [""]:
            if name not in valid:
                raise argparse.ArgumentTypeError(f"'{name}' given, expected one or more of {', '.join(valid)}")
        return names
    return parse


def lengths_of(text):
    lengths = [positive(part) for part in text.split(",")]
    for length in lengths:
        if length not in contents.LENGTHS:
            raise argparse.ArgumentTypeError(f"'{length}' given, expected some of {', '.join(map(str, contents.LENGTHS))}")
    return lengths


def minutes_of(text):
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0
    if not 0 < minutes <= 24 * 60:
        raise argparse.ArgumentTypeError(f"'{text}' given, expected minutes, more than 0")
    return minutes


def parse_options(arguments):
    parser = ArgumentParser(prog="gpu-check", add_help=False)
    parser.add_argument("--build-kit", metavar="DIR")
    parser.add_argument("--bin", default=str(ROOT / "build/release/bin"))
    parser.add_argument("--models", type=names_of(contents.MODELS), default=contents.MODELS)
    parser.add_argument("--bench-shapes", type=names_of(list(contents.BENCH_SHAPES)), default=contents.DEFAULT_BENCH)
    parser.add_argument("--emulation", type=names_of([*contents.MODELS, "tiny"]), default=[])
    parser.add_argument("--json", metavar="FILE", type=pathlib.Path)
    parser.add_argument("--minutes", type=minutes_of, default=6)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--rounds", type=positive, default=20)
    parser.add_argument("--lengths", type=lengths_of)
    parser.add_argument("--parts", type=names_of(list(contents.PARTS)), default=list(contents.PARTS))
    return parser.parse_args(arguments)


def main(arguments, kit):
    try:
        options = parse_options(arguments)
        if options.build_kit is not None:
            from gpu_check.kit import build_kit
            return build_kit(options)
        if kit:
            from gpu_check.check import check
            return check(kit, options)
        from gpu_check.hardware import driver_problem
        problem = driver_problem()
        if problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1
        raise Failure("there is a GPU, and this is no kit: make one with --build-kit DIR and run DIR/gpu-check")
    except Failure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    except subprocess.TimeoutExpired as expired:
        print(f"error: {expired.cmd[0]} took more than {expired.timeout:.0f} s", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
