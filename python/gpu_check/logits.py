"""Logits from files, and how far they are from others. The machine may have no numpy."""
import array
import math
import pathlib
import re
import struct

from gpu_check import Failure


def read_npy(path: pathlib.Path):
    """(shape, values) of a C-ordered float32 array."""
    data = path.read_bytes()
    if data[:6] != b"\x93NUMPY":
        raise Failure(f"{str(path)!r} is no .npy file")
    size, = struct.unpack_from("<H", data, 8)
    header = data[10:10 + size].decode("latin-1")
    shape = tuple(int(number) for number in re.search(r"'shape': \(([^)]*)\)", header).group(1).split(",") if number.strip())
    if "'<f4'" not in header or "'fortran_order': False" not in header:
        raise Failure(f"{str(path)!r} is no array of float32 in C order")
    values = array.array("f")
    values.frombytes(data[10 + size:])
    return shape, values


def rows_of(path: pathlib.Path, rows):
    """Some rows of a matrix, one after the other."""
    shape, values = read_npy(path)
    if len(shape) != 2 or max(rows) >= shape[0]:
        raise Failure(f"{str(path)!r} has the shape {shape}, expected a matrix of more than {max(rows)} rows")
    chosen = array.array("f")
    for row in rows:
        chosen.extend(values[row * shape[1]:(row + 1) * shape[1]])
    return chosen


def rel_error(actual, expected):
    """As python/check_logits.py."""
    if len(actual) != len(expected) or not all(map(math.isfinite, actual)):
        return math.inf
    norm = math.sqrt(sum(e * e for e in expected))
    return math.sqrt(sum((a - e) ** 2 for a, e in zip(actual, expected))) / norm
