"""What a user submits: a job, its gang of roles, the shape of a member, and what it wishes of the topology."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from gantree.model.values import quick

DEFAULT_GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL where the job does not say."""

AXES = ("tensor", "context", "expert", "data", "pipeline")
"""Axes of a parallelism in the order of the ranks, the fastest first; expert ways lie within data ways."""
SHARDED = ("none", "optimizer", "parameters")
"""What data-parallel replicas may share out among each other."""
ISOLATIONS = ("time-slicing", "mps")
"""Ways to share a GPU without MIG: in turns, without protection; or side by side under CUDA MPS with set limits."""
CHOICES = ("order", "time", "cost")
"""What a GPU model is chosen by: the order in which models are listed, the soonest end, the least money."""
LAUNCHERS = ("slurm",)
"""Launchers whose variables processes may get beside gantree's own."""
SOLE = "sole/"
"""Begins the names of devices of which every node has one, whatever its machine says."""
KIN = "kin/"
"""Begins the names of devices that only count who is there: every node has more of them than anybody takes."""
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)
"""Collectives that have a price."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one member needs on one node.

    models are acceptable GPU models, best first (empty: any). labels must all be on the node. Instead of whole GPUs a
    member may ask for one instance of a MIG profile (mig), or for a share of one GPU: gpu_share of its compute and
    gpu_memory_GiB of its memory (None: as much of it as of the compute). isolation is the way of sharing that it needs
    (one of ISOLATIONS; None: any); neighbours says that a rank of a gang may share its GPU with strangers. devices are
    others than GPUs and NICs, by name and count. memory_GBps is memory bandwidth of the sockets it runs on.
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
    isolation: str | None = None
    neighbours: bool = False
    memory_GBps: float = 0.0

    @property
    def part(self) -> bool:
        """Whether a member takes a part of a GPU: a MIG instance or a share."""
        return self.mig is not None or self.gpu_share is not None or self.gpu_memory_GiB is not None

    @property
    def scarce(self) -> tuple[tuple[str, int], ...]:
        """Devices of which a node may have too few."""
        return tuple([each for each in self.devices if not each[0].startswith(KIN)])

    @property
    def on_gpus(self) -> bool:
        """Whether a member takes GPUs, whole or a part of one."""
        return bool(self.gpus or self.part)


@dataclass(frozen=True, slots=True)
class Slices:
    """Each run of `members` consecutive members (of `role`, or of every role) inside one domain of a tier.

    preferred: the tier `required` is tried for first, and let go where it cannot be had.
    """

    members: int
    required: str
    role: str | None = None
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """Members far from each other: at most so many in one domain of a tier; None: as evenly as there is room."""

    tier: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """No domain of a tier that holds anything of these other jobs: names, or patterns such as "chat-*"."""

    tier: str
    jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Near:
    """Groups of ranks in few domains of a tier: (axis of the parallelism, what each domain of its widest group weighs).

    It decides which rank runs where, before the predicted step does; not where members go.
    """

    tier: str
    weights: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Like:
    """Nodes that members rather go to than to others, by a rule (`model.node_rules`); weight is beside other likes."""

    rule: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Company:
    """Whether members rather go where members of a kind are already, or, by a weight below zero, where they are not.

    kind is the device (`KIN`) that members of it hold; there counts others of it, who do not, by domain. A domain is
    the nodes with one value of the label `key`. spread: what is liked is that all domains have as many.
    """

    key: str
    kind: str
    weight: int = 1
    there: tuple[tuple[str, int], ...] = ()
    spread: bool = False


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """required: all members in one domain of this tier, or wait. preferred: try this tight first, then widen.

    likes and company say which of places that are as good is taken; nobody waits for them.

    box is the shape of a torus slice in GPUs, axis by axis; () for a slice of any legal shape; None for no slice.
    """

    required: str | None = None
    preferred: str | None = None
    slices: tuple[Slices, ...] = ()
    spread: Spread | None = None
    apart: tuple[Apart, ...] = ()
    box: tuple[int, ...] | None = None
    near: Near | None = None
    likes: tuple[Like, ...] = ()
    company: tuple[Company, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """Members of one kind: each is one launch on one node, of `processes` OS processes."""

    name: str
    members: int
    shape: Shape
    processes: int = 1
    topology: TopologySpec = TopologySpec()
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
class Warn:
    """A signal that the processes get before_s seconds before the time limit of the attempt ends."""

    signal: str
    before_s: float


@dataclass(frozen=True, slots=True)
class Elastic:
    """Members between min and max."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a gang is started again after a failure, and after how many seconds (doubling each time).

    replace_s: for so long its other members run on while one that was lost is replaced; None: they never do.
    """

    limit: int = 3
    backoff_s: float = 5.0
    backoff_max_s: float = 300.0
    replace_s: float | None = None


@dataclass(frozen=True, slots=True)
class Transformer:
    """The model that a job trains, as far as its traffic and its arithmetic depend on it.

    parameters are all there are, expert_parameters those of them in experts (of every layer together). sequence is in
    tokens, batch and micro_batch in sequences: batch of the whole job a step, micro_batch of one replica at a time.
    kv_share is the width of keys and values over that of queries (1 without grouped heads). sharded is what replicas
    share out: "none", "optimizer" (ZeRO 1 and 2) or "parameters" (ZeRO 3, FSDP). mfu is the share of the peak that
    computing reaches, peak_TFLOPS that of one GPU: None for the defaults.
    """

    parameters: float
    layers: int
    hidden: int
    sequence: int
    batch: int
    micro_batch: int = 1
    kv_share: float = 1.0
    value_bytes: float = 2.0
    gradient_bytes: float = 4.0
    experts: int = 0
    experts_per_token: int = 1
    expert_parameters: float = 0.0
    sharded: str = "none"
    mfu: float | None = None
    peak_TFLOPS: float | None = None


@dataclass(frozen=True, slots=True)
class AxisTraffic:
    """What each rank sends a step along one axis of the parallelism: size_bytes in all, in `calls` equal collectives.

    Sizes are as nccl-tests count them. collective is None for the usual one of the axis.
    """

    axis: str
    size_bytes: float
    calls: int = 1
    collective: str | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a job sends a step, told instead of derived; compute_s is a step's arithmetic alone, if told."""

    axes: tuple[AxisTraffic, ...] = ()
    compute_s: float | None = None
    micro_batches: int = 1


