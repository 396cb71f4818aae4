"""How many replicas an autoscaler asks for: the HPA's rules, and what differs from them."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.services import Autoscaling, ReplicaCount, ScaleSteps, ScaleTarget
from gantree.services.autoscaler import Recommendation, of_shared, recommend, shared_need
from gantree.services.load import Load, Measured, Replicas
from gantree.services.scaling_history import History
from support.examples import examples
from support.hpa import Hpa

CONCURRENCY = ScaleTarget("concurrency", 8)
TTFT = ScaleTarget("ttft_p99", 0.5)
RATE = ScaleTarget("rate", 10)
AT_ONCE = Autoscaling((CONCURRENCY,), down=ScaleSteps())
"""Without windows."""


class Run:
    """A service whose replicas are ready at once unless it is told how many are."""

    def __init__(
        self, scaling: Autoscaling, wanted: int, least: int = 1, most: int = 100, spare: int = 0
    ) -> None:
        self.scaling, self.wanted = scaling, wanted
        self.bounds = ReplicaCount(least, most, 0, spare)
        self.history: History | None = None
        self.now = 0.0
        self.found = Recommendation(wanted, "")

    def sample(
        self,
        *values: float | None,
        rate: float | None = 1.0,
        present: float | None = 1.0,
        ready: int | None = None,
        age_s: float = 0.0,
        predicted: float = 0.0,
    ) -> int:
        self.now += self.scaling.every_s

        def measured(value: float | None) -> Measured | None:
            return None if value is None else Measured(value, self.now - age_s)

        load = Load(tuple(map(measured, values)), measured(rate), measured(present))
        replicas = Replicas(self.wanted, self.wanted if ready is None else ready)
        self.found, self.history = recommend(
            self.scaling, self.bounds, replicas, load, self.history, self.now, predicted
        )
        self.wanted = self.found.replicas
        return self.wanted


@pytest.mark.parametrize(
    ("current", "each", "target", "desired"),
    [
        (1, 200, 100, 2),  # twice the target: twice the replicas
        (4, 50, 100, 2),  # half of it: half of them
        (10, 109, 100, 10),  # within the tolerance of a tenth
        (10, 91, 100, 10),
        (10, 111, 100, 12),
        (3, 89, 100, 3),  # rounded up
        (5, 20, 100, 1),
    ],
)
def test_examples_of_the_documentation_of_the_hpa(
    current: int, each: float, target: float, desired: int
) -> None:
    assert of_shared(each * current, target, current, 0.1) == desired


@st.composite
def scalings(draw: st.DrawFn) -> Autoscaling:
    window = st.sampled_from([0.0, 15.0, 60.0, 300.0])
    up, down = (
        ScaleSteps(
            draw(window), draw(st.sampled_from([0, 1, 3])), draw(st.sampled_from([15.0, 60.0]))
        )
        for _ in range(2)
    )
    return Autoscaling((RATE,), 15.0, draw(st.sampled_from([0.0, 0.1, 0.5])), up, down)


@settings(max_examples=examples(200), deadline=None)
@given(scalings(), st.lists(st.floats(0, 300), min_size=1, max_size=60), st.integers(1, 4))
def test_one_shared_target_gives_what_the_hpa_gives(
    scaling: Autoscaling, totals: list[float], least: int
) -> None:
    up, down = scaling.up, scaling.down
    hpa = Hpa(
        10, least, 20, scaling.tolerance, up.stabilise_s, down.stabilise_s,
        up.at_most, up.per_s, down.at_most, down.per_s,
    )  # fmt: skip
    run = Run(scaling, least, least, 20)
    number = least
    for total in totals:
        number = hpa.sync(run.now + 15.0, number, total)
        assert run.sample(total) == number


def test_a_step_of_the_load_is_answered_within_one_sample() -> None:
    for target, before, after in [
        (CONCURRENCY, 8.0, 40.0),
        (ScaleTarget("queue", 4), 2.0, 9.0),
        (RATE, 10.0, 31.0),
        (ScaleTarget("tokens_per_s", 1000), 900, 4000),
        (ScaleTarget("gpu_use", 0.6), 0.5, 1.0),
        (ScaleTarget("latency_p99", 1.0), 0.9, 4.0),
        (TTFT, 0.5, 2.0),
        (ScaleTarget("itl_p99", 0.05), 0.04, 0.2),
        (ScaleTarget("", 10, "sum(x)"), 9, 30),
        (ScaleTarget("", 10, "max(x)", per_replica=False), 9, 30),
    ]:
        run = Run(Autoscaling((target,)), 1)
        assert [run.sample(before, rate=5.0) for _ in range(3)] == [1, 1, 1]
        assert run.sample(after, rate=20.0) > 1, target


def test_the_largest_of_several_targets_counts_and_is_the_reason() -> None:
    run = Run(Autoscaling((CONCURRENCY, RATE)), 1)
    assert run.sample(9.0, 35.0) == 4
    assert run.found.reason == "rate 35 on 1 replica, target 10"


def test_a_value_that_is_missing_or_older_than_two_samples_never_lowers_the_number() -> None:
    two = replace(AT_ONCE, targets=(CONCURRENCY, RATE))
    run = Run(two, 4)
    assert run.sample(1.0, None) == 4
    assert run.found.reason == "rate is not known"
    assert run.sample(1.0, 1.0, age_s=31.0) == 4
    assert run.sample(50.0, None) == 7
    assert run.sample(50.0, None, age_s=31.0) == 7
    assert Run(replace(two, targets=(RATE, RATE)), 4).sample(1.0, 1.0, age_s=30.0) == 1


def test_replicas_on_their_way_count_so_the_same_load_makes_no_second_step() -> None:
    run = Run(AT_ONCE, 1)
    assert run.sample(24.0, rate=6.0) == 3
    assert run.sample(60.0, rate=6.0, ready=1) == 3, "what waits meanwhile is not more load"
    assert run.sample(60.0, rate=9.0, ready=1) == 8, "the load has risen"
    assert run.sample(90.0, rate=9.0, ready=8) == 12, "all are ready and it is too much"


def test_a_step_that_at_most_has_cut_goes_on_while_replicas_are_on_their_way() -> None:
    run = Run(replace(AT_ONCE, up=ScaleSteps(at_most=4, per_s=30.0)), 2)
    numbers = [run.sample(80.0 + 20 * n, rate=6.0, ready=2) for n in range(5)]
    assert numbers == [6, 6, 10, 10, 10]
    assert run.found.kept_by == ""


def test_times_to_answer_are_not_acted_on_while_replicas_start() -> None:
    run = Run(Autoscaling((TTFT,)), 2)
    assert run.sample(5.0) == 4
    assert run.sample(5.0, ready=2, rate=50.0) == 4
    assert run.sample(5.0) == 8


def test_gradual_values_go_down_by_one_and_only_if_one_fewer_would_do() -> None:
    run = Run(Autoscaling((TTFT,), down=ScaleSteps()), 4)
    assert [run.sample(0.3) for _ in range(4)] == [3, 2, 2, 2], "0.3 s with 2 would be 0.6 s with 1"


def test_after_a_step_up_the_number_falls_only_once_the_load_has_left_that_of_the_step() -> None:
    run = Run(AT_ONCE, 1)
    assert run.sample(24.0, rate=10.0) == 3
    for rate in (11.5, 9.5, 10.4, 9.2, 10.0, 9.6):
        assert run.sample(4.0, rate=rate) == 3
        assert run.found.kept_by == "the load is the one that needed this number"
    assert [run.sample(4.0, rate=5.0) for _ in range(6)][-1] == 1


def test_where_the_number_fell_too_far_it_goes_back_to_what_it_was_at_most() -> None:
    run = Run(AT_ONCE, 6)
    assert run.sample(15.0, rate=10.0) == 2
    assert run.sample(400.0, rate=10.0) == 6
    assert run.sample(15.0, rate=10.0) == 6
    again = Run(AT_ONCE, 6)
    assert again.sample(15.0, rate=10.0) == 2
    assert again.sample(400.0, rate=30.0) == 50, "it is another load"


def test_without_a_known_rate_values_that_follow_the_replicas_lower_nothing() -> None:
    assert Run(AT_ONCE, 4).sample(1.0, rate=None) == 4
    assert Run(replace(AT_ONCE, targets=(ScaleTarget("gpu_use", 0.5),)), 4).sample(
        0.4, rate=None
    ) == 1  # fmt: skip


def test_to_zero_after_a_time_without_requests_and_back_at_the_first_that_waits() -> None:
    run = Run(replace(AT_ONCE, to_zero_s=60.0), 3, least=0)
    assert run.sample(0.0, rate=0.0, present=0.0) == 1, "one stays meanwhile"
    assert [run.sample(0.0, rate=0.0, present=0.0) for _ in range(5)] == [1, 1, 1, 0, 0]
    assert run.sample(1.0, rate=0.0, present=1.0) == 1
    assert run.found.reason == "a request waits and there is no replica"
    unknown = Run(replace(AT_ONCE, to_zero_s=60.0), 3, least=0)
    assert [unknown.sample(None, rate=None, present=None) for _ in range(9)][-1] == 3
    never = Run(replace(AT_ONCE, to_zero_s=60.0), 3, least=1)
    assert [never.sample(0.0, rate=0.0, present=0.0) for _ in range(9)][-1] == 1


def test_spare_replicas_are_added_to_what_the_load_needs() -> None:
    run = Run(AT_ONCE, 3, spare=2)
    assert run.sample(8.0) == 3
    assert run.sample(9.5, rate=2.0) == 4
    idle = Run(replace(AT_ONCE, to_zero_s=30.0), 3, least=0, spare=1)
    assert [idle.sample(0.0, rate=0.0, present=0.0) for _ in range(4)] == [2, 2, 1, 1]


def test_min_and_max_hold() -> None:
    assert Run(AT_ONCE, 3, 2, 5).sample(1000.0) == 5
    assert Run(AT_ONCE, 3, 2, 5).sample(0.1) == 2


def test_what_holds_the_number_is_said_of_an_idle_service_too() -> None:
    run = Run(AT_ONCE, wanted=3, least=3, most=4)
    run.sample(0.0, rate=0.0, present=0.0)
    assert (run.found.reason, run.found.kept_by) == (
        "concurrency 0 over 3 replicas, target 8",
        "min",
    )
    run.sample(800.0)
    assert (run.found.replicas, run.found.kept_by) == (4, "max")


def test_a_change_by_hand_begins_the_windows_again() -> None:
    run = Run(Autoscaling((RATE,)), 2)
    run.sample(20.0)
    run.wanted = 8
    assert [run.sample(20.0) for _ in range(21)] == [8] * 20 + [2]


def test_a_prediction_raises_the_number_and_keeps_it_from_zero() -> None:
    run = Run(replace(AT_ONCE, to_zero_s=15.0), 1, least=0)
    assert run.sample(8.0, predicted=3.2) == 4
    assert run.found.reason == "the load of this hour in earlier weeks"
    assert [run.sample(0.0, rate=0.0, present=0.0, predicted=0.5) for _ in range(9)][-1] == 1


def test_what_shared_values_ask_for_is_known_unrounded() -> None:
    targets = (CONCURRENCY, TTFT, RATE)
    known = (Measured(12.0, 0.0), Measured(9.0, 0.0), None)
    assert shared_need(targets, Load(known)) == 1.5
    assert shared_need(targets, Load((None, Measured(9.0, 0.0), None))) is None
