"""How many go first, counted, against a walk that goes through them all."""

from collections.abc import Sequence
from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.policy.order import Position
from gantree.policy.queue_position import count_ahead
from gantree.policy.waiting_jobs import EquivalenceClass, QueueEntry, WaitingJobs
from gantree.policy.walk import ShareOfQueue, Walk
from support.examples import examples

SMALL = st.integers(0, 2)
TREES = st.integers(1, 7).flatmap(
    lambda size: st.tuples(*(st.integers(0, max(0, node - 1)) for node in range(size)))
)
"""The parent of each queue, the root's first; children have larger numbers."""


def waiting_of(jobs: Sequence[tuple[int, tuple[int, ...]]]) -> WaitingJobs:
    """(queue, numbers of its key) of each job, in order of arrival."""
    waiting = WaitingJobs()
    for seq, (queue, key) in enumerate(jobs):
        waiting.add(
            EquivalenceClass(queue, 0, 0), Position((*map(float, key), seq), seq, f"j{seq}")
        )
    return waiting


def counted(
    waiting: WaitingJobs,
    parents: Sequence[int] = (),
    share: ShareOfQueue | None = None,
    before: int = 0,
) -> list[int]:
    """How many are counted before each job, in the order of a walk."""
    walk = Walk(waiting, lambda _, __: True, parents, share, before)
    return [
        count_ahead(waiting, QueueEntry(position, eq_class), parents, share, before)
        for eq_class, position in walk
    ]


@settings(max_examples=examples(600), deadline=None)
@given(TREES, st.data())
def test_as_many_go_first_as_a_fair_walk_comes_to_before(
    parents: tuple[int, ...], data: st.DataObject
) -> None:
    queues = st.integers(0, len(parents) - 1)
    jobs = data.draw(st.lists(st.tuples(queues, st.tuples(SMALL, SMALL)), max_size=25))
    shares = data.draw(st.lists(SMALL, min_size=len(parents), max_size=len(parents)))
    before = data.draw(st.integers(0, 2))
    found = counted(waiting_of(jobs), parents, lambda queue: float(shares[queue]), before)
    assert found == list(range(len(jobs)))


@given(st.lists(st.tuples(SMALL, st.tuples(SMALL)), max_size=25))
def test_without_shares_as_many_go_first_as_stand_before_in_any_queue(
    jobs: list[tuple[int, tuple[int]]],
) -> None:
    assert counted(waiting_of(jobs)) == list(range(len(jobs)))


def test_whoever_is_kept_waiting_by_one_of_his_own_branch_comes_after_those_who_are_not() -> None:
    """Queues 1 and 2 have one share; in 1, queue 3 goes before 4 by its own, though its job came last of all."""
    parents, shares = (0, 0, 0, 1, 1), (0.0, 1.0, 1.0, 1.0, 2.0)
    waiting = waiting_of([(4, (0,)), (2, (0,)), (2, (0,)), (3, (0,))])
    walk = Walk(waiting, lambda _, __: True, parents, shares.__getitem__, 1)
    assert [position.job for _, position in islice(walk, 4)] == ["j1", "j2", "j3", "j0"]
    assert counted(waiting, parents, shares.__getitem__, 1) == [0, 1, 2, 3]
