"""PodStatusUpdates pods why they wait: a condition on each pod and on its group, and events for what is not honoured.

People and autoscalers read `PodScheduled=False, Unschedulable` of every pod that waits, so it is kept true, but never
at the cost of decisions: so many gangs are looked at in one step, one after the other, and only what has changed is
written. Reasons of events are those that Kueue uses, so that what watches for them there does so here.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.pods.ports import in_words
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.model.verdicts import Gate

AT_ONCE = 4
"""Gangs that are looked at in one step at most."""
EVERY_S = 10.0
"""A gang's reason is looked at anew so often at most."""
REASON_OF_GATE = {
    Gate.LIMIT: "ExceedsMaxQuota",
    Gate.QUOTA: "WaitingForQuota",
    Gate.SHAPE: "NoMatchingFlavor",
    Gate.ROOM: "NoMatchingFlavor",
    Gate.CONTIGUITY: "TopologyPlacementFailed",
    Gate.HARM: "WaitingForPreemptedWorkloads",
    Gate.RESERVATION: "PendingEvaluation",
}
"""Kueue's words for the gates, as its condition QuotaReserved has them."""
MISCONFIGURED, PENDING = "Misconfigured", "PendingEvaluation"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a gang waits: Kueue's word, and a sentence."""

    reason: str
    sentence: str


@dataclass(slots=True)
class PodStatusUpdates:
    """Which gangs wait, what they were told last, and whose turn it is."""

    write: Callable[[Key, WaitReason], None]
    _queue: deque[tuple[float, Key]] = field(default_factory=deque)
    _queued: set[Key] = field(default_factory=set)
    """The keys of all turns: a gang that waits again before its turn is up has that one."""
    _reported: dict[Key, WaitReason | None] = field(default_factory=dict)

    def add(self, key: Key, now: float) -> None:
        """A gang waits from now on."""
        self._reported.setdefault(key, None)
        if key not in self._queued:
            self._queued.add(key)
            self._queue.append((now, key))

    def remove(self, key: Key) -> None:
        """A gang waits no more."""
        self._reported.pop(key, None)

    def report(self, key: Key, reason_to_wait: WaitReason) -> None:
        """Tell a gang something that no ledger knows, unless it was told that already."""
        if self._reported.get(key) != reason_to_wait:
            self._reported[key] = reason_to_wait
            self.write(key, reason_to_wait)

    def step(self, decided: LedgerView, job_of: Callable[[Key], str | None], now: float) -> None:
        """Look at the next few whose turn it is."""
        for _ in range(AT_ONCE):
            if not self._queue or self._queue[0][0] > now:
                return
            _, key = self._queue.popleft()
            if key not in self._reported:
                self._queued.discard(key)
                continue
            self._queue.append((now + EVERY_S, key))
            job = job_of(key)
            reason_to_wait = None if job is None else wait_reason(decided, job, now)
            if reason_to_wait is not None:
                self.report(key, reason_to_wait)


def wait_reason(decided: LedgerView, job: str, now: float) -> WaitReason | None:
    """Why a job waits; None for one that is not decided about yet, or does not wait."""
    rejected_for = decided.rejection(job)
    if rejected_for is not None:
        return WaitReason(MISCONFIGURED, f"Rejected: {rejected_for}.")
    why = decided.why_waiting(job, now)
    if why is None:
        return None
    sentence, gate = why
    return WaitReason(PENDING if gate is None else REASON_OF_GATE[gate], in_words(sentence))
