"""The order of a policy: keys against what they mean, lines and walks against a plainly sorted list."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.policy.order import Order, OrderFactors, Position
from gantree.policy.rules import OrderKey, Policy
from gantree.policy.waiting_jobs import EquivalenceClass, WaitingJobs
from gantree.policy.walk import Walk

waiting_jobs = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=20)
Placed = tuple[EquivalenceClass, Position]


def standing(jobs: list[tuple[int, int]]) -> list[Placed]:
    """(signature, priority) of each job -> its line and position, in order of arrival."""
    return [
        (EquivalenceClass(0, signature, 0), Position((-priority, seq), seq, f"j{seq}"))
        for seq, (signature, priority) in enumerate(jobs)
    ]


def waiting_of(placed: list[Placed]) -> WaitingJobs:
    waiting = WaitingJobs()
    for eq_class, position in placed:
        waiting.add(eq_class, position)
    return waiting


@given(waiting_jobs, st.sets(st.integers(0, 19)))
def test_a_walk_goes_in_order_whatever_the_lines(
    jobs: list[tuple[int, int]], gone: set[int]
) -> None:
    placed = standing(jobs)
    waiting = waiting_of(placed)
    left = [pair for pair in placed if pair[1].seq not in gone]
    for eq_class, position in placed:
        if position.seq in gone:
            waiting.remove(eq_class, position)
    walked = list(Walk(waiting, lambda _, __: True))
    assert walked == sorted(left, key=lambda pair: pair[1])
    assert len(waiting) == len(left)


@given(waiting_jobs, st.integers(0, 2))
def test_a_line_that_is_closed_is_left_out_and_the_others_go_on(
    jobs: list[tuple[int, int]], closed: int
) -> None:
    placed = standing(jobs)
    waiting = waiting_of(placed)
    walked = [
        eq_class for eq_class, _ in Walk(waiting, lambda eq_class, _: eq_class.signature != closed)
    ]
    in_order = [eq_class for eq_class, _ in sorted(placed, key=lambda pair: pair[1])]
    assert walked == [eq_class for eq_class in in_order if eq_class.signature != closed]


@given(waiting_jobs, st.integers(0, 19))
def test_a_queue_that_is_closed_is_not_walked_on(jobs: list[tuple[int, int]], last: int) -> None:
    """Who comes behind the last is not even asked for, and counts as not passed."""
    placed = sorted(standing(jobs), key=lambda pair: pair[1])
    asked: list[Position] = []

    def ask(eq_class: EquivalenceClass, position: Position) -> bool:
        asked.append(position)
        return True

    walk = Walk(waiting_of(placed), ask, is_closed=lambda queue: len(asked) > last)
    assert list(walk) == placed[: last + 1]
    assert asked == [position for _, position in placed[: last + 1]]


@given(waiting_jobs)
def test_jobs_may_leave_while_the_walk_goes_on(jobs: list[tuple[int, int]]) -> None:
    waiting = waiting_of(standing(jobs))
    for eq_class, first in Walk(waiting, lambda _, __: True):
        waiting.remove(eq_class, first)
    assert len(waiting) == 0


# ----- between queues, by shares

PARENT = (-1, 0, 0, 1, 1, 2)
"""0 the cluster; 1 and 2 below it; 3 and 4 in 1, 5 in 2."""


def plainly(jobs: list[Placed], share_of: dict[int, float], grows: float) -> list[str]:
    """The order by looking at all that is left, from the top down, before every single step."""
    left, order = list(jobs), []
    shares = dict(share_of)

    def best(node: int) -> tuple[object, ...]:
        below = [pair for pair in left if node in path(pair[0].queue)]
        return (min(p.key[:1] for _, p in below), shares[node], next_of(node)[1])

    def next_of(node: int) -> Placed:
        own = [pair for pair in left if pair[0].queue == node]
        if own:
            return min(own, key=lambda pair: pair[1])
        above_jobs = {above for eq_class, _ in left for above in path(eq_class.queue)}
        children = [each for each in sorted(above_jobs) if each and PARENT[each] == node]
        return next_of(min(children, key=best))

    while left:
        eq_class, first = next_of(0)
        left = [pair for pair in left if pair[1] != first]
        order.append(first.job)
        for above in path(eq_class.queue):
            shares[above] += grows
    return order


def path(node: int) -> list[int]:
    return [] if node < 0 else [node, *path(PARENT[node])]


@given(
    st.lists(
        st.tuples(st.sampled_from((3, 4, 5)), st.integers(0, 1), st.integers(0, 1)), max_size=12
    ),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.sampled_from((0.0, 1.0)),
)
def test_a_fair_walk_goes_to_the_queue_with_the_smallest_share_at_every_step(
    jobs: list[tuple[int, int, int]], shares: list[int], grows: float
) -> None:
    placed = [
        (EquivalenceClass(queue, signature, 0), Position((-priority, seq), seq, f"j{seq}"))
        for seq, (queue, signature, priority) in enumerate(jobs)
    ]
    waiting, share_of = waiting_of(placed), dict(enumerate(map(float, shares)))
    walked = []
    held = dict(share_of)
    for eq_class, position in Walk(waiting, lambda _, __: True, PARENT, held.__getitem__, 1):
        walked.append(position.job)
        for above in path(eq_class.queue):
            held[above] += grows
    assert walked == plainly(placed, share_of, grows)


# ----- keys


def key(
    order: tuple[OrderKey, ...], order_factors: OrderFactors, **rules: object
) -> tuple[float, ...]:
    return Order(Policy(order=order, **rules)).key(order_factors)  # type: ignore[arg-type]  # rules by name


SHORT = OrderFactors(200, 0, 0.0, gpus=8, attained_gpu_s=100.0, done_s=50.0, expected_s=60.0)
LONG = OrderFactors(200, 1, 0.0, gpus=1, attained_gpu_s=10.0, done_s=0.0, expected_s=1000.0)
UNKNOWN = OrderFactors(200, 2, 0.0, gpus=2)


@pytest.mark.parametrize(
    ("order", "first"),
    [
        ("remaining", [SHORT, LONG, UNKNOWN]),
        ("remaining_service", [SHORT, LONG, UNKNOWN]),
        ("attained", [UNKNOWN, LONG, SHORT]),
        ("smallest", [LONG, UNKNOWN, SHORT]),
        ("arrival", [SHORT, LONG, UNKNOWN]),
    ],
)
def test_a_key_says_who_goes_first(order: OrderKey, first: list[OrderFactors]) -> None:
    assert sorted(first, key=lambda order_factors: key((order,), order_factors)) == first


def test_remaining_service_counts_gpus() -> None:
    wide = OrderFactors(200, 0, 0.0, gpus=64, expected_s=100.0)
    narrow = OrderFactors(200, 1, 0.0, gpus=1, expected_s=600.0)
    assert key(("remaining",), wide) < key(("remaining",), narrow)
    assert key(("remaining_service",), narrow) < key(("remaining_service",), wide)


def test_levels_make_services_alike() -> None:
    keys = [
        key(
            ("attained",),
            OrderFactors(0, 0, 0.0, 1, attained_gpu_s=gpu_s),
            attained_levels=(100.0,),
        )
        for gpu_s in (0.0, 99.0, 100.0, 5000.0)
    ]
    assert keys == [(0,), (0,), (1,), (1,)]


def test_waiting_for_long_enough_outweighs_a_class() -> None:
    old, new = OrderFactors(100, 0, 0.0, 1), OrderFactors(200, 1, 86_400.0, 1)
    assert key(("priority",), new) < key(("priority",), old)
    assert key(("priority",), old, age_per_day=101.0) < key(("priority",), new, age_per_day=101.0)


def test_a_run_time_that_nobody_knows_goes_last() -> None:
    assert key(("remaining",), UNKNOWN) == (inf,)


def test_by_stretch_short_jobs_go_first_and_long_ones_are_not_passed_for_ever() -> None:
    order = Order(Policy(order=("stretch",), stretch=10.0))
    order.cluster_gpus = 8.0
    long = order.key(OrderFactors(200, 0, 0.0, gpus=8, expected_s=1000.0))
    short = [
        order.key(OrderFactors(200, n, at_s, gpus=8, expected_s=10.0))
        for n, at_s in enumerate((0.0, 9_000.0, 9_901.0), 1)
    ]
    assert long == (10_000.0,)
    assert short == [(100.0,), (9_100.0,), (10_001.0,)]


def test_by_stretch_jobs_of_unknown_run_time_go_by_arrival() -> None:
    order = Order(Policy(order=("stretch",)))
    wide, narrow = OrderFactors(200, 0, 5.0, gpus=64), OrderFactors(200, 1, 6.0, gpus=1)
    assert order.key(wide) < order.key(narrow)


def test_a_run_time_that_nobody_knows_goes_last_also_without_gpus() -> None:
    """No number times infinity, which has no place in any order."""
    assert key(("remaining_service",), OrderFactors(200, 2, 0.0, gpus=0)) == (inf,)


def test_the_columns_of_a_queue_go_with_its_jobs_in_their_order() -> None:
    waiting = WaitingJobs()
    wide, narrow = EquivalenceClass(1, 7, 100, span_s=9.0), EquivalenceClass(1, 8, 300)
    waiting.add(wide, Position((2.0,), 0, "a"))
    waiting.add(narrow, Position((1.0,), 1, "b"))
    waiting.add(wide, Position((3.0,), 2, "c"))
    assert list(waiting.columns_of(1).signature) == [8, 7, 7]
    assert list(waiting.columns_of(1).span_s) == [inf, 9.0, 9.0]
    waiting.remove(wide, Position((2.0,), 0, "a"))
    assert list(waiting.columns_of(1).priority) == [300, 100]
