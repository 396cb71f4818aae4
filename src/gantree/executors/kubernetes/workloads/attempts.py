"""Attempts of gangs as pods: which pod is which member, and what becomes of an attempt while its pods change.

An attempt is known from its start order, or after a restart from what its pods say of themselves (`marks`). What
happens to it follows from the pods alone, so it can be told again under the same ids at any time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gantree.executors.inventory import Status
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.workloads.gangs import order_of
from gantree.model.events import (
    Event,
    GangEnded,
    GangStarted,
    MemberLost,
    MemberStarted,
    RankExited,
)
from gantree.model.orders import MemberLaunch

STOPPED = 143
"""The exit code of what was told to stop: 128 + SIGTERM."""
UNKNOWN_CODE = 1
"""The exit code of a pod that failed and names none."""
REFUSED = frozenset(
    {
        "UnexpectedAdmissionError", "OutOfcpu", "OutOfmemory", "OutOfpods", "NodeAffinity", "NodeLost", "Evicted",
        "Preempting", "Terminated", "Shutdown", "NodeShutdown",
    }
)  # fmt: skip
"""Reasons of failed pods that are no fault of what runs in them: the member was lost."""


@dataclass(slots=True)
class Seat:
    """One member's place in an attempt, and the pod that has it: its uid, None before there is one.

    life counts its replacements (`core.lifecycle.replacing`); index is where its pod stands among those of its kind,
    None where it is the only one.
    """

    member: int
    rank: int
    role: str
    uid: str | None = None
    life: int = 0
    index: tuple[object, ...] | None = None
    phase: str = "Pending"
    exit_code: int | None = None
    reason: str = ""
    gone: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing of its pod runs, or will."""
        return self.gone or self.phase in ("Succeeded", "Failed")

    @property
    def has_run(self) -> bool:
        """Whether its processes have been started."""
        return self.phase in ("Running", "Succeeded", "Failed")


@dataclass(slots=True)
class Attempt:
    """One attempt of one job. size: members in all; binding: writes are on their way; failed: why it cannot start.

    grace_s is what its pods are given when they go; None: what each asks for itself. evicts: they go for others, so
    budgets are asked. anew: members that are to start anew while the others stay, with what their pods are told.
    """

    job: str
    attempt: int
    size: int
    seats: dict[int, Seat] = field(default_factory=dict)
    binding: bool = False
    stopping: bool = False
    failed: str = ""
    grace_s: float | None = None
    evicts: bool = False
    anew: dict[int, tuple[MemberLaunch, dict[str, str]]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt of which job."""
        return self.job, self.attempt

    @property
    def name(self) -> str:
        """What its events are named after."""
        return f"{self.job}/{self.attempt}"

    def see(self, pod: Pod, seat: Seat) -> None:
        """Take note of how a pod of it is now."""
        seat.uid, seat.phase, seat.reason = pod.metadata.uid, pod.status.phase, pod.status.reason
        if seat.index is None and self.size > 1:
            seat.index = index_of(pod)
        if pod.has_ended:
            seat.exit_code = exit_code_of(pod)

    @property
    def is_seated(self) -> bool:
        """Whether every member has its pod."""
        there = len(self.seats) == self.size
        return there and all(seat.uid is not None for seat in self.seats.values())

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has become of it yet that anybody is told: its pods wait for their kubelets."""
        if self.failed or self.stopping or not self.seats:
            return False
        return all(seat.phase == "Pending" and not seat.gone for seat in self.seats.values())

    @property
    def is_leaving(self) -> bool:
        """Whether whatever of it is bound has to go."""
        return not self.binding and (self.stopping or bool(self.failed))

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        bound = [seat for seat in self.seats.values() if seat.uid is not None]
        if self.binding:
            return False
        if self.stopping or self.failed:
            return all(seat.is_over for seat in bound)
        return len(bound) == self.size and all(seat.is_over for seat in bound)

    @property
    def exit_code(self) -> int:
        """0 if every pod succeeded, else the first other code; of one that was stopped before it ran, `STOPPED`."""
        codes = [seat.exit_code for seat in self.seats.values()]
        odd = [code for code in codes if code]
        if odd:
            return odd[0]
        return 0 if len(codes) == self.size and all(code == 0 for code in codes) else STOPPED

    def status(self) -> Status:
        """For the inventory."""
        if self.is_over:
            return "ended"
        whole = len(self.seats) == self.size and not any(
            seat.is_over for seat in self.seats.values()
        )
        return "running" if whole and not self.stopping else "partial"


def happened(attempt: Attempt, now: float) -> Iterator[Event]:
    """All that an attempt's pods tell of it by now, in order; each event has the same id whenever it is told."""
    seats = [attempt.seats[member] for member in sorted(attempt.seats)]
    if len(seats) == attempt.size and all(seat.has_run for seat in seats):
        yield GangStarted(
            id=f"{attempt.name}/started", observed_at=now, job=attempt.job, attempt=attempt.attempt
        )
    for seat in seats:
        yield from _of_seat(attempt, seat, now)
    if attempt.is_over:
        code = attempt.exit_code
        yield GangEnded(
            id=f"{attempt.name}/ended",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            exit_code=code,
            unprompted=code == 0,
        )


def _of_seat(attempt: Attempt, seat: Seat, now: float) -> Iterator[Event]:
    """That a replacement runs, and a seat's end: an exit where its process tells of one, else a loss."""
    if seat.life and seat.has_run:
        yield MemberStarted(
            id=f"{attempt.name}/member-started/{seat.member}/{seat.life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            member=seat.member,
            life=seat.life,
        )
    if not seat.is_over or (seat.uid is None and not seat.gone):
        return
    lost = seat.reason in REFUSED or (seat.gone and seat.exit_code is None)
    life = f"/{seat.life}" if seat.life else ""
    if not lost:
        yield RankExited(
            id=f"{attempt.name}/exit/{seat.rank}{life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            rank=seat.rank,
            exit_code=seat.exit_code or 0,
            life=seat.life,
        )
    elif not attempt.stopping:
        yield MemberLost(
            id=f"{attempt.name}/lost/{seat.member}{life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            role=seat.role,
            member=seat.member,
            reason=seat.reason or "its pod was deleted",
            rank=seat.rank,
            life=seat.life,
        )


def index_of(pod: Pod) -> tuple[object, ...]:
    """Where a pod stands among those of its kind, whatever it is called: a replacement stands there too.

    Not what role it has: once it is bound, gantree's own word for that is among its annotations.
    """
    return order_of(pod)[2:4]


def exit_code_of(pod: Pod) -> int:
    """The first exit code of its containers that is not 0, or 0; of a pod that failed without one, `UNKNOWN_CODE`."""
    ends = [each.state.terminated for each in pod.status.container_statuses]
    code = next((end.exit_code for end in ends if end is not None and end.exit_code), 0)
    return code or (UNKNOWN_CODE if pod.status.phase == "Failed" else 0)
