"""Members of a job of which only the number of GPUs is known, or that had them unevenly."""

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
    return (nodes, gpus // nodes) if gpus % nodes == 0 else equal_members(gpus)
