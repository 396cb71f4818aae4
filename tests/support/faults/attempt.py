"""One attempt of a gang on the simulated cluster: its members, and what has been told of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from gantree.executors.inventory import Status
from gantree.model.events import Event
from gantree.model.orders import MemberLaunch, StartGang

TERMINATED = 143
KILLED = 137
"""128 + SIGTERM and 128 + SIGKILL, as shells count."""


@dataclass(slots=True)
class SimulatedMember:
    """One life of a member: a process on a node."""

    launch: MemberLaunch
    life: int = 0
    is_alive: bool = True


@dataclass(slots=True)
class SimulatedAttempt:
    """One attempt. order is None for one that was stopped before it was started: it never will be.

    members are all lives of all members. exit_code is that of the first cause of its end; None until there is one.
    is_settled: its end is on record, so a new leader is not told of it. has_ended_early: an end was due while it was
    suspended.
    """

    job: str
    number: int
    lots: Random
    order: StartGang | None = None
    members: list[SimulatedMember] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    can_replace: bool = False
    has_started: bool = False
    is_stopping: bool = False
    is_broken: bool = False
    is_over: bool = False
    is_settled: bool = False
    was_prompted: bool = False
    exit_code: int | None = None
    suspended: bool = False
    turn: int = 0
    end_is_due: bool = False
    requests: set[str] = field(default_factory=set)
    step: int = 0

    @property
    def key(self) -> tuple[str, int]:
        """Job and number."""
        return self.job, self.number

    @property
    def prefix(self) -> str:
        """What the ids of its events begin with."""
        return f"{self.job}/{self.number}"

    @property
    def works(self) -> bool:
        """Whether it runs, and nothing has begun to end it."""
        return self.has_started and not (self.is_stopping or self.is_broken or self.is_over)

    def living(self) -> Iterator[SimulatedMember]:
        """Members that have a process."""
        return (member for member in self.members if member.is_alive)

    def on(self, node: str) -> list[SimulatedMember]:
        """Members that have a process on a node."""
        return [member for member in self.living() if member.launch.node == node]

    def owner(self, member: SimulatedMember) -> tuple[str, int, int, int]:
        """Who uses the devices of a member."""
        return (self.job, self.number, member.launch.node_rank, member.life)

    def life_of(self, node_rank: int) -> int:
        """How often a member was replaced."""
        return max(each.life for each in self.members if each.launch.node_rank == node_rank)

    def status(self) -> Status:
        """As the inventory of an executor has it."""
        if self.is_over:
            return "ended"
        is_whole = not (self.is_stopping or self.is_broken)
        return "running" if is_whole else "partial"
