"""Counts of the faults that came in a life, by kind, and the table of them."""

from collections import Counter
from collections.abc import Mapping

FAULTS: dict[str, str] = {
    "kill": "the process ended between two writes; what was written stays",
    "power cut": "the machine ended between two writes; only what was synced stays",
    "torn tail": "of what was not synced, a piece without its end was on the disk",
    "restart": "the process was stopped and started",
    "disk full": "a transaction found no free page",
    "write error": "a statement of a transaction failed",
    "lost answer": "a commit succeeded, and the caller was told that it failed",
    "poison": "the core asserted on an event, after it had changed its memory",
    "order lost": "an order did not arrive",
    "order doubled": "an order arrived twice",
    "order late": "an order arrived late, possibly after later ones",
    "order refused": "an order of an older epoch arrived",
    "order failed": "the executor raised an exception on an order",
    "event lost": "an event did not arrive, and was told again much later",
    "event doubled": "an event arrived twice",
    "event late": "an event arrived late, possibly after later ones",
    "event of the past": "an event of an ended attempt arrived again",
    "node lost": "a node ended with all its processes",
    "node lost in a start": "a node ended while a gang was starting on it",
    "node cut off": "a node could not be reached; its processes ran on",
    "start failed": "a member could not be started",
    "rank failed": "a process ended with an error",
    "gang vanished": "all traces of an attempt were lost with its processes",
    "save hung": "a checkpoint was requested and never answered",
    "clock ahead": "a wall clock was set ahead",
    "clock back": "a wall clock was set back",
    "machine rebooted": "the clock since boot began at 0",
    "two leaders": "a leader that was paused went on after another had begun",
    "lease expired": "a leader found its lease over",
}
"""Kinds of faults, and what each means."""


class Tally(Counter[str]):
    """How often each kind of fault came."""

    def came(self, fault: str) -> None:
        """Count one."""
        assert fault in FAULTS, fault
        self[fault] += 1


def table(counts: Mapping[str, int], lives: int) -> str:
    """Lines of kind, how often it came, in how much of a life each, and what it means."""
    rows = [f"{'fault':<22}{'times':>9}{'a life':>9}  meaning"]
    for kind, meaning in FAULTS.items():
        times = counts.get(kind, 0)
        rows.append(f"{kind:<22}{times:>9,}{times / max(1, lives):>9.2f}  {meaning}")
    total = sum(counts.get(kind, 0) for kind in FAULTS)
    rows.append(f"{'all':<22}{total:>9,}{total / max(1, lives):>9.2f}")
    return "\n".join(rows)
