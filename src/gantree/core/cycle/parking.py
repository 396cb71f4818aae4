"""When the cycle is parked: while nothing changes that matters to pending jobs, a pass considers arrivals only.

A pass that is complete and freed nothing leaves the cycle parked, with the versions of all that its refusals depend on
and the next moment at which time alone may change one. It is the only thing that the cycle remembers from one decision
to the next, and it may be forgotten at any time: the next pass then considers every job. So it does as soon as the
decision about an arrival may affect other jobs (`ArrivalsBuilder`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantree.core.cycle.drain import leaves_once_running, next_leaving
from gantree.core.cycle.growth import next_growth
from gantree.core.cycle.leaving_degraded import may_leave_now, next_leaving_degraded
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import RESERVATION
from gantree.core.queue.cell_usage import any_cells
from gantree.core.queue.preemption_rules import next_demotion
from gantree.core.reservations.selection import next_overdue
from gantree.model.facts import (
    ArrayAccepted,
    AttemptEnded,
    CheckpointRecorded,
    Fact,
    GangPlaced,
    GangRunning,
    GangWarned,
    JobAccepted,
    JobRejected,
    JobRequeued,
    JobsForgotten,
)
from gantree.model.idle_facts import GangIdlenessNoted, GangIdleWarned, JobExtended
from gantree.policy.boosts import next_expiry
from gantree.policy.rules import Policy

ARRIVAL_FACTS = (JobAccepted, JobRequeued)
"""Facts by which a job begins to wait."""
NEUTRAL_FACTS = (
    ArrayAccepted, JobAccepted, JobRejected, GangWarned, JobsForgotten, GangIdlenessNoted, GangIdleWarned, JobExtended,
)  # fmt: skip
"""Facts that change no refusal of another job, except through the versions of the ledger."""
MAY_LEAVE_AFTER = (CheckpointRecorded, GangRunning)
"""Facts after which moving costs less, or is possible."""


class AffectsOthers(Exception):
    """What a pass over arrivals is about to decide may change what happens to other pending jobs."""


class ArrivalsBuilder(DecisionBuilder):
    """Records a pass over arrivals, which ends before the first decision that may affect other pending jobs.

    These may come before a later arrival. A claim displaces another claimant, or stops gangs whose room they may claim
    too; a reservation replaces an estimate; and with the start of a gang they may get a reservation or a spare node.
    """

    def __init__(self, builder: DecisionBuilder, policy: Policy) -> None:
        super().__init__(builder.ledger, builder.now)
        self.facts, self.orders = builder.facts, builder.orders
        self._may_start = not policy.spares_for_a_time and policy.backfill.overtake != "promised"

    def record(self, *facts: Fact) -> None:
        """Record starts, where they affect no other job. Raises AffectsOthers before anything else is recorded."""
        if not self._may_start or not all(isinstance(fact, GangPlaced) for fact in facts):
            raise AffectsOthers
        super().record(*facts)


@dataclass(frozen=True, slots=True)
class Parked:
    """No pending job can start before `until`, in seconds, while the ledger keeps these versions.

    freed: the version of all that is given back. Room that a stopping gang gives back may be claimed by others at once;
    then it matters only to jobs that fit and were refused by their quota. waits_for_quota: whether there are any.
    """

    versions: object
    freed: object
    waits_for_quota: bool
    until: float

    def is_valid(self, ledger: Ledger, now: float) -> bool:
        """Whether nothing has changed, and the moment has not come."""
        if now >= self.until or self.versions != refusal_versions(ledger):
            return False
        return not self.waits_for_quota or self.freed == freed_versions(ledger)


def refusal_versions(ledger: Ledger) -> object:
    """A value that differs whenever room, quota, a claim or a reservation has changed in favour of a pending job.

    Room that a reservation gains counts, too: its job may start on it, or claim the rest.
    """
    accounts, policy, owners = ledger.accounts, ledger.policy, ledger.rooms().owners
    return (
        ledger.free_version,
        ledger.holders_version,
        ledger.placings if policy.spares_for_a_time or any_cells(ledger) else 0,
        accounts.freed_anywhere()[1],
        accounts.pushed_out(),
        tuple(ledger.claims),
        tuple(
            (job, reservation.starts_at, owners.get(RESERVATION + job))
            for job, reservation in ledger.reservations.items()
        ),
        _queues_before_estimates(ledger),
        len(ledger.unusable),
        ledger.site.version,
        len(ledger.gapped),
    )


def _queues_before_estimates(ledger: Ledger) -> tuple[tuple[str, int], ...]:
    """Each estimate with the queues of smaller shares, whose jobs may use its room; shares change as gangs start."""
    if ledger.accounts.order.before_share is None:
        return ()
    shares, jobs = ledger.accounts.shares, ledger.jobs
    return tuple(
        (job, queue)
        for job, reservation in ledger.reservations.items()
        if not reservation.promised
        for queue in ledger.waiting.queues
        if shares.precedes(queue, jobs[job].queue)
    )


def freed_versions(ledger: Ledger) -> object:
    """A value that differs whenever room or quota has been given back, even if it is claimed already."""
    return ledger.room_version, ledger.accounts.freed_anywhere()[0]


def are_neutral(ledger: Ledger, facts: Sequence[Fact]) -> bool:
    """Whether facts change no refusal, except through the versions of the ledger.

    If gangs may grow or move, a checkpoint changes the cost of that, and so does the start of a gang; in some orders
    the gang is demoted in time. That a gang runs makes no reservation possible, unless it began late: its end is
    estimated from its placement on. One that may now leave a degraded link or an unhealthy node is considered at once.
    """
    if any(isinstance(each, MAY_LEAVE_AFTER) and may_leave_now(ledger, each) for each in facts):
        return False
    running = [each for each in facts if isinstance(each, GangRunning)]
    if any(_began_late(ledger, each) or leaves_once_running(ledger, each) for each in running):
        return False
    policy, neutral = ledger.policy, [*NEUTRAL_FACTS]
    if policy.defragment != "apply" and not ledger.accounts.elastic:
        neutral.append(CheckpointRecorded)
        if not policy.falls_back:
            neutral.append(GangRunning)
    awaited = {job for reservation in ledger.reservations.values() for job in reservation.waits_for}
    return all(
        isinstance(fact, tuple(neutral))
        or (isinstance(fact, AttemptEnded | JobRequeued) and fact.job not in awaited)
        for fact in facts
    )


def _began_late(ledger: Ledger, fact: GangRunning) -> bool:
    """Whether a gang begins to run after its time limit, counted from its placement: its end is ahead again."""
    state = ledger.jobs[fact.job]
    limit_s, placed_at = state.spec.time_limit_s, state.placed_at
    if limit_s is None or placed_at is None:
        return False
    return placed_at + limit_s + ledger.policy.grace_s <= fact.at


def next_moment(ledger: Ledger, now: float, moments: Iterable[float]) -> float:
    """The next moment after now, in seconds, at which time alone may change a refusal; inf if there is none.

    moments: those that the refusals of the pass gave.
    """
    later = [moment for moment in (*moments, *ledger.resting.values()) if moment > now]
    later += [next_demotion(ledger, now), next_overdue(ledger, now)]
    later += [next_expiry(ledger.policy, now), next_growth(ledger, now), next_leaving(ledger, now)]
    later.append(next_leaving_degraded(ledger, now))
    return min(later)
