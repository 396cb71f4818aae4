"""Muri's experiment replayed: the published rows, the rules of overheads by hand, how their nodes are filled."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput, NotFound
from gantree.sim.muri.nodes import GPUS, GPUS_OF_NODE, NODES, counted, yarn
from gantree.sim.muri.orders import ORDERS
from gantree.sim.muri.published import PUBLISHED
from gantree.sim.muri.replay import Replay, Rule, replay
from gantree.sim.muri.trace import MuriJob, read_muri

DIRECTORY = Path(__file__).resolve().parents[3] / "shared/data/traces/philly_muri"


def job(name: str, arrival_s: float, gpus: int, work_s: float, overhead_s: float = 10) -> MuriJob:
    """A job of iterations of one second."""
    return MuriJob(name, arrival_s, gpus, "bert", work_s, 1.0, overhead_s)


def run(*jobs: MuriJob, order: str = "SRTF", rule: Rule = "every event") -> Replay:
    return replay(jobs, ORDERS[order](), rule)


@pytest.mark.figures
@pytest.mark.skipif(not DIRECTORY.exists(), reason="Muri's traces are not beside this checkout")
@pytest.mark.parametrize(
    ("policy", "trace"),
    [
        ("SRTF", "trace3"),
        ("SRSF", "trace3"),
        ("Tiresias-L", "trace3"),
        ("Tiresias-L", "trace4"),
    ],
)
def test_the_published_rows_come_out_to_the_second(policy: str, trace: str) -> None:
    ours = replay(read_muri(DIRECTORY, trace), ORDERS[policy]())
    published = PUBLISHED[policy, trace]
    assert ours.mean_jct_s == pytest.approx(published.mean_jct_s, abs=1)
    assert ours.makespan_s == pytest.approx(published.makespan_s, abs=1)
    assert ours.p99_jct_s == pytest.approx(published.p99_jct_s, abs=1)


def test_each_event_costs_every_running_job_its_start_overhead() -> None:
    ours = run(job("a", 0, 8, 100), job("b", 40, 8, 1000))
    # b's arrival finds 30 s of a's work done in 40 s; a's last stretch costs nothing, and b's first one does
    assert ours.jct_s == (110, 70 + 1000 - (70 - 10))


def test_under_the_other_rule_only_starts_cost() -> None:
    ours = run(job("a", 0, 8, 100), job("b", 40, 8, 1000), rule="start")
    assert ours.jct_s == (110, 1010)


def test_a_job_that_was_preempted_pays_for_its_second_start() -> None:
    ours = run(job("long", 0, 64, 100), job("short", 50, 64, 20), rule="start")
    assert ours.jct_s == (100 + 10 + 30 + 10, 30)
    assert ours.preemptions == 1


def test_time_and_service_differ_where_the_larger_job_is_the_shorter() -> None:
    large, small = job("large", 0, 64, 100, 0), job("small", 0, 1, 200, 0)
    assert run(large, small, order="SRTF").jct_s == (100, 300)
    assert run(large, small, order="SRSF").jct_s == (300, 200)


def test_attained_service_lets_a_new_job_pass_one_that_went_down() -> None:
    ours = run(job("old", 0, 64, 1000, 0), job("new", 100, 64, 10, 0), order="Tiresias-L")
    assert ours.jct_s == (1010, 10)


def test_the_new_job_waits_while_the_old_one_is_still_in_the_top_queue() -> None:
    ours = run(job("old", 0, 64, 40, 0), job("new", 5, 64, 10, 0), order="Tiresias-L")
    assert ours.jct_s == (40, 45)


@given(st.lists(st.integers(1, GPUS), max_size=30))
def test_yarn_never_hands_out_a_gpu_twice_and_counting_takes_at_least_the_first(
    gpus_of_job: list[int],
) -> None:
    taken = sum(gpus for gpus, has in zip(gpus_of_job, yarn(gpus_of_job), strict=True) if has)
    assert taken <= GPUS
    by_count = counted(gpus_of_job)
    free_gpus = GPUS
    for gpus, has in zip(gpus_of_job, by_count, strict=True):
        assert has == (gpus <= free_gpus)
        free_gpus -= gpus if has else 0


@given(st.lists(st.integers(1, GPUS), max_size=30))
def test_yarn_refuses_only_jobs_that_find_no_nodes(gpus_of_job: list[int]) -> None:
    free_gpus_of_node = [GPUS_OF_NODE] * NODES
    for gpus, has in zip(gpus_of_job, yarn(gpus_of_job), strict=True):
        parts = [GPUS_OF_NODE] * (gpus // GPUS_OF_NODE) + [gpus % GPUS_OF_NODE]
        after = list(free_gpus_of_node)
        fits = True
        for part in parts:
            node = next((n for n in range(NODES) if part and after[n] >= part), None)
            fits = fits and (part == 0 or node is not None)
            if part and node is not None:
                after[node] -= part
        assert has == fits
        if has:
            free_gpus_of_node = after


def test_a_directory_without_the_traces_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"start_overhead_s\.csv"):
        read_muri(tmp_path, "trace3")


def test_a_file_with_other_columns_is_refused(tmp_path: Path) -> None:
    (tmp_path / "start_overhead_s.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadInput, match="no column gpus"):
        read_muri(tmp_path, "trace3")
