"""Sizes and shares of a disk on the command line."""

import re

from gantree.executors.local.run_limits import DiskAmount
from gantree.model.errors import BadInput

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(KiB|MiB|GiB|TiB)?")
_PERCENT = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,6})?) ?%")


def bytes_of(option: str, text: str) -> int:
    """Bytes of a text such as 512MiB. Raises BadInput, which names the option."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise BadInput(f"{option}: found {text!r}; allowed: a size such as 512MiB or 2GiB")
    return int(float(found[1]) * _UNITS[found[2] or ""])


def disk_amount_of(option: str, text: str) -> DiskAmount:
    """A size, or a share of the disk in per cent, at most 100. Raises BadInput, which names the option."""
    percent = _PERCENT.fullmatch(text)
    if percent is not None and float(percent[1]) <= 100:
        return DiskAmount(float(percent[1]) / 100)
    if percent is not None or _SIZE.fullmatch(text) is None:
        allowed = "a size such as 10GiB, or a share of the disk such as 5%"
        raise BadInput(f"{option}: found {text!r}; allowed: {allowed}")
    return DiskAmount(most_bytes=bytes_of(option, text))
