#!/usr/bin/env python3
"""Compare two .npy files: the relative error is norm(difference) / norm(expected).

    check_logits.py ACTUAL.npy EXPECTED.npy --max-rel 1e-5 [--row N]

Exit code 0 within the bound, 1 above it, 2 if the files cannot be compared.
Needs numpy only. As a library: `rel_error(actual, expected)`.
"""

import pathlib
import sys

import numpy as np

from command_line import ArgumentParser


def rel_error(actual, expected) -> float:
    """Frobenius norm of `actual - expected` over that of `expected`, in float64.

    Both are arrays of one shape, any real dtype. NaN or infinity anywhere, in
    either, gives infinity: such an array is never close to anything.
    """
    a = np.asarray(actual, dtype=np.float64)
    e = np.asarray(expected, dtype=np.float64)
    if a.shape != e.shape:
        raise ValueError(f"shapes differ: {a.shape} and {e.shape}")
    if a.size == 0:
        raise ValueError("nothing to compare: the arrays are empty")
    if not (np.isfinite(a).all() and np.isfinite(e).all()):
        return float("inf")
    norm = np.linalg.norm(e.ravel())
    difference = np.linalg.norm((a - e).ravel())
    if norm == 0.0:
        return 0.0 if difference == 0.0 else float("inf")
    return float(difference / norm)


def _load(path: pathlib.Path) -> np.ndarray:
    array = np.load(path, allow_pickle=False)
    # One row may come as [vocab] or [1, vocab].
    return array[0] if array.ndim == 2 and array.shape[0] == 1 else array


def main(argv=None) -> int:
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("actual", type=pathlib.Path)
    parser.add_argument("expected", type=pathlib.Path)
    parser.add_argument("--max-rel", type=float, required=True, help="largest relative error allowed")
    parser.add_argument("--row", type=int, help="compare with this row of EXPECTED only")
    args = parser.parse_args(argv)
    try:
        actual, expected = _load(args.actual), _load(args.expected)
        if args.row is not None:
            expected = expected[args.row]
        error = rel_error(actual, expected)
    except (OSError, ValueError, IndexError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    ok = error <= args.max_rel
    print(f"relative error {error:.3e}, allowed {args.max_rel:.3e}: {'ok' if ok else 'TOO LARGE'}")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
