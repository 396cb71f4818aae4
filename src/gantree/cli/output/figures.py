"""Numbers for people: three significant digits, no exponent; times, sizes, rates and dollars with their units."""

from math import floor, log10

_TIMES = (("s", 1.0), ("ms", 1e-3))
_SIZES = (("PiB", 1 << 50), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def digits(figure: float, count: int = 3) -> str:
    """A figure of 0 or more with `count` digits that count, thousands apart: "1,230", "17.2", "0.0123"."""
    if not figure:
        return "0"
    decimals = count - 1 - floor(log10(figure))
    text = f"{round(figure, decimals):,.{max(0, decimals)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def amount_text(amount: float) -> str:
    """An amount of a resource in full: "3,999,980", "0.5"."""
    text = f"{amount:,.6f}"
    return text.rstrip("0").rstrip(".")


def time_text(seconds: float) -> str:
    """A time: "1,230 s", "12.3 ms", "45 us"."""
    for unit, length in _TIMES:
        if seconds >= length:
            return f"{digits(seconds / length)} {unit}"
    return f"{digits(seconds * 1e6)} us" if seconds else "0 s"


def size_text(size_bytes: float) -> str:
    """A size in binary units: "1 GiB", "12.5 MiB"."""
    for unit, length in _SIZES:
        if size_bytes >= length:
            return f"{digits(size_bytes / length, 4)} {unit}"
    return f"{digits(size_bytes, 4)} B"


def rate_text(GBps: float) -> str:
    """A rate with one decimal, below 10 GB/s with three digits: "334.1 GB/s", "0.00213 GB/s"."""
    return f"{GBps:,.1f} GB/s" if GBps >= 10 else f"{digits(GBps)} GB/s"


def dollars(USD: float) -> str:
    """An amount with two decimals, below a dollar with three digits where it takes more: "$1,220.50", "$0.509"."""
    if USD >= 1 or not USD:
        return f"${USD:,.2f}"
    whole, _, decimals = digits(USD).partition(".")
    return f"${whole}.{decimals:0<2}"
