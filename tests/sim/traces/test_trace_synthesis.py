"""Synthetic traces: the marginals of the distribution within the bounds that `sim.traces.synthesis` states."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob, open_trace, write_trace
from gantree.formats.workload import Workload
from gantree.model.errors import BadInput
from gantree.sim.traces.distribution import distribution_of, quantiles, rates
from gantree.sim.traces.sizes import size_class
from gantree.sim.traces.synthesis import at, synthesize
from gantree.sim.workload import gpus_of

PHILLY = Path(__file__).parents[4] / "shared/data/traces/philly_pollux/philly_jobs.csv.gz"
HOUR_S = 3600
WEEK_S = 168 * HOUR_S


def made(jobs: int, seed: int, weeks: float = 4) -> list[TraceJob]:
    """Small jobs by day, large ones at all times; heavy tails."""
    random = Random(seed)
    rows = []
    for number in range(jobs):
        large = random.random() < 0.1
        hour = (
            random.randrange(168)
            if large
            else random.choice(range(9, 18)) + 24 * random.randrange(5)
        )
        submit_s = random.randrange(int(weeks)) * WEEK_S + (hour + random.random()) * HOUR_S
        shape = (4, 8) if large else (1, random.choice([0, 1, 1, 1, 2]))
        queue = random.choice(["a", "b"]) if large else "c"
        duration_s = random.lognormvariate(9 if large else 6, 2)
        rows.append(TraceJob(f"j{number}", submit_s, duration_s, *shape, queue=queue, user="u"))
    return sorted(rows, key=lambda job: job.submit_s)


def request(job: TraceJob) -> tuple[int, int, str]:
    return job.members, job.gpus_per_member, job.queue


def check_marginals(given_: Sequence[TraceJob], drawn: Sequence[TraceJob]) -> None:
    """Shares of requests, and durations of size classes, are within the stated bounds."""
    shares, count = Counter(map(request, given_)), len(drawn)
    for what, jobs in Counter(map(request, drawn)).items():
        share = shares[what] / len(given_)
        assert abs(jobs / count - share) <= 4 * sqrt(share * (1 - share) / count)
    for bound in {size_class(gpus_of(job)) for job in drawn}:
        old, new = (
            sorted(job.duration_s for job in jobs if size_class(gpus_of(job)) == bound)
            for jobs in (given_, drawn)
        )
        distance = max(
            abs(bisect_right(old, x) / len(old) - bisect_right(new, x) / len(new)) for x in new
        )
        assert distance <= 0.01 + 2 / sqrt(len(new)) + 1 / len(old)


@pytest.mark.parametrize("seed", range(3))
def test_sizes_queues_and_durations_keep_their_distribution(tmp_path: Path, seed: int) -> None:
    jobs = made(4000, seed)
    write_trace(jobs, tmp_path / "t.csv")
    workload = distribution_of(open_trace(tmp_path / "t.csv"))
    drawn = list(synthesize(workload, seed, jobs=6000))
    assert len(drawn) == 6000
    assert [job.submit_s for job in drawn] == sorted(job.submit_s for job in drawn)
    assert {job.user for job in drawn} == {""}
    check_marginals(jobs, drawn)


def test_arrivals_keep_the_hours_of_the_week(tmp_path: Path) -> None:
    write_trace(made(4000, 0), tmp_path / "t.csv")
    workload = distribution_of(open_trace(tmp_path / "t.csv"))
    drawn = list(synthesize(workload, 1, jobs=40_000, span_s=8 * WEEK_S))
    by_hour = Counter(int(job.submit_s // HOUR_S) % 168 for job in drawn)
    total = sum(workload.arrivals)
    for hour, rate in enumerate(workload.arrivals):
        expected = 40_000 * rate / total
        assert abs(by_hour[hour] - expected) <= 4 * sqrt(expected) + 1
    at_night = sum(jobs for hour, jobs in by_hour.items() if hour % 24 < 8)
    assert at_night < 0.05 * 40_000


def test_a_seed_gives_equal_jobs_and_another_one_others() -> None:
    workload = Workload(10, 100.0, ((TraceJob("", 0, 0, 1, 1), 1.0),), ((1, ((0, 1), (100, 9))),))
    drawn = [list(synthesize(workload, seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(drawn[0]) == 10
    assert len(list(synthesize(workload, 1, span_s=50.0))) == 5


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=300), st.floats(0, 1))
def test_a_quantile_lies_between_its_neighbours(values: list[float], share: float) -> None:
    points = quantiles(values)
    assert [seconds for _, seconds in points] == sorted(seconds for _, seconds in points)
    assert min(values) - 1e-3 <= at(points, share) <= max(values) * (1 + 1e-9) + 1e-3
    low, high = (max(0, min(100, int(share * 100) + more)) for more in (0, 1))
    if share < 0.99:
        assert dict(points)[low] - 1e-3 <= at(points, share) * (1 + 1e-9) + 1e-3
        assert at(points, share) <= dict(points)[high] * (1 + 1e-9) + 1e-3


def test_rates_count_an_hour_with_the_part_that_was_seen() -> None:
    by_hour = dict.fromkeys(range(168 + 84), 2)
    seen = rates(by_hour, 0.0, (168 + 84) * HOUR_S)
    assert seen == (2.0,) * 168
    half_a_day = rates({0: 5, 11: 1}, 0.0, 12 * HOUR_S)
    assert half_a_day == (1.0,) * 24
    assert rates({0: 1, 25: 3}, 1800.0, 26 * HOUR_S)[:3] == (round(1 / 1.5, 3), 1.5, 0.0)


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    durations = ((1.0, ((0.0, 1.0), (100.0, 9.0))),)
    large = Workload(10, 100.0, ((TraceJob("", 0, 0, 1, 8), 1.0),), durations)
    with pytest.raises(BadInput, match="a request has 8 GPUs; allowed: at most 1"):
        synthesize(large, 1)
    small = ((TraceJob("", 0, 0, 1, 1), 1.0),)
    with pytest.raises(BadInput, match="no hour of the span"):
        synthesize(Workload(10, 100.0, small, durations, (0.0,) * 23 + (1.0,)), 1)
    write_trace([TraceJob("a", 0, 1, 1, 1)], tmp_path / "t.csv")
    with pytest.raises(BadInput, match="at two times at least"):
        distribution_of(open_trace(tmp_path / "t.csv"))


@pytest.mark.skipif(not PHILLY.exists(), reason="the public Philly trace is not at hand")
def test_philly_keeps_its_marginals() -> None:
    trace = open_trace(PHILLY)
    check_marginals(list(trace), list(synthesize(distribution_of(trace), 7, jobs=20_000)))
