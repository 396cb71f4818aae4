"""A replay under the policy that ruled is the record: starts, ends, attempts, places in time of every job.

The record is a simulation whose facts a journal has. The replay is told nothing of it but the journal: how much work
each job was, it has to find out from facts, through preemptions, lost nodes, saved and lost work.
"""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gantree.formats import read_cluster, read_policy
from gantree.formats.traces import TraceJob
from gantree.model.events import (
    CordonRequested,
    Event,
    HoldRequested,
    NodeLost,
    NodeReturned,
    PriorityRequested,
    ReleaseRequested,
    UncordonRequested,
)
from gantree.model.jobs import Checkpoint, Job, Role, Shape
from gantree.sim.cluster import Overheads
from gantree.sim.replay.batches import decide_again
from gantree.sim.replay.reading import batches, read_recording
from gantree.sim.replay.replaying import replay
from support.recorded_simulations import RecordedSimulation

SITE = read_cluster(
    """
name: two-leaves
tiers: [leaf, node]
machines: {m4: {gpus: 4, gpu: H100-80GB, cpus: 64, memory_GiB: 256}}
nodes:
  - {names: "n[0-1]", machine: m4, at: {leaf: l0}}
  - {names: "n[2-3]", machine: m4, at: {leaf: l1}}
""",
    "site.yaml",
)
POLICY_TEXT = """
preset: gantree
priorities: {batch: 200, production: 300}
queues:
  - {name: a, cohort: all, guarantee: {gpus: {any: 8}}}
  - {name: b, cohort: all, guarantee: {gpus: {any: 8}}}
evictions: {min_run: 0s}
"""
POLICY = read_policy(POLICY_TEXT, "policy.yaml")
MOMENTS = st.integers(0, 20).map(lambda number: 20.0 * number)


@st.composite
def rows(draw: st.DrawFn, number: int) -> tuple[TraceJob, Job]:
    """A job of the trace; those that save on request alone have no interval."""
    members, gpus = draw(st.integers(1, 4)), draw(st.sampled_from((1, 4)))
    duration_s = float(draw(st.integers(1, 400)))
    saves = draw(st.sampled_from((None, Checkpoint(every_s=50.0), Checkpoint())))
    every_s = None if saves is None else saves.every_s or 1e9
    submit_s = 0.0 if number == 0 else draw(MOMENTS)
    spec = Job(
        name=f"j{number}",
        roles=(Role("worker", members, Shape(gpus=gpus)),),
        queue=draw(st.sampled_from(("a", "b"))),
        priority=draw(st.sampled_from(("batch", "batch", "production"))),
        checkpoint=saves,
        expected_s=draw(st.sampled_from((None, duration_s))),
    )
    return TraceJob(f"j{number}", submit_s, duration_s, members, gpus, checkpoint_s=every_s), spec


@st.composite
def requests(draw: st.DrawFn, number: int, jobs: int) -> list[Event]:
    """One request or fault, and what takes it back later."""
    at, later = sorted((draw(MOMENTS), draw(MOMENTS)))
    job, node = f"tj{draw(st.integers(0, jobs - 1))}", f"n{draw(st.integers(0, 3))}"
    pairs: list[list[Event]] = [
        [
            HoldRequested(id=f"h{number}", observed_at=at, job=job),
            ReleaseRequested(id=f"r{number}", observed_at=later, job=job),
        ],
        [
            NodeLost(id=f"l{number}", observed_at=at, node=node),
            NodeReturned(id=f"b{number}", observed_at=later, node=node),
        ],
        [
            CordonRequested(id=f"c{number}", observed_at=at, node=node),
            UncordonRequested(id=f"u{number}", observed_at=later, node=node),
        ],
        [PriorityRequested(id=f"p{number}", observed_at=at, job=job, priority="production")],
    ]
    return draw(st.sampled_from(pairs))


@st.composite
def pasts(draw: st.DrawFn) -> tuple[list[tuple[TraceJob, Job]], list[Event], Overheads]:
    """Jobs, requests in order, and overheads that are the same for all starts, stops and saves.

    They are not 0: a daemon decides to the end of a moment before its orders are carried out, a simulation carries each
    out at once, and what takes no time comes back within the moment.
    """
    count = draw(st.integers(3, 8))
    jobs = [draw(rows(number)) for number in range(count)]
    told = [
        event
        for number in range(draw(st.integers(0, 3)))
        for event in draw(requests(number, count))
    ]
    start_s, stop_s, save_s = (draw(st.sampled_from((1.0, each))) for each in (5.0, 3.0, 2.0))
    return (
        jobs,
        sorted(told, key=lambda event: event.observed_at),
        Overheads(start_s, stop_s, save_s),
    )


@given(pasts())
def test_a_replay_under_the_policy_that_ruled_is_the_record(
    past: tuple[list[tuple[TraceJob, Job]], list[Event], Overheads],
) -> None:
    jobs, told, overheads = past
    with tempfile.TemporaryDirectory() as folder:
        recorded = RecordedSimulation(
            Path(folder), SITE, jobs, POLICY, overheads, told, POLICY_TEXT
        )
        recorded.run_on()
        recording = read_recording(recorded.journal, POLICY)
        decided = [each.fact for each in recorded.journal.facts()]
        assert decide_again(batches(recorded.journal), POLICY, read_policy) == decided
        recorded.journal.close()
    was = [record.outcome for record in recording.jobs]
    assert {job.outcome for job in was} == {"succeeded"}
    assert list(replay(recording, POLICY, overheads).jobs) == was
