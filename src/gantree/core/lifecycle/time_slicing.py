"""Time slicing of the gangs of a ledger: which take part, the facts, and the orders that follow.

Who computes next is decided in `core.lifecycle.time_quantum`.
"""

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.launch import turn_order
from gantree.core.lifecycle.time_quantum import Gpu, TimeSlicedGang, next_end, next_turns
from gantree.model.facts import GangResumed, GangSuspended
from gantree.model.phases import Phase
from gantree.policy.rules import IN_TURNS, Policy, TimeSharing


def shared_gpus(state: JobState, rules: TimeSharing | None) -> frozenset[Gpu]:
    """The GPUs on which a gang takes turns; none where it takes no part in time-sharing.

    A gang that also holds a whole GPU or a MIG instance takes no part: those would stand idle while it is suspended.
    Nor does a replica of a service: its requests would wait for its turn.
    """
    if rules is None or state.placement is None or state.spec.priority not in rules.classes:
        return frozenset()
    if state.spec.service is not None:
        return frozenset()
    members = state.placement.members
    shares = [(member.node, member.share) for member in members if member.share is not None]
    holds_more = any(member.gpus or member.mig for member in members)
    if holds_more or any(share.isolation != IN_TURNS for _, share in shares):
        return frozenset()
    return frozenset((node, share.gpu) for node, share in shares)


class TimeSlicer:
    """The turns of one ledger's gangs. What it remembers is derived from the ledger, so it can be made at any time.

    Of each gang that takes part it keeps the GPUs; of one that is suspended and takes no part (any more), none.
    """

    def __init__(self, ledger: Ledger, policy: Policy, now: float) -> None:
        self._ledger = ledger
        self._rules = policy.time_sharing
        self._gpus_of_job: dict[str, frozenset[Gpu]] = {}
        for job in ledger.holding:
            self._note(job)
        self._wake_at = (
            now if any(self._change(now)) else next_end(self._time_sliced_gangs(now), now)
        )

    def wake_at(self) -> float | None:
        """The end of the next time slice for which another gang waits, in seconds; None without one."""
        return self._wake_at

    def update(self, builder: DecisionBuilder) -> None:
        """Decide which gangs compute from now on; the last step of a decision."""
        jobs = dict.fromkeys(getattr(fact, "job", None) for fact in builder.facts)
        touched = [self._note(job) for job in jobs if job is not None]
        due = self._wake_at is not None and self._wake_at <= builder.now
        if not due and not any(touched):
            return
        suspend, resume, let_go = self._change(builder.now)
        for job in suspend:
            self._suspend(builder, self._ledger.jobs[job])
        for job in let_go:
            self._resume(builder, self._ledger.jobs[job], None)
        for job in resume:
            assert self._rules is not None
            self._resume(builder, self._ledger.jobs[job], builder.now + self._rules.quantum_s)
        self._wake_at = next_end(self._time_sliced_gangs(builder.now), builder.now)

    def _note(self, job: str) -> bool:
        """Take note of what has become of a job; say whether turns have to do with it, or had."""
        state, had = self._ledger.holding.get(job), job in self._gpus_of_job
        gpus = frozenset[Gpu]() if state is None else shared_gpus(state, self._rules)
        if state is not None and (gpus or state.suspended):
            self._gpus_of_job[job] = gpus
        elif had:
            del self._gpus_of_job[job]
        return had or job in self._gpus_of_job

    def _change(self, now: float) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """Job ids whose turn ends, whose begins, and who are suspended though they take no part in turns any more."""
        gangs = self._time_sliced_gangs(now)
        change, part = next_turns(gangs, now), {each.job for each in gangs}
        let_go = (job for job in self._in_order() if job not in part)
        jobs = self._ledger.jobs
        return change.suspend, change.resume, tuple(job for job in let_go if jobs[job].suspended)

    def _in_order(self) -> list[str]:
        """Those of whom something is kept, the oldest job first, whoever was seen first."""
        return sorted(self._gpus_of_job, key=lambda job: self._ledger.jobs[job].seq)

    def _time_sliced_gangs(self, now: float) -> list[TimeSlicedGang]:
        """All that take turns, the oldest job first; one that is being stopped does not any more."""
        return [
            self._time_sliced(state, gpus, now)
            for job in self._in_order()
            if (gpus := self._gpus_of_job[job])
            and (state := self._ledger.jobs[job]).phase is not Phase.STOPPING
        ]

    def _time_sliced(self, state: JobState, gpus: frozenset[Gpu], now: float) -> TimeSlicedGang:
        assert state.placed_at is not None and self._rules is not None
        since = state.placed_at if state.slices.turned_at is None else state.slices.turned_at
        ends_at = since + self._rules.quantum_s
        return TimeSlicedGang(
            state.job,
            state.seq,
            gpus,
            since,
            ends_at if state.slices.turn_ends_at is None else state.slices.turn_ends_at,
            suspended=state.suspended,
            leaving=state.phase is Phase.SAVING,
            new=state.slices.turned_at is None and state.placed_at >= now,
        )

    @staticmethod
    def _suspend(builder: DecisionBuilder, state: JobState) -> None:
        builder.record(GangSuspended(at=builder.now, job=state.job, attempt=state.attempt))
        builder.order(turn_order(state))

    @staticmethod
    def _resume(builder: DecisionBuilder, state: JobState, turn_ends_at: float | None) -> None:
        builder.record(
            GangResumed(
                at=builder.now, job=state.job, attempt=state.attempt, turn_ends_at=turn_ends_at
            )
        )
        builder.order(turn_order(state))
