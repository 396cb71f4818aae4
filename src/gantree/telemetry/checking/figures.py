"""What a check measures: bus bandwidths of all-reduces among members and among GPUs of one member."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

COMPUTE, MEMORY, MEMBER, GPUS, PAIR, GANG = KINDS = (
    "compute", "memory", "member", "gpus", "pair", "gang",
)  # fmt: skip
"""Arithmetic and memory of one GPU or CPU; all-reduces in one member, of two of its GPUs, of two members, of all."""
ALONE = (COMPUTE, MEMORY)
"""Kinds that one device has by itself, without a link."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measurement. members are numbers in the gang; gpus are numbers in the member, of GPUS and ALONE only.

    measured is in GB/s as nccl-tests define busbw (of COMPUTE in TFLOPS); None: it did not end. expected is the price
    of this place in the same unit; None: there is none, and figures of one kind are compared with each other.
    """

    kind: str
    members: tuple[int, ...]
    measured: float | None
    expected: float | None = None
    gpus: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, with figures as exact as can be meant."""
        return {
            "kind": self.kind,
            "members": list(self.members),
            "gpus": list(self.gpus),
            "measured": None if self.measured is None else float(f"{self.measured:.4g}"),
            "expected": None if self.expected is None else float(f"{self.expected:.4g}"),
        }


def figure_of(data: Mapping[str, Any]) -> Figure:
    """The figure that `to_json` wrote."""
    return Figure(
        data["kind"],
        tuple(data["members"]),
        data["measured"],
        data["expected"],
        tuple(data["gpus"]),
    )


def in_order(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """Figures by kind, members and GPUs."""
    return tuple(
        sorted(figures, key=lambda each: (KINDS.index(each.kind), each.members, each.gpus))
    )