@dataclass(frozen=True, slots=True)
class DataNeed:
    """A data set or checkpoint that every node of the job reads before it starts, how large it is, if told.

    path and version say which data it was, for the run's record: gantree believes them.
    """

    name: str
    GiB: float = 0.0
    path: str | None = None
    version: str | None = None


@quick
@dataclass(frozen=True, slots=True)
class Job:
    """A job: its all-or-nothing gang (roles) and everything that decides about it.

    priority is a class of the policy ("batch") or a number, larger first. after names jobs that must have
    succeeded first; array_index is set on a job that came out of an `array`. trains and traffic say what its ranks send
    each other, overlap which share of that hides behind computing, by axis of the parallelism. parallelism is (axis,
    ways) in the order in which ranks count, the fastest axis first, where ranks_as_written; else in that of AXES.
    communicates is False for members that never talk to each other (replicas behind a load balancer).

    user is who handed it in, "" where nobody said. preemptible is False for a job that is never stopped for another,
    nor started anew with fewer members, and so does not grow either; it then runs within its queue's guarantee only.
    expected_s is the user's own guess of the run time, which nobody enforces. held: it waits until somebody releases
    it. speeds are (GPU model, how fast the job is there beside its fastest); choose says what the model is chosen by,
    one of CHOICES, budget_USD what a run may cost at most. A job that may run on spot capacity says so by spot.
    variables names the launcher (one of LAUNCHERS) whose variables its processes get too. warn is only there beside a
    time limit. secrets are (variable, file): what is in the file when it starts becomes the variable.
    """

    name: str
    roles: tuple[Role, ...]
    queue: str = "default"
    priority: str | int = "batch"
    topology: TopologySpec = TopologySpec()
    parallelism: tuple[tuple[str, int], ...] = ()
    elastic: Elastic | None = None
    checkpoint: Checkpoint | None = None
    restarts: Restarts = Restarts()
    time_limit_s: float | None = None
    after: tuple[str, ...] = ()
    array_index: int | None = None
    trains: Transformer | None = None
    traffic: Traffic | None = None
    overlap: tuple[tuple[str, float], ...] = ()
    data: tuple[DataNeed, ...] = ()
    communicates: bool = True
    ranks_as_written: bool = False
    user: str = ""
    preemptible: bool = True
    expected_s: float | None = None
    held: bool = False
    speeds: tuple[tuple[str, float], ...] = ()
    choose: str = "order"
    budget_USD: float | None = None
    spot: bool = False
    variables: str | None = None
    warn: Warn | None = None
    secrets: tuple[tuple[str, str], ...] = ()

    def is_alike(self, other: "Job") -> bool:
        """Whether nothing but their names tells two jobs apart."""
        return _all_but_the_name(self) == _all_but_the_name(other)

    def has_gang_of(self, other: "Job") -> bool:
        """Whether both ask for the same gang. Jobs of one template share its parts, so that this costs little."""
        return (self.roles is other.roles or self.roles == other.roles) and (
            self.topology is other.topology or self.topology == other.topology
        )

    @property
    def members(self) -> int:
        """Members over all roles."""
        return sum(role.members for role in self.roles)

    @property
    def gpus(self) -> int:
        """GPUs over all members."""
        if len(self.roles) == 1:
            return self.roles[0].members * self.roles[0].shape.gpus
        return sum(role.members * role.shape.gpus for role in self.roles)

    @property
    def on_gpus(self) -> bool:
        """Whether any member takes GPUs, whole or a part of one."""
        return any(role.shape.on_gpus for role in self.roles)

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


_all_but_the_name = attrgetter(*(each.name for each in fields(Job) if each.name != "name"))
