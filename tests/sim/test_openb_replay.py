"""The replay and its policies on random clusters, against plain twins, and what every policy owes to the pods."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import NotFound
from gantree.sim.openb.bound import _Demand, _Kinds, _Packing, bound
from gantree.sim.openb.fgd import TYPICAL_SHARE
from gantree.sim.openb.least_loss import LeastLossOfPods
from gantree.sim.openb.lists import Nodes, PodShape, Workload
from gantree.sim.openb.policies import Choice
from gantree.sim.openb.replay import POLICIES, policy_named, replay
from gantree.sim.openb.room import Room
from support.examples import examples

MODELS = ("A10", "T4")

shapes = st.one_of(
    st.builds(
        PodShape,
        st.integers(1, 12),
        st.integers(0, 4),
        st.just(1),
        st.sampled_from((100, 320, 470, 650, 810, 1000)),
        st.sampled_from(((), (), ("T4",), MODELS, ("H100",))),
    ),
    st.builds(PodShape, st.integers(1, 12), st.integers(0, 4), st.integers(2, 4), st.just(1000)),
    st.builds(PodShape, st.integers(1, 12), st.integers(0, 4), st.just(0), st.just(0)),
)


@st.composite
def clusters(draw: st.DrawFn) -> Nodes:
    rows = draw(
        st.lists(
            st.tuples(st.integers(1, 40), st.integers(0, 30), st.integers(0, 4), st.integers(0, 1)),
            min_size=1,
            max_size=6,
        )
    )
    rows = [*rows, (20, 20, 2, 0)]
    cpu, memory, gpus, model = np.array(rows, dtype=np.int64).T
    return Nodes(tuple(f"n{i}" for i in range(len(rows))), cpu, memory, gpus, model, MODELS)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    kinds = sorted(draw(st.sets(shapes, min_size=1, max_size=6)))
    counts = [draw(st.integers(1, 30)) for _ in kinds]
    arrivals = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=40))
    return Workload(tuple(kinds), tuple(counts), tuple(arrivals))


def ranks(nodes: Nodes) -> np.ndarray:
    """Ranks that are not the order of the nodes."""
    return np.arange(len(nodes.names))[::-1]


State = list[list[int]]
"""Of each node what is left: CPU, memory, then each GPU."""


def empty(nodes: Nodes) -> State:
    return [
        [int(cpu), int(memory), *[1000] * int(gpus)]
        for cpu, memory, gpus in zip(nodes.cpu_milli, nodes.memory_MiB, nodes.gpus, strict=True)
    ]


def places(shape: PodShape, node: Sequence[int], model: str) -> list[int]:
    """GPUs that could give a share; [-1] if a pod of another kind fits; nothing if there is no room."""
    if shape.cpu_milli > node[0] or shape.memory_MiB > node[1]:
        return []
    if shape.models and model not in shape.models:
        return []
    if shape.is_share:
        return [gpu for gpu, left in enumerate(node[2:]) if left >= shape.gpu_milli]
    return [-1] if sum(left == 1000 for left in node[2:]) >= shape.gpus else []


def taken(shape: PodShape, node: Sequence[int], gpu: int) -> list[int]:
    """What is left after a pod."""
    left = list(node[2:])
    if shape.is_share:
        left[gpu] -= shape.gpu_milli
    else:
        for free in [index for index, milli in enumerate(left) if milli == 1000][: shape.gpus]:
            left[free] = 0
    return [node[0] - shape.cpu_milli, node[1] - shape.memory_MiB, *left]


def choices(name: str, nodes: Nodes, workload: Workload, rank: np.ndarray) -> list[Choice | None]:
    """What a policy chose for each arrival, None where nothing fits; each choice is checked for room."""
    room, state = Room(nodes), empty(nodes)
    policy = POLICIES[name](room, replace(workload, arrivals=()), rank, 1)
    made: list[Choice | None] = []
    for arrival in workload.arrivals:
        shape = workload.shapes[arrival]
        open_to = [
            places(shape, node, MODELS[m]) for node, m in zip(state, nodes.model, strict=True)
        ]
        fitting = np.flatnonzero(room.fits(shape))
        assert fitting.tolist() == [node for node, gpus in enumerate(open_to) if gpus]
        if not len(fitting):
            made.append(None)
            continue
        choice = policy.choose(arrival, fitting)
        assert choice.gpu in open_to[choice.node]
        room.place(choice.node, shape, choice.gpu)
        policy.placed(choice.node)
        state[choice.node] = taken(shape, state[choice.node], choice.gpu)
        made.append(choice)
    return made


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=examples(25), deadline=None)
@given(nodes=clusters(), workload=workloads())
def test_every_policy_places_what_fits_where_it_fits_without_seeing_the_arrivals(
    name: str, nodes: Nodes, workload: Workload
) -> None:
    """`choices` hands the policy a workload without arrivals; the replay itself comes to the same."""
    rank = ranks(nodes)
    made = choices(name, nodes, workload, rank)
    outcome = replay(nodes, workload, rank, 1, name)
    arrived = [workload.shapes[index] for index in workload.arrivals]
    placed = sum(s.asked_milli for s, c in zip(arrived, made, strict=True) if c is not None)
    assert outcome.dropped == made.count(None)
    ends = [percent for percent in outcome.allocated_percent.values() if percent is not None]
    assert not ends or ends[-1] <= 100 * placed / nodes.gpu_milli + 1e-9
    assert ends == sorted(ends)


def fragmentation_twin(node: Sequence[int], model: str, typical: Counter[PodShape]) -> int:
    """As the paper says: idle GPU that a typical pod cannot use, times how many there are."""
    left, total = node[2:], 0
    for shape, count in typical.items():
        fits = shape.gpus and places(replace(shape, memory_MiB=0), node, model)
        total += count * (
            sum(milli for milli in left if milli < shape.gpu_milli) if fits else sum(left)
        )
    return total


def typical_twin(workload: Workload) -> Counter[PodShape]:
    counts: Counter[PodShape] = Counter()
    for shape, count in zip(workload.shapes, workload.pods_of_shape, strict=True):
        counts[replace(shape, memory_MiB=0)] += count
    kept: Counter[PodShape] = Counter()
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if sum(kept.values()) < TYPICAL_SHARE * sum(counts.values()):
            kept[shape] = count
    return kept


Best = Callable[[PodShape, State, list[tuple[int, int]]], Choice]


def fgd_twin(nodes: Nodes, workload: Workload, rank: np.ndarray) -> Best:
    typical = typical_twin(workload)

    def best(shape: PodShape, state: State, places_open: list[tuple[int, int]]) -> Choice:
        def key(place: tuple[int, int]) -> tuple[int, int, int]:
            node, gpu = place
            model = MODELS[nodes.model[node]]
            before = fragmentation_twin(state[node], model, typical)
            after = fragmentation_twin(taken(shape, state[node], gpu), model, typical)
            gpus = (before - after) / typical.total() / 1000
            return -int(100 / (1 + exp(-gpus))), int(rank[node]), gpu

        return Choice(*min(places_open, key=key))

    return best


def best_fit_twin(nodes: Nodes, workload: Workload, rank: np.ndarray) -> Best:
    def best(shape: PodShape, state: State, places_open: list[tuple[int, int]]) -> Choice:
        points = {}
        for node, _ in places_open:
            cpu = (state[node][0] - shape.cpu_milli) / 128_000
            gpu = (sum(state[node][2:]) - shape.asked_milli) / 8_000
            points[node] = int(100 * (1 - 0.5 * cpu - 0.5 * gpu) // 1)
        low, high = min(points.values()), max(points.values())
        spread = {
            n: (p - low) * 100 // (high - low) if high > low else 0 for n, p in points.items()
        }

        def key(place: tuple[int, int]) -> tuple[int, int, int, int]:
            node, gpu = place
            left = state[node][2 + gpu] if shape.is_share else 0
            return -spread[node], int(rank[node]), left, gpu

        return Choice(*min(places_open, key=key))

    return best


@pytest.mark.parametrize(("name", "twin"), [("FGD", fgd_twin), ("BestFit", best_fit_twin)])
@settings(max_examples=examples(60), deadline=None)
@given(nodes=clusters(), workload=workloads())
def test_the_published_policies_choose_as_their_plain_twins(
    name: str,
    twin: Callable[[Nodes, Workload, np.ndarray], Best],
    nodes: Nodes,
    workload: Workload,
) -> None:
    rank, state = ranks(nodes), empty(nodes)
    best = twin(nodes, workload, rank)
    for arrival, made in zip(workload.arrivals, choices(name, nodes, workload, rank), strict=True):
        shape = workload.shapes[arrival]
        places_open = [
            (node, gpu)
            for node, left in enumerate(state)
            for gpu in places(shape, left, MODELS[nodes.model[node]])
        ]
        if not places_open:
            assert made is None
            continue
        expected = best(shape, state, places_open)
        assert made == expected
        state[expected.node] = taken(shape, state[expected.node], expected.gpu)


HALF, WHOLE, PAIR = PodShape(1, 0, 1, 500), PodShape(1, 0, 1, 1000), PodShape(1, 0, 2, 1000)


def site(*gpus: int) -> Nodes:
    many = np.full(len(gpus), 99)
    names = tuple(f"n{index}" for index in range(len(gpus)))
    return Nodes(names, many, many, np.array(gpus), 0 * many, MODELS)


def filled(nodes: Nodes, *arrivals: PodShape, policy: str = "gantree") -> object:
    kinds = sorted(set(arrivals))
    workload = Workload(
        tuple(kinds),
        tuple(arrivals.count(kind) for kind in kinds),
        tuple(kinds.index(arrival) for arrival in arrivals),
    )
    return replay(nodes, workload, np.arange(len(nodes.names)), 1, policy)


def test_the_marks_are_read_when_the_demand_reaches_them() -> None:
    """Ten GPUs; nine, then a pair of which one GPU is left, then two halves, one after the other, then a last."""
    outcome = filled(site(10), *[WHOLE] * 9, PAIR, HALF, HALF, *[WHOLE] * 1, policy="BestFit")
    assert outcome.allocated_percent == {90: 90.0, 100: 90.0, 110: 90.0, 120: 100.0, 130: 100.0}  # type: ignore[attr-defined]  # a Replay
    assert outcome.multi_gpu_percent == {90: None, 100: 0.0, 110: 0.0, 120: 0.0, 130: 0.0}  # type: ignore[attr-defined]  # a Replay
    assert (outcome.dropped, outcome.all_placed_until_percent) == (2, 90.0)  # type: ignore[attr-defined]  # a Replay


def test_a_mark_that_the_order_does_not_reach_is_none() -> None:
    outcome = filled(site(10), *[WHOLE] * 10)
    assert outcome.allocated_percent == {90: 90.0, 100: 100.0, 110: None, 120: None, 130: None}  # type: ignore[attr-defined]  # a Replay


def test_policies_are_found_in_any_case_and_a_wrong_one_is_told() -> None:
    assert [policy_named(name) for name in ("fgd", "GANTREE", "bestfit")] == [
        "FGD",
        "gantree",
        "BestFit",
    ]
    with pytest.raises(NotFound, match="no policy fdg; there are Random, BestFit, FGD, gantree"):
        policy_named("fdg")


@settings(max_examples=examples(60), deadline=None)
@given(nodes=clusters(), workload=workloads(), name=st.sampled_from([*POLICIES]))
def test_no_policy_that_places_the_first_pods_ends_above_the_bound(
    nodes: Nodes, workload: Workload, name: str
) -> None:
    limit = bound(nodes, workload)
    arrived, placed, first_dropped = 0.0, 0.0, inf
    for index, choice in zip(
        workload.arrivals, choices(name, nodes, workload, ranks(nodes)), strict=True
    ):
        asked_percent = 100 * workload.shapes[index].asked_milli / nodes.gpu_milli
        arrived += asked_percent
        placed += asked_percent if choice is not None else 0
        first_dropped = min(first_dropped, inf if choice is not None else arrived)
    if limit is None:
        assert first_dropped <= 90
    elif first_dropped > limit.places_first_percent:
        assert placed <= limit.percent + 1e-6


@pytest.mark.parametrize(
    ("gpus", "arrivals", "percent"),
    [
        ((2,), [HALF] * 3, 75.0),
        ((2,), [PodShape(1, 0, 1, 810)] * 1 + [HALF] * 3, 90.5),
        ((4,), [PodShape(1, 0, 1, 810)] * 4 + [PodShape(1, 0, 1, 160)] * 2, 89.0),
        ((1, 1), [HALF, PAIR], 25.0),
        (
            (4,),
            [*[PodShape(10, 0, 1, 1000)] * 3, PodShape(10, 0, 1, 500), PodShape(80, 0, 1, 400)],
            94.875,
        ),
    ],
)
def test_the_bound_is_what_these_small_cases_allow(
    gpus: tuple[int, ...], arrivals: list[PodShape], percent: float
) -> None:
    """Halves fill GPUs; beside 0.81 lies 0.16; a pair needs two GPUs on one node; 40 and 80 CPUs are more than 99."""
    kinds = sorted(set(arrivals))
    workload = Workload(
        tuple(kinds), (1,) * len(kinds), tuple(kinds.index(arrival) for arrival in arrivals)
    )
    limit = bound(site(*gpus), workload)
    assert limit is not None
    assert limit.percent == pytest.approx(percent, abs=0.01)


def test_without_a_way_to_place_the_first_pods_there_is_no_bound() -> None:
    workload = Workload((PodShape(60, 0, 1, 1000),), (1,), (0,) * 4)
    assert bound(site(4), workload) is None


@settings(max_examples=examples(60), deadline=None)
@given(nodes=clusters(), workload=workloads(), data=st.data())
def test_any_prices_prove_a_bound_that_is_no_lower(
    nodes: Nodes, workload: Workload, data: st.DataObject
) -> None:
    """Weak duality: the bound holds however wrong the prices are."""
    packing = _Packing(_Kinds.of(nodes), _Demand.of(nodes, workload, 90))
    best = packing.bound_gpus()
    if best is None:
        return
    factor, shift = (
        st.sampled_from((0.0, 0.5, 1.0, 1.0, 1.5)),
        st.sampled_from((0.0, 0.0, 0.5, -0.5)),
    )
    optimal = np.maximum(packing.program.prices, -9).tolist()
    prices = np.array([data.draw(factor) * price + data.draw(shift) for price in optimal])
    prices[: 2 * packing.count] = np.maximum(prices[: 2 * packing.count], 0)
    values, _ = packing._dearest_patterns(prices)
    assert packing._proved(prices, values, packing._pods_worth(prices)) >= best - 1e-5


@pytest.mark.parametrize("shape", [HALF, WHOLE, PAIR])
def test_gpus_given_away_are_charged_for_what_fills_them(shape: PodShape) -> None:
    nodes = site(2)
    packing = _Packing(_Kinds.of(nodes), _Demand.of(nodes, Workload((shape,), (1,), (0,) * 6), 90))
    assert packing.bound_gpus() == pytest.approx(2, abs=1e-4)
    prices = packing.program.prices
    prices[0] = 0
    values, _ = packing._dearest_patterns(prices)
    assert packing._proved(prices, values, packing._pods_worth(prices)) >= 2 - 1e-4


def test_pods_without_gpus_are_worth_no_more_than_they_pay_for() -> None:
    nodes, none = site(2), PodShape(50, 0, 0, 0)
    packing = _Packing(_Kinds.of(nodes), _Demand.of(nodes, Workload((none,), (1,), (0,)), 90))
    prices = np.zeros(packing.rows)
    prices[2] = -5
    values, _ = packing._dearest_patterns(prices)
    assert packing._pods_worth(prices).tolist() == [5]
    assert packing._proved(prices, values, packing._pods_worth(prices)) == 0


def test_of_equal_places_the_gpu_is_one_of_the_node_that_was_chosen() -> None:
    """Both nodes would lose a free GPU; the second has the lower rank, and only its second GPU has room."""
    share = PodShape(1, 0, 1, 600)
    room = Room(site(2, 2))
    room.place(1, share, 0)
    policy = LeastLossOfPods(room, Workload((share,), (0,), ()), np.array([1, 0]), 1)
    assert policy.choose(0, np.array([0, 1])) == Choice(1, 1)
