"""The options of scripts/bench-peers."""
import argparse
import pathlib

from bench_peers import peers

ROOT = pathlib.Path(__file__).resolve().parents[2]


def parse_layers(text):
    """"16,8192:4": 16 layers, but 4 at 8192 tokens and more. Returns a function from length to layers."""
    steps = []
    for part in text.split(","):
        length, colon, layers = part.rpartition(":")
        if not layers.isdigit() or not 1 <= int(layers) <= 16 or (colon and not length.isdigit()) or (
                not colon and steps):
            raise ValueError(f"--layers {text}: expected N or N,LENGTH:N,... with N from 1 to 16")
        steps.append((int(length or 0), int(layers)))
    steps.sort()
    if steps[0][0] != 0:
        raise ValueError(f"--layers {text}: expected a first number without a length")
    return lambda length: [layers for start, layers in steps if start <= length][-1]


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="scripts/bench-peers", description="Prefill and its peers, side by side: time to first token.")
    parser.add_argument("--lengths", default="512,2048,8192", help="tokens of the prompts (default: %(default)s)")
    parser.add_argument("--layers", default="16",
                        help="layers of the model; 16,LENGTH:N: N layers from that length on. Fewer flatter engines that compute "
                             "the last layer's feed-forward for the last token only (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9, help="at most, for each length (default: %(default)s)")
    parser.add_argument("--minutes", type=float, default=17,
                        help="budget of the rounds of all lengths together; at least one round is run (default: %(default)s)")
    parser.add_argument("--peers", default="all",
                        help=f"some of {', '.join(peers.BY_NAME)}; all: every one but those that compile for long (default: %(default)s)")
    parser.add_argument("--variants", default="", help="only settings that contain one of these texts, | between them")
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="Prefill's tools")
    parser.add_argument("--cache", type=pathlib.Path, help="where environments and models lie (set by scripts/bench-peers)")
    parser.add_argument("--json", type=pathlib.Path, help="write the rows to this file, after every length")
    parser.add_argument("--from-json", type=pathlib.Path, nargs="+", help="measure nothing: show these files, merged")
    parser.add_argument("--update-docs", action="store_true", help="put the table into docs/performance.md")
    parser.add_argument("--install-only", action="store_true", help="make the environments and models, then stop")
    parser.add_argument("--list", action="store_true", help="list the peers and stop")
    options = parser.parse_args(arguments)
    try:
        options.lengths = sorted({int(length) for length in options.lengths.split(",")})
    except ValueError:
        raise ValueError(f"--lengths {options.lengths}: expected whole numbers with commas between them") from None
    if options.lengths[0] < 2 or options.rounds < 1 or options.threads < 1:
        raise ValueError("--lengths, --rounds and --threads: expected lengths of 2 or more, rounds and threads of 1 or more")
    options.layers_at = parse_layers(options.layers)
    options.selected = peers.select(options.peers)
    return options
