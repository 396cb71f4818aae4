"""What a simulation takes beside submissions: requests of users, changes of the site, jobs that end badly."""

from gantree.formats import read_cluster
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.events import CancelRequested, NodeLost, NodeReturned
from gantree.sim.cluster import Overheads
from gantree.sim.run import Simulation

SITE = """
name: one
tiers: [leaf, node]
machines: {m2: {gpus: 2, gpu: H100-80GB, cpus: 8, memory_GiB: 64}}
nodes: [{names: "n[0-1]", machine: m2, at: {leaf: l0}}]
"""


def simulation(*rows: TraceJob) -> Simulation:
    cluster = read_cluster(SITE, "site.yaml")
    return Simulation(cluster, rows, PRESETS["gantree"], Overheads())


def run(one: Simulation) -> dict[str, tuple[str, float | None, int]]:
    while one.step():
        pass
    return {row.job_id: (row.outcome, row.end_s, row.attempts) for row in one.result().jobs}


def test_a_request_comes_at_its_moment_and_a_submission_of_that_moment_is_before_it() -> None:
    one = simulation(TraceJob("a", 0, 100, 2, 2), TraceJob("b", 10, 100, 1, 2))
    one.foretell(CancelRequested(id="x", observed_at=40.0, job="ta"))
    assert run(one) == {"a": ("cancelled", 40, 1), "b": ("succeeded", 140, 1)}


def test_a_lost_node_takes_its_gang_and_gives_it_back() -> None:
    one = simulation(TraceJob("a", 0, 100, 2, 2))
    one.foretell(NodeLost(id="x", observed_at=40.0, node="n1"))
    one.foretell(NodeReturned(id="y", observed_at=60.0, node="n1"))
    assert run(one) == {"a": ("succeeded", 160, 2)}


def test_a_job_may_end_with_an_exit_code_and_its_restarts_do_the_work_again() -> None:
    one = simulation(TraceJob("a", 0, 100, 1, 2))
    one.cluster.work_of_job["ta"].exit_code = 3
    outcome, end_s, attempts = run(one)["a"]
    assert (outcome, attempts) == ("failed", 4)
    assert end_s is not None and end_s >= 400
