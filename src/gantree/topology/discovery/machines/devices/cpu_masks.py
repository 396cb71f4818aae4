"""Sets of CPUs or NUMA nodes that Linux, NCCL and hwloc write as hexadecimal masks.

Words of 32 bits, the highest first, with commas between: "000000ff,ffff0000". hwloc puts "0x" before each word and
leaves words of zeros empty ("0x3,,0x1"). Its infinite sets ("0xf...f") are no set of a machine.
"""

import re

from gantree.topology.discovery.gpus import CpuSet

MAX_WORDS = 512
"""16,384 bits; Linux counts at most 8,192 CPUs. A longer mask is no machine's."""
_ONES = re.compile("1+")
_WORD = re.compile(r"(?:0x)?[0-9a-f]{0,8}", re.IGNORECASE)


def mask_bits(written: str) -> int | None:
    """Return a mask as a number whose bit i means CPU i; None for what is no mask."""
    if written.count(",") >= MAX_WORDS:
        return None
    words = [word.strip() for word in written.split(",")]
    if not any(words) or not all(_WORD.fullmatch(word) for word in words):
        return None
    bits = 0
    for word in words:
        bits = bits << 32 | int(word.lower().removeprefix("0x") or "0", 16)
    return bits


def runs_of(bits: int) -> CpuSet:
    """Return the runs of ones, first and last bit of each: 0b1101 is ((0, 0), (2, 3))."""
    lowest_first = f"{bits:b}"[::-1]
    return tuple((run.start(), run.end() - 1) for run in _ONES.finditer(lowest_first))
