"""Ranks as the map gives them, with real processes: what each sees, its log, and a checkpoint that all agree on."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.core.scheduler import Scheduler
from gantree.model.events import CheckpointSaved, ClusterObserved, JobSubmitted
from gantree.model.jobs import Checkpoint, Job
from gantree.model.orders import StartGang
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.ranks.rank_order import rank_map
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.gangs import QUICK_PYTHON, GangStage, left_over, start_order

PLAIN_SITE = cluster(leaves=2, nodes=2, gpus=2)
SITE = replace(
    PLAIN_SITE,
    nodes=tuple(
        replace(node, address=f"127.0.0.{number}")
        for number, node in enumerate(PLAIN_SITE.nodes, 1)
    ),
)
"""Four virtual nodes of two GPUs below two leaves, each with an address of its own."""

TELL = """
import os
e = os.environ
print(*(e[n] for n in ("RANK", "LOCAL_RANK", "NODE_RANK", "GANTREE_NODE", "GANTREE_RANKS", "MASTER_ADDR",
                       "CUDA_VISIBLE_DEVICES")))
"""
TRAIN = Path(__file__).parents[3] / "examples" / "train" / "train.py"


def crossed(processes: int, *run: str) -> Job:
    """A job whose tensor groups member order would tear apart."""
    plain = job("j", 4, 2, processes=processes)
    role = replace(plain.roles[0], run=run, workdir="/tmp")
    return replace(
        plain, roles=(role,), parallelism=(("data", 4), ("tensor", 2)), ranks_as_written=True
    )


def ordered(wanted: Job) -> StartGang:
    """What the scheduler tells the cluster to start."""
    decision = Scheduler(Policy()).handle(
        [
            ClusterObserved(id="c", observed_at=0.0, cluster=SITE),
            JobSubmitted(id="s", observed_at=0.0, job=wanted.name, spec=wanted),
        ]
    )
    (order,) = decision.orders
    assert isinstance(order, StartGang)
    return order


@pytest.fixture
def stage(tmp_path: Path) -> GangStage:
    return GangStage(tmp_path / "state", SITE)


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, stage: GangStage) -> object:
    yield
    stage.end_all()
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("processes", [2, 1], ids=["single ranks", "whole members"])
def test_every_process_has_the_rank_that_the_map_gives_it(stage: GangStage, processes: int) -> None:
    wanted = crossed(processes, *QUICK_PYTHON, TELL)
    stage.cluster.carry_out(ordered(wanted))
    assert stage.until_ended() == 0
    fabric = Fabric.build(SITE)
    where = place(Occupancy(fabric), wanted)
    assert isinstance(where, Placement)
    placed_ranks = rank_map(fabric, wanted, where).ranks
    assert [placed.rank for placed in placed_ranks] == list(range(wanted.processes))
    for placed in placed_ranks:
        rank, local, node_rank, node, ranks, master, gpus = stage.log(placed.rank).split()
        assert (int(rank), int(local), node) == (placed.rank, placed.process, placed.node)
        assert int(ranks.split(",")[placed.process]) == placed.rank
        assert (master, gpus) == ("127.0.0.1", "0,1")
        if processes == 1:
            assert node_rank == rank
    assert stage.exit_codes() == dict.fromkeys(range(wanted.processes), 0)


def test_the_master_is_the_node_of_rank_0_wherever_that_is(stage: GangStage) -> None:
    order = start_order(*QUICK_PYTHON, TELL, members=2, processes=2)
    second, first = order.members
    moved = (
        replace(first, node_rank=0, first_rank=2, ranks=(2, 0)),
        replace(second, node_rank=1, first_rank=3, ranks=(3, 1)),
    )
    stage.cluster.carry_out(replace(order, members=moved))
    assert stage.until_ended() == 0
    told = [stage.log(rank).split()[:6] for rank in range(4)]
    assert told == [
        ["0", "1", "0", "n1", "2,0", "127.0.0.2"],
        ["1", "1", "1", "n0", "3,1", "127.0.0.2"],
        ["2", "0", "0", "n1", "2,0", "127.0.0.2"],
        ["3", "0", "1", "n0", "3,1", "127.0.0.2"],
    ]


def test_ranks_that_moved_train_together_and_agree_on_a_checkpoint(
    stage: GangStage, tmp_path: Path
) -> None:
    run = (sys.executable, str(TRAIN), "--steps", "100000", "--step-s", "0.01")
    wanted = replace(crossed(2, *run), checkpoint=Checkpoint(path=str(tmp_path / "saved")))
    stage.cluster.carry_out(ordered(wanted))
    stage.until(lambda: "step 3 " in stage.log(0))
    stage.save("r1")
    saved = stage.until_told(CheckpointSaved)
    assert saved.request == "r1"
    assert f"saved step {saved.step}" in stage.log(0)
    stage.stop(0.5)
    stage.until_ended()


def test_a_daemon_that_comes_later_finds_the_exits_of_ranks_that_moved(stage: GangStage) -> None:
    # All run before the first fails: a failure keeps ranks from starting that have not yet.
    stage.cluster.carry_out(ordered(crossed(2, "sh", "-c", "sleep 2; exit $RANK")))
    stage.cluster.close()
    stage.open().adopt()
    assert stage.until_ended() != 0
    codes = stage.exit_codes()
    assert set(codes) == set(range(8))
    assert all(code in (rank, 143) for rank, code in codes.items())
