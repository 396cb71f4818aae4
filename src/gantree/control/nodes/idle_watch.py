"""Finds gangs whose GPUs do not compute, and those that do again, from the samples of their counters.

A sample has for each GPU whether it computes (`telemetry.activity`). A gang is idle while its GPUs compute for at
most the share of the time that its queue sets (5 %), or in one sample alone, over the last five minutes or half the
time until it is warned, if that is less: so two samples of work in five minutes keep a gang that works in bursts, and
one stray kernel does not. It has been idle since the last sample in which more than that share of its GPUs computed.

Only changes become events, and the moment at which a gang is to be reclaimed and does not compute; samples stay in
memory. Nothing is said of a gang in a sample in which one of its GPUs did not answer, and one that was not measured
for MOST_S is not idle. A daemon that takes over goes on with what is on record as idle, unless nobody has measured
that for longer than a report (`gpu_use_watch`) and that pause; what its predecessor had only seen is lost.
"""

from collections import deque
from dataclasses import dataclass, field

from gantree.control.nodes.gpu_use_watch import (
    MOST_S,
    REPORT_S,
    Computing,
    Figures,
    computing,
    has_whole_node,
    held_devices,
)
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.idleness import can_be_idle, reclaimed_at
from gantree.model.events import GangIdlenessObserved
from gantree.policy.idle import IdleRule, IdleTerms, terms_of
from gantree.topology.fabric.fabric import Fabric

COMPUTES = "its GPUs compute"
UNMEASURED = "its GPUs are not measured"
NO_RULE = "its queue reclaims nothing"
LEAST_SAMPLES = 4
"""A gang is judged over so many samples at least, however soon it is to be warned."""


@dataclass(slots=True)
class _Seen:
    """The samples of an attempt: measured without a gap from since to until; worked are (moment, seconds) of work.

    busy_at is the last sample in which it computed, step_s the time between the last two samples.
    """

    attempt: int
    since: float
    until: float
    busy_at: float
    step_s: float = 0.0
    worked: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, now: float, share: float, below: float) -> None:
        """A sample in which this share of the GPUs computed."""
        self.step_s, self.until = now - self.until, now
        if share > 0.0:
            self.worked.append((now, share * self.step_s))
        if share > below:
            self.busy_at = now

    def window_s(self, terms: IdleTerms) -> float:
        """The span over which the gang is judged."""
        return max(terms.window_s, LEAST_SAMPLES * self.step_s)

    def works(self, now: float, terms: IdleTerms) -> bool:
        """Whether the gang worked in the window that ends now; what lies before it is forgotten."""
        window_s = self.window_s(terms)
        while self.worked and self.worked[0][0] <= now - window_s:
            self.worked.popleft()
        worked_s = sum(seconds for _, seconds in self.worked)
        return len(self.worked) > 1 and worked_s > terms.below * window_s


@dataclass(slots=True)
class IdleWatch:
    """The samples of the last minutes. is_exact: it is known which GPUs a member has, not only how many."""

    is_exact: bool = True
    _seen_of_job: dict[str, _Seen] = field(default_factory=dict)

    def judge(self, told: Figures, fabric: Fabric, now: float) -> Computing:
        """Which GPUs compute, of those whose figures tell."""
        return computing(told)

    def events(
        self, judged: Computing, ledger: Ledger, now: float, epoch: int
    ) -> tuple[GangIdlenessObserved, ...]:
        """Take in a sample; the changes that follow. now is in seconds."""
        rules: dict[str, IdleRule | None] = {}
        found: list[GangIdlenessObserved] = []
        seen_before, self._seen_of_job = self._seen_of_job, {}
        for job, state in ledger.holding.items():
            if not can_be_idle(state):
                continue
            queue = state.spec.queue
            if queue not in rules:
                rules[queue] = ledger.policy.idle_of(queue)
            terms = terms_of(rules[queue], state.spec)
            seen = None
            if terms is not None:
                seen = self._taken(seen_before.get(job), judged, ledger, state, terms, now)
            since, reason = _change(seen, ledger, state, terms, now)
            if since is not None or reason:
                found.append(_event(state, since, reason, now, epoch))
        return tuple(found)

    def _taken(
        self,
        seen: _Seen | None,
        judged: Computing,
        ledger: Ledger,
        state: JobState,
        terms: IdleTerms,
        now: float,
    ) -> _Seen | None:
        """The samples of a gang with this one; None for one that is not measured."""
        share = self._share(judged, ledger, state)
        if seen is not None and (seen.attempt != state.attempt or now - seen.until > MOST_S):
            seen = None
        if share is not None:
            if seen is None:
                seen = _Seen(state.attempt, now, now, now)
            seen.add(now, share, terms.below)
        if seen is not None:
            self._seen_of_job[state.job] = seen
        return seen

    def _share(self, judged: Computing, ledger: Ledger, state: JobState) -> float | None:
        """The share of a gang's GPUs that compute; None where one of them has no figures."""
        assert state.placement is not None
        busy = held = 0.0
        for member in state.placement.members:
            if not (self.is_exact or has_whole_node(ledger, member)):
                return None
            of_device = judged.get(member.node, {})
            for device, part in held_devices(ledger, member):
                does = of_device.get(device)
                if does is None:
                    return None
                busy, held = busy + part * does, held + part
        return busy / held if held else None


def _event(
    state: JobState, since: float | None, reason: str, now: float, epoch: int
) -> GangIdlenessObserved:
    return GangIdlenessObserved(
        id=f"idle/{state.job}/{state.attempt}/{epoch}/{now!r}",
        observed_at=now,
        job=state.job,
        attempt=state.attempt,
        since=since,
        reason=reason,
    )


def _change(
    seen: _Seen | None, ledger: Ledger, state: JobState, terms: IdleTerms | None, now: float
) -> tuple[float | None, str]:
    """Since when a gang is idle, or why it is not any more; (None, "") where there is nothing to say."""
    is_idle = state.idle.since is not None
    if terms is None or seen is None:
        reason = NO_RULE if terms is None else UNMEASURED
        return None, reason if is_idle else ""
    works = seen.works(now, terms)
    if not is_idle:
        is_known = now - seen.since >= seen.window_s(terms)
        return (seen.busy_at if is_known and not works else None), ""
    if works:
        return None, COMPUTES
    if seen.since == now and now - state.idle.seen_at > REPORT_S + MOST_S:
        return None, UNMEASURED
    moment = reclaimed_at(state, ledger.policy)
    is_due = moment is not None and moment <= now and seen.busy_at < now
    return (state.idle.since if is_due else None), ""
