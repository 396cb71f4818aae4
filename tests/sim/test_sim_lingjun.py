"""Philly on Lingjun: hosts by whole groups, gangs of hosts, what queues are owed, and the promise of cells by hand."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.traces import TraceJob
from gantree.formats.traces.importers.members import equal_members
from gantree.model.errors import BadInput, NotFound
from gantree.policy.rules import Policy
from gantree.sim.lingjun.alone import held_against, private_cluster
from gantree.sim.lingjun.figures import HEAD, line, of_queues
from gantree.sim.lingjun.philly import (
    cells_of,
    gang_of,
    gpu_s_of_queue,
    known_gang_of,
    queues,
    shared_out,
)
from gantree.sim.lingjun.subfabric import first_hosts, read_fabric
from gantree.sim.run import simulate

TOPO = """host,DSW,PSW,ASW,ip
h0,G6,P1,S1,a
h1,G6,P2,S1,b
h2,G6,P1,S2,c
h3,G6,P1,S1,d
h4,G6,P2,S1,e
"""


@pytest.fixture
def topo(tmp_path: Path) -> Path:
    path = tmp_path / "topo.csv.gz"
    path.write_bytes(gzip.compress(TOPO.encode()))
    return path


def row(
    name: str, gpus: int, submit_s: float = 0, duration_s: float = 10, queue: str = "a"
) -> TraceJob:
    members, each = equal_members(gpus)
    return TraceJob(name, submit_s, duration_s, members, each, queue=queue)


def test_hosts_are_taken_by_whole_groups_in_the_order_of_first_mention(topo: Path) -> None:
    fabric = read_fabric(topo)
    assert [node.name for node in first_hosts(fabric, 5).nodes] == ["h0", "h3", "h1", "h4", "h2"]
    assert [node.name for node in first_hosts(fabric, 3).nodes] == ["h0", "h3", "h1"]


def test_more_hosts_than_there_are_is_refused(topo: Path) -> None:
    with pytest.raises(BadInput, match="1 to 5"):
        first_hosts(read_fabric(topo), 6)


def test_a_topology_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="topo"):
        read_fabric(tmp_path / "topo.csv.gz")


@pytest.mark.parametrize(
    ("gpus", "shape"),
    [(1, [(1, 1)]), (8, [(1, 8)]), (12, [(1, 8), (1, 4)]), (32, [(4, 8)])],
)
def test_a_job_is_members_of_eight_and_one_for_the_rest(
    gpus: int, shape: list[tuple[int, int]]
) -> None:
    job = gang_of(row("j", gpus))
    assert [(role.members, role.shape.gpus) for role in job.roles] == shape
    assert job.gpus == gpus
    assert (job.expected_s, known_gang_of(row("j", gpus)).expected_s) == (None, 10)


@given(
    st.integers(0, 1000),
    st.dictionaries(st.text("abc", min_size=1), st.integers(1, 10**6), min_size=1),
)
def test_shares_sum_up_and_are_off_by_less_than_one(total: int, weights: dict[str, int]) -> None:
    shares = shared_out(total, {name: float(weight) for name, weight in weights.items()})
    assert sum(shares.values()) == total
    for name, weight in weights.items():
        assert abs(shares[name] - total * weight / sum(weights.values())) < 1


def test_what_rounding_leaves_goes_to_the_largest_remainder() -> None:
    assert shared_out(10, {"a": 5.5, "b": 2.7, "c": 1.8}) == {"a": 5, "b": 3, "c": 2}


def test_queues_are_owed_their_share_of_gpu_hours_as_counts_or_as_cells() -> None:
    trace = [row("1", 16, duration_s=10), row("2", 8, duration_s=20, queue="b")]
    assert gpu_s_of_queue(trace) == {"a": 160, "b": 160}
    counts = queues({"a": 20, "b": 0}, as_cells=False)
    assert [dict(rule.guarantee) for rule in counts] == [{"gpus": 20}, {}]
    as_cells = queues({"a": 20, "b": 0}, as_cells=True)
    assert [rule.cells for rule in as_cells] == [(("node", 2), ("gpus", 4)), ()]
    assert cells_of(16) == (("node", 2),)


def test_a_private_cluster_has_the_gpus_of_the_cells() -> None:
    machines = private_cluster(20).machines
    assert [machines[node.machine].gpus for node in private_cluster(20).nodes] == [8, 8, 1, 1, 1, 1]


def test_a_queue_that_starts_later_in_the_shared_cluster_than_alone_is_counted(topo: Path) -> None:
    trace = [
        row("big", 40, 0, 100, queue="b"),
        row("first", 8, 10, 50),
        row("second", 8, 20, 50),
        row("never alone", 16, 30, 50),
    ]
    shared = simulate(read_fabric(topo), trace, Policy(), jobs=known_gang_of)
    promise = held_against(shared.jobs, trace, Policy(), "a", 8, grace_s=60)
    # alone: starts at 10 and 60; shared: both at 100, so 90 s and 40 s later
    assert (promise.jobs, promise.late, promise.worst_s) == (2, 1, 30)
    assert (promise.mean_wait_alone_s, promise.mean_wait_shared_s) == (20, 85)
    nothing = held_against(shared.jobs, trace, Policy(), "a", 0, grace_s=60)
    assert (nothing.jobs, nothing.late) == (0, 0)  # who owns no cell is promised nothing


def test_figures_are_told_for_each_queue_and_as_a_line(topo: Path) -> None:
    trace = [row("1", 8), row("2", 16, queue="b"), row("3", 48, queue="b")]
    result = simulate(read_fabric(topo), trace, Policy(), jobs=gang_of)
    of = of_queues(result)
    assert {queue: (each["jobs"], each["finished"]) for queue, each in of.items()} == {
        "a": (1, 1), "b": (2, 1)
    }  # fmt: skip
    told = dict(zip(HEAD, line("load70", "fifo", result.summary(), 0.5), strict=True))
    assert (told["PRESET"], told["WAITING"], told["CORE ms"]) == ("fifo", "1", "0.50")
