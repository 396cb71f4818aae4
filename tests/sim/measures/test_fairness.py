"""Fair shares and Jain's index: known values, and properties against a plain twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.policy.rules import QueueRule
from gantree.sim.measures.fairness import fair_shares, guarantees_of, jain_index, weights_of

QUEUES = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 4), st.integers(0, 8)), min_size=1, max_size=5
)


@pytest.mark.parametrize(
    ("values", "index"),
    [
        ([], None),
        ([0.0, 0.0], None),
        ([3.0], 1.0),
        ([2.0, 2.0, 2.0], 1.0),
        ([5.0, 0.0, 0.0, 0.0], 0.25),
        ([1.0, 2.0], 0.9),
    ],
)
def test_jains_index_by_hand(values: list[float], index: float | None) -> None:
    assert jain_index(values) == index


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=8), st.floats(0.1, 10))
def test_jains_index_is_between_one_nth_and_one_and_has_no_scale(
    values: list[float], scale: float
) -> None:
    index = jain_index(values)
    assert index is not None
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert jain_index([value * scale for value in values]) == pytest.approx(index)


@given(QUEUES, st.integers(0, 40))
def test_shares_are_those_of_a_level_found_by_halving(
    queues: list[tuple[int, int, int]], capacity: int
) -> None:
    """The twin: each queue has its guarantee, and as much more as weight times one common level gives, up to demand."""
    demand = {f"q{n}": float(each[0]) for n, each in enumerate(queues)}
    weight = {f"q{n}": float(each[1]) for n, each in enumerate(queues)}
    guarantee = {f"q{n}": float(each[2]) for n, each in enumerate(queues)}
    owed = {queue: min(demand[queue], guarantee[queue]) for queue in demand}
    found = fair_shares(float(capacity), demand, weight, guarantee)
    if sum(owed.values()) > capacity:
        assert sum(found.values()) == pytest.approx(capacity)
        assert all(found[queue] <= owed[queue] + 1e-9 for queue in owed)
        return
    low, high = 0.0, 100.0
    for _ in range(60):
        level = (low + high) / 2
        shares = {q: min(demand[q], owed[q] + level * weight[q]) for q in demand}
        low, high = (level, high) if sum(shares.values()) < capacity else (low, level)
    assert found == pytest.approx(shares, abs=1e-6)


def test_weights_multiply_along_the_path_among_siblings() -> None:
    rules = (QueueRule("a", weight=3), QueueRule("a/x", weight=1), QueueRule("a/y", weight=2))
    weights = weights_of(["a/x", "a/y", "b"], rules)
    assert weights == pytest.approx({"a/x": 0.25, "a/y": 0.5, "b": 0.25})


def test_guarantees_are_of_gpus_and_of_the_queue_itself() -> None:
    rules = (QueueRule("a", guarantee={"gpus": 8, "cpus": 5}), QueueRule("b"))
    assert guarantees_of(["a", "b", "c"], rules) == {"a": 8.0, "b": 0.0, "c": 0.0}
