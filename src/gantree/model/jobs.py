"""What a user submits: a job, its gang of roles, the shape of a member, and what it wishes of the topology."""

from collections.abc import Iterator
from dataclasses import dataclass

DEFAULT_GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL where the job does not say."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one member needs on one node.

    models are acceptable GPU models, best first (empty: any). labels must all be on the node. mig, gpu_share
    and devices can be written but not yet placed: `placement` refuses them in words.
    """

    gpus: int = 0
    cpus: float = 0.0
    memory_GiB: float = 0.0
    nics: int = 0
    models: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    mig: str | None = None
    gpu_share: float | None = None
    gpu_memory_GiB: float | None = None
    devices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Slices:
    """Each run of `members` consecutive members (of `role`, or of every role) inside one domain of a tier."""

    members: int
    required: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class TopologyWish:
    """required: all members in one domain of this tier, or wait. preferred: try this tight first, then widen."""

    required: str | None = None
    preferred: str | None = None
    slices: tuple[Slices, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """Members of one kind: each is one launch on one node, of `processes` OS processes."""

    name: str
    members: int
    shape: Shape
    processes: int = 1
    topology: TopologyWish = TopologyWish()
    image: str | None = None
    run: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    workdir: str | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How the job saves its state: by `gantree.training`, or on a signal that it declared itself."""

    every_s: float | None = None
    signal: str | None = None
    grace_s: float = 60.0
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Elastic:
    """Members between min and max."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a gang is started again after a failure, and after how many seconds (doubling each time)."""

    limit: int = 3
    backoff_s: float = 5.0
    backoff_max_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its all-or-nothing gang (roles) and everything that decides about it.

    priority is a class of the policy ("batch") or a number, larger first. after names jobs that must have
    succeeded first; array_index is set on a job that came out of an `array`.
    """

    name: str
    roles: tuple[Role, ...]
    queue: str = "default"
    priority: str | int = "batch"
    topology: TopologyWish = TopologyWish()
    parallelism: tuple[tuple[str, int], ...] = ()
    elastic: Elastic | None = None
    checkpoint: Checkpoint | None = None
    restarts: Restarts = Restarts()
    time_limit_s: float | None = None
    after: tuple[str, ...] = ()
    array_index: int | None = None

    @property
    def members(self) -> int:
        """Members over all roles."""
        return sum(role.members for role in self.roles)

    @property
    def gpus(self) -> int:
        """GPUs over all members."""
        return sum(role.members * role.shape.gpus for role in self.roles)

    @property
    def processes(self) -> int:
        """OS processes over all members: WORLD_SIZE."""
        return sum(role.members * role.processes for role in self.roles)

    def each_member(self) -> Iterator[tuple[Role, int, int, int]]:
        """Yield (role, member of role, member of gang, first global rank) in rank order."""
        node_rank = first_rank = 0
        for role in self.roles:
            for member in range(role.members):
                yield role, member, node_rank, first_rank
                node_rank += 1
                first_rank += role.processes
