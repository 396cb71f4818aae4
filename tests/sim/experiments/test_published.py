"""published: its judgement, Pollux' profiles, split of batches and Tiresias by hand, and the case of ASTRA-sim."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.policy.reader import PRESETS
from gantree.model.errors import BadInput, NotFound
from gantree.model.jobs import Job, Role, Shape
from gantree.model.orders import MemberLaunch, StartGang
from gantree.sim.experiments.experiment import Bench, Judgement, Serial
from gantree.sim.experiments.published import contention, muri, pollux, published
from gantree.sim.experiments.published.rows import Row, against
from gantree.sim.muri.orders import ORDERS, LeastAttained
from gantree.sim.muri.published import PUBLISHED
from gantree.sim.muri.replay import replay as replay_muri
from gantree.sim.muri.trace import MuriJob
from gantree.sim.pollux import ours
from gantree.sim.pollux.profiles import EPOCHS, Profile
from gantree.sim.pollux.tiresias import START_S, replay
from gantree.sim.pollux.workload import PolluxJob, packed, read_workload, split

PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,32,1.0,0.0
1,64,2.0,0.0
24,32,1.5,0.5
24,64,2.5,0.5
33,32,1.9,0.9
33,64,2.9,0.9
4,32,1.0,0.1
4,64,2.0,0.1
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
4,6,32,2.5,1.5
4,6,64,3.5,1.5
"""


@pytest.fixture
def bert(tmp_path: Path) -> Profile:
    """An application of two epochs of 100 and 200 units; with batches of 128 half of a gain is noise."""
    directory = tmp_path / "traces" / "bert"
    directory.mkdir(parents=True)
    (directory / "placements.csv").write_text(PLACEMENTS)
    (directory / "scalability.csv").write_text(SCALABILITY)
    for batch in (64, 256):
        rows = "progress,iteration,metric,grad_sqr,grad_var\n100,9,0,1,1\n300,9,0,1,1\n"
        (directory / f"validation-{batch}.csv").write_text(rows)
    return Profile(directory)


def row(mean_jct_s: float, p99_jct_s: float) -> Row:
    return Row("p", True, mean_jct_s, p99_jct_s, 1.0, 0)


@pytest.mark.parametrize(
    ("mean_s", "p99_s", "judgement"),
    [
        (90, 900, Judgement.HOLDS),
        (100.05, 1000.5, Judgement.HOLDS),
        (90, 1010, Judgement.PARTLY),
        (101, 990, Judgement.PARTLY),
        (101, 1010, Judgement.MISSED),
    ],
)
def test_ours_holds_where_mean_and_p99_are_no_worse_to_a_thousandth(
    mean_s: float, p99_s: float, judgement: Judgement
) -> None:
    found = against("c", row(mean_s, p99_s), row(100, 1000), "because")
    assert found.judgement is judgement
    assert found.why == ("" if judgement is Judgement.HOLDS else "because")


def test_times_are_those_of_the_placement_turned_round(bert: Profile) -> None:
    assert bert.times((4, 2), 32) == (1.5, 0.5)
    assert bert.times((2, 4), 48) == (2.0, 0.5)


def test_times_of_a_placement_that_was_not_measured_lie_between_its_neighbours(
    bert: Profile,
) -> None:
    """Six replicas take 1.7 s on two nodes, the mean of two placements, and 2.5 s on four; three lie in the middle."""
    assert list(bert.times((1, 1, 4), 32)) == pytest.approx([2.1, 1.1])


def test_times_far_from_everything_measured_are_refused(bert: Profile) -> None:
    with pytest.raises(BadInput, match="5 replicas on 2 nodes"):
        bert.times((1, 4), 32)


def test_twice_the_batch_needs_less_than_half_as_many_iterations_more(bert: Profile) -> None:
    """Gain of a batch k times the first, with as much noise as gradient: 2 / (1/k + 1)."""
    assert bert.iterations(64) == [100.0, 200.0]
    assert bert.iterations(128) == [pytest.approx(75.0), pytest.approx(150.0)]


@given(st.integers(64, 256), st.integers(1, 16))
def test_local_batches_fit_a_gpu_and_together_the_largest_batch(batch: int, replicas: int) -> None:
    class Sizes:
        init_batch, max_batch, max_local_batch = 64, 256, 64

    local, accumulated = split(Sizes, batch, replicas)  # type: ignore[arg-type]  # it asks for sizes alone
    assert 0 < local <= 64
    assert local * (accumulated + 1) * replicas <= 256
    assert local * (accumulated + 1) * replicas >= min(batch, 256) - replicas * (accumulated + 1)
    assert accumulated >= (replicas == 1 and batch > 64)


def test_one_replica_with_more_than_the_first_batch_accumulates_though_it_fits(
    bert: Profile,
) -> None:
    bert.max_local_batch = 256
    assert split(bert, 64, 1) == (64, 0)
    assert split(bert, 128, 1) == (64, 1)
    assert split(bert, 128, 2) == (64, 0)


