"""At a constant load the number of replicas comes to rest, whatever the load was before and however it is served."""

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gantree.model.services import METRICS, Autoscaling, ReplicaCount, ScaleSteps, ScaleTarget
from support.examples import examples
from support.served_load import Served, Server, turns

REST = 500
"""Samples at the constant load. The slowest way down takes a window of ten for each of ten replicas."""


@dataclass(frozen=True)
class Life:
    """A service and its load: rates and for how many samples each lasts, the last one for good."""

    server: Server
    scaling: Autoscaling
    bounds: ReplicaCount
    start_s: float
    queues: float
    curve: tuple[tuple[float, int], ...]
    last_rate: float


TARGETS = {
    "concurrency": st.floats(0.2, 20),
    "queue": st.floats(0.2, 20),
    "rate": st.floats(0.2, 20),
    "tokens_per_s": st.floats(20, 2000),
    "gpu_use": st.floats(0.1, 1.2),
    "latency_p99": st.floats(0.2, 20),
    "ttft_p99": st.floats(0.1, 10),
    "itl_p99": st.floats(0.01, 2),
}


@st.composite
def targets(draw: st.DrawFn) -> ScaleTarget:
    metric = draw(st.sampled_from(METRICS))
    return ScaleTarget(metric, draw(TARGETS[metric]))


@st.composite
def steps(draw: st.DrawFn) -> ScaleSteps:
    windows = st.sampled_from([0.0, 15.0, 60.0, 150.0])
    return ScaleSteps(
        draw(windows), draw(st.sampled_from([0, 1, 4])), draw(st.sampled_from([15.0, 60.0]))
    )


@st.composite
def lives(draw: st.DrawFn) -> Life:
    kind = draw(st.sampled_from(["ps", "pool", "batch"]))
    server = Server(kind, draw(st.floats(0.5, 10)), draw(st.sampled_from([1, 4, 16])))
    scaling = Autoscaling(
        tuple(draw(st.lists(targets(), min_size=1, max_size=3))),
        15.0,
        draw(st.sampled_from([0.0, 0.1, 0.3])),
        draw(steps()),
        draw(steps()),
    )
    least = draw(st.integers(0, 2))
    bounds = ReplicaCount(least, draw(st.integers(max(1, least), 12)), 0, draw(st.integers(0, 2)))
    rates = st.floats(0.1, 60)
    curve = draw(st.lists(st.tuples(rates, st.integers(1, 30)), max_size=6))
    return Life(
        server,
        scaling,
        bounds,
        draw(st.sampled_from([0.0, 10.0, 45.0, 200.0])),
        draw(st.sampled_from([0.0, 20.0, 1000.0])),
        tuple(curve),
        draw(rates),
    )


@settings(max_examples=examples(200), deadline=None)
@given(lives())
@example(
    Life(  # a target of twice what a replica bears: the number falls until requests queue, and goes back
        Server("ps", 1.0),
        Autoscaling((ScaleTarget("concurrency", 2.0),), down=ScaleSteps(60.0)),
        ReplicaCount(1, 12),
        45.0,
        1000.0,
        ((9.0, 30),),
        6.0,
    )
)
def test_at_a_constant_load_the_number_never_goes_up_down_and_up(life: Life) -> None:
    served = Served(
        life.server, life.scaling, life.bounds, life.start_s, life.queues, max(1, life.bounds.min)
    )
    for rate, samples in life.curve:
        for _ in range(samples):
            served.sample(rate)
    begins = len(served.numbers)
    for _ in range(REST):
        served.sample(life.last_rate)
    after = served.numbers[begins:]
    assert turns(after) in {"", "u", "d", "du"}
    assert len(set(after[-100:])) == 1
