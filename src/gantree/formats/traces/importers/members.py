"""GPUs of a foreign job as members of a gang: where only their number is known, or members had them unevenly."""

from math import ceil
from typing import TypedDict

GPUS_OF_A_MACHINE = 8
"""Of the machines of the public traces of training, at most."""


def equal_members(gpus: int, most: int = GPUS_OF_A_MACHINE) -> tuple[int, int]:
    """Return (members, GPUs a member): one member up to `most` GPUs, else the fewest equal ones.

    A larger job has members of the largest number of GPUs up to `most` that divides its own (16 -> 2 x 8, 12 -> 2 x 6,
    11 -> 11 x 1).
    """
    if gpus <= most:
        return 1, gpus
    each = next(each for each in range(most, 0, -1) if gpus % each == 0)
    return gpus // each, each


def members_on(nodes: int, gpus: int) -> tuple[int, int]:
    """Return (members, GPUs a member) of GPUs on so many nodes; as `equal_members` where these cannot be alike."""
    return (nodes, gpus // nodes) if nodes and gpus % nodes == 0 else equal_members(gpus)


class Gpus(TypedDict):
    """What a member has of GPUs, as columns of a trace."""

    gpus_per_member: int
    gpu_share: float | None


def whole_or_share(gpus: float) -> Gpus:
    """A part of one GPU is a share; what is more than one is rounded up to whole GPUs."""
    if 0 < gpus < 1:
        return Gpus(gpus_per_member=0, gpu_share=gpus)
    return Gpus(gpus_per_member=ceil(gpus), gpu_share=None)
