"""Parts of GPUs on this machine: what processes with a share see, and MIG instances that are there or are not."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.executors.local.cluster import LocalCluster
from gantree.executors.local.gang_launcher import GangLauncher
from gantree.executors.local.launch.visible_gpus import share_variables
from gantree.model.events import GangEnded, GangStarted, GangStartFailed
from gantree.model.orders import StartGang
from gantree.model.placements import GpuChange, MigPart, SharePart
from support.gangs import GangStage, four_nodes, left_over, start_order

PERCENTAGE, MEMORY = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
INSTANCE = MigPart(1, "3g.40gb", 4)


class MigStage(GangStage):
    """A stage on a machine whose driver lists MIG instances on n0."""

    there: Mapping[MigPart, str] = MappingProxyType({})
    asked = 0

    def open(self) -> LocalCluster:
        self.cluster = super().open()
        self.cluster._launcher._mig_ids = self._instances
        return self.cluster

    def _instances(self, node: str) -> Mapping[MigPart, str]:
        self.asked += 1
        return self.there if node == "n0" else {}


@pytest.fixture
def mig_stage(tmp_path: Path) -> Iterator[MigStage]:
    stage = MigStage(tmp_path / "state", four_nodes())
    yield stage
    stage.end_all()
    assert left_over(tmp_path) == []


def environment(stage: GangStage, rank: int = 0) -> dict[str, str]:
    return dict(line.split("=", 1) for line in stage.log(rank).splitlines() if "=" in line)


def with_part(share: SharePart | None = None, *mig: MigPart, processes: int = 1) -> StartGang:
    order = start_order("env", processes=processes)
    return replace(order, members=(replace(order.members[0], share=share, mig=mig),))


@pytest.mark.parametrize(
    ("share", "processes", "percentage", "memory"),
    [
        (SharePart(3, 0.5, 20.0, "mps"), 1, "50", "0=20480M"),
        (SharePart(3, 0.29, 7.5, "mps"), 1, "29", "0=7680M"),
        (SharePart(3, 0.5, 20.0, "mps"), 4, "12", "0=5120M"),
        (SharePart(3, 0.5, 20.0, "time-slicing"), 1, None, None),
    ],
)
def test_a_share_is_one_gpu_and_its_limits_under_mps(
    stage: GangStage, share: SharePart, processes: int, percentage: str | None, memory: str | None
) -> None:
    stage.cluster.carry_out(with_part(share, processes=processes))
    assert stage.until_ended() == 0
    for rank in range(processes):
        seen = environment(stage, rank)
        assert seen["CUDA_VISIBLE_DEVICES"] == "3"
        assert (seen.get(PERCENTAGE), seen.get(MEMORY)) == (percentage, memory)


def test_only_who_shares_through_it_is_told_where_the_mps_daemon_listens(
    stage: GangStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "CUDA_MPS_PIPE_DIRECTORY", "/run/mps")
    stage.start("env", job="whole", gpus=(3,))
    stage.until_ended()
    stage.cluster.carry_out(with_part(SharePart(3, 0.5, 20.0, "mps")))
    stage.until_told(GangEnded, 2)
    assert environment(stage)["CUDA_MPS_PIPE_DIRECTORY"] == "/run/mps"
    assert "CUDA_MPS_PIPE_DIRECTORY=" not in stage.log(0, "whole")


@given(st.floats(0.001, 1.0), st.floats(0.01, 200.0), st.integers(1, 16))
def test_the_processes_of_a_member_together_keep_to_its_share(
    compute: float, memory_GiB: float, processes: int
) -> None:
    seen = share_variables(SharePart(0, compute, memory_GiB, "mps"), processes)
    percentage, memory_MiB = int(seen[PERCENTAGE]), int(seen[MEMORY].removeprefix("0=")[:-1])
    assert percentage == 1 or percentage * processes <= compute * 100 + 1e-4 * processes
    assert memory_MiB == 1 or memory_MiB * processes <= memory_GiB * 1024 + 1e-4 * processes
    assert percentage + 1 > compute * 100 / processes or percentage == 1


def test_an_instance_that_is_there_is_given_to_its_member(mig_stage: MigStage) -> None:
    mig_stage.there = {MigPart(1, "3g.40gb", 0): "MIG-a", INSTANCE: "MIG-b"}
    mig_stage.cluster.carry_out(with_part(None, INSTANCE))
    assert mig_stage.until_ended() == 0
    assert environment(mig_stage)["CUDA_VISIBLE_DEVICES"] == "MIG-b"
    assert mig_stage.asked == 1


@pytest.mark.parametrize(
    "there",
    [
        {},
        {MigPart(1, "3g.40gb", 0): "MIG-a"},
        {MigPart(1, "4g.40gb", 4): "MIG-a"},
        {MigPart(0, "3g.40gb", 4): "MIG-a"},
    ],
    ids=["no instances", "another place", "another profile", "another GPU"],
)
def test_a_gang_whose_instance_is_not_there_is_refused_in_words_and_for_good(
    mig_stage: MigStage, there: dict[MigPart, str]
) -> None:
    mig_stage.there = there
    order = with_part(None, INSTANCE)
    cut = GpuChange("n0", 1, True, (), (INSTANCE,), 5.0)
    mig_stage.cluster.carry_out(replace(order, changes=(cut,)))
    told = mig_stage.until_told(GangStartFailed)
    assert told.final
    for words in ("GPU 1 of node n0", "3g.40gb at slice 4", "-i 1 -cgi 3g.40gb:4 -C", "by: nobody"):
        assert words in told.reason
    assert mig_stage.until_ended() == 126
    assert mig_stage.told(GangEnded)[-1].gpus_unchanged
    assert mig_stage.log() == f"gantree: {told.reason}\n"


def test_a_gang_on_a_gpu_that_must_leave_mig_mode_is_refused_for_good(stage: GangStage) -> None:
    off = GpuChange("n0", 3, False, (MigPart(3, "1g.10gb", 0),), (), 5.0)
    stage.start("env", gpus=(3,), changes=(off,))
    told = stage.until_told(GangStartFailed)
    assert told.final
    assert "GPU 3 of node n0 must leave MIG mode" in told.reason
    assert "nvidia-smi -i 3 -mig 0" in told.reason


def test_a_refusal_is_told_as_final_by_the_next_daemon_too(mig_stage: MigStage) -> None:
    mig_stage.cluster.carry_out(with_part(None, INSTANCE))
    mig_stage.open().adopt()
    assert mig_stage.until_told(GangStartFailed).final


def test_other_failures_to_start_may_be_tried_again(stage: GangStage) -> None:
    stage.start("true", workdir="/no/such/folder")
    assert not stage.until_told(GangStartFailed).final
    stage.until_ended()
    assert not stage.told(GangEnded)[-1].gpus_unchanged


def test_a_start_that_was_only_put_down_is_refused_if_the_instance_has_gone(
    mig_stage: MigStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    mig_stage.there = {INSTANCE: "MIG-a"}
    with monkeypatch.context() as patch:
        patch.setattr(GangLauncher, "_launch", lambda self, gang, mig_ids: None)
        mig_stage.cluster.carry_out(with_part(None, INSTANCE))
    mig_stage.there = {}
    mig_stage.open().adopt()
    assert mig_stage.until_told(GangStartFailed).final
    assert mig_stage.until_ended() == 126
    assert mig_stage.told(GangEnded)[-1].gpus_unchanged


def test_a_gang_that_runs_goes_on_where_the_driver_tells_a_new_daemon_of_no_instances(
    mig_stage: MigStage,
) -> None:
    mig_stage.there = {INSTANCE: "MIG-a"}
    order = start_order("sleep", "600")
    part = replace(order.members[0], mig=(INSTANCE,))
    mig_stage.cluster.carry_out(replace(order, members=(part,)))
    mig_stage.until_told(GangStarted)
    mig_stage.cluster.close()
    mig_stage.there = {}
    mig_stage.open().adopt()
    assert mig_stage.cluster.inventory().status("j", 1) == "running"
    assert mig_stage.told(GangStartFailed) == []
