"""The options of scripts/bench-peers."""
import argparse
import math
import os
import pathlib
import re

from bench_peers import peers
from bench_peers.shape import Shape

# Of ASCII digits: int() and isdigit() take others too.
NUMBER = re.compile(r"[0-9]{1,9}")
ROOT = pathlib.Path(__file__).resolve().parents[2]


MAX_LENGTH = Shape(16).max_positions


def parse_layers(text):
    """"16,8192:4": 16 layers, but 4 at 8192 tokens and more. Returns a function from length to layers."""
    steps = []
    for part in text.split(","):
        length, colon, layers = part.rpartition(":")
        if not NUMBER.fullmatch(layers) or not 1 <= int(layers) <= 16 or (colon and not NUMBER.fullmatch(length)) or (
                not colon and steps):
            raise ValueError(f"--layers is '{text}', expected N or N,LENGTH:N,... with N from 1 to 16")
        steps.append((int(length or 0), int(layers)))
    steps.sort()
    if steps[0][0] != 0:
        raise ValueError(f"--layers is '{text}', expected a first number without a length")
    return lambda length: [layers for start, layers in steps if start <= length][-1]


class Parser(argparse.ArgumentParser):
    """Ends with one line."""

    def error(self, message):
        raise ValueError(message)


def whole(option, text, low, high, what=""):
    if not NUMBER.fullmatch(text) or not low <= int(text) <= high:
        raise ValueError(f"{option} is '{text}', expected a whole number from {low} to {high}{what}")
    return int(text)


def positive(option, text):
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"{option} is '{text}', expected a positive number")
    return number


def parse_arguments(arguments):
    parser = Parser(prog="scripts/bench-peers", description="Prefill and its peers, side by side: time to first token.")
    parser.add_argument("--lengths", default="512,2048,8192", help="tokens of the prompts (default: %(default)s)")
    parser.add_argument("--layers", default="16",
                        help="layers of the model; 16,LENGTH:N: N layers from that length on. Fewer flatter engines that compute "
                             "the last layer's feed-forward for the last token only (default: %(default)s)")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--rounds", default="9", help="at most, for each length (default: %(default)s)")
    parser.add_argument("--minutes", default="17",
                        help="budget of the rounds of all lengths together; at least one round is run (default: %(default)s)")
    parser.add_argument("--peers", default="all",
                        help=f"some of {', '.join(peers.BY_NAME)}; all: every one but those that compile for long (default: %(default)s)")
    parser.add_argument("--dtype", default="bf16",
                        help="bf16; or int8: weights, and activations where the engine can, in 8 bits (default: %(default)s)")
    parser.add_argument("--variants", default="", help="only settings that contain one of these texts, | between them")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="Prefill's tools")
    parser.add_argument("--cache", type=pathlib.Path, help="where environments and models lie (set by scripts/bench-peers)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file, after every length")
    parser.add_argument("--from-json", type=pathlib.Path, nargs="+", help="measure nothing: show these files, merged")
    parser.add_argument("--update-docs", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--install-only", action="store_true", help="make the environments and models, then stop")
    parser.add_argument("--list", action="store_true", help="list the peers and stop")
    options = parser.parse_args(arguments)
    lengths = options.lengths.split(",")
    if not all(NUMBER.fullmatch(length) and 2 <= int(length) <= MAX_LENGTH for length in lengths):
        raise ValueError(f"--lengths is '{options.lengths}', expected whole numbers from 2 to {MAX_LENGTH} with commas "
                         "between them")
    options.lengths = sorted({int(length) for length in lengths})
    options.threads = whole("--threads", options.threads, 1, len(os.sched_getaffinity(0)),
                            ", the processors that this process may use")
    if options.dtype not in ("bf16", "int8"):
        raise ValueError(f"--dtype is '{options.dtype}', expected bf16 or int8")
    options.rounds = whole("--rounds", options.rounds, 1, 10000)
    options.minutes = positive("--minutes", options.minutes)
    options.layers_at = parse_layers(options.layers)
    options.selected = peers.select(options.peers)
    return options
