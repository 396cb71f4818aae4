"""Divides whole amounts by weights so that the parts add up: no cent is lost, and none is made."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key")


def divided(amount: int, weights: Sequence[float]) -> list[int]:
    """Whole parts of an amount, in proportion to weights of 0 or more; the largest remainders are rounded up.

    All parts are 0 only where the amount is; without any weight the parts are equal.
    """
    total = sum(weights)
    if not weights:
        assert not amount, "nobody to divide an amount among"
        return []
    shares = [weight / total if total else 1 / len(weights) for weight in weights]
    size, sign = abs(amount), -1 if amount < 0 else 1
    parts = [int(size * share) for share in shares]
    rests = sorted(range(len(shares)), key=lambda n: (parts[n] - size * shares[n], n))
    missing = size - sum(parts)
    for n in rests[: max(0, missing)]:
        parts[n] += 1
    if missing < 0 or missing > len(parts):  # floats of very large amounts
        parts[rests[0]] += size - sum(parts)
    return [sign * part for part in parts]


def divided_by(amount: int, weight_of: Mapping[Key, float]) -> dict[Key, int]:
    """The same by key; parts of 0 are left out."""
    parts = divided(amount, list(weight_of.values()))
    return {key: part for key, part in zip(weight_of, parts, strict=True) if part}


def rounded(amounts: Sequence[int], unit: int) -> list[int]:
    """Amounts in whole units whose sum is that of the amounts, rounded: what a reader adds up is what is printed.

    Each is at most one unit from its amount.
    """
    whole = [amount // unit for amount in amounts]
    missing = round(sum(amounts) / unit) - sum(whole)
    largest = sorted(range(len(amounts)), key=lambda n: (-(amounts[n] % unit), n))
    for n in largest[: max(0, missing)]:
        whole[n] += 1
    return whole
