"""Break-fix: which steps repair a node with a fault, and how far a repair has come."""

from dataclasses import dataclass
from enum import StrEnum


class RepairState(StrEnum):
    """The state of the repair of one node."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One command of a repair, run without a shell. timeout_s is of each try, retries how many follow the first.

    run may have {node}, {gpu} and {sign}. repeatable: it may be run again where the daemon ended meanwhile.
    """

    name: str
    run: tuple[str, ...]
    timeout_s: float
    retries: int = 0
    repeatable: bool = False


@dataclass(frozen=True, slots=True)
class RepairChain:
    """The steps for faults whose reason this regular expression is found in, in their order."""

    sign: str
    steps: tuple[RepairStep, ...]
