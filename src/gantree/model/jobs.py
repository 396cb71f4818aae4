"""What a user submits: a job, its gang of roles, the shape of a member, and what it requests of the topology."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from operator import attrgetter

from gantree.model.replicas import ReplicaOf
from gantree.model.values import quick

DEFAULT_GRACE_S = 30.0
"""Seconds between SIGTERM and SIGKILL where the job does not say."""

AXES = ("tensor", "context", "expert", "data", "pipeline")
"""Axes of a parallelism in the order of the ranks, the fastest first; expert ways lie within data ways."""
SERVING_TRAFFIC = ("prefill", "kv", "decode")
"""What a request to a service sends: inside a prefill instance, on to a decode instance, inside that."""
SHARDED = ("none", "optimizer", "parameters")
"""What data-parallel replicas may shard among each other."""
ISOLATIONS = ("time-slicing", "mps")
"""Ways to share a GPU without MIG: time slicing without isolation, or CUDA MPS with limits."""
NOTIFY_EVENTS = ("start", "end", "failure", "preemption", "idle")
"""Events of a job that it may have announced."""
SERVICE_NOTIFY_EVENTS = ("end", "failure", "preemption")
"""Those of a service and its replicas."""
BUDGET_EVENT = "budget"
"""The event of the budget of a queue, which a policy may have announced."""
CHOICES = ("order", "time", "cost")
"""Criteria for the choice of a GPU model: its place in the list, the earliest end, the lowest cost."""
LAUNCHERS = ("slurm",)
"""Launchers whose environment variables processes may get in addition to gantree's."""
ONE_PER_NODE_PREFIX = "sole/"
"""Prefix of device names of which every node has exactly one, whatever its machine description says."""
COUNTER_PREFIX = "kin/"
"""Prefix of device names that only count members on a node: there are always enough of them."""
COMPUTE_PARTITIONS = ("dpx", "tpx", "qpx", "cpx")
"""Modes that divide a GPU of AMD, by rising numbers of partitions; in spx it is whole."""
GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "amd.com/spx_nps1", "google.com/tpu")
"""Names under which device plugins of Kubernetes allocate whole GPUs; AMD's has a second one beside partitions."""
CLAIMED_GPUS = "claims(GPU)"
"""Whole GPUs, any of a node, that claims ask for: a node has as many as its ResourceSlices list."""
GPU_DEVICES = frozenset((*GPU_RESOURCES, CLAIMED_GPUS))
"""Device names that stand for whole GPUs: a member holds one with each of its GPUs, where they are allocated so."""
COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "broadcast",
    "reduce",
    "send_recv",
)
"""Collectives whose time the cost model predicts."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What one member needs on one node.

    models are acceptable GPU models, best first (empty: any). labels must all be on the node. Instead of whole GPUs a
    member may ask for one instance of a MIG profile, or of a GPU in a mode of COMPUTE_PARTITIONS (mig), or for a share
    of one GPU: gpu_share of its compute and gpu_memory_GiB of its memory (None: as much of it as of the compute).
    isolation is the way of sharing that it needs (one of ISOLATIONS; None: any); neighbours: members of other jobs may
    use the same GPU. devices are (name, count) of devices other than GPUs and NICs. memory_GBps is memory bandwidth of
    the sockets it runs on.
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
        """Devices of which a node may have too few (counters are left out)."""
        return tuple([each for each in self.devices if not each[0].startswith(COUNTER_PREFIX)])

    @property
    def on_gpus(self) -> bool:
        """Whether a member takes GPUs, whole or a part of one."""
        return bool(self.gpus or self.part)


@dataclass(frozen=True, slots=True)
class Slices:
    """Each run of `members` consecutive members (of `role`, or of every role) inside one domain of a tier.

    preferred: the request is dropped where no placement satisfies it.
    """

    members: int
    required: str
    role: str | None = None
    preferred: bool = False


@dataclass(frozen=True, slots=True)
class Spread:
    """Members in different domains of a tier: at most at_most in one; None: as evenly as possible."""

    tier: str
    at_most: int | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """Anti-affinity: no domain of a tier in which these other jobs hold anything: names or patterns ("chat-*").

    preferred: a domain with as few of them as possible instead. at_most: no domain with more of them than this.
    """

    tier: str
    jobs: tuple[str, ...]
    preferred: bool = False
    at_most: int = 0


@dataclass(frozen=True, slots=True)
class Near:
    """Groups of ranks in few domains of a tier: (axis of the parallelism, weight of each domain of its widest group).

    It orders ranks over the GPUs of a placement, with priority over the predicted step; it does not place members.
    """

    tier: str
    weights: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class PreferredNodes:
    """Preferred node affinity of members: a rule on nodes (`model.node_rules`) and its weight beside other rules."""

    rule: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class PreferredMembers:
    """Preferred affinity of members to domains with members of a kind; a negative weight is anti-affinity.

    A domain is the nodes with one value of the label `key`. kind is the device (`COUNTER_PREFIX`) that members of the
    kind hold; there is the number of further ones, which hold none, by domain. spread: an even spread over domains is
    preferred.
    """

    key: str
    kind: str
    weight: int = 1
    there: tuple[tuple[str, int], ...] = ()
    spread: bool = False


@dataclass(frozen=True, slots=True)
class TopologySpec:
    """required: all members in one domain of this tier, or wait. preferred: try this tier first, then wider ones.

    likes and company are preferred affinity: they choose among equally good places and never delay a gang.

    box is the shape of a torus slice in GPUs, axis by axis; () for a slice of any legal shape; None for no slice.
    """

    required: str | None = None
    preferred: str | None = None
    slices: tuple[Slices, ...] = ()
    spread: Spread | None = None
    apart: tuple[Apart, ...] = ()
    box: tuple[int, ...] | None = None
    near: Near | None = None
    likes: tuple[PreferredNodes, ...] = ()
    company: tuple[PreferredMembers, ...] = ()


@dataclass(frozen=True, slots=True)
class Role:
    """Members of one kind: each is one launch of `processes` OS processes on one node."""

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
class AlternativeShape:
    """Another shape for the members of a role, which serves as well; speed is relative to the role's own shape."""

    role: str
    shape: Shape
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How the job saves its state: through `gantree.training`, or on a signal; seconds, and a directory."""

    every_s: float | None = None
    signal: str | None = None
    grace_s: float = 60.0
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Warn:
    """A signal to the processes, before_s seconds before the time limit of the attempt."""

    signal: str
    before_s: float


@dataclass(frozen=True, slots=True)
class Check:
    """A check of the gang's own links before its command starts, in at most collective_s seconds.

    required: without a check that passed, the command does not start. soak_s: so long of that time each GPU or CPU
    computes and copies beforehand.
    """

    collective_s: float
    required: bool = False
    soak_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Notify:
    """Which events (of NOTIFY_EVENTS, or BUDGET_EVENT) are announced: to the URL of a webhook, by mail, or both."""

    on: tuple[str, ...]
    webhook: str | None = None
    mail: str | None = None


@dataclass(frozen=True, slots=True)
class IdleLimits:
    """What a job says of being idle, in seconds: it is stopped after stop_s; lease_s from its start on it is not."""

    stop_s: float | None = None
    lease_s: float | None = None


@dataclass(frozen=True, slots=True)
class Elastic:
    """Members between min and max."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Restarts:
    """How often a gang restarts after a failure, and after how many seconds (doubled each time, up to backoff_max_s).

    replace_s: seconds for which the other members keep running while a lost member is replaced; None: they stop.
    exit_codes: a gang of which a process failed restarts only after these; none: after any.
    """

    limit: int = 3
    backoff_s: float = 5.0
    backoff_max_s: float = 300.0
    replace_s: float | None = None
    exit_codes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Transformer:
    """The model that a job trains: what its traffic and arithmetic depend on.

    parameters is the total, expert_parameters the part in experts, over all layers. sequence is in
    tokens, batch and micro_batch in sequences: batch of the whole job a step, micro_batch of one replica at a time.
    kv_share is the width of keys and values over that of queries (1 without grouped heads). sharded is what replicas
    shard: "none", "optimizer" (ZeRO 1 and 2) or "parameters" (ZeRO 3, FSDP). mfu is the share of the peak
    that computing reaches, peak_TFLOPS the peak of one GPU; None for the defaults.
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
    """Bytes that each rank sends per step along one axis of the parallelism, in `calls` equal collectives.

    Sizes are as nccl-tests count them. collective is None for the usual one of the axis.
    """

    axis: str
    size_bytes: float
    calls: int = 1
    collective: str | None = None


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic per step, declared instead of derived from a model; compute_s: the step without traffic, if declared."""

    axes: tuple[AxisTraffic, ...] = ()
    compute_s: float | None = None
    micro_batches: int = 1


