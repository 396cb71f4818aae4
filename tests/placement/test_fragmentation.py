"""The fragmentation score against plain twins: prices, slots, worth, and slot values of a cluster kept up to date."""

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import inf, isclose, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.placement.scoring import fragmentation_state
from gantree.placement.scoring.fragmentation import (
    SEVERAL,
    Demand,
    DemandClass,
    NodeStates,
    members_beside_gpus,
    slots,
    worth,
)
from gantree.placement.scoring.fragmentation_state import FragmentationState, MemberDemand
from gantree.placement.scoring.share_prices import WHOLE_MILLI, prices_of_sizes, worth_of_left
from support.examples import examples

GPUS = 4
SIZES = (50, 160, 190, 300, 330, 470, 500, 650, 810)

sizes = st.sampled_from(SIZES)
shares = st.builds(lambda cpu, size: (cpu, 1, size), st.integers(0, 9), sizes)
wholes = st.builds(lambda cpu, gpus: (cpu, gpus, WHOLE_MILLI), st.integers(0, 9), st.integers(1, 4))
none = st.builds(lambda cpu: (cpu, 0, 0), st.integers(1, 9))


@st.composite
def demand_classes(draw: st.DrawFn) -> list[DemandClass]:
    """A few classes; some name models, some ask for memory."""
    asks = draw(st.lists(st.one_of(shares, wholes, none), min_size=1, max_size=6))
    return [
        DemandClass(
            cpu,
            gpus,
            gpu_milli,
            frequency=draw(st.integers(1, 9)),
            memory_MiB=draw(st.sampled_from((0, 0, 3, 20))),
            models=draw(st.sampled_from(((), (), (0,), (0, 1)))),
        )
        for cpu, gpus, gpu_milli in asks
    ]


Node = tuple[int, int, int, tuple[int, ...]]
left_of_gpu = st.one_of(st.sampled_from((0, WHOLE_MILLI)), st.integers(0, WHOLE_MILLI))
nodes = st.tuples(
    st.integers(0, 40),
    st.integers(0, 40),
    st.integers(0, 2),
    st.tuples(*[left_of_gpu] * GPUS),
)
clusters = st.lists(nodes, min_size=1, max_size=6)


def states_of(cluster: Sequence[Node]) -> NodeStates:
    cpu, memory, model, gpus = zip(*cluster, strict=True)
    return NodeStates(*(np.array(part, dtype=np.int64) for part in (cpu, memory, model, gpus)))


def after(node: Node, each: DemandClass | MemberDemand, gpu: int | None = None) -> Node | None:
    """The node after one member, on the GPU named for a share; None if it does not fit. Models are not looked at."""
    cpu, memory, model, left = node
    if cpu < each.cpu_milli or memory < each.memory_MiB:
        return None
    free = [index for index, milli in enumerate(left) if milli >= each.gpu_milli]
    taken = ([gpu] if gpu in free else []) if gpu is not None else free[: each.gpus]
    if len(taken) < each.gpus:
        return None
    rest = tuple(
        milli - each.gpu_milli * (index in taken) if each.gpus else milli
        for index, milli in enumerate(left)
    )
    return cpu - each.cpu_milli, memory - each.memory_MiB, model, rest


def slots_twin(node: Node, each: DemandClass) -> int:
    """Members put on the node one after the other until no more fits."""
    if each.models and node[2] not in each.models:
        return 0
    count, here = 0, after(node, each)
    while here is not None:
        count, here = count + 1, after(here, each)
    return count


def worth_twin(node: Node, classes: Sequence[DemandClass], price: dict[int, float]) -> float:
    """The dearest set of shares on each GPU, of sizes that some class can still bring to the node."""
    cpu, memory, model, left = node
    present = tuple(
        {
            each.gpu_milli
            for each in classes
            if each.gpus
            and cpu >= each.cpu_milli
            and memory >= each.memory_MiB
            and (not each.models or model in each.models)
        }
    )

    @cache
    def dearest(milli: int) -> float:
        return max(
            (price[size] + dearest(milli - size) for size in present if size <= milli), default=0
        )

    return sum(dearest(milli) for milli in left)


