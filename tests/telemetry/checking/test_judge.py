"""Who is named by the figures of a check: tables of what was planted and what comes out."""

import pytest

from gantree.telemetry.checking.figures import COMPUTE, GANG, GPUS, MEMBER, PAIR, Figure
from gantree.telemetry.checking.judge import CheckedMember, Verdict, judge
from gantree.telemetry.checking.rounds import rounds


def members(count: int, *, leaves: int = 1, nics: tuple[str, ...] = ()) -> list[CheckedMember]:
    """Members n0, n1, ... in leaves l0, l1, ... in turn of two."""
    return [
        CheckedMember(
            f"n{number}", (0, 1, 2, 3), nics, (("leaf", f"l{number // 2 % leaves}"), ("node", f"n{number}"))
        )
        for number in range(count)
    ]  # fmt: skip


def pairs(count: int, rates: dict[tuple[int, int], float], expected: float | None) -> list[Figure]:
    """All pairs at 10 GB/s but these."""
    return [
        Figure(PAIR, pair, rates.get(pair, 10.0), expected) for each in rounds(count) for pair in each
    ]  # fmt: skip


def of_member(bad: int, count: int, rate: float) -> dict[tuple[int, int], float]:
    return {(min(bad, o), max(bad, o)): rate for o in range(count) if o != bad}


def nodes(verdict: Verdict) -> list[str | None]:
    return [fault.node for fault in verdict.faults]


@pytest.mark.parametrize("expected", [None, 11.0])
@pytest.mark.parametrize("count", [3, 4, 8, 20])
def test_a_member_that_is_short_with_all_others_is_named(
    count: int, expected: float | None
) -> None:
    figures = pairs(count, of_member(1, count, 2.0), expected)
    assert nodes(judge(members(count), figures)) == ["n1"]


@pytest.mark.parametrize("expected", [None, 11.0])
def test_nobody_is_named_where_all_is_well(expected: float | None) -> None:
    verdict = judge(
        members(4), [*pairs(4, {}, expected), Figure(GANG, (0, 1, 2, 3), 9.0, expected)]
    )
    assert verdict == Verdict((), (), hung=False)


def test_two_members_name_nobody_but_say_that_they_are_short() -> None:
    verdict = judge(members(2), pairs(2, {(0, 1): 2.0}, 10.0))
    assert verdict.faults == ()
    assert verdict.short == ("n0-n1: 2 GB/s of 10 expected",)


def test_one_short_pair_names_neither_of_its_members() -> None:
    verdict = judge(members(4), pairs(4, {(0, 1): 1.0}, 10.0))
    assert verdict.faults == ()
    assert verdict.short == ("n0-n1: 1 GB/s of 10 expected",)


def test_without_a_price_one_slow_pair_is_taken_for_noise() -> None:
    assert judge(members(4), pairs(4, {(0, 1): 1.0}, None)) == Verdict((), (), hung=False)


def test_where_all_are_short_of_the_price_nobody_is_named() -> None:
    all_slow = {pair: 4.0 for each in rounds(4) for pair in each}
    verdict = judge(members(4), pairs(4, all_slow, 10.0))
    assert verdict.faults == ()
    assert len(verdict.short) == 6


def test_a_member_short_beside_its_peers_but_not_of_the_price_is_well() -> None:
    assert judge(members(4), pairs(4, of_member(1, 4, 7.5), 10.0)).faults == ()


def test_the_only_nic_of_a_member_is_named_as_a_link() -> None:
    (fault,) = judge(members(4, nics=("mlx5_0",)), pairs(4, of_member(2, 4, 2.0), 10.0)).faults
    assert (fault.node, fault.link) == (None, ("nic", "n2/mlx5_0"))
    assert fault.share == pytest.approx(0.2)


def test_up_links_that_all_pairs_across_are_short_of_are_named_once() -> None:
    """Members 0, 1 in l0, 2, 3 in l1, 4, 5 in l2: l1 is joined to the others at a fifth."""
    across = {
        (a, b): 2.0 for a in range(6) for b in range(a + 1, 6) if (a // 2 == 1) != (b // 2 == 1)
    }
    verdict = judge(members(6, leaves=3), pairs(6, across, 10.0))
    assert [fault.link for fault in verdict.faults] == [("leaf", "l1")]
    assert nodes(verdict) == [None]


def test_a_member_that_is_short_inside_is_named_and_its_pairs_blame_nobody_else() -> None:
    inside = [Figure(MEMBER, (n,), 100.0 if n == 3 else 300.0, 320.0) for n in range(4)]
    figures = [*inside, *pairs(4, of_member(3, 4, 3.0), 10.0)]
    (fault,) = judge(members(4), figures).faults
    assert (fault.node, fault.gpu) == ("n3", None)


def test_the_gpu_is_named_where_its_pairs_are_short() -> None:
    slow = {pair: 50.0 for each in rounds(4) for pair in each if 2 in pair}
    gpus = [
        Figure(GPUS, (3,), slow.get(pair, 200.0), 210.0, pair) for each in rounds(4) for pair in each
    ]  # fmt: skip
    inside = [Figure(MEMBER, (n,), 100.0 if n == 3 else 300.0, 320.0) for n in range(4)]
    (fault,) = judge(members(4), [*inside, *gpus]).faults
    assert (fault.node, fault.gpu) == ("n3", 2)


def test_a_gpu_that_computes_slowly_is_named() -> None:
    compute = [Figure(COMPUTE, (n,), 400.0 if n == 2 else 650.0, None, (0,)) for n in range(3)]
    (fault,) = judge(members(3), compute).faults
    assert (fault.node, fault.gpu) == ("n2", 0)


def test_a_pair_that_does_not_end_counts_as_nothing_sent() -> None:
    figures = [
        Figure(PAIR, each.members, None if 1 in each.members else 10.0, 11.0)
        for each in pairs(4, {}, 11.0)
    ]
    verdict = judge(members(4), figures)
    assert nodes(verdict) == ["n1"]
    assert verdict.hung


@pytest.mark.parametrize("count", range(12))
def test_rounds_pair_everybody_with_everybody_once(count: int) -> None:
    met = [pair for each in rounds(count, most=99) for pair in each]
    assert sorted(met) == [(a, b) for a in range(count) for b in range(a + 1, count)]
    assert all(len({n for pair in each for n in pair}) == 2 * len(each) for each in rounds(count))
