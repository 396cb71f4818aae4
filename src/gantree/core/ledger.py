"""The ledger: what has been decided so far. The only mutable thing of the core.

It changes only by `apply(fact)`, so that folding the recorded facts rebuilds it exactly; it never decides and
never asks the time. Beside the jobs it keeps what can be derived from them and is needed often: the lines of
waiting jobs, the gangs that hold a place, and the occupancy of the fabric.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from gantree.model.facts import (
    AttemptEnded,
    CheckpointRecorded,
    CheckpointRequested,
    ClaimDropped,
    FabricDefined,
    Fact,
    GangPlaced,
    GangPreempted,
    GangRunning,
    JobAccepted,
    JobEnded,
    JobRejected,
    JobRequeued,
    NodeMarked,
    RoomClaimed,
    StopDecided,
)
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, HOLDING, NEXT, Phase, StopCause
from gantree.model.placements import Placement
from gantree.placement.search import signature
from gantree.policy.order import Lines, Position
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

CLAIM = "claim:"
"""Prefix of the owner under which room is held for a gang that is not placed yet."""


@dataclass(slots=True)
class JobState:
    """All that is known of one job. Times are seconds of `Event.observed_at`; None: not yet.

    placed_at, running_at, checkpoint_at, stop_*, request and answered belong to the current attempt; checkpoint_step is
    the newest over all attempts.
    """

    job: str
    spec: Job
    priority: int
    seq: int
    signature: Hashable
    submitted_at: float
    phase: Phase = Phase.PENDING
    attempt: int = 0
    placement: Placement | None = None
    placed_at: float | None = None
    running_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    checkpoint_step: int | None = None
    checkpoint_at: float | None = None
    request: str | None = None
    answered: bool = False
    deadline_at: float | None = None
    stop_cause: StopCause | None = None
    stop_decided_at: float | None = None
    stop_grace_s: float = 0.0
    preempted_by: str | None = None
    not_before: float = 0.0
    failures: int = 0
    preempted_at: tuple[float, ...] = ()
    gpu_s_lost: float = 0.0
    exit_code: int | None = None
    reason: str = ""

    @property
    def position(self) -> Position:
        """The job's place in the order of the queue."""
        return Position(-self.priority, self.seq, self.job)

    @property
    def leaving(self) -> bool:
        """Whether the attempt has been asked to save or to stop."""
        return self.phase in (Phase.SAVING, Phase.STOPPING)

    @property
    def preemptions(self) -> int:
        """How often the job was preempted so far."""
        return len(self.preempted_at)

    def gpu_s_at_stake(self, now: float) -> float:
        """GPU-seconds of work that would be lost if the attempt stopped now."""
        if self.running_at is None:
            return 0.0
        since = self.running_at if self.checkpoint_at is None else self.checkpoint_at
        return max(0.0, now - since) * self.spec.gpus


@dataclass(frozen=True, slots=True)
class Claim:
    """Room held for a gang while victims (job ids) leave it."""

    placement: Placement
    victims: tuple[str, ...]


@dataclass(slots=True)
class Ledger:
    """The state of the scheduler.

    room_version grows whenever a gang that was refused might now fit, holders_version whenever a gang takes a
    place or begins to leave one, so that room might now be made.
    """

    jobs: dict[str, JobState] = field(default_factory=dict)
    newest_of_name: dict[str, str] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)
    holding: dict[str, JobState] = field(default_factory=dict)
    lines: Lines = field(default_factory=Lines)
    dependents: dict[str, list[str]] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    occupancy: Occupancy | None = None
    next_seq: int = 0
    room_version: int = 0
    holders_version: int = 0
    leaving: dict[str, JobState] = field(default_factory=dict)
    _holders_of_priority: dict[int, int] = field(default_factory=dict)

    @property
    def fabric(self) -> Fabric | None:
        """The fabric as last defined; None before the first cluster was observed."""
        return None if self.occupancy is None else self.occupancy.fabric

    def apply(self, fact: Fact) -> None:
        """Change the state as the fact says."""
        _APPLY[type(fact)](self, fact)

    def rooms(self) -> Occupancy:
        """The occupancy; a cluster must have been observed."""
        assert self.occupancy is not None, "no cluster was observed yet"
        return self.occupancy

    def lowest_priority(self) -> float:
        """The lowest priority among gangs that hold a place; infinity if none does."""
        return min(self._holders_of_priority, default=inf)

    def move(self, state: JobState, phase: Phase) -> None:
        """Bring a job into another phase and keep the derived collections true."""
        assert phase in NEXT[state.phase], f"{state.job}: {state.phase} cannot become {phase}"
        if state.phase is Phase.PENDING:
            self.lines.remove(state.signature, state.position)
        if phase is Phase.PENDING:
            self.lines.add(state.signature, state.position)
        if (phase in HOLDING) != (state.phase in HOLDING):
            self._count_holder(state, 1 if phase in HOLDING else -1)
        state.phase = phase
        if state.leaving and state.job not in self.leaving:
            self.leaving[state.job] = state
            self.holders_version += 1
        elif not state.leaving:
            self.leaving.pop(state.job, None)

    def _count_holder(self, state: JobState, change: int) -> None:
        if change > 0:
            self.holding[state.job] = state
        else:
            del self.holding[state.job]
        count = self._holders_of_priority.get(state.priority, 0) + change
        self._holders_of_priority[state.priority] = count
        if count == 0:
            del self._holders_of_priority[state.priority]

    def hold_claims(self) -> None:
        """Give every claim what is free of its room, oldest claim first."""
        for job, claim in self.claims.items():
            self.rooms().give_back(CLAIM + job)
            self.rooms().take_free(CLAIM + job, claim.placement.members)


