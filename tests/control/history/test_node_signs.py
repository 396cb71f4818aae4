"""How often nodes showed signs, by kind and day, and who is a lemon."""

from typing import Any

import pytest

from gantree.accounting.node_signs import DAY_S, KINDS, LEMON_DAYS, NodeSignCounter
from gantree.model.cluster import LinkId
from gantree.model.facts import Fact, RankSlownessNoted
from gantree.model.site_facts import LinkHealthNoted, NodeHealthNoted, NodeMarked

NIC, LEAF = LinkId("nic", "n1/mlx5_0"), LinkId("leaf", "s0/l0")


def fault(
    at: float, reason: str = "XID 63", node: str = "n1", source: str = "dcgm", **more: Any
) -> Fact:
    return NodeHealthNoted(at=at, node=node, source=source, reason=reason, **more)


def marked(at: float, usable: bool) -> Fact:
    return NodeMarked(at=at, node="n1", usable=usable)


def link(at: float, health: float, which: LinkId = NIC, load: float = 0.0) -> Fact:
    return LinkHealthNoted(at=at, link=which, source="x", health=health, load=load)


def slow(at: float, slowdown: float, rank: int = 3) -> Fact:
    return RankSlownessNoted(at=at, job="a", attempt=1, rank=rank, node="n1", slowdown=slowdown)


CASES: dict[str, tuple[list[Fact], tuple[int, ...], int]] = {
    "nothing": ([fault(1, ""), marked(1, True), link(1, 1.0), slow(1, 1.0)], (), 0),
    "one of each": ([fault(1), marked(1, False), link(1, 0.5), slow(1, 1.3)], (1, 1, 1, 1), 1),
    "what lasts counts once": (
        [fault(1), fault(2, kept="many"), fault(3, forgiven=True), link(4, 0.5), link(5, 0.3)],
        (1, 0, 1, 0), 1,
    ),
    "what comes again counts again": (
        [fault(1), fault(2, ""), fault(3), marked(4, False), marked(5, True), marked(6, False)],
        (2, 2, 0, 0), 1,
    ),
    "sources and ranks count each": (
        [fault(1), fault(1, source="node"), slow(2, 1.3), slow(2, 1.2, rank=4)], (2, 0, 0, 2), 1,
    ),
    "load is no sign": ([link(1, 1.0, load=0.9), link(2, 1.0, LEAF), link(3, 0.5, LEAF)], (), 0),
    "days are counted": (
        [each for day in range(3) for each in (fault(day * DAY_S + 9), fault(day * DAY_S + 99, ""))],
        (3, 0, 0, 0), 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_signs_count_when_they_come(name: str) -> None:
    facts, counts, days = CASES[name]
    found = NodeSignCounter().count(facts)
    assert [tuple(each.count_of_kind[kind] for kind in KINDS) for each in found] == (
        [counts] if counts else []
    )
    assert [len(each.days) for each in found] == ([days] if counts else [])


def test_a_lemon_is_who_shows_signs_on_many_days_and_not_who_shows_many_on_one() -> None:
    burst = [fault(at, f"XID {at}", "n2") for at in range(100)]
    again = [fault(day * DAY_S, f"XID {day}", "n1") for day in range(LEMON_DAYS)]
    first, second = NodeSignCounter().count([*burst, *again])
    assert (first.node, first.is_lemon, first.last_at) == ("n1", True, (LEMON_DAYS - 1) * DAY_S)
    assert (second.node, second.is_lemon, second.count_of_kind["faults"]) == ("n2", False, 100)


def lemon(at: float, reason: str = "signs on 4 of 28 days", **more: Any) -> Fact:
    return NodeHealthNoted(at=at, node="n1", source="lemon", reason=reason, **more)


def repair(at: float, reason: str = "XID 79") -> Fact:
    return NodeHealthNoted(at=at, node="n1", source="repair", reason=reason)


def out_each_day(first: int, last: int) -> list[Fact]:
    """Not usable for a moment on each of these days."""
    days = range(first, last + 1)
    return [marked(day * DAY_S + second, second > 1) for day in days for second in (1, 2)]


FOLLOWING: dict[str, tuple[list[Fact], int]] = {
    "a lemon is no fault": ([lemon(0), lemon(DAY_S, "more"), lemon(2 * DAY_S, "")], 0),
    "a repair is no further fault": ([fault(0), repair(DAY_S), repair(2 * DAY_S, "")], 1),
    "a lemon that is rebooted": ([lemon(0), *out_each_day(0, 5)], 0),
    "a node in repair": ([fault(0), repair(1), *out_each_day(1, 5)], 1),
    "a lemon that stays in use": ([lemon(0, kept="many"), *out_each_day(0, 5)], 6),
    "one that was overruled": ([lemon(0), lemon(1, forgiven=True), *out_each_day(1, 5)], 5),
    "one that is well again": ([lemon(0), *out_each_day(0, 2), lemon(3 * DAY_S, ""),
                                *out_each_day(4, 5)], 2),
    "one that went out for it and is well meanwhile": (
        [lemon(0), marked(1, False), lemon(2, ""), marked(3, False)], 0),
    "other signs of a lemon": ([lemon(0), fault(1), link(DAY_S, 0.5), slow(2 * DAY_S, 1.3)], 3),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWING)
def test_what_follows_from_being_a_lemon_does_not_make_one(name: str) -> None:
    facts, days = FOLLOWING[name]
    assert sum(len(each.days) for each in NodeSignCounter().count(facts)) == days


def test_what_was_in_force_before_the_period_is_known_and_does_not_count() -> None:
    facts = [fault(0), lemon(DAY_S), *out_each_day(3, 8), lemon(9 * DAY_S, ""), fault(9 * DAY_S)]
    assert NodeSignCounter(2 * DAY_S).count(facts) == []
    (counted,) = NodeSignCounter(2 * DAY_S).count([*facts, fault(10 * DAY_S, "XID 64")])
    assert counted.days == {10}


def test_an_operator_overrules_the_days_that_are_known() -> None:
    known = [fault(day * DAY_S, f"XID {day}") for day in range(LEMON_DAYS)]
    overruled = [
        *known,
        lemon(LEMON_DAYS * DAY_S - 9),
        lemon(LEMON_DAYS * DAY_S - 8, forgiven=True),
    ]
    same_day, further = fault(LEMON_DAYS * DAY_S - 7, "PSU"), fault(LEMON_DAYS * DAY_S, "fan")
    for more, has_grown in (([], False), ([same_day], False), ([same_day, further], True)):
        (signs,) = NodeSignCounter().count([*overruled, *more])
        assert (signs.is_lemon, signs.has_grown) == (True, has_grown)
