"""Attempts from facts: when each was placed and ended, and why. No future here.

The facts are read in small steps, the latest part of the journal only, and never twice: a process keeps what it has
read of a journal. The first steps of a long journal follow one another, so that none holds others up.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import Journal
from gantree.model.facts import (
    AttemptEnded,
    Fact,
    GangPlaced,
    GangPreempted,
    GangRunning,
    StopDecided,
)
from gantree.model.placements import Placement

LOOK_BACK: Final = 30_000
"""So many of the latest facts are read."""
A_STEP: Final = 1500
KEPT: Final = 4000
"""Attempts that are over and still shown."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. until and how are None and "" while it holds its place; by is who it was preempted for.

    gpus_of_node are those that it holds, whole or in part. Times in seconds since 1970.
    """

    job: str
    attempt: int
    queue: str
    user: str
    domain: str
    gpus_of_node: dict[str, tuple[int, ...]]
    placed_at: float
    running_at: float | None = None
    until: float | None = None
    how: str = ""
    by: str = ""

    @property
    def gpus(self) -> int:
        """How many GPUs it holds."""
        return sum(map(len, self.gpus_of_node.values()))


def gpus_of_node(placement: Placement) -> dict[str, tuple[int, ...]]:
    """The GPUs that a placement holds of each node, whole or in part, each once, rising."""
    held: dict[str, set[int]] = {}
    for member in placement.members:
        held.setdefault(member.node, set()).update((*member.gpus, *member.parts))
    return {node: tuple(sorted(gpus)) for node, gpus in held.items()}


@dataclass(slots=True)
class Past:
    """What was read of a journal, up to the fact with seq `to`."""

    to: int = 0
    open: dict[str, Attempt] = field(default_factory=dict)
    over: deque[Attempt] = field(default_factory=lambda: deque(maxlen=KEPT))

    def read_on(self, journal: Journal, ledger: Ledger) -> bool:
        """Read a step; say whether that was all there is."""
        last = journal.last_fact()
        after = max(self.to, journal.compacted_to(), last - LOOK_BACK)
        for recorded in islice(journal.facts(after), A_STEP) if last > after else ():
            after = recorded.seq
            self.see(recorded.fact, ledger)
        self.to = after
        return after >= last

    def see(self, fact: Fact, ledger: Ledger) -> None:
        """One more fact."""
        handler = _HANDLERS.get(type(fact))
        if handler is not None:
            handler(self, fact, ledger)


def _placed(past: Past, fact: GangPlaced, ledger: Ledger) -> None:
    state = ledger.jobs.get(fact.job)
    queue, user = ("", "") if state is None else (state.spec.queue, state.spec.user)
    domain, held = fact.placement.domain.name, gpus_of_node(fact.placement)
    past.open[fact.job] = Attempt(fact.job, fact.attempt, queue, user, domain, held, fact.at)


def _running(past: Past, fact: GangRunning, ledger: Ledger) -> None:
    if fact.job in past.open:
        past.open[fact.job] = replace(past.open[fact.job], running_at=fact.at)


def _preempted(past: Past, fact: GangPreempted, ledger: Ledger) -> None:
    if fact.job in past.open:
        past.open[fact.job] = replace(past.open[fact.job], how="preempted", by=fact.by)


def _stopped(past: Past, fact: StopDecided, ledger: Ledger) -> None:
    if fact.job in past.open:
        past.open[fact.job] = replace(past.open[fact.job], how=fact.cause.value)


def _ended(past: Past, fact: AttemptEnded, ledger: Ledger) -> None:
    attempt = past.open.pop(fact.job, None)
    if attempt is not None:
        how = attempt.how or ("succeeded" if fact.exit_code == 0 else "failed")
        past.over.append(replace(attempt, until=fact.at, how=how))


_HANDLERS: Final[dict[type[Fact], Callable[[Past, Any, Ledger], None]]] = {
    GangPlaced: _placed,
    GangRunning: _running,
    GangPreempted: _preempted,
    StopDecided: _stopped,
    AttemptEnded: _ended,
}

_PASTS: WeakKeyDictionary[Journal, Past] = WeakKeyDictionary()
"""What this process has read of journals, be it the daemon or its reader. Questions come one at a time."""


def past_of(journal: Journal) -> Past:
    """What was read of a journal so far."""
    return _PASTS.setdefault(journal, Past())
