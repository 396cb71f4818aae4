"""The rule by which requests go to replicas: never without room, never farther without a reason."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from random import Random
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from gantree.routing.choice import (
    Candidate,
    Choice,
    Reason,
    choose,
    closeness,
    session_order,
)

PLACES = [
    ("s0", "s0/l0", "n0"),
    ("s0", "s0/l0", "n1"),
    ("s0", "s0/l1", "n2"),
    ("s1", "s1/l2", "n3"),
    (),
]
CALLERS = [*PLACES, ("s0", "s0/l1"), ("s1",), ("s9",)]
BUSY = {0: (0, 0, 1, 2, 5, 9, 30), 1: (0, 0, 1), 4: (0, 1, 3, 4), 32: (0, 2, 5, 31, 32)}
"""Requests in work, by concurrency."""
CASES = 60
"""Of one example."""


class Case(NamedTuple):
    """Replicas in any state, and a request."""

    table: list[Candidate]
    caller: tuple[str, ...]
    preferred: list[str]
    turn: int


def _candidate(draw: Random, number: int) -> Candidate:
    concurrency = draw.choice(sorted(BUSY))
    return Candidate(
        name=f"chat.{number}_1",
        place=draw.choice(PLACES),
        ready=draw.random() < 0.85,
        draining=draw.random() < 0.15,
        in_flight=draw.choice(BUSY[concurrency]),
        concurrency=concurrency,
        speed=draw.choice([1.0, 1.0, 0.5, 0.3]),
    )


def cases(seed: int) -> Iterator[Case]:
    """Some cases; how many replicas there are, and which are preferred, are drawn too."""
    draw = Random(seed)
    for _ in range(CASES):
        table = [_candidate(draw, number) for number in range(draw.randrange(8))]
        names = [f"chat.{number}_1" for number in range(9)]
        preferred = draw.sample(names, draw.choice([0, 0, 1, 3]))
        yield Case(table, draw.choice(CALLERS), preferred, draw.randrange(2**32))


SEEDS = st.integers(0, 2**32)


def _usable(each: Candidate) -> bool:
    return each.ready and not each.draining


def _roomy(each: Candidate) -> bool:
    return _usable(each) and not 0 < each.concurrency <= each.in_flight


def _load(each: Candidate) -> float:
    return (each.in_flight + 1) / each.speed


def _limit(table: list[Candidate]) -> float:
    return 2 * min(map(_load, filter(_roomy, table)), default=0.0) + 4


@given(SEEDS)
def test_a_request_goes_to_nobody_who_is_unready_draining_or_full_and_to_somebody_if_one_has_room(
    seed: int,
) -> None:
    for table, caller, preferred, turn in cases(seed):
        chosen = choose(table, caller, preferred, turn)
        roomy = {each.name for each in table if _roomy(each)}
        if roomy:
            assert chosen.replica in roomy
        else:
            waits = Reason.NO_ROOM if any(map(_usable, table)) else Reason.NOT_READY
            assert chosen == Choice(None, waits)


@given(SEEDS)
def test_a_request_goes_farther_than_needed_only_for_the_reason_that_it_is_given(seed: int) -> None:
    for table, caller, preferred, turn in cases(seed):
        chosen = choose(table, caller, preferred, turn)
        if chosen.replica is None:
            continue
        taken = next(each for each in table if each.name == chosen.replica)
        assert _load(taken) <= _limit(table)
        if chosen.reason is Reason.AFFINITY:
            assert chosen.replica in preferred
            continue
        near = closeness(taken.place, caller)
        closer = [each for each in table if _usable(each) and closeness(each.place, caller) > near]
        assert all(not _roomy(each) or _load(each) > _limit(table) for each in closer)
        expected = Reason.LOAD if any(map(_roomy, closer)) else Reason.FULL
        assert chosen.reason is (expected if closer else Reason.CLOSEST)
        alike = [each for each in table if closeness(each.place, caller) == near]
        assert _load(taken) == min(map(_load, filter(_roomy, alike)))


@given(SEEDS)
def test_a_preferred_replica_gets_the_request_unless_it_is_full_or_overloaded(seed: int) -> None:
    for table, caller, preferred, turn in cases(seed):
        able = {each.name for each in table if _roomy(each) and _load(each) <= _limit(table)}
        wanted = [name for name in preferred if name in able]
        chosen = choose(table, caller, preferred, turn)
        assert (chosen.reason is Reason.AFFINITY) == bool(wanted)
        if wanted:
            assert chosen.replica == wanted[0]


def test_idle_replicas_that_are_alike_take_turns() -> None:
    table = [Candidate(f"chat.{number}_1") for number in range(4)]
    counts = Counter(choose(table, turn=turn).replica for turn in range(1000))
    assert len(counts) == 4
    assert min(counts.values()) > 200


def test_a_replica_that_is_half_as_fast_gets_half_as_many_requests() -> None:
    table = [Candidate("fast"), Candidate("slow", speed=0.5)]
    for turn in range(90):
        name = choose(table, turn=turn).replica
        table = [replace(each, in_flight=each.in_flight + (each.name == name)) for each in table]
    assert [each.in_flight for each in table] == [60, 30]


@given(SEEDS, st.text(max_size=12))
def test_sessions_stay_where_they_are_when_another_replica_goes(seed: int, session: str) -> None:
    for table, caller, _, _ in islice(cases(seed), 10):
        order = session_order(table, caller, session)
        assert sorted(order) == sorted(each.name for each in table if _usable(each))
        places = {each.name: each.place for each in table}
        near = [closeness(places[name], caller) for name in order]
        assert near == sorted(near, reverse=True)
        for gone in order[1:]:
            left = [each for each in table if each.name != gone]
            assert session_order(left, caller, session)[0] == order[0]


def test_sessions_are_spread_evenly_over_replicas() -> None:
    table = [Candidate(f"chat.{number}_1") for number in range(4)]
    counts = Counter(session_order(table, (), f"user-{number}")[0] for number in range(2000))
    assert min(counts.values()) > 400
