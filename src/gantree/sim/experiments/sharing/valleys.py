"""What an autoscaled service leaves idle, and how much of it training takes: by how serving lends, target and spare.

A service follows the hour of the day on a site of which it is guaranteed the larger part; training is a backlog that
fills all it gets. And what a prediction from the hour of the week is worth, without a site: replicas start at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import cos, pi
from random import Random

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.policy.rules import LendIdle, QueueRule
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.inputs import cluster
from gantree.sim.run import Simulation
from gantree.sim.running.autoscaled import AutoscaledService
from gantree.sim.running.model import RunningModel, Service, ServiceScaling

HOUR_S, DAY_S = 3600.0, 86_400.0
DAYS, NODES, NODE_GPUS = 3, 16, 8
GPUS = NODES * NODE_GPUS
OWNED = 80
"""GPUs that serving is guaranteed; the rest are training's."""
REPLICA_GPUS, TROUGH, PEAK = 2, 6, 24
"""A replica, and how many of them the load keeps full at midnight and at noon."""
OVERHEADS = Overheads(start_s=30.0, stop_s=10.0, save_s=20.0)
LONGEST_H = 8
SIZES = (1, 1, 2, 4, 8, 8, 16, 32)
"""GPUs of gangs of training, drawn evenly from those up to the largest of a case."""


@dataclass(frozen=True, slots=True)
class Valley:
    """One run: a rule of lending, target and spare replicas of the autoscaler, GPUs of training's largest gangs."""

    rule: str
    seed: int
    target: float = 0.8
    spare: int = 0
    largest: int = 16


@dataclass(frozen=True, slots=True)
class Filled:
    """What came of it: GPU-hours of serving and of training (kept, lost), and shares of requests and of what was idle.

    soaked is what training did beyond its own guarantee, over what serving held less than its.
    """

    serving_gpu_h: float
    training_gpu_h: float
    lost_gpu_h: float
    soaked: float
    late: float
    preemptions: int


def rules() -> dict[str, QueueRule]:
    """Return how serving may lend its guarantee."""
    own = QueueRule("serving", guarantee={"gpus": float(OWNED)})
    by_use = partial(LendIdle, keep={"gpus": float(NODE_GPUS)})
    return {
        "nothing": replace(own, lend={"gpus": 0.0}),
        "all at once": own,
        "unused for 15 min": replace(own, lend_idle=by_use(900.0), return_within_s=60.0),
        "unused for 1 h": replace(own, lend_idle=by_use(HOUR_S), return_within_s=60.0),
    }


def site() -> Cluster:
    """Return the nodes."""
    whole = cluster("dgx-h100")
    return replace(whole, nodes=whole.nodes[:NODES])


def day(at_s: float) -> float:
    """Return the share of the way from trough to peak: most at noon, least at midnight."""
    return (1 - cos(2 * pi * at_s / DAY_S)) / 2


def service(target: float, spare: int) -> Service:
    """Return the service."""
    curve = tuple((at_s, day(at_s)) for at_s in (900.0 * step for step in range(96)))
    scaling = ServiceScaling(target, spare)
    return Service("chat", REPLICA_GPUS, TROUGH, PEAK, curve, "serving", "serving", scaling=scaling)


