"""Saves and restores that pass through a shared store, on the event heap.

A save or restore has a part of fixed length and, where there is a store, a transfer after it. What comes of it
(`CheckpointSaved`, `GangStarted`) is kept here until the transfer is done; how long that takes depends on who else
transfers meanwhile.
"""

from dataclasses import dataclass, replace

from gantree.model.events import CheckpointSaved, Event, GangStarted
from gantree.sim.heap import EventHeap
from gantree.sim.running.model import Checkpoints
from gantree.sim.running.store import Store

Outcome = CheckpointSaved | GangStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveDue(Event):
    """An attempt has worked for its interval and begins to save by itself."""

    job: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDue(Event):
    """The fixed part of a save or restore is over, and its transfer begins."""

    job: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferDone(Event):
    """The transfer that has the least left is done."""


class Transfers:
    """The store's transfers by job. An attempt has at most one."""

    def __init__(self, checkpoints: Checkpoints, heap: EventHeap) -> None:
        self._heap = heap
        self._GB_per_GPU = checkpoints.state_GB_per_GPU
        self._store = Store(checkpoints.store_GBps) if checkpoints.store_GBps else None
        self._outcome_of_job: dict[str, Outcome] = {}
        self._foretold: int | None = None

    def event(self, outcome: Outcome, gpus: int) -> Event:
        """What to foretell for the end of the fixed part: the outcome itself, where nothing is transferred."""
        if self._store is None or not gpus * self._GB_per_GPU:
            return outcome
        at = outcome.observed_at
        return TransferDue(
            id=f"{outcome.id}/transfer", observed_at=at, job=outcome.job, outcome=outcome
        )

    def begin(self, due: TransferDue, gpus: int) -> None:
        """Begin a transfer of the state of so many GPUs."""
        assert self._store is not None, "there is no store"
        self._outcome_of_job[due.job] = due.outcome
        self._store.begin(due.job, gpus * self._GB_per_GPU, due.observed_at)
        self._foretell()

    def drop(self, job: str, now: float) -> None:
        """Forget a transfer whose attempt is stopped, if there is one."""
        if self._outcome_of_job.pop(job, None) is not None:
            assert self._store is not None
            self._store.drop(job, now)
            self._foretell()

    def done(self, now: float) -> Outcome:
        """What comes of the transfer that is done now."""
        assert self._store is not None, "there is no store"
        self._foretold = None
        outcome = self._outcome_of_job.pop(self._store.pop(now))
        self._foretell()
        return replace(outcome, observed_at=now)

    def _foretell(self) -> None:
        assert self._store is not None
        if self._foretold is not None:
            self._heap.retract(self._foretold)
        at = self._store.next_moment()
        done = None if at is None else TransferDone(id="transfer", observed_at=at)
        self._foretold = None if done is None else self._heap.push(done)
