"""Batches of gangs that count their own kind."""

import pytest

from gantree.executors.kubernetes.constraints.pod_turns import PATIENCE_S, PodTurns
from gantree.executors.kubernetes.workloads.keys import Key

WEB = "web"


def key(name: str) -> Key:
    return "default", name, ""


def acquired(turns: PodTurns, names: str, limit: int, now: float = 0.0) -> str:
    """Of these gangs, those that may be handed in; the others give up what they were called for."""
    found = ""
    for name in names:
        if turns.acquire(key(name), {WEB: limit}, now):
            found += name
        else:
            turns.release(key(name))
    return found


def woken(turns: PodTurns, now: float = 0.0) -> str:
    return "".join(name for _, name, _ in turns.pop_woken(now))


@pytest.mark.parametrize(
    ("limit", "first"), [(0, "a"), (1, "a"), (2, "ab"), (3, "abc"), (9, "abcde")]
)
def test_a_batch_is_as_large_as_its_limit(limit: int, first: str) -> None:
    turns = PodTurns()
    assert acquired(turns, "abcde", limit) == first
    assert not woken(turns)


def test_the_next_batch_begins_when_all_of_the_first_are_placed() -> None:
    turns = PodTurns()
    assert acquired(turns, "abcdef", 2) == "ab"
    turns.leave(key("a"))
    assert not woken(turns)
    turns.leave(key("b"))
    assert woken(turns) == "c"
    assert acquired(turns, "xc", 2) == "c"
    assert woken(turns) == "d"
    assert acquired(turns, "d", 2) == "d"
    assert not woken(turns)


def test_the_smallest_limit_of_a_batch_counts_for_all() -> None:
    turns = PodTurns()
    assert acquired(turns, "a", 5) == "a"
    assert acquired(turns, "b", 2) == "b"
    assert acquired(turns, "c", 5) == "c"
    assert acquired(turns, "d", 5) == ""


def test_one_that_is_called_and_cannot_use_it_lets_the_next_try() -> None:
    turns = PodTurns()
    assert acquired(turns, "abc", 1) == "a"
    turns.leave(key("a"))
    assert woken(turns) == "b"
    turns.release(key("b"))
    assert woken(turns) == "c"


def test_without_a_limit_all_that_wait_are_woken() -> None:
    turns = PodTurns()
    assert acquired(turns, "abcd", 1) == "a"
    turns.leave(key("a"))
    assert woken(turns) == "b"
    assert turns.acquire(key("b"), {}, 0.0)
    assert woken(turns) == "cd"
    assert not turns.waits(key("c"))


def test_a_gang_that_waits_at_one_selector_holds_no_other() -> None:
    turns = PodTurns()
    assert turns.acquire(key("a"), {"x": 1}, 0.0)
    assert not turns.acquire(key("b"), {"y": 1, "x": 1}, 0.0)
    turns.release(key("b"))
    assert turns.waits(key("b"))
    assert turns.acquire(key("c"), {"y": 1}, 0.0)
    turns.leave(key("a"))
    assert woken(turns) == "b"
    assert not turns.acquire(key("b"), {"y": 1, "x": 1}, 0.0)


def test_a_batch_that_is_not_placed_lets_the_next_one_try_after_a_while() -> None:
    turns = PodTurns()
    assert acquired(turns, "abc", 1) == "a"
    assert woken(turns, PATIENCE_S - 1) == ""
    assert woken(turns, PATIENCE_S) == "b"
    assert acquired(turns, "b", 1, PATIENCE_S) == "b"
    assert woken(turns, PATIENCE_S + 1) == ""
    turns.leave(key("a"))
    assert woken(turns, PATIENCE_S + 1) == ""


def test_nothing_is_kept_of_gangs_that_are_gone() -> None:
    turns = PodTurns()
    acquired(turns, "abcd", 2)
    for name in "dabc":
        turns.leave(key(name))
    assert not turns._turns
    assert not turns._names