def training(seed: int, largest: int) -> list[TraceJob]:
    """Return a backlog of gangs that fills the whole site all the time."""
    sizes = [size for size in SIZES if size <= largest]
    draws = Random(f"{seed}/valleys")  # noqa: S311 - a draw, not a secret
    rows, gpu_s = list[TraceJob](), 0.0
    while gpu_s < 1.2 * DAYS * DAY_S * GPUS:
        gpus, lasts_s = draws.choice(sizes), draws.uniform(1, LONGEST_H) * HOUR_S
        members, each = max(1, gpus // NODE_GPUS), min(gpus, NODE_GPUS)
        name = f"training-{len(rows)}"
        rows.append(
            TraceJob(name, 0.0, lasts_s, members, each, queue="training", checkpoint_s=900.0)
        )
        gpu_s += gpus * lasts_s
    return rows


def fill(case: Valley) -> Filled:
    """Run the days."""
    rest = {"gpus": float(GPUS - OWNED)}
    policy = replace(
        PRESETS["gantree"],
        queues=(rules()[case.rule], QueueRule("training", guarantee=rest)),
        grace_s=10.0,
    )
    running = RunningModel(services=(service(case.target, case.spare),))
    backlog = training(case.seed, case.largest)
    there = Simulation(site(), backlog, policy, OVERHEADS, running=running, seed=case.seed)
    while there.now < DAYS * DAY_S and there.step():
        pass
    result = there.result()
    serving = sum(row.gpu_s_held for row in result.replicas) / HOUR_S
    lost = sum(row.gpu_s_lost for row in result.jobs) / HOUR_S
    trained = sum(row.gpu_s_held for row in result.jobs) / HOUR_S - lost
    hours = DAYS * DAY_S / HOUR_S
    idle = OWNED * hours - serving
    return Filled(
        serving, trained, lost, (trained - (GPUS - OWNED) * hours) / idle,
        result.served["chat"].late_share, sum(row.preemptions for row in result.jobs),
    )  # fmt: skip


# ----- prediction


@dataclass(frozen=True, slots=True)
class Foretold:
    """A run of two weeks, of which the second counts: how the load rises, the start of a replica, with prediction?"""

    load: str
    start_s: float
    predict: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Served:
    """The second week: the part of requests that were late, and replica-hours over those that the load fills."""

    late: float
    held: float


def _steep(at_s: float) -> float:
    """Open from nine to seventeen, with a quarter of an hour to rise and to fall."""
    hour = at_s % DAY_S / HOUR_S
    return min(1.0, max(0.0, min((hour - 9) * 4, (17 - hour) * 4)))


def _no_pattern(at_s: float) -> float:
    """The same hours on days drawn at random: what was last week does not tell."""
    draws = Random(int(at_s // DAY_S))  # noqa: S311 - a draw, not a secret
    return _steep(at_s + draws.randrange(24) * HOUR_S)


LOADS: dict[str, Callable[[float], float]] = {
    "cosine": day,
    "steep": _steep,
    "at random": _no_pattern,
}


def foretell(case: Foretold) -> Served:
    """Run a service for two weeks; each day has 0.85 to 1.15 times the usual load."""
    share, scaling = LOADS[case.load], ServiceScaling(start_s=case.start_s, predict=case.predict)
    draws = Random(f"{case.seed}/days")  # noqa: S311 - a draw, not a secret
    of_day = [draws.uniform(0.85, 1.15) for _ in range(15)]

    def load(at_s: float) -> float:
        return of_day[int(at_s // DAY_S)] * (TROUGH + (PEAK - TROUGH) * share(at_s))

    there = Service("chat", REPLICA_GPUS, TROUGH, PEAK, (), scaling=scaling)
    served = AutoscaledService(there, case.seed, 0.0, load)
    for number in served.begin(0.0).begin:
        served.started(number, 0.0)
    before = (0.0, 0.0, 0.0, 0.0)
    for now in _samples(scaling.every_s):
        for number in served.sample(now).begin:
            served.started(number, now)
        if now == 7 * DAY_S:
            before = _figures(served)
    late, requests, ready_s, full_s = (
        after - earlier for after, earlier in zip(_figures(served), before, strict=True)
    )
    return Served(late / requests, ready_s / full_s)


def _samples(every_s: float) -> Iterator[float]:
    return (every_s * n for n in range(1, int(14 * DAY_S / every_s)))


def _figures(served: AutoscaledService) -> tuple[float, float, float, float]:
    found = served.figures
    return found.late, found.requests, found.ready_s, found.full_s
