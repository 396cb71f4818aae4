"""Classes of jobs by the GPUs of the whole gang: none, a part of one, 1, 2, 3-4, 5-8, and on by powers of two."""

NONE = 0.0
PART = 0.999999
"""The most GPUs of jobs with less than one. Parts are counted in six digits."""


def size_class(gpus: float) -> float:
    """The most GPUs of the class of a job with so many."""
    if gpus <= NONE:
        return NONE
    if gpus < 1:
        return PART
    bound = 1.0
    while bound < gpus:
        bound *= 2
    return bound


def name_of(bound: float) -> str:
    """A class in words: "none", "<1", "1", "2", "3-4", "5-8"."""
    if bound in (NONE, PART):
        return "none" if bound == NONE else "<1"
    least = int(bound) // 2 + 1
    return f"{bound:g}" if least == bound else f"{least}-{bound:g}"
