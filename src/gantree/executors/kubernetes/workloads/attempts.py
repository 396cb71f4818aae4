"""Attempts of gangs as pods: which pod is which member, and the state of an attempt while its pods change.

An attempt is known from its start order, or after a restart from the annotations of its pods (`pods.annotations`).
Its events follow from the pods alone, so they can be emitted again under the same ids at any time.
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
"""The exit code of a stopped process: 128 + SIGTERM."""
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
class MemberBinding:
    """A member of an attempt and its pod: uid is None before it has one.

    life counts its replacements; index is the place of its pod in the order of the gang's pods, None if it is alone.
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
    holds_devices: claims of pods that are over have devices still. check_failed: its check names who is at fault;
    final: it would fail in the same way again.
    """

    job: str
    attempt: int
    size: int
    members: dict[int, MemberBinding] = field(default_factory=dict)
    binding: bool = False
    stopping: bool = False
    failed: str = ""
    grace_s: float | None = None
    evicts: bool = False
    holds_devices: bool = False
    check_failed: bool = False
    final: bool = False
    replacing: dict[int, tuple[MemberLaunch, dict[str, str]]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int]:
        """Which attempt of which job."""
        return self.job, self.attempt

    @property
    def name(self) -> str:
        """What its events are named after."""
        return f"{self.job}/{self.attempt}"

    def update(self, pod: Pod, member_binding: MemberBinding) -> None:
        """Take note of how a pod of it is now."""
        member_binding.uid, member_binding.phase, member_binding.reason = (
            pod.metadata.uid,
            pod.status.phase,
            pod.status.reason,
        )
        if member_binding.index is None and self.size > 1:
            member_binding.index = index_of(pod)
        if pod.has_ended:
            member_binding.exit_code = exit_code_of(pod)

    @property
    def is_assigned(self) -> bool:
        """Whether every member has its pod."""
        there = len(self.members) == self.size
        return there and all(
            member_binding.uid is not None for member_binding in self.members.values()
        )

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to report yet: its pods wait for their kubelets."""
        if self.failed or self.stopping or not self.members:
            return False
        return all(
            member_binding.phase == "Pending" and not member_binding.gone
            for member_binding in self.members.values()
        )

    @property
    def is_leaving(self) -> bool:
        """Whether whatever of it is bound has to go."""
        return not self.binding and (self.stopping or bool(self.failed))

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is left."""
        bound = [
            member_binding
            for member_binding in self.members.values()
            if member_binding.uid is not None
        ]
        if self.binding or self.holds_devices:
            return False
        if self.stopping or self.failed:
            return all(member_binding.is_over for member_binding in bound)
        return len(bound) == self.size and all(member_binding.is_over for member_binding in bound)

    @property
    def exit_code(self) -> int:
        """0 if every pod succeeded, else the first other code; of one that was stopped before it ran, `STOPPED`."""
        codes = [member_binding.exit_code for member_binding in self.members.values()]
        odd = [code for code in codes if code]
        if odd:
            return odd[0]
        return 0 if len(codes) == self.size and all(code == 0 for code in codes) else STOPPED

    def status(self) -> Status:
        """For the inventory."""
        if self.is_over:
            return "ended"
        whole = len(self.members) == self.size and not any(
            member_binding.is_over for member_binding in self.members.values()
        )
        return "running" if whole and not self.stopping else "partial"


def events_of(attempt: Attempt, now: float) -> Iterator[Event]:
    """All events of an attempt by now, in order; an event has the same id whenever it is derived."""
    members = [attempt.members[member] for member in sorted(attempt.members)]
    if len(members) == attempt.size and all(member_binding.has_run for member_binding in members):
        yield GangStarted(
            id=f"{attempt.name}/started", observed_at=now, job=attempt.job, attempt=attempt.attempt
        )
    for member_binding in members:
        yield from _events_of_member(attempt, member_binding, now)
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


def _events_of_member(
    attempt: Attempt, member_binding: MemberBinding, now: float
) -> Iterator[Event]:
    """That a replacement runs, and the end of a member: an exit if its pod has one, else a loss."""
    if member_binding.life and member_binding.has_run:
        yield MemberStarted(
            id=f"{attempt.name}/member-started/{member_binding.member}/{member_binding.life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            member=member_binding.member,
            life=member_binding.life,
        )
    if not member_binding.is_over or (member_binding.uid is None and not member_binding.gone):
        return
    lost = member_binding.reason in REFUSED or (
        member_binding.gone and member_binding.exit_code is None
    )
    life = f"/{member_binding.life}" if member_binding.life else ""
    if not lost:
        yield RankExited(
            id=f"{attempt.name}/exit/{member_binding.rank}{life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            rank=member_binding.rank,
            exit_code=member_binding.exit_code or 0,
            life=member_binding.life,
        )
    elif not attempt.stopping:
        yield MemberLost(
            id=f"{attempt.name}/lost/{member_binding.member}{life}",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            role=member_binding.role,
            member=member_binding.member,
            reason=member_binding.reason or "its pod was deleted",
            rank=member_binding.rank,
            life=member_binding.life,
        )


def index_of(pod: Pod) -> tuple[object, ...]:
    """The place of a pod in the order of its gang, whatever its name: its replacement has the same.

    Not what role it has: once it is bound, gantree's own word for that is among its annotations.
    """
    return order_of(pod)[2:4]


def exit_code_of(pod: Pod) -> int:
    """The first exit code of its containers that is not 0, or 0; of a pod that failed without one, `UNKNOWN_CODE`."""
    ends = [each.state.terminated for each in pod.status.container_statuses]
    code = next((end.exit_code for end in ends if end is not None and end.exit_code), 0)
    return code or (UNKNOWN_CODE if pod.status.phase == "Failed" else 0)
