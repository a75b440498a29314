"""usage: check_last_row.py ALL.npy LAST.npy: LAST is a vector, the last row of the matrix ALL, bit for bit."""

import sys

import numpy as np

all_rows, last = (np.load(path) for path in sys.argv[1:])
assert all_rows.dtype == last.dtype == np.float32
assert all_rows.ndim == 2 and last.ndim == 1 and np.isfinite(all_rows).all()
assert np.array_equal(all_rows[-1], last)
assert not np.array_equal(all_rows[0], last)