def _fabric_defined(ledger: Ledger, fact: FabricDefined) -> None:
    occupancy = Occupancy(Fabric.build(fact.cluster))
    for node in ledger.unusable:
        if node in occupancy.fabric.index_of_node:
            occupancy.mark(node, usable=False)
    for state in ledger.holding.values():
        assert state.placement is not None
        occupancy.take(state.job, state.placement.members)
    ledger.occupancy = occupancy
    ledger.hold_claims()
    ledger.room_version += 1


def _job_accepted(ledger: Ledger, fact: JobAccepted) -> None:
    assert fact.job not in ledger.jobs, f"{fact.job} accepted twice"
    state = JobState(fact.job, fact.spec, fact.priority, fact.seq, signature(fact.spec), fact.at)
    ledger.jobs[fact.job] = state
    ledger.newest_of_name[fact.spec.name] = fact.job
    ledger.lines.add(state.signature, state.position)
    ledger.next_seq = fact.seq + 1
    for name in fact.spec.after:
        ledger.dependents.setdefault(name, []).append(fact.job)


def _job_rejected(ledger: Ledger, fact: JobRejected) -> None:
    ledger.rejected[fact.job] = fact.reason


def _gang_placed(ledger: Ledger, fact: GangPlaced) -> None:
    state = ledger.jobs[fact.job]
    assert fact.attempt == state.attempt + 1, (
        f"{fact.job}: attempt {fact.attempt} after {state.attempt}"
    )
    ledger.rooms().take(fact.job, fact.placement.members)
    ledger.move(state, Phase.STARTING)
    ledger.holders_version += 1
    state.attempt, state.placement, state.placed_at = fact.attempt, fact.placement, fact.at
    state.running_at = state.checkpoint_at = state.request = state.deadline_at = None
    state.stop_cause = state.stop_decided_at = state.preempted_by = None
    state.answered, state.reason = False, ""


def _gang_running(ledger: Ledger, fact: GangRunning) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.RUNNING)
    state.running_at = fact.at
    if state.started_at is None:
        state.started_at = fact.at


def _room_claimed(ledger: Ledger, fact: RoomClaimed) -> None:
    ledger.claims[fact.job] = Claim(fact.placement, fact.victims)
    ledger.hold_claims()


def _claim_dropped(ledger: Ledger, fact: ClaimDropped) -> None:
    del ledger.claims[fact.job]
    ledger.rooms().give_back(CLAIM + fact.job)
    ledger.room_version += 1


def _gang_preempted(ledger: Ledger, fact: GangPreempted) -> None:
    state = ledger.jobs[fact.job]
    state.preempted_by = fact.by
    state.preempted_at = (*state.preempted_at, fact.at)


def _checkpoint_requested(ledger: Ledger, fact: CheckpointRequested) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.SAVING)
    state.request, state.deadline_at, state.stop_cause = fact.request, fact.deadline_at, fact.cause


def _checkpoint_recorded(ledger: Ledger, fact: CheckpointRecorded) -> None:
    state = ledger.jobs[fact.job]
    state.checkpoint_step, state.checkpoint_at = fact.step, fact.at
    state.answered = state.answered or (fact.request is not None and fact.request == state.request)


def _stop_decided(ledger: Ledger, fact: StopDecided) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.STOPPING)
    if state.stop_decided_at is None:
        state.stop_decided_at = fact.at
    state.stop_cause, state.stop_grace_s, state.deadline_at = fact.cause, fact.grace_s, None
    state.reason = fact.reason or state.reason


def _attempt_ended(ledger: Ledger, fact: AttemptEnded) -> None:
    state = ledger.jobs[fact.job]
    ledger.rooms().give_back(fact.job)
    ledger.hold_claims()
    ledger.room_version += 1
    state.exit_code = fact.exit_code
    state.gpu_s_lost += fact.gpu_s_lost


def _job_requeued(ledger: Ledger, fact: JobRequeued) -> None:
    state = ledger.jobs[fact.job]
    ledger.move(state, Phase.PENDING)
    state.placement = None
    state.not_before, state.failures = fact.not_before, fact.failures
    state.reason = f"requeued: {fact.cause}"


def _job_ended(ledger: Ledger, fact: JobEnded) -> None:
    assert fact.outcome in ENDED, f"{fact.job}: {fact.outcome} is no end"
    state = ledger.jobs[fact.job]
    ledger.move(state, fact.outcome)
    state.ended_at, state.exit_code, state.reason = fact.at, fact.exit_code, fact.reason


def _node_marked(ledger: Ledger, fact: NodeMarked) -> None:
    if fact.usable:
        ledger.unusable.pop(fact.node, None)
        ledger.room_version += 1
    else:
        ledger.unusable[fact.node] = fact.reason
    ledger.rooms().mark(fact.node, usable=fact.usable)


_APPLY: dict[type[Fact], Callable[[Ledger, Any], None]] = {
    FabricDefined: _fabric_defined,
    JobAccepted: _job_accepted,
    JobRejected: _job_rejected,
    GangPlaced: _gang_placed,
    GangRunning: _gang_running,
    RoomClaimed: _room_claimed,
    ClaimDropped: _claim_dropped,
    GangPreempted: _gang_preempted,
    CheckpointRequested: _checkpoint_requested,
    CheckpointRecorded: _checkpoint_recorded,
    StopDecided: _stop_decided,
    AttemptEnded: _attempt_ended,
    JobRequeued: _job_requeued,
    JobEnded: _job_ended,
    NodeMarked: _node_marked,
}
