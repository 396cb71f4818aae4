"""The length of time slices: set for GPUs that are shared in turns, and set back, with a stand-in for nvidia-smi."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.control.nodes.sharing.time_slices import time_slice_of
from gantree.executors.local.launch.visible_gpus import gpu_indices
from gantree.executors.local.partitions.worker import GpuPreparation
from gantree.executors.local.sharing.time_slices import TimeSlices
from gantree.formats import read_cluster
from gantree.model.events import GangEnded, GangStarted, GangStartFailed
from gantree.model.placements import SharePart
from support.gangs import GangStage, four_nodes, left_over, start_order

STAND_IN = """#!/bin/sh
# As nvidia-smi: compute-policy -i GPU --set-timeslice NUMBER
if [ -e "$(dirname "$0")/refuses" ]; then
    echo "Unable to set the compute policy: Insufficient Permissions"
    exit 4
fi
echo "$*" >> "$(dirname "$0")/calls"
"""
CLUSTER = """
name: c
tiers: [node]
machines: {m: {gpus: 1, gpu: H100-80GB}}
nodes:
  - {names: "n[0-1]", machine: m, share: {time_slice: long}}
  - {names: n2, machine: m}
"""


class Sliced(GangStage):
    """A stage whose node n0 has short time slices."""

    def __init__(self, folder: Path) -> None:
        self.smi = folder / "nvidia-smi"
        self.smi.write_text(STAND_IN)
        self.smi.chmod(0o700)
        super().__init__(folder / "s", four_nodes(), time_slice_of=self._slice_of)

    def _slice_of(self, node: str) -> tuple[str, str] | None:
        return (str(self.smi), "short") if node == "n0" else None

    def share(
        self, *run: str, gpu: int = 1, job: str = "j", way: str = "time-slicing", node: str = "n0"
    ) -> None:
        """Start a gang of one member with half of a GPU."""
        order = start_order(*run, job=job)
        member = replace(order.members[0], share=SharePart(gpu, 0.5, 20.0, way), node=node)
        self.cluster.carry_out(replace(order, members=(member,)))

    def calls(self) -> list[str]:
        """The GPUs and numbers that were set, in order."""
        told = self.smi.with_name("calls")
        lines = told.read_text().splitlines() if told.exists() else []
        return [
            line.removeprefix("compute-policy -i ").replace(" --set-timeslice", "")
            for line in lines
        ]

    def until_set_back(self) -> None:
        """Wait until no GPU is on record."""
        self.until(lambda: not TimeSlices(self.state_dir, self._slice_of, gpu_indices).has_any)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Sliced]:
    stage = Sliced(tmp_path)
    yield stage
    stage.end_all()
    stage.until_set_back()
    stage.cluster.close()
    assert left_over(tmp_path) == []


def test_a_gpu_has_the_time_slice_of_its_node_while_it_is_shared(stage: Sliced) -> None:
    stage.share("sleep", "600", job="one")
    stage.share("sleep", "600", job="two")
    stage.until_told(GangStarted, 2)
    stage.stop(0, job="one")
    stage.until_told(GangEnded)
    thread = stage.cluster._launcher._preparation._thread
    if thread is not None:
        thread.join()
    assert stage.calls() == ["1 1", "1 1"]
    stage.stop(0, job="two")
    stage.until_told(GangEnded, 2)
    stage.until_set_back()
    assert stage.calls() == ["1 1", "1 1", "1 0"]


def test_gpus_that_nobody_asked_to_change_stay_as_they_are(stage: Sliced) -> None:
    stage.share("true", job="other", node="n1")
    stage.share("true", job="mps", way="mps")
    stage.start("true", job="whole", gpus=(1,))
    stage.until_told(GangEnded, 3)
    assert stage.calls() == []


def test_what_nvidia_smi_refuses_fails_the_start_in_its_words(stage: Sliced) -> None:
    refuses = stage.smi.with_name("refuses")
    refuses.touch()
    stage.share("true")
    told = stage.until_told(GangStartFailed)
    assert (
        "the time slice of GPU 1 cannot be set: Unable to set the compute policy: Insufficient"
        in told.reason
    )
    refuses.unlink()
    stage.share("true", job="next")
    stage.until_told(GangEnded, 2)


def test_a_missing_nvidia_smi_fails_the_job_for_good(stage: Sliced) -> None:
    kept = stage.smi.rename(stage.smi.with_name("kept"))
    stage.share("true")
    assert stage.until_told(GangStartFailed).final
    kept.rename(stage.smi)
    stage.share("true", job="next")
    stage.until_told(GangEnded, 2)


def test_a_gpu_is_set_back_at_the_next_start_after_a_crash(
    stage: Sliced, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GpuPreparation, "end_sharing", lambda *of: None)
        stage.share("true")
        stage.until_ended()
    assert stage.calls() == ["1 1"]
    stage.open().adopt()
    stage.until_set_back()
    assert stage.calls() == ["1 1", "1 0"]


def test_the_cluster_file_says_it_for_this_machine_and_no_virtual_node() -> None:
    slice_of = time_slice_of(read_cluster(CLUSTER, "c.yaml"), "n0")
    assert [slice_of(name) for name in ("n0", "n1", "n2")] == [("nvidia-smi", "long"), None, None]
