"""Prices of parts of a GPU: the dual prices under which shares together fill GPUs best.

Shares that do not add up to a GPU strand the rest of it: next to 0.81 of a GPU nothing fits but the few pods of 0.19
and less. So 0.81 really costs a whole GPU, 0.47 costs half of one, and a rest of 0.19 is worth nothing as long as
small pods are few. How much exactly is a cutting-stock problem (Gilmore and Gomory, 1961): pack shares of sizes m, in
their frequencies, into as few GPUs as possible. The dual prices of its linear program say what one more share of a size
adds to the number of GPUs. They depend on the demand alone, not on a cluster, and need nothing to be fitted.

    price_of_size[m]    GPUs that one more share of m costs; between 0 and 1, and no set of shares that fits a GPU
                        costs more than 1
    worth_of_left[l]    the most that shares within l of a GPU can cost together: what a GPU with l left is worth
                        to those to come

A placement that turns a GPU with l left into one with l - m left loses worth_of_left[l] - worth_of_left[l - m], which
is never less than the price of m. Equal to it, the share lies as well as anywhere; what is above it is waste.

Sizes are integers, thousandths of a GPU (milli).
"""

from collections.abc import Collection, Mapping
from math import gcd

import numpy as np

from gantree.placement.scoring.simplex import FloatArray, Program

WHOLE_MILLI = 1000
ENOUGH = 1 + 1e-7
"""A pattern must cost more than this for the prices to be wrong."""


def prices_of_sizes(frequency_of_size: Mapping[int, float]) -> dict[int, float]:
    """Price of each size of share, in GPUs, under which the demand as a whole packs best.

    Sizes are 1 to WHOLE_MILLI; a whole GPU costs 1. Frequencies may be in any unit; sizes of no frequency cost what
    the others leave for them, and without any all sizes count as equally frequent.
    """
    sizes = sorted(size for size in frequency_of_size if size < WHOLE_MILLI)
    assert all(size > 0 for size in sizes), sizes
    whole = {WHOLE_MILLI: 1.0} if WHOLE_MILLI in frequency_of_size else {}
    if not sizes:
        return whole
    demand = np.array([frequency_of_size[size] for size in sizes], dtype=np.float64)
    total = demand.sum()
    program = Program(demand / total * len(sizes) if total else np.ones(len(sizes)))
    program.add_columns(-np.eye(len(sizes)), np.zeros(len(sizes)))
    program.add_columns(_alike(sizes), np.full(len(sizes), -1.0))
    while True:
        program.solve()
        price = np.clip(-program.prices, 0, 1)
        pattern = _dearest(sizes, price)
        if pattern @ price <= ENOUGH:
            return {**dict(zip(sizes, price.tolist(), strict=True)), **whole}
        program.add_columns(pattern[:, None], np.array([-1.0]))


def _alike(sizes: list[int]) -> FloatArray:
    """Patterns of one size each, as columns."""
    return np.diag([float(WHOLE_MILLI // size) for size in sizes])


def _dearest(sizes: list[int], price: FloatArray) -> FloatArray:
    """pattern[size]: how many of each size a GPU holds in the pattern that costs most."""
    price_of_size = dict(zip(sizes, price.tolist(), strict=True))
    worth, unit = worth_of_left(price_of_size, sizes), _unit(sizes)
    pattern = np.zeros(len(sizes))
    left = WHOLE_MILLI // unit * unit
    while left > 0:
        for index, size in enumerate(sizes):
            if size <= left and worth[left - size] + price_of_size[size] >= worth[left] - 1e-12:
                pattern[index] += 1
                left -= size
                break
        else:
            left -= unit
    return pattern


def worth_of_left(price_of_size: Mapping[int, float], sizes: Collection[int]) -> FloatArray:
    """worth[left], left of 0 to WHOLE_MILLI: the most that shares of these sizes within left cost together, in GPUs."""
    worth = np.zeros(WHOLE_MILLI + 1)
    if not sizes:
        return worth
    steps = np.array(sorted(sizes), dtype=np.int64)
    prices = np.array([price_of_size[size] for size in steps.tolist()])
    unit = _unit(sizes)
    for left in range(unit, WHOLE_MILLI + 1, unit):
        fitting = int(np.searchsorted(steps, left, side="right"))
        best = worth[left - unit]
        if fitting:
            best = max(best, float((worth[left - steps[:fitting]] + prices[:fitting]).max()))
        worth[left : left + unit] = best
    return worth


def _unit(sizes: Collection[int]) -> int:
    """The largest step that all sizes are multiples of."""
    return gcd(*sizes)
