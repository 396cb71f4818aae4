"""The state of one job in the ledger, of room that is held for it, and of its reservation.

Only `core.ledger.ledger` writes here, by applying facts; everybody reads.
"""

from dataclasses import dataclass
from math import inf

from gantree.core.ledger.job_parts import (
    NO_REPLICA,
    NO_SLICES,
    NOT_IDLE,
    NOT_METERED,
    Idleness,
    MeteredUse,
    ReplicaState,
    SlowRank,
    TimeSlices,
)
from gantree.model.gang_shapes import in_shape_of
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, Phase, StopCause
from gantree.model.placements import Placement
from gantree.placement.request.sizes import resized
from gantree.policy.order import OrderFactors, Position
from gantree.policy.waiting_jobs import EquivalenceClass

NOWHERE = Position((), 0, "")
CLAIM = "claim:"
"""Prefix of owners of claims: room held for gangs that are not placed yet."""
RESERVATION = "reserve:"
"""Prefix of owners of reservations, which hold the free part of their placement."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A lost member of a running gang (its number): the deadline, and why. placed: it is placed again."""

    member: int
    deadline_at: float
    reason: str
    placed: bool = False


@dataclass(slots=True)
class JobState:
    """The state of one job. Times are seconds of `Event.observed_at`; None: not yet.

    queue is its node of the queue tree. equivalence_class and position are of a job that waits, made anew each time it
    begins to. placed_at, running_at, checkpoint_at, stop_*, request and answered belong to the current attempt;
    held_for is what a held job waits for, "" for a user; barred_for why it is restricted to some nodes for now.
    fled_at: when it left nodes that were unwell, or degraded. slow are slow ranks of the attempt, left_slow those that
    were slow on nodes that it left. missing are members of the attempt that are being replaced, lives the
    numbers of those that were, each with how often (`core.lifecycle.replacing`). held_gpus counts GPUs that it holds
    whole, touched_gpus those that it holds whole or in part (1 where none: it may hold something else). checkpoint_step
    is the newest over all attempts. attained_gpu_s and done_s are of attempts that are over: GPU-seconds that it was
    served, and seconds of its run (at the size it was written with) whose work was kept. preempting_claims are claims
    by which it preempted others, as far as they count (`core.ledger.apply.preempting_claims`), the last one made at
    preempting_claim_at; yielded_to is the job that preempted it last. moving says why the attempt will go on at the
    place that is held for it. at_home: it runs in a cell of its queue. warned: the attempt got its signal before its
    time limit. last_failure is why the last attempt failed that did, "" if none has. found: the attempt was adopted,
    without a record of its start. scaled: a user has set the number of its members. array: the array of which it is an
    element, "" if none. failed_checks: attempts since it last ran that ended because a check before the start named who
    is at fault.
    """

    job: str
    spec: Job
    priority: int
    seq: int
    signature: int
    submitted_at: float
    queue: int = 0
    equivalence_class: EquivalenceClass | None = None
    position: Position = NOWHERE
    phase: Phase = Phase.PENDING
    held: bool = False
    held_for: str = ""
    barred_for: str = ""
    attempt: int = 0
    placement: Placement | None = None
    held_gpus: int = 0
    touched_gpus: int = 0
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
    moving: StopCause | None = None
    at_home: bool = False
    found: bool = False
    not_before: float = 0.0
    failures: int = 0
    last_failure: str = ""
    preempting_claims: int = 0
    preempting_claim_at: float = 0.0
    yielded_to: str | None = None
    preempted_at: tuple[float, ...] = ()
    fled_at: tuple[float, ...] = ()
    resized_at: float | None = None
    scaled: bool = False
    gpu_s_lost: float = 0.0
    attained_gpu_s: float = 0.0
    done_s: float = 0.0
    slices: TimeSlices = NO_SLICES
    warned: bool = False
    metered: MeteredUse = NOT_METERED
    missing: tuple[Gap, ...] = ()
    lives: tuple[tuple[int, int], ...] = ()
    slow: tuple[SlowRank, ...] = ()
    left_slow: tuple[SlowRank, ...] = ()
    exit_code: int | None = None
    reason: str = ""
    array: str = ""
    failed_checks: int = 0
    idle: Idleness = NOT_IDLE
    replica: ReplicaState = NO_REPLICA

    @property
    def suspended(self) -> bool:
        """Whether the attempt is suspended while another gang has its time slice on shared GPUs."""
        return self.slices.suspended

    @property
    def leaving(self) -> bool:
        """Whether the attempt saves or stops."""
        return self.phase in (Phase.SAVING, Phase.STOPPING)

    @property
    def preemptions(self) -> int:
        """How often the job was preempted."""
        return len(self.preempted_at)

    def gap(self, member: int) -> Gap | None:
        """Return the entry of a lost member of the attempt; None for other members."""
        return next((gap for gap in self.missing if gap.member == member), None)

    def life_of(self, member: int) -> int:
        """Return how often a member of the attempt was replaced."""
        return dict(self.lives).get(member, 0)

    @property
    def present(self) -> Job:
        """The job at its current size and in the shape that it got; as submitted while it is not placed."""
        if self.placement is None or self.phase not in HOLDING:
            return self.spec
        if self.spec.alternatives:
            return in_shape_of(self.spec, self.placement)[1]
        return self.at_size(len(self.placement.members))

    def at_size(self, members: int) -> Job:
        """Return the job with so many members; as submitted if it has several roles."""
        return self.spec if len(self.spec.roles) != 1 else resized(self.spec, members)

    @property
    def gpus(self) -> int:
        """GPUs of the job at its current size."""
        if self.placement is None or self.phase not in HOLDING:
            return self.spec.gpus
        return self.held_gpus

    def at_stake_s(self, now: float) -> float:
        """Return the seconds of work that are lost if the attempt stops now."""
        if self.running_at is None:
            return 0.0
        since = self.running_at if self.checkpoint_at is None else self.checkpoint_at
        return max(0.0, now - since)

    def gpu_s_at_stake(self, now: float) -> float:
        """Return the GPU-seconds of work that are lost if the attempt stops now."""
        return self.at_stake_s(now) * self.gpus

    def ran_s(self, now: float) -> float:
        """Return the seconds for which the current attempt has run, without suspensions."""
        if self.running_at is None:
            return 0.0
        slices, resting_s = self.slices, 0.0
        if slices.suspended and slices.turned_at is not None:
            resting_s = now - slices.turned_at
        return max(0.0, now - self.running_at - slices.suspended_s - resting_s)

    def work_s(self, now: float) -> float:
        """Return the completed seconds of its run time at the submitted size, checkpointed or not."""
        whole = self.spec.gpus or 1
        return self.done_s + self.ran_s(now) * (self.gpus or 1) / whole

    def order_factors(self, now: float) -> OrderFactors:
        """Return the input of the queue order at a time."""
        spec = self.spec
        return OrderFactors(
            priority=self.priority,
            seq=self.seq,
            submitted_at=self.submitted_at,
            gpus=spec.gpus,
            attained_gpu_s=self.attained_gpu_s + self.ran_s(now) * self.gpus,
            done_s=self.work_s(now),
            expected_s=spec.time_limit_s if spec.expected_s is None else spec.expected_s,
        )

    @property
    def limit_at(self) -> float | None:
        """Return the end of the attempt's time limit; None without one, or while it does not run or is suspended."""
        limit_s = self.spec.time_limit_s
        if limit_s is None or self.running_at is None or self.suspended:
            return None
        return self.running_at + self.slices.suspended_s + limit_s

    def ends_at(self, grace_s: float) -> float:
        """Return the latest end of the attempt by enforced limits; inf without one."""
        if self.phase is Phase.STOPPING:
            assert self.stop_decided_at is not None
            return self.stop_decided_at + self.stop_grace_s
        if self.phase is Phase.SAVING:
            assert self.deadline_at is not None
            gone_by = self.replica.gone_by
            return self.deadline_at + grace_s if gone_by is None else gone_by
        limit_s, since = self.spec.time_limit_s, self.running_at
        if (
            limit_s is None or self.slices.turns
        ):  # a gang that takes turns runs longer, by as much as it rests
            return inf
        return (self.placed_at or 0.0 if since is None else since) + limit_s + grace_s


@dataclass(frozen=True, slots=True)
class Claim:
    """Room held for a gang while victims (job ids) leave it. at_home: it is in a cell of the gang's queue."""

    placement: Placement
    victims: tuple[str, ...]
    at_home: bool = False


@dataclass(frozen=True, slots=True)
class Reservation:
    """A reservation of a pending gang, as in `facts.ReservationMade`."""

    starts_at: float
    promised: bool
    placement: Placement
    waits_for: tuple[str, ...]
    slips: int
    made_at: float
