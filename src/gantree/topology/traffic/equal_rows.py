"""Numbers equal rows of arrays, and takes minima over runs.

np.unique would do, but it imports numpy.ma on first use, which takes longer than a thousand prices.
"""

import numpy as np
from numpy.typing import NDArray

from gantree.topology.fabric.fabric import FloatArray, IntArray


def number_equal_rows(*keys: NDArray[np.int64] | NDArray[np.object_]) -> tuple[IntArray, IntArray]:
    """Return (first entry of each number, number of each entry) for one-dimensional keys of one length, not empty.

    Numbers count from 0; among entries of one number the first is the one that stands first.
    """
    whole = [_as_int64(key) for key in keys]
    order = np.lexsort(whole[::-1]) if len(whole) > 1 else np.argsort(whole[0], kind="stable")
    new = np.zeros(len(order), dtype=np.bool_)
    new[0] = True
    for key in whole:
        in_order = key[order]
        new[1:] |= in_order[1:] != in_order[:-1]
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.cumsum(new) - 1
    return order[new].astype(np.int64), number


def least_of_runs(values: FloatArray, first: IntArray) -> tuple[FloatArray, IntArray]:
    """Return (least value, first entry that has it) of each run of entries; first says where runs begin."""
    least = np.minimum.reduceat(values, first)
    lengths = np.diff(np.append(first, len(values)))
    entries = np.arange(len(values), dtype=np.int64)
    at_least = np.where(values == np.repeat(least, lengths), entries, len(values))
    return least, np.minimum.reduceat(at_least, first)


def _as_int64(key: NDArray[np.int64] | NDArray[np.object_]) -> IntArray:
    """Whole numbers of Python, which may be larger than 64 bits, by the order in which they come up."""
    if key.dtype != np.object_:
        return key.astype(np.int64, copy=False)
    number: dict[int, int] = {}
    return np.array([number.setdefault(value, len(number)) for value in key.tolist()], np.int64)
