"""Turns on shared GPUs: who computes when, from the rules alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.core.lifecycle.time_quantum import (
    Gpu,
    TimeSlicedGang,
    TurnChange,
    next_end,
    next_turns,
)
from support.examples import examples

QUANTUM_S = 60.0


def on(*gpus: int) -> frozenset[Gpu]:
    return frozenset(("n0", gpu) for gpu in gpus)


def computing(job: str, *gpus: int, since: float = 0.0, **fields: bool) -> TimeSlicedGang:
    return TimeSlicedGang(job, ord(job[0]), on(*gpus), since, since + QUANTUM_S, **fields)


def waiting(job: str, *gpus: int, since: float = 0.0, **fields: bool) -> TimeSlicedGang:
    return replace(computing(job, *gpus, since=since, **fields), suspended=True)


def test_alone_on_its_gpu_a_gang_goes_on_for_ever() -> None:
    gangs = [computing("a", 0), computing("b", 1), computing("c", 2, 3)]
    assert next_turns(gangs, 1e6) == TurnChange((), ())
    assert next_end(gangs, 0.0) is None


def test_a_turn_is_left_in_peace_until_it_ends_and_then_goes_to_whoever_waited_longest() -> None:
    gangs = [computing("a", 0, since=100), waiting("b", 0, since=90), waiting("c", 0, since=80)]
    assert next_turns(gangs, 159.9) == TurnChange((), ())
    assert next_end(gangs, 100.0) == 160.0
    assert next_turns(gangs, 160.0) == TurnChange(("a",), ("c",))


def test_a_newcomer_waits_for_the_turn_of_who_is_there() -> None:
    gangs = [computing("a", 0, since=100), computing("b", 0, since=130, new=True)]
    assert next_turns(gangs, 130.0) == TurnChange(("b",), ())


def test_a_newcomer_computes_at_once_where_the_turn_of_who_is_there_ended_long_ago() -> None:
    gangs = [computing("a", 0), computing("b", 0, since=500, new=True)]
    assert next_turns(gangs, 500.0) == TurnChange(("a",), ("b",))


def test_a_newcomer_does_not_push_in_before_one_that_waits() -> None:
    gangs = [waiting("b", 0, since=90), computing("a", 0, since=100, new=True)]
    assert next_turns(gangs, 100.0) == TurnChange(("a",), ("b",))


def test_a_gang_on_two_gpus_computes_on_both_or_on_none() -> None:
    gangs = [computing("a", 0, since=0), computing("b", 1, since=30), waiting("g", 0, 1, since=1)]
    assert next_turns(gangs, 60.0) == TurnChange((), ())  # a goes on: nobody could take over yet
    assert next_end(gangs, 60.0) == 90.0
    assert next_turns(gangs, 90.0) == TurnChange(("a", "b"), ("g",))


def test_a_gang_that_waits_for_two_gpus_keeps_the_first_from_those_behind_it() -> None:
    gangs = [
        computing("a", 0, since=0),
        computing("b", 1, since=30),
        waiting("g", 0, 1, since=1),
        waiting("s", 0, since=2),
    ]
    assert next_turns(gangs, 60.0) == TurnChange((), ())
    assert next_turns(gangs, 90.0) == TurnChange(("a", "b"), ("g",))


def test_gangs_that_are_no_rivals_compute_side_by_side() -> None:
    gangs = [computing("a", 0, 1), waiting("b", 0, since=1), waiting("c", 1, since=2)]
    assert next_turns(gangs, 60.0) == TurnChange(("a",), ("b", "c"))


def test_a_gang_that_saves_has_the_gpu_until_it_is_gone() -> None:
    gangs = [waiting("a", 0, leaving=True), computing("b", 0), waiting("c", 0)]
    assert next_turns(gangs, 1.0) == TurnChange(("b",), ("a",))
    saving = [computing("a", 0, leaving=True), waiting("b", 0), waiting("c", 0)]
    assert next_turns(saving, 1e6) == TurnChange((), ())
    assert next_end(saving, 1.0) is None


def test_rivals_that_all_compute_are_told_apart_and_the_first_gets_a_turn() -> None:
    gangs = [computing("a", 0), computing("b", 0)]
    assert next_turns(gangs, 500.0) == TurnChange(("b",), ("a",))


# ----- any number of gangs, over time


@dataclass
class Worked:
    """What came of a run: seconds each gang computed, and the longest it waited in one go."""

    computed_s: dict[str, float]
    longest_wait_s: dict[str, float]


def applied(gang: TimeSlicedGang, change: TurnChange, now: float) -> TimeSlicedGang:
    if gang.job in change.suspend:
        return replace(gang, suspended=True, new=False, since=now)
    if gang.job in change.resume:
        ends_at = now + QUANTUM_S
        return replace(gang, suspended=False, new=False, since=now, turn_ends_at=ends_at)
    return gang


def decided(gangs: Sequence[TimeSlicedGang], now: float) -> list[TimeSlicedGang]:
    """The sharers after a decision, which is checked for what must hold of each."""
    change = next_turns(gangs, now)
    after = [applied(each, change, now) for each in gangs]
    assert next_turns(after, now) == TurnChange((), ()), "it decides otherwise when asked again"
    computes = [each for each in after if not each.suspended]
    for one, other in combinations(computes, 2):
        assert one.leaving or other.leaving or not one.rivals([other]), f"{one} beside {other}"
    for each in after:
        rivals = [other for other in after if other is not each and other.rivals([each])]
        assert not each.suspended or rivals, f"{each} waits for nobody"
        assert not (each.suspended and each.leaving)
    return after


def run(gangs: Sequence[TimeSlicedGang], until_s: float) -> Worked:
    """Let them take turns from 0 on, deciding only when `next_end` says so."""
    names = [each.job for each in gangs]
    worked = Worked(dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0))
    now, state = 0.0, decided([replace(each, new=True) for each in gangs], 0.0)
    while now < until_s:
        then = next_end(state, now)
        then = until_s if then is None else then
        for each in state:
            if each.suspended:
                waited_s = then - each.since
                worked.longest_wait_s[each.job] = max(worked.longest_wait_s[each.job], waited_s)
            else:
                worked.computed_s[each.job] += then - now
        state = [replace(each, new=False) for each in state]
        state, now = decided(state, then), then
    return worked


GANGS = st.lists(
    st.frozensets(st.integers(0, 4), min_size=1, max_size=3), min_size=1, max_size=7
).map(lambda sets: [computing(chr(97 + n), *sorted(gpus)) for n, gpus in enumerate(sets)])


@given(st.integers(1, 6), st.integers(1, 8))
def test_all_who_share_one_gpu_compute_equally_long(gangs: int, rounds: int) -> None:
    worked = run([computing(chr(97 + n), 0) for n in range(gangs)], rounds * gangs * QUANTUM_S)
    assert set(worked.computed_s.values()) == {rounds * QUANTUM_S} or gangs == 1
    assert max(worked.longest_wait_s.values()) == (gangs - 1) * QUANTUM_S


@given(GANGS)
def test_no_gang_starves_whoever_shares_what(gangs: list[TimeSlicedGang]) -> None:
    worked = run(gangs, 40 * QUANTUM_S)
    for each in gangs:
        assert worked.computed_s[each.job] >= 2 * QUANTUM_S
        # whoever is before it in the line has one turn each, each at most a quantum after the one before
        assert worked.longest_wait_s[each.job] <= 2 * len(gangs) * QUANTUM_S


STATES = st.builds(
    TimeSlicedGang,
    job=st.just("?"),
    seq=st.just(0),
    gpus=st.frozensets(st.tuples(st.just("n0"), st.integers(0, 3)), min_size=1, max_size=3),
    since=st.sampled_from([0.0, 30.0, 60.0, 100.0]),
    turn_ends_at=st.sampled_from([60.0, 99.0, 100.0, 101.0, 160.0]),
    suspended=st.booleans(),
    leaving=st.booleans(),
    new=st.booleans(),
).map(lambda each: replace(each, new=each.new and not each.suspended and each.since == 100.0))


@settings(max_examples=examples(200))
@given(st.lists(STATES, max_size=7))
def test_from_any_state_a_decision_is_sound_and_final(gangs: list[TimeSlicedGang]) -> None:
    """Also from states that only a change of policy could bring about, such as rivals that all compute."""
    decided([replace(each, job=f"j{n}", seq=n) for n, each in enumerate(gangs)], 100.0)


@given(
    st.lists(STATES, max_size=6).flatmap(
        lambda each: st.tuples(st.just(each), st.permutations(range(len(each))))
    )
)
def test_it_does_not_matter_in_which_order_gangs_are_named(
    drawn: tuple[list[TimeSlicedGang], list[int]],
) -> None:
    named = [replace(each, job=f"j{n}", seq=n) for n, each in enumerate(drawn[0])]
    one, two = next_turns(named, 100.0), next_turns([named[n] for n in drawn[1]], 100.0)
    assert (set(one.suspend), set(one.resume)) == (set(two.suspend), set(two.resume))
