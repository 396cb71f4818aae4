"""Sets of GPUs or NICs of one machine as masks: an int whose bit g stands for GPU g."""

from collections.abc import Iterable


def gpus_of(mask: int) -> tuple[int, ...]:
    """GPU indices of a mask, rising."""
    return tuple(gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1)


def mask_of(gpus: Iterable[int]) -> int:
    """Mask of GPU indices."""
    mask = 0
    for gpu in gpus:
        mask |= 1 << gpu
    return mask
