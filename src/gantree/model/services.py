"""A service: replicas of one gang that answer requests, how many there may be, and what decides the number.

What a replica runs is a `Job`; its `Job.service` names the service, the replica and the revision of its description;
its parts are in `model.replicas`.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

from gantree.model.jobs import Apart, Job, TopologySpec
from gantree.model.replicas import DEFAULT_READINESS, Readiness

METRICS = (
    "concurrency",
    "queue",
    "rate",
    "latency_p99",
    "ttft_p99",
    "itl_p99",
    "tokens_per_s",
    "gpu_use",
)
"""What a service may be scaled on.

concurrency: requests in work or waiting, queue: requests that wait, rate: requests a second, tokens_per_s: tokens
written a second; each divided by the ready replicas. latency_p99, ttft_p99 (time to the first token), itl_p99 (between
two tokens): seconds over all replicas. gpu_use: mean share of time in which the replicas' GPUs compute.
"""
LATENCIES = ("latency_p99", "ttft_p99", "itl_p99")
"""Metrics that are durations."""
ADDITIVE = frozenset({"concurrency", "queue", "rate", "tokens_per_s"})
"""Metrics of which a service with twice the replicas has half as much each."""
MOST_DIGITS = 7
"""Of the number of a replica, as `spread` writes it: `chat.[0-9]*` would be replicas of a service `chat.2`, too."""
AFFINITIES = ("none", "session", "prefix", "cache")
"""What sends requests to the replica of earlier ones: nothing, one session, or one beginning of the prompt; `cache`:
what the replicas say that they hold of the prompt.
"""


class Keeper(StrEnum):
    """Who decides how many replicas of a service there are, and makes them."""

    GANTREE = "gantree"
    """The core: the service is in the ledger."""
    GANGSERVICE = "GangService"
    """An object of a Kubernetes cluster."""
    PODS = "pods"
    """Controllers of Kubernetes that gantree knows only the pods of."""


ANOTHER_CLIENT = "another client of the API server"
"""Who has scaled a GangService where gantree has not: kubectl, a HorizontalPodAutoscaler, KEDA."""


@dataclass(frozen=True, slots=True)
class ReplicaCount:
    """How many replicas: between min and max; spare more than the load needs; those up to floor are not preemptible."""

    min: int = 1
    max: int = 1
    floor: int = 0
    spare: int = 0

    def within(self, replicas: int) -> int:
        """The number nearest to one that is between min and max."""
        return min(max(replicas, self.min), self.max)


@dataclass(frozen=True, slots=True)
class Update:
    """A rolling update: at most surge replicas more, and unavailable ready ones less, than wanted."""

    surge: int = 1
    unavailable: int = 0


@dataclass(frozen=True, slots=True)
class ScaleTarget:
    """A value of a metric (of METRICS) that is to be kept; or of a Prometheus query, per replica or as a whole.

    Seconds, requests, or tokens. query is PromQL ("" for a metric); its value is divided by the ready replicas if
    per_replica.
    """

    metric: str
    target: float
    query: str = ""
    per_replica: bool = True


@dataclass(frozen=True, slots=True)
class ScaleSteps:
    """How fast the number of replicas may change in one direction.

    stabilise_s: the most cautious recommendation of this long counts. at_most replicas more or less in per_s seconds;
    0: without limit.
    """

    stabilise_s: float = 0.0
    at_most: int = 0
    per_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Autoscaling:
    """What decides the number of replicas. No targets: it stays as it is set.

    tolerance is the relative distance from a target within which nothing changes. to_zero_s: with min 0 the last
    replica ends after so long without requests. predict: the load of the same hour of earlier weeks counts too.
    """

    targets: tuple[ScaleTarget, ...] = ()
    every_s: float = 15.0
    tolerance: float = 0.1
    up: ScaleSteps = ScaleSteps()
    down: ScaleSteps = ScaleSteps(stabilise_s=300.0)
    to_zero_s: float = 300.0
    predict: bool = False


@dataclass(frozen=True, slots=True)
class Routing:
    """How requests reach replicas.

    models are names that clients give as `model` (none: the service's). concurrency is how many requests one replica
    works on at a time (0: without limit); queue, how many may wait in front of all; wait_s, for how long; timeout_s,
    how long a replica may be silent. tokenizer names the directory of the model's tokenizer, for `affinity: cache`; "":
    the first of models.
    """

    models: tuple[str, ...] = ()
    concurrency: int = 0
    queue: int = 1000
    wait_s: float = 60.0
    timeout_s: float = 600.0
    affinity: str = "none"
    tokenizer: str = ""


@dataclass(frozen=True, slots=True)
class ServiceSpec:
    """A service as a user describes it. replica is the gang of each replica; its name and queue are the service's.

    port: where the first member of a replica listens; None: the executor chooses, and sets PORT. drain_s: a replica
    that is to end gets no new request, and has so long to finish those that it works on. spread: replicas stand in
    different domains of this tier as far as possible; spread_required: or wait. cache_events_port and
    cache_replay_port: where the engine of a replica publishes its cache events, and sends the last ones again; 0: the
    executor chooses; None: nowhere.
    """

    name: str
    replica: Job
    replicas: ReplicaCount = ReplicaCount()
    port: int | None = None
    ready: Readiness = DEFAULT_READINESS
    update: Update = Update()
    drain_s: float = 30.0
    spread: str | None = None
    spread_required: bool = False
    scaling: Autoscaling = Autoscaling()
    routing: Routing = Routing()
    cache_events_port: int | None = None
    cache_replay_port: int | None = None

    @property
    def replica_topology(self) -> TopologySpec:
        """The topology of a replica, away from the other ones."""
        topology = self.replica.topology
        if self.spread is None:
            return topology
        others = tuple(f"{self.name}.{'[0-9]' * digits}" for digits in range(1, MOST_DIGITS + 1))
        rule = Apart(self.spread, others, preferred=not self.spread_required)
        return replace(topology, apart=(*topology.apart, rule))
