"""What a check measured, for people: in the record of a run, and of a burn-in."""

from collections.abc import Mapping
from typing import Any

WHAT = {
    "compute": "arithmetic",
    "memory": "memory",
    "member": "all-reduce inside",
    "gpus": "all-reduce of two GPUs",
    "pair": "all-reduce",
    "gang": "all-reduce",
}


def unit_of(figure: Mapping[str, Any]) -> str:
    """Return the unit of a figure."""
    return "TFLOPS" if figure["kind"] == "compute" else "GB/s"


def amount(value: float | None) -> str:
    """Return a figure in words; None: it did not end."""
    return "did not end" if value is None else f"{value:.4g}"


def figure_line(figure: Mapping[str, Any]) -> str:
    """Return one figure as a line."""
    expected = f", {amount(figure['expected'])} expected" if figure["expected"] else ""
    what = f"{figure['name']} {WHAT[figure['kind']]}"
    unit = "" if figure["measured"] is None else f" {unit_of(figure)}"
    return f"{what}: {amount(figure['measured'])}{unit}{expected}"