@given(st.integers(1, 64))
def test_packed_is_on_as_few_nodes_as_can_be(replicas: int) -> None:
    assert sum(packed(replicas)) == replicas
    assert len(packed(replicas)) == -(-replicas // 4)


def test_a_job_alone_starts_at_the_next_minute_and_pays_for_its_start(bert: Profile) -> None:
    """450 iterations of 1 s (300 with twice the batch), from 60 s on, 30 s after the start."""
    alone = PolluxJob("a", 10.0, 1, bert, 32, 0)
    assert sum(alone.iterations) == pytest.approx(450.0)
    found = replay([alone])
    assert found.jct_s == (60 - 10 + START_S + 450,)
    assert found.preemptions == 0


def test_gantree_alone_takes_as_long_as_their_simulator(bert: Profile) -> None:
    alone = PolluxJob("a", 10.0, 4, bert, 32, 0)
    (theirs,), (mine,) = replay([alone]).jct_s, ours.run([alone], PRESETS["gantree"]).jct_s
    assert mine == pytest.approx(theirs, abs=1.0)


def test_a_scattered_job_is_as_slow_as_it_was_measured(bert: Profile) -> None:
    """Six replicas on (4, 1, 1) take 2.1 s an iteration; on (4, 2), as few nodes as can be, 1.5 s."""
    job = PolluxJob("a", 0.0, 6, bert, 32, 0)
    nodes = ("n9", "n10", "n9", "n9", "n9", "n2")
    pace = ours.MeasuredPace([job], ours.cluster_of_pollux())
    assert ours.placement_of(launches(*nodes)[::-1]) == (4, 1, 1)
    for scattered in (nodes, tuple(reversed(nodes))):
        order = StartGang(
            id="o", epoch=1, job="ta", attempt=1, world_size=6, members=launches(*scattered)
        )
        assert pace.start(order, Job("ta", (Role("worker", 6, Shape(gpus=1)),))) == pytest.approx(
            1.5 / 2.1
        )


def launches(*nodes: str) -> tuple[MemberLaunch, ...]:
    return tuple(
        MemberLaunch("worker", rank, node, rank, rank, 1, (0,), (), ())
        for rank, node in enumerate(nodes)
    )


def test_a_workload_names_the_line_that_is_wrong(bert: Profile, tmp_path: Path) -> None:
    (tmp_path / "workloads").mkdir()
    path = tmp_path / "workloads" / "workload-1.csv"
    path.write_text("name,time,application,num_replicas,batch_size\na,1,bert,1,64\nb,1,bert,x,64\n")
    with pytest.raises(BadInput, match=r"workload-1\.csv: line 3"):
        read_workload(tmp_path, 1, {"bert": bert})


def test_another_directory_is_refused_with_the_file_that_is_missing(tmp_path: Path) -> None:
    first = next(iter(EPOCHS))
    with pytest.raises(NotFound, match=rf"adaptdl/simulator/traces/{first}/placements\.csv"):
        pollux.runs(Bench(Serial(), options={"data": str(tmp_path)}), tmp_path)


def test_without_a_directory_pollux_is_open_and_its_tables_are_left_out() -> None:
    replayed = {policy: PUBLISHED[policy, muri.TRACE] for policy in ORDERS}
    rows = [
        *(Row(name, False, p.mean_jct_s, p.p99_jct_s, p.makespan_s, 0) for name, p in replayed.items()),
        *(Row(name, True, 185_022, 4_189_699, 1.0, 0) for name in muri.OURS),
    ]  # fmt: skip
    found = published.outcome({"every event": rows, "start": rows}, None)
    judged = {verdict.claim: verdict.judgement for verdict in found.verdicts}
    assert judged[pollux.NOT_RUN.claim] is Judgement.OPEN
    assert not any(table.title.startswith("Pollux") for table in found.tables)
    assert {verdict.judgement for verdict in found.verdicts if "Muri" in verdict.claim} == {
        Judgement.HOLDS
    }


def muri_job(name: str, arrival_s: float, gpus: int, work_s: float) -> MuriJob:
    return MuriJob(name, arrival_s, gpus, "bert", work_s, 1.0, 0.0)


@pytest.mark.parametrize(
    ("by_arrival", "ends_s"), [(False, (1650, 800, 850)), (True, (1275, 1600, 1650))]
)
def test_by_arrival_a_large_job_takes_its_place_back_from_later_ones(
    by_arrival: bool, ends_s: tuple[float, ...]
) -> None:
    """At 475 s all are in the last queue: as published those that run go on, by arrival the first one stops them."""
    jobs = [
        muri_job("large", 0, 64, 1000),
        muri_job("half", 200, 32, 600),
        muri_job("other half", 250, 32, 600),
    ]
    found = replay_muri(jobs, LeastAttained(by_arrival=by_arrival), "start")
    assert [job.arrival_s + jct_s for job, jct_s in zip(jobs, found.jct_s, strict=True)] == [
        *ends_s
    ]


def test_jobs_that_fill_an_up_link_take_their_share_and_others_none_of_it() -> None:
    alone_s, wide_s = contention.seconds(1, 50), contention.seconds(4, 400)
    assert wide_s == pytest.approx(alone_s)
    four_s = contention.seconds(4, 50)
    through_the_link_s = 4 * 14 / 8 * 2**30 / 50e9
    assert four_s == pytest.approx(through_the_link_s, rel=1e-6)


def test_every_case_of_astra_sim_agrees() -> None:
    assert contention.verdict(contention.cases()).judgement is Judgement.HOLDS
