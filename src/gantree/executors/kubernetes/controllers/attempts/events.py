"""Events of attempts, each emitted once. They follow from the pods, so a restart derives the same ids again."""

from collections.abc import Callable, Iterable

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.controllers.attempts.members import Name
from gantree.executors.kubernetes.workloads.attempts import Attempt, events_of
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.model.events import Event, GangEnded, GangStartFailed, HoldRequested

FOR_PODS = "its pods are not all there; whoever makes them has to make new ones"


class AttemptEvents:
    """The events that were emitted, by attempt."""

    def __init__(self, pending: PendingPods, emit: Callable[[Event], None]) -> None:
        self._pending, self._emit = pending, emit
        self._emitted: dict[Name, set[str]] = {}

    def forget(self, name: Name) -> None:
        """The end of an attempt is on record."""
        self._emitted.pop(name, None)

    def emit(self, attempts: Iterable[Attempt], decided: LedgerView, now: float) -> list[str]:
        """Emit new events of attempts; return the jobs whose attempts have ended."""
        events = [
            (attempt.key, event)
            for attempt in attempts
            if not attempt.is_quiet
            for event in all_events(attempt, now, holds=self._holds(attempt.job, decided))
        ]
        fresh = [event for name, event in events if self._emit_once(name, event)]
        return [event.job for event in fresh if isinstance(event, GangEnded)]

    def _holds(self, job: str, decided: LedgerView) -> bool:
        """Whether a job is held until its pods are made again. A hold would drop a claim that the job has."""
        return decided.claimed_placement(job) is None or not self._pending.makes_pods(job)

    def _emit_once(self, name: Name, event: Event) -> bool:
        emitted = self._emitted.setdefault(name, set())
        if event.id in emitted:
            return False
        emitted.add(event.id)
        self._emit(event)
        return True


def all_events(attempt: Attempt, now: float, *, holds: bool) -> list[Event]:
    """All events of an attempt so far. holds: before the end of one that did not succeed, its job is held."""
    events = list(events_of(attempt, now))
    if attempt.failed:
        failed = GangStartFailed(
            id=f"{attempt.name}/start-failed",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            reason=attempt.failed,
            final=attempt.final,
            check_failed=attempt.check_failed,
        )
        events.insert(0, failed)
    if attempt.is_over and attempt.exit_code != 0 and holds:
        held = HoldRequested(
            id=f"{attempt.name}/hold", observed_at=now, job=attempt.job, reason=FOR_PODS
        )
        events.insert(-1, held)
    return events
