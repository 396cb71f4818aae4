"""Dealing a gang out over the fewest places, evenly or full, against plain enumeration."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.placement.counting.few_nodes import few_places

Room = tuple[list[int], int]
"""(capacities, need)."""


@st.composite
def rooms(draw: st.DrawFn) -> Room:
    capacity = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7).filter(sum))
    return capacity, draw(st.integers(1, sum(capacity)))


def fewest(capacity: list[int], need: int) -> int:
    """The fewest places that hold so much, by trying all sets of them."""
    sizes = range(1, len(capacity) + 1)
    return next(k for k in sizes if any(sum(some) >= need for some in combinations(capacity, k)))


def least_most(capacity: list[int], need: int, places: int) -> int:
    """The least that the fullest of so many places can have."""
    return min(
        level
        for level in range(1, need + 1)
        if any(
            sum(min(here, level) for here in some) >= need
            for some in combinations(capacity, places)
        )
    )


@given(rooms(), st.booleans())
def test_the_parts_fit_add_up_and_use_as_few_places_as_can_be(room: Room, even: bool) -> None:
    capacity, need = room
    parts = few_places(capacity, capacity, need, even=even)
    assert sum(units for _, units in parts) == need
    assert all(0 < units <= capacity[place] for place, units in parts)
    assert [place for place, _ in parts] == sorted({place for place, _ in parts})
    assert len(parts) == fewest(capacity, need)


@given(rooms())
def test_no_place_gets_more_than_it_must_where_members_are_dealt_out_evenly(room: Room) -> None:
    capacity, need = room
    parts = few_places(capacity, capacity, need, even=True)
    assert max(units for _, units in parts) == least_most(capacity, need, len(parts))


@pytest.mark.parametrize(
    ("capacity", "free", "need", "even", "parts"),
    [
        pytest.param([15, 8, 8, 1], [15, 8, 8, 1], 16, True, [(1, 8), (2, 8)], id="8 + 8"),
        pytest.param([8, 8, 4], [8, 8, 4], 10, True, [(0, 5), (1, 5)], id="5 + 5, not 6 + 4"),
        pytest.param([8, 5, 5], [8, 5, 5], 10, True, [(1, 5), (2, 5)], id="the tight ones"),
        pytest.param([8, 8, 2], [8, 8, 2], 10, False, [(0, 8), (2, 2)], id="full, then what is left"),
        pytest.param([3, 2, 4], [3, 2, 4], 2, True, [(1, 2)], id="one place, the tightest"),
    ],
)  # fmt: skip
def test_parts_are_as_the_table_says(
    capacity: list[int], free: list[int], need: int, even: bool, parts: list[tuple[int, int]]
) -> None:
    assert few_places(capacity, free, need, even=even) == parts
