"""What of running is simulated, and its figures. Everything is off by default.

Belongs here: plain values, as a user writes them in running.yaml. How they act is in the modules beside this one.
Times are in seconds, rates are events per day of one component.
"""

from dataclasses import dataclass, fields
from typing import Any

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """What checkpoints cost. A gang stops its work while it saves, and before it works on from a checkpoint.

    every_s is the interval of jobs that tell none; None leaves these without. save_s and restore_s are of one save and
    one restore. Where store_GBps and state_GB_per_GPU are given, a save or restore also takes the time in which its
    bytes pass through the store: all transfers at one time share its bandwidth evenly.
    """

    every_s: float | None = None
    save_s: float = 0.0
    restore_s: float = 0.0
    store_GBps: float | None = None
    state_GB_per_GPU: float = 0.0


@dataclass(frozen=True, slots=True)
class FailureRate:
    """Failures of one kind: mean number per day of one component, and the mean repair time. Both are exponential.

    health is what is left of a degraded link until it is repaired (kind "link" alone). announced is the share of the
    failures with a sign before them, lead_s seconds ahead: the node takes nothing new from then on (kind "node" alone).
    """

    per_day: float
    repair_s: float
    health: float | None = None
    announced: float | None = None
    lead_s: float | None = None


@dataclass(frozen=True, slots=True)
class Failures:
    """Rates of failures by component.

    process: of the software of a gang, per GPU that it holds: the gang fails, no hardware is lost. GPU: the gangs on
    it fail, and its node takes nothing new until it is repaired. node: the node is lost. domains: by tier, a domain
    with all its nodes is lost (a switch). links: by tier, the up-links of a domain keep a share of their bandwidth. A
    tier is named as in the cluster file; "switch" is the narrowest above the node. restarts is how many failures a
    job survives.
    """

    process: FailureRate | None = None
    GPU: FailureRate | None = None
    node: FailureRate | None = None
    domains: tuple[tuple[str, FailureRate], ...] = ()
    links: tuple[tuple[str, FailureRate], ...] = ()
    restarts: int = 1_000


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Shares of nodes and of attempts that are slower, and the speed that these have (1: as fast as others).

    A gang is as fast as its slowest node. named_after_s: after how much of an attempt the scheduler knows which nodes
    slow it; None: never.
    """

    nodes: float = 0.0
    attempts: float = 0.0
    speed: float = 1.0
    named_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Spot:
    """Spot nodes go away as often as the cluster file says (`spot`), and come back.

    notice_s is between the notice, at which the node is drained, and its loss; away_s the mean time until it returns.
    """

    notice_s: float = 120.0
    away_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class ServiceScaling:
    """The autoscaler of a service, and how its replicas serve.

    A full replica works on `slots` requests at a time, and each takes request_s. The number of replicas is what the
    autoscaler makes of a target of concurrency, which is the share `target` of the slots, with spare replicas; it is
    asked each every_s, and stabilise_s is its window downwards. A replica is ready start_s after its start. Requests
    arrive at random; what waits longer than wait_s is shed. predict: the load of the same hour of earlier weeks counts.
    """

    target: float = 0.8
    spare: int = 0
    every_s: float = 15.0
    start_s: float = 60.0
    stabilise_s: float = 300.0
    slots: int = 8
    request_s: float = 5.0
    wait_s: float = 60.0
    predict: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A service whose load follows the time of day between trough and peak, in replicas that it keeps full.

    curve are (second of the day, share of the way from trough to peak), rising in time; between two points and round
    midnight it is linear. Each replica has `gpus` GPUs on one node, or a share or a MIG instance of one, and runs
    while it is wanted. Without scaling as many are wanted as the load is, rounded; with it, as many as an autoscaler
    recommends.
    """

    name: str
    gpus: int
    trough: int
    peak: int
    curve: tuple[tuple[float, float], ...]
    queue: str = "default"
    priority: str | int = "serving"
    gpu: str | None = None
    gpu_share: float | None = None
    mig: str | None = None
    scaling: ServiceScaling | None = None


@dataclass(frozen=True, slots=True)
class RunningModel:
    """What is simulated of running; the default is nothing: every job works at speed 1 until it is stopped.

    step_time: a job that tells its traffic or its model works the slower, the longer its predicted step is where it is
    placed. contention: jobs share up-links of known capacity (it implies step_time).
    """

    step_time: bool = False
    contention: bool = False
    checkpoints: Checkpoints | None = None
    failures: Failures | None = None
    stragglers: Stragglers | None = None
    spot: Spot | None = None
    services: tuple[Service, ...] = ()

    @property
    def on(self) -> bool:
        """Whether anything is simulated."""
        return any(getattr(self, each.name) for each in fields(self))

    def stated(self) -> dict[str, Any]:
        """What is on, as plain values for the summary."""
        on = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: _plain(value) for name, value in on if value}


def _plain(value: Any) -> Any:
    """Dataclasses and pairs as what JSON has."""
    if isinstance(value, tuple) and value and all(_is_pair(each) for each in value):
        return {str(name): _plain(each) for name, each in value}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if hasattr(value, "__dataclass_fields__"):
        named = ((each.name, getattr(value, each.name)) for each in fields(value))
        return {name: _plain(each) for name, each in named if each not in (None, ())}
    return value


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2
