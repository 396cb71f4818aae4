"""The event heap: order, and taking back what was foretold."""

from hypothesis import given
from hypothesis import strategies as st

from gantree.model.events import TimePassed
from gantree.sim.heap import EventHeap


def popped(heap: EventHeap) -> list[str]:
    """The ids of all that is left, in the order of the heap."""
    ids = []
    while heap.next_moment() is not None:
        ids.append(heap.pop().id)
    return ids


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.booleans())))
def test_events_come_by_time_then_priority_then_as_foretold_without_those_taken_back(
    wishes: list[tuple[int, int, bool]],
) -> None:
    heap = EventHeap()
    numbers = [
        heap.push(TimePassed(id=str(index), observed_at=at), priority)
        for index, (at, priority, _) in enumerate(wishes)
    ]
    for number, (_, _, kept) in zip(numbers, wishes, strict=True):
        if not kept:
            heap.retract(number)
    expected = sorted(
        (at, priority, index) for index, (at, priority, kept) in enumerate(wishes) if kept
    )
    assert popped(heap) == [str(index) for _, _, index in expected]


def test_an_empty_heap_has_no_next_moment() -> None:
    assert EventHeap().next_moment() is None


def test_the_next_moment_is_that_of_an_event_which_still_stands() -> None:
    heap = EventHeap()
    first = heap.push(TimePassed(id="first", observed_at=1.0))
    heap.push(TimePassed(id="second", observed_at=2.0))
    heap.retract(first)
    assert heap.next_moment() == 2.0
