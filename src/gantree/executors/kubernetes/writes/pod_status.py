"""The status of pending pods: why they are pending, as a condition of each pod and of its group.

Users and autoscalers read `PodScheduled=False, Unschedulable`, so it is kept up to date, but for a few gangs a step, so
that decisions are not delayed, and only changes are written. Reasons are those of Kueue, for tools that read them.
"""

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.pods.ports import in_words
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.model.verdicts import Gate

AT_ONCE = 4
"""Gangs that are updated in one step at most."""
EVERY_S = 10.0
"""The reason of a gang is updated so often at most."""
SOON_S = 0.1
"""A gang about which nothing is decided yet is looked at again so soon."""
LATER_S = 0.5
"""A gang that lacks pods, or waits for its turn behind another, says so after so long: mostly that is over by then."""
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
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why a gang waits: Kueue's word, and a sentence."""

    reason: str
    sentence: str


@dataclass(slots=True)
class PodStatusUpdates:
    """Pending gangs, what was written last, and which is updated next."""

    write: Callable[[Key, WaitReason, bool], None]
    """Given a reason, and whether it is to be an event, too: its words are new, numbers aside."""
    remains: Callable[[str], str]
    """What keeps the last attempt of a job from ending."""
    _undecided: deque[tuple[float, Key]] = field(default_factory=deque)
    """Gangs of which it is to be seen soon why they wait; before the others."""
    _queue: deque[tuple[float, Key]] = field(default_factory=deque)
    _due: dict[Key, float] = field(default_factory=dict)
    """When each gang is updated next: a gang that is added again keeps its place. Other entries do not count."""
    _reported: dict[Key, WaitReason | None] = field(default_factory=dict)
    _pods: dict[Key, int] = field(default_factory=dict)
    _has_newcomers: set[Key] = field(default_factory=set)
    """Gangs with pods that came after the reason was written."""
    _later: dict[Key, tuple[float, WaitReason]] = field(default_factory=dict)
    """Reasons that mostly pass in a moment: from when on each is written."""

    def add(self, key: Key, now: float, pods: int) -> None:
        """A gang is pending, with so many pods."""
        if pods > self._pods.get(key, pods):
            self._has_newcomers.add(key)
        self._pods[key] = pods
        self._reported.setdefault(key, None)
        if key not in self._due:
            self.update_soon(key, now)

    def update_soon(self, key: Key, now: float) -> None:
        """What a gang waits for changes."""
        self._due[key] = now
        self._undecided.append((now, key))

    def remove(self, key: Key) -> None:
        """A gang is no longer pending."""
        self._reported.pop(key, None)
        self._pods.pop(key, None)
        self._has_newcomers.discard(key)
        self._later.pop(key, None)

    def report_later(self, key: Key, reason_to_wait: WaitReason, now: float) -> None:
        """Write a reason of a gang that is not handed in yet, if it is still so in LATER_S."""
        due, _ = self._later.get(key, (now + LATER_S, None))
        self._later[key] = (due, reason_to_wait)

    def report(self, key: Key, reason_to_wait: WaitReason) -> None:
        """Write a reason that is not decided by the core, unless it was written already."""
        if self._later.get(key, (0.0, None))[1] != reason_to_wait:
            self._later.pop(key, None)
        before = self._reported.get(key)
        if before != reason_to_wait or key in self._has_newcomers:
            self._has_newcomers.discard(key)
            self._reported[key] = reason_to_wait
            self.write(key, reason_to_wait, before is None or _words(before) != _words(reason_to_wait))  # fmt: skip

    def step(
        self, decided: LedgerView, job_of: Callable[[Key], str | None], now: float
    ) -> Iterator[Key]:
        """Update the next few that are due; give those whose job has ended although its pods are pending."""
        for _ in range(AT_ONCE):
            key = self._take(self._undecided, now) or self._take(self._queue, now)
            if key is None:
                return
            if key not in self._reported:
                continue
            job = job_of(key)
            if job is not None and decided.is_over(job):
                yield key
            if job is not None:
                self._later.pop(key, None)
            reason_to_wait = self._reason_of(key, job, decided, now)
            if reason_to_wait is not None:
                self.report(key, reason_to_wait)
            is_known = reason_to_wait is not None or (job is None and self._reported[key])
            queue, after_s = (self._queue, EVERY_S) if is_known else (self._undecided, SOON_S)
            self._due[key] = now + after_s
            queue.append((now + after_s, key))

    def _reason_of(
        self, key: Key, job: str | None, decided: LedgerView, now: float
    ) -> WaitReason | None:
        if job is None:
            since, later = self._later.get(key, (now, None))
            return later if now >= since else None
        remaining = self.remains(job)
        if remaining:
            return WaitReason(PENDING, f"Waiting: {remaining}.")
        return wait_reason(decided, job, now)

    def _take(self, queue: deque[tuple[float, Key]], now: float) -> Key | None:
        """The first of a queue whose time has come; it has no place any more."""
        while queue and queue[0][0] <= now:
            due, key = queue.popleft()
            if self._due.get(key) == due:
                del self._due[key]
                return key
        return None


def _words(reason_to_wait: WaitReason) -> tuple[str, str]:
    """A reason without its numbers."""
    return reason_to_wait.reason, _NUMBER.sub("", reason_to_wait.sentence)


def wait_reason(decided: LedgerView, job: str, now: float) -> WaitReason | None:
    """Why a job waits; None if it is not decided about yet, or does not wait."""
    rejected_for = decided.rejection(job)
    if rejected_for is not None:
        return WaitReason(MISCONFIGURED, f"Rejected: {rejected_for}.")
    why = decided.why_waiting(job, now)
    if why is None:
        return None
    sentence, gate = why
    return WaitReason(PENDING if gate is None else REASON_OF_GATE[gate], in_words(sentence))
