"""Which replica has seen the beginning of a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from gantree.routing.prefixes import BLOCK, MOST_BLOCKS, PrefixTable, prefix_keys

A, B, C = (letter * BLOCK for letter in (b"a", b"b", b"c"))


def test_the_longest_known_beginning_decides() -> None:
    known = PrefixTable()
    known.record(prefix_keys(A + B), "one")
    known.record(prefix_keys(A + C), "two")
    assert known.replica(prefix_keys(A + B + b"more")) == "one"
    assert known.replica(prefix_keys(A + C + B)) == "two"
    assert known.replica(prefix_keys(A + A)) == "two", "whoever was sent the shorter one last"
    assert known.replica(prefix_keys(B + A)) is None


def test_a_block_counts_only_if_it_is_whole_and_behind_the_same_text() -> None:
    assert prefix_keys(A[:-1]) == []
    assert prefix_keys(A + b"x") == prefix_keys(A)
    assert prefix_keys(B + A)[1] != prefix_keys(C + A)[1]
    assert len(prefix_keys(A * (MOST_BLOCKS + 5))) == MOST_BLOCKS


@given(st.lists(st.integers(0, 30), max_size=200))
def test_what_is_known_has_a_bound_and_what_is_used_stays(keys: list[int]) -> None:
    known = PrefixTable(most_keys=10)
    for key in keys:
        known.record([1000], "kept")
        known.record([key], "other")
        assert known.replica([1000]) == "kept"
        assert len(known) <= 20
