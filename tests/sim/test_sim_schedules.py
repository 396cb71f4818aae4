"""Small schedules computed by hand: who starts when, who ends when, to the second.

A row of a drawing is a job: id, submission, run time, members x GPUs, and then what should come of it: start,
end, and the last place. Words after a bar are wishes: a priority class, save=<interval>, limit=<seconds>.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gantree.core.scheduler import Decision
from gantree.formats.traces import TraceJob
from gantree.model.errors import BadInput
from gantree.model.events import Event
from gantree.policy.rules import Policy, Preemption
from gantree.sim.cluster import Overheads
from gantree.sim.files import placement_text
from gantree.sim.results import JobRow
from gantree.sim.run import Simulation, simulate
from gantree.testing.builders import cluster

ONE_NODE = cluster(leaves=1, nodes=1, gpus=4)
TWO_NODES = cluster(leaves=1, nodes=2, gpus=4)
NO_PREEMPTION = Policy(preemption=Preemption(by="none"))


def trace_job(row: str) -> TraceJob:
    """Read "a 0 10 1x4 | serving save=30 limit=60"."""
    numbers, _, wishes = row.partition("|")
    name, submit, duration, gang = numbers.split()[:4]
    members, gpus = gang.split("x")
    words: dict[str, Any] = {}
    for wish in wishes.split():
        key, _, value = wish.partition("=")
        field = {"save": "checkpoint_s", "limit": "time_limit_s"}.get(key, "priority")
        words[field] = float(value) if value else key
    return TraceJob(
        job_id=name,
        submit_s=float(submit),
        duration_s=float(duration),
        members=int(members),
        gpus_per_member=int(gpus),
        **words,
    )


def drawn(job: JobRow) -> str:
    """A row as it came out: "a 0 10 n0:0-3", with the outcome where it is not success."""
    times = (job.first_start_s, job.end_s)
    texts = ["-" if time_s is None else f"{time_s:g}" for time_s in times]
    outcome = "" if job.finished else job.outcome
    return " ".join(filter(None, [job.job_id, *texts, placement_text(job), outcome]))


SCHEDULES = {
    "two jobs side by side": (
        TWO_NODES,
        ["a 0 10 1x4", "b 0 5 1x4"],
        ["a 0 10 n0:0-3", "b 0 5 n1:0-3"],
    ),
    "one after the other in order of arrival": (
        ONE_NODE,
        ["a 0 10 1x4", "b 2 5 1x4", "c 3 5 1x4"],
        ["a 0 10 n0:0-3", "b 10 15 n0:0-3", "c 15 20 n0:0-3"],
    ),
    "a gang waits for all of its members' room": (
        TWO_NODES,
        ["a 0 10 1x4", "gang 1 10 2x4", "c 11 2 1x4"],
        ["a 0 10 n0:0-3", "gang 10 20 n0:0-3;n1:0-3", "c 20 22 n0:0-3"],
    ),
    # with 30 s of grace, a is gone by 60 and b by 59
    "a small job starts on room that a waiting gang was promised, if its limit lets it": (
        TWO_NODES,
        ["a 0 10 1x4 | limit=30", "gang 1 10 2x4", "b 2 3 1x4 | limit=27"],
        ["a 0 10 n0:0-3", "gang 10 20 n0:0-3;n1:0-3", "b 2 5 n1:0-3"],
    ),
    "a small job that may run longer waits behind the gang": (
        TWO_NODES,
        ["a 0 10 1x4 | limit=30", "gang 1 10 2x4", "b 2 3 1x4 | limit=29", "c 2 3 1x4"],
        ["a 0 10 n0:0-3", "gang 10 20 n0:0-3;n1:0-3", "b 20 23 n0:0-3", "c 20 23 n1:0-3"],
    ),
    "what ends makes room for what comes in the same moment": (
        ONE_NODE,
        ["a 0 10 1x4", "b 10 5 1x4"],
        ["a 0 10 n0:0-3", "b 10 15 n0:0-3"],
    ),
    "a job of no length ends as it starts": (
        ONE_NODE,
        ["a 3 0 1x4", "b 3 2 1x4"],
        ["a 3 3 n0:0-3", "b 3 5 n0:0-3"],
    ),
    "the time line of the trace is kept, and its order need not be that of arrival": (
        ONE_NODE,
        ["b 1005 1 1x4", "a 1000 10 1x4"],
        ["b 1010 1011 n0:0-3", "a 1000 1010 n0:0-3"],
    ),
    "a higher class goes first among those that wait": (
        ONE_NODE,
        ["a 0 10 1x4", "low 1 5 1x4 | research", "high 2 5 1x4 | serving"],
        ["a 0 10 n0:0-3", "low 15 20 n0:0-3", "high 10 15 n0:0-3"],
    ),
    "what comes in one moment is decided together": (
        ONE_NODE,
        ["low 5 10 1x4 | research", "high 5 5 1x4 | serving"],
        ["low 10 20 n0:0-3", "high 5 10 n0:0-3"],
    ),
    "a time limit ends a job, and a job that ends with its limit is well": (
        ONE_NODE,
        ["a 0 10 1x4 | limit=6", "b 0 10 1x4 | limit=10"],
        ["a 0 6 n0:0-3 timed-out", "b 6 16 n0:0-3"],
    ),
    "a job that can never fit is named and holds up nobody": (
        TWO_NODES,
        ["huge 0 10 3x4", "wide 0 10 1x8", "b 1 2 1x4"],
        ["huge - - pending", "wide - - pending", "b 1 3 n0:0-3"],
    ),
    "an unknown class is rejected": (
        ONE_NODE,
        ["a 0 10 1x4 | urgent", "b 1 2 1x4"],
        ["a - - rejected", "b 1 3 n0:0-3"],
    ),
    "members may share a node": (
        ONE_NODE,
        ["a 0 10 2x2", "b 0 1 1x1"],
        ["a 0 10 n0:0-3", "b 10 11 n0:0"],
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_that_were_computed_by_hand(name: str) -> None:
    site, trace, expected = SCHEDULES[name]
    result = simulate(site, [trace_job(row) for row in trace], NO_PREEMPTION)
    assert [drawn(job) for job in result.jobs] == expected


LOW_SAVES = "low 0 100 1x4 | batch save=30"
LOW = "low 0 100 1x4 | batch"

PREEMPTIONS = {
    "a checkpoint on request keeps all work": (
        Overheads(),
        [LOW_SAVES, "high 50 10 1x4 | serving"],
        ["low 0 110 n0:0-3", "high 50 60 n0:0-3"],
        0.0,
    ),
    "without checkpoints all work is done again": (
        Overheads(),
        [LOW, "high 50 10 1x4 | serving"],
        ["low 0 160 n0:0-3", "high 50 60 n0:0-3"],
        50.0,
    ),
    # 0 placed, 5 works, 35 saved by itself, 50 asked (45 done), 53 saved, 55 gone; 70 placed, 75 works, 130 done
    "starting, saving and stopping take their time": (
        Overheads(start_s=5, stop_s=2, save_s=3),
        [LOW_SAVES, "high 50 10 1x4 | serving"],
        ["low 5 130 n0:0-3", "high 60 70 n0:0-3"],
        10.0,
    ),
    # asked at 50 with 60 s of grace: stopped at 110, gone at 112; the 30 s saved at 35 are kept
    "a save that takes longer than its grace saves nothing": (
        Overheads(start_s=5, stop_s=2, save_s=80),
        [LOW_SAVES, "high 50 10 1x4 | serving"],
        ["low 5 202 n0:0-3", "high 117 127 n0:0-3"],
        82.0,
    ),
    "a gang can be stopped before it has started": (
        Overheads(start_s=20, stop_s=2),
        [LOW_SAVES, "high 10 10 1x4 | serving"],
        ["low 62 162 n0:0-3", "high 32 42 n0:0-3"],
        12.0,
    ),
    "each attempt goes on where the last checkpoint was": (
        Overheads(),
        [LOW_SAVES, "high 50 10 1x4 | serving", "again 80 10 1x4 | serving"],
        ["low 0 120 n0:0-3", "high 50 60 n0:0-3", "again 80 90 n0:0-3"],
        0.0,
    ),
    # stopped at 50 and at 80: 50 s and 20 s are done again
    "without checkpoints each stop costs what was done since the start": (
        Overheads(),
        [LOW, "high 50 10 1x4 | serving", "again 80 10 1x4 | serving"],
        ["low 0 190 n0:0-3", "high 50 60 n0:0-3", "again 80 90 n0:0-3"],
        70.0,
    ),
}


@pytest.mark.parametrize("name", PREEMPTIONS)
def test_preemption_by_hand(name: str) -> None:
    overheads, trace, expected, lost_s = PREEMPTIONS[name]
    rows = [trace_job(row) for row in trace]
    result = simulate(ONE_NODE, rows, Policy(), overheads=overheads)
    assert [drawn(job) for job in result.jobs] == expected
    low = result.jobs[0]
    assert low.gpu_s_lost == 4 * lost_s
    assert low.preemptions == low.attempts - 1 == len(trace) - 1
    assert result.summary()["preemptions"] == len(trace) - 1
    assert result.summary()["gpu_hours_lost"] == round(4 * lost_s / 3600, 6)


def test_time_alone_can_make_room() -> None:
    """Nothing happens at 100; the policy protects a gang for its first 100 s, and the scheduler asks to be woken."""
    rows = [trace_job(LOW_SAVES.replace("100", "1000")), trace_job("high 50 10 1x4 | serving")]
    result = simulate(ONE_NODE, rows, Policy(min_run_s=100))
    assert [drawn(job) for job in result.jobs] == ["low 0 1010 n0:0-3", "high 100 110 n0:0-3"]


def test_a_moment_is_one_batch_that_begins_with_what_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [trace_job(row) for row in ("b 10 1 1x4", "a 0 10 1x2", "c 0 10 1x2")]
    simulation = Simulation(ONE_NODE, rows, Policy(), Overheads())
    handle, batches = simulation.scheduler.handle, []

    def spy(events: Sequence[Event]) -> Decision:
        batches.append([event.id for event in events])
        return handle(events)

    monkeypatch.setattr(simulation.scheduler, "handle", spy)
    while simulation.step():
        pass
    assert batches == [
        ["ta/submitted", "tc/submitted"],
        ["ta/1/started", "tc/1/started"],
        ["ta/1/ended", "tc/1/ended", "tb/submitted"],
        ["tb/1/started"],
        ["tb/1/ended"],
    ]


def test_without_overheads_the_cluster_and_the_ledger_count_the_same_loss() -> None:
    rows = [trace_job(LOW), trace_job("high 50 10 1x4 | serving")]
    simulation = Simulation(ONE_NODE, rows, Policy(), Overheads())
    while simulation.step():
        pass
    assert simulation.scheduler.ledger.jobs["tlow"].gpu_s_lost == 200.0
    assert simulation.result().jobs[0].gpu_s_lost == 200.0


def test_a_preempted_job_that_can_save_is_asked_once() -> None:
    rows = [trace_job(LOW_SAVES), trace_job("high 50 10 1x4 | serving")]
    simulation = Simulation(ONE_NODE, rows, Policy(), Overheads())
    while simulation.step():
        pass
    state = simulation.scheduler.ledger.jobs["tlow"]
    assert (state.preemptions, state.attempt) == (1, 2)
    assert state.checkpoint_step == 80  # saved by itself after 30 s of the second attempt's work


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["a 0 1 1x1", "a 0 1 1x1"], "job a is there twice"),
        (["a -1 1 1x1"], "job a: times"),
        (["a 0 nan 1x1"], "job a: times"),
        (["a inf 1 1x1"], "job a: times"),
        (["a 0 1 0x1"], "job a: needs 1 member"),
    ],
)
def test_a_trace_that_cannot_be_is_refused_with_the_job_that_is_wrong(
    rows: list[str], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        simulate(ONE_NODE, [trace_job(row) for row in rows], NO_PREEMPTION)


def test_an_empty_trace_has_an_empty_result() -> None:
    summary = simulate(ONE_NODE, [], NO_PREEMPTION).summary()
    assert (summary["jobs"], summary["makespan_s"], summary["gpu_utilisation"]) == (0, 0.0, 0.0)
    assert summary["jct_s"] == {"mean": None, "p50": None, "p99": None}


def test_the_limit_takes_the_first_rows_and_progress_ends_with_all_of_them() -> None:
    told: list[tuple[int, int]] = []
    rows = [trace_job(f"j{n} {n} 1 1x1") for n in range(50)]
    result = simulate(
        ONE_NODE, iter(rows), NO_PREEMPTION, limit=20, progress=lambda *pair: told.append(pair)
    )
    assert [job.job_id for job in result.jobs] == [row.job_id for row in rows[:20]]
    assert told[-1] == (20, 20)
    assert told == sorted(told)


def test_the_program_in_the_guide_runs_and_its_claims_hold() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "simulator.md").read_text("utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", guide, flags=re.DOTALL)
    exec(compile(program, "simulator.md", "exec"), {})