def patterns(of: Sequence[int], left: int = WHOLE_MILLI) -> Iterator[tuple[int, ...]]:
    """Every way to fill a GPU with shares of these sizes, as counts."""
    if not of:
        yield ()
        return
    for count in range(left // of[0] + 1):
        for rest in patterns(of[1:], left - count * of[0]):
            yield (count, *rest)


def fewest_gpus(count_of_size: dict[int, int]) -> Fraction:
    """GPUs (also parts of them) that pack the demand: over all bases of the linear program, in exact numbers."""
    of = sorted(count_of_size)
    columns = [*patterns(of), *(tuple(-(i == j) for j in range(len(of))) for i in range(len(of)))]
    costs = [1 if min(column) >= 0 else 0 for column in columns]
    best = Fraction(10**9)
    for basis in combinations(range(len(columns)), len(of)):
        amounts = solved([columns[index] for index in basis], [count_of_size[size] for size in of])
        if amounts is not None and min(amounts) >= 0:
            cost = sum(
                (a * costs[index] for a, index in zip(amounts, basis, strict=True)), Fraction()
            )
            best = min(best, cost)
    return best


def solved(columns: Sequence[Sequence[int]], right: Sequence[int]) -> list[Fraction] | None:
    """Gauss, in fractions; None for a singular matrix."""
    size = len(right)
    rows = [[*(Fraction(c[i]) for c in columns), Fraction(right[i])] for i in range(size)]
    for column in range(size):
        pivot = next((row for row in range(column, size) if rows[row][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [value / rows[column][column] for value in rows[column]]
        for row in range(size):
            if row != column:
                rows[row] = [
                    a - rows[row][column] * b for a, b in zip(rows[row], rows[column], strict=True)
                ]
    return [row[-1] for row in rows]


@pytest.mark.parametrize(
    ("demand", "price"),
    [
        ({500: 1}, {500: 1 / 2}),
        ({334: 1}, {334: 1 / 2}),
        ({810: 9, 190: 1}, {810: 1.0, 190: 0.0}),
        ({810: 1, 190: 9}, {810: 0.8, 190: 0.2}),
        ({1000: 5}, {1000: 1.0}),
        ({1000: 5, 250: 1}, {1000: 1.0, 250: 1 / 4}),
        ({500: 0}, {500: 1 / 2}),
        ({}, {}),
    ],
)
def test_a_share_costs_what_it_keeps_others_from(
    demand: dict[int, float], price: dict[int, float]
) -> None:
    assert prices_of_sizes(demand) == pytest.approx(price)


big = st.sampled_from((230, 320, 370, 470, 500, 650, 810))


@settings(max_examples=examples(20), deadline=None)
@given(st.dictionaries(big, st.integers(1, 30), min_size=1, max_size=3))
def test_prices_add_up_to_the_fewest_gpus_that_pack_the_demand(count: dict[int, int]) -> None:
    price = prices_of_sizes(count)
    total = sum(price[size] * times for size, times in count.items())
    assert total == pytest.approx(float(fewest_gpus(count)), rel=1e-6)


@given(st.dictionaries(sizes, st.integers(1, 1000), min_size=1, max_size=5))
def test_no_filled_gpu_costs_more_than_one(count: dict[int, int]) -> None:
    price = prices_of_sizes(count)
    of = sorted(size for size in count if size > 100)
    assert all(0 <= each <= 1 for each in price.values())
    for pattern in patterns(of):
        assert sum(n * price[size] for n, size in zip(pattern, of, strict=True)) <= 1 + 1e-6


@given(st.dictionaries(sizes, st.integers(1, 99), min_size=1), sizes, st.integers(0, WHOLE_MILLI))
def test_no_place_loses_less_than_the_price(count: dict[int, int], size: int, left: int) -> None:
    price = prices_of_sizes({**count, size: 1})
    table = worth_of_left(price, price.keys())
    assert table[0] == 0
    assert (np.diff(table) >= 0).all()
    if left >= size:
        assert table[left] - table[left - size] >= price[size] - 1e-9


@given(demand_classes(), clusters)
def test_slots_and_worth_are_those_of_the_plain_twins(
    classes: list[DemandClass], cluster: list[Node]
) -> None:
    demand, states = Demand.of(classes), states_of(cluster)
    members = members_beside_gpus(demand, states)
    assert slots(demand, states, members).tolist() == [
        [slots_twin(node, each) for each in demand.classes] for node in cluster
    ]
    expected = [worth_twin(node, classes, demand.price_of_size) for node in cluster]
    assert worth(demand, states, members).tolist() == pytest.approx(expected)


def test_equal_classes_are_one_and_frequencies_sum_to_one_with_those_of_cpu_only() -> None:
    demand = Demand.of(
        [DemandClass(4, 1, 500, 2), DemandClass(9, 0, 0, 5), DemandClass(4, 1, 500, 3)]
    )
    assert demand.classes == (DemandClass(4, 1, 500, 0.5),)


def test_without_a_demand_for_gpus_all_places_are_equal() -> None:
    cluster = FragmentationState(
        Demand.of([DemandClass(4, 0, 0, 1)]), states_of([(9, 9, 0, (1000,) * GPUS)] * 2)
    )
    loss = cluster.losses(MemberDemand(4, 0, 1, 1000), cluster.state_of_node)
    assert loss.best().tolist() == [0, 1]


def slot_value_twin(classes: Sequence[DemandClass], cluster: Sequence[Node], node: Node) -> float:
    """The slot value of a node by the formula of the module."""
    total = sum(each.frequency for each in classes)
    kinds = Counter[DemandClass]()
    for each in classes:
        if each.gpus:
            key = DemandClass(
                each.cpu_milli, each.gpus, each.gpu_milli, 0, each.memory_MiB, each.models
            )
            kinds[key] += each.frequency  # type: ignore[assignment]  # Counter adds any numbers
    slot_value = 0.0
    for each, frequency in kinds.items():
        anywhere = sum(slots_twin(other, each) for other in cluster)
        taken = each.gpus * each.gpu_milli / WHOLE_MILLI
        gpus = slots_twin(node, each) * taken
        if each.gpus > 1:
            slot_value += frequency / total * (SEVERAL / (anywhere + 1)) ** 2 * gpus
        else:
            slot_value += frequency / total / (anywhere * taken + 1) * sqrt(gpus)
    return slot_value


requests = st.one_of(shares, wholes, none).map(lambda ask: MemberDemand(ask[0], 2, *ask[1:]))


@settings(max_examples=examples(40), deadline=None)
@given(
    demand_classes(),
    clusters,
    st.lists(requests, min_size=1, max_size=6),
    st.sampled_from((0, fragmentation_state.MOST_STATES)),
)
def test_a_state_kept_up_to_date_judges_as_the_formulas_do(
    classes: list[DemandClass], cluster: list[Node], asks: list[MemberDemand], most_states: int
) -> None:
    cluster = [(cpu, memory + 12, *rest) for cpu, memory, *rest in (*cluster, cluster[0])]  # type: ignore[misc]  # a node
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fragmentation_state, "REWEIGH_EVERY", 1)
        patch.setattr(fragmentation_state, "MOST_STATES", most_states)
        kept = FragmentationState(Demand.of(classes), states_of(cluster))
        price = kept.states.demand.price_of_size
        for asked in asks:
            loss = kept.losses(asked, kept.state_of_node)
            for index, node in enumerate(cluster):
                check_node(
                    loss.worth[index], loss.slot_value[index], asked, node, price, classes, cluster
                )
            index, choice = divmod(int(loss.best()[0]), loss.worth.shape[1])
            if loss.worth[index, choice] == inf:
                continue
            left = kept.gpu_left(index, choice)
            gpu = cluster[index][3].index(left) if asked.is_share else None
            placed = after(cluster[index], asked, gpu)
            assert placed is not None
            cluster[index] = placed
            kept.changed(np.array([index]), states_of([placed]))


def check_node(
    worth_lost: np.ndarray,
    slot_value_lost: np.ndarray,
    asked: MemberDemand,
    node: Node,
    price: dict[int, float],
    classes: Sequence[DemandClass],
    cluster: Sequence[Node],
) -> None:
    """Each choice of a node against the twins. Memory counts only where a class asks for it."""
    looks_at_memory = any(each.memory_MiB and each.gpus for each in classes)
    falling = (*node[:3], tuple(sorted(node[3], reverse=True)))
    for choice in range(len(worth_lost)):
        milli = falling[3][choice]
        last = choice == GPUS - 1 or falling[3][choice + 1] != milli
        turned = after((node[0], 10**6, *falling[2:]), asked, choice if asked.is_share else None)
        if turned is None or (asked.is_share and not last):
            assert worth_lost[choice] == inf
            continue
        memory = max(0, node[1] - asked.memory_MiB) if looks_at_memory else node[1]
        turned = (turned[0], memory, *turned[2:])
        lost = worth_twin(node, classes, price) - worth_twin(turned, classes, price)
        assert isclose(worth_lost[choice], lost, abs_tol=1e-5)
        before = slot_value_twin(classes, cluster, node)
        here = slot_value_twin(classes, cluster, turned)
        assert isclose(slot_value_lost[choice], before - here, abs_tol=1e-9)


def test_equal_losses_are_equal_whatever_else_is_on_the_node() -> None:
    """A third of a GPU lost is the same where 8 and 1/3 GPUs are left and where 2/3 are."""
    demand = Demand.of([DemandClass(1, 1, 330, 1)])
    full, rest = (1000, 1000, 1000, 330), (660, 0, 0, 0)
    kept = FragmentationState(demand, states_of([(99, 0, 0, full), (99, 0, 0, rest)]))
    loss = kept.losses(MemberDemand(1, 0, 1, 330), kept.state_of_node)
    assert len(set(loss.worth[np.isfinite(loss.worth)].tolist())) == 1


def test_a_share_goes_beside_its_like_a_small_one_into_a_lost_rest_and_cpu_comes_from_full_nodes() -> (
    None
):
    classes = [
        DemandClass(1, 1, 470, 30),
        DemandClass(1, 1, 810, 30),
        DemandClass(1, 1, 160, 1),
        DemandClass(1, 1, 1000, 30),
    ]
    cluster = [
        (9, 0, 0, (530, 0, 0, 0)),
        (9, 0, 0, (190, 0, 0, 0)),
        (9, 0, 0, (1000, 0, 0, 0)),
        (9, 0, 0, (0, 0, 0, 0)),
    ]
    kept = FragmentationState(Demand.of(classes), states_of(cluster))

    def chosen(*asked: int) -> int:
        loss = kept.losses(MemberDemand(*asked), kept.state_of_node)
        choices: int = loss.worth.shape[1]
        return int(loss.best()[0]) // choices

    assert chosen(1, 0, 1, 470) == 0
    assert chosen(1, 0, 1, 160) == 1
    assert chosen(1, 0, 1, 810) == 2
    assert chosen(9, 0, 0, 0) == 3


def test_the_last_whole_nodes_are_kept_for_members_of_several_gpus() -> None:
    """Two nodes with room for one GPU each, one of them whole."""
    cluster = [(99, 0, 0, (1000,) * GPUS), (99, 0, 0, (1000, 0, 0, 0))]
    classes = [DemandClass(1, 4, 1000, 1), DemandClass(1, 1, 1000, 99)]
    kept = FragmentationState(Demand.of(classes), states_of(cluster))
    assert kept.losses(MemberDemand(1, 0, 1, 1000), kept.state_of_node).best().tolist() == [1]
    alone = FragmentationState(Demand.of(classes[1:]), states_of(cluster))
    assert alone.losses(MemberDemand(1, 0, 1, 1000), alone.state_of_node).best().tolist() == [0]
