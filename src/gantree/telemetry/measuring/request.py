"""Requests for measurements, and their results."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gantree.telemetry.measuring.launch import Launch
from gantree.telemetry.measuring.plan import NODE, Together
from gantree.topology.fabric.calibration import MeasuredRow

Advance = Callable[[int, int], None]
"""Called with (done, total)."""


@dataclass(frozen=True, slots=True)
class Task:
    """What to time on this node, and how long at most.

    in_node are the sets of GPUs (by index into gpu_uuids) or, without GPUs, of processes; sizes are in bytes, rising.
    launch is None unless this is one of several commands. tiers and place_of_node as in `plan.all_groups`.
    """

    collectives: tuple[str, ...]
    sizes: tuple[int, ...]
    processes: int
    in_node: tuple[Together, ...]
    timeout_s: float
    gpu_uuids: tuple[str, ...] = ()
    launch: Launch | None = None
    tiers: tuple[str, ...] = (NODE,)
    place_of_node: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    binaries: Path | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What was timed: rows in the order of the plan; library is "nccl", "rccl" or "gloo"."""

    library: str
    nodes: tuple[str, ...]
    rows: tuple[MeasuredRow, ...]
    warnings: tuple[str, ...] = ()
