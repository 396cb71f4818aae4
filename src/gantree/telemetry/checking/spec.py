"""What one member's part of a check is told, as the executor writes it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gantree.telemetry.checking.judge import CheckedMember
from gantree.telemetry.checking.rounds import Pair

GPU_BYTES, CPU_BYTES = 256 << 20, 4 << 20
"""The size of a timed all-reduce over NCCL, and over gloo."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Priced bus bandwidths in GB/s: of the gang, of members and pairs of members, and of pairs of GPUs of a member.

    None, or missing: there is no price.
    """

    gang: float | None
    of_member: Mapping[int, float]
    of_pair: Mapping[Pair, float]
    of_gpus: Mapping[tuple[int, Pair], float]


@dataclass(frozen=True, slots=True)
class CheckSpec:
    """index is this member's number. processes are ranks of each member; folder is shared by all members.

    seconds are all that the check may take. required: nothing starts without a check that passed; may_replace: a node
    that is at fault may be replaced. cuda: its GPUs are real. soak_s: so long each rank computes beforehand.
    """

    index: int
    members: tuple[CheckedMember, ...]
    processes: tuple[int, ...]
    address: str
    port: int
    seconds: float
    folder: Path
    cuda: bool
    required: bool
    may_replace: bool
    expected: Expected
    on_loopback: bool = False
    soak_s: float = 0.0

    @property
    def world(self) -> int:
        """The number of ranks."""
        return sum(self.processes)

    @property
    def first_rank(self) -> int:
        """The first rank of this member."""
        return sum(self.processes[: self.index])

    @property
    def size_bytes(self) -> int:
        """The size of a timed all-reduce."""
        return GPU_BYTES if self.cuda else CPU_BYTES

    def ranks_of(self, member: int) -> tuple[int, ...]:
        """The ranks of a member."""
        first = sum(self.processes[:member])
        return tuple(range(first, first + self.processes[member]))


def read_spec(path: Path) -> CheckSpec:
    """Read what the executor wrote. Raises OSError, ValueError and KeyError for what it did not."""
    data = json.loads(path.read_text(encoding="utf-8"))
    members = tuple(_member(each) for each in data["members"])
    return CheckSpec(
        index=data["index"],
        members=members,
        processes=tuple(each["processes"] for each in data["members"]),
        address=data["address"],
        port=data["port"],
        seconds=data["seconds"],
        folder=Path(data["folder"]),
        cuda=data["cuda"],
        required=data["required"],
        may_replace=data["may_replace"],
        expected=_expected(data.get("expected") or {}),
        on_loopback=data["on_loopback"],
        soak_s=data["soak_s"],
    )


def _member(data: Mapping[str, Any]) -> CheckedMember:
    domains = tuple((tier, path) for tier, path in data["domains"])
    return CheckedMember(data["node"], tuple(data["gpus"]), tuple(data["nics"]), domains)


def _expected(data: Mapping[str, Any]) -> Expected:
    return Expected(
        data.get("gang"),
        dict(data.get("members", ())),
        {(a, b): price for a, b, price in data.get("pairs", ())},
        {(member, (a, b)): price for member, a, b, price in data.get("gpus", ())},
    )