@dataclass(frozen=True, slots=True)
class Serving:
    """A service in which the role "prefill" reads prompts and the role "decode" writes the answers.

    Each role consists of instances, prefill and decode GPUs each, over which the model is split (tensor parallelism).
    Every prefill instance sends keys and values to every decode instance. model: micro_batch prompts of `sequence`
    tokens are read at a time, `batch` answers are written at a time. traffic is along "prefill", "kv" and "decode".
    """

    prefill: int
    decode: int
    model: Transformer | None = None
    traffic: Traffic | None = None


@dataclass(frozen=True, slots=True)
class DataNeed:
    """A data set or checkpoint that every node of the job reads before it starts, and its size (0: unknown).

    path and version go into the record of the run unchecked.
    """

    name: str
    GiB: float = 0.0
    path: str | None = None
    version: str | None = None


@quick
@dataclass(frozen=True, slots=True)
class Job:
    """A job: its all-or-nothing gang (roles) and everything that scheduling depends on.

    priority is a class of the policy ("batch") or a number, larger first. after names jobs that must have succeeded
    first; array has the spans of indices (first, last) of a whole array, array_index the index of one job of it
    (`model.arrays`). trains and traffic describe what its ranks send each
    other, overlap the share of it that overlaps with computing, by axis of the parallelism. parallelism is (axis, ways)
    in the order in which ranks count, the fastest axis first, where ranks_as_written; else in that of AXES.
    communicates is False for members that exchange no traffic (replicas behind a load balancer).

    user submitted it ("" if unknown). preemptible is False for a job that is never stopped for another,
    nor started anew with fewer members, and so does not grow either; it then runs within its queue's guarantee only.
    expected_s is the user's estimate of the run time; it is not enforced. held: the job waits until it is released.
    speeds are (GPU model, speed of the job there over that on its fastest model); choose is the criterion for the model
    (one of CHOICES), budget_USD the most that a run may cost. spot: it may run on spot capacity. variables names the
    launcher (one of LAUNCHERS) whose environment variables its processes also get. warn requires a time limit. secrets
    are (variable, file): the variable gets the content of the file at the start. serving takes the place of trains,
    traffic and parallelism. on_cordoned are the nodes
    of a burn-in: cordoned, and held as long as it runs. project is a label under which its use is counted ("": none).
    idle: when it is stopped as idle. service: the replica of a service that it is. assignment is that of a federation
    by which it came here ("": none), as `model.federation.Assignment` writes it. alternatives are further shapes of one
    role, best first; the gang gets the role's own shape or one of these (`model.gang_shapes`).
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
    array: tuple[tuple[int, int], ...] = ()
    notify: Notify | None = None
    serving: Serving | None = None
    check: Check | None = None
    on_cordoned: tuple[str, ...] = ()
    project: str = ""
    idle: IdleLimits | None = None
    service: ReplicaOf | None = None
    assignment: str = ""
    alternatives: tuple[AlternativeShape, ...] = ()

    def equals_but_for_name(self, other: "Job") -> bool:
        """Return whether two jobs are equal but for their names."""
        return _all_but_the_name(self) == _all_but_the_name(other)

    def has_gang_of(self, other: "Job") -> bool:
        """Return whether both request the same gang. Jobs of one template share its parts, so this is cheap."""
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
    def is_leased(self) -> bool:
        """Whether it ends with the lease of a federation. A replica does not: one more does no harm, one less would."""
        return bool(self.assignment) and self.service is None

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
