"""MIG instances made for gangs of real processes on a simulated NVML: made, kept, destroyed, taken back, by whom."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.local.partitions.created_instances import CreatedInstances
from gantree.executors.local.partitions.worker import GpuPreparation
from gantree.model.events import GangEnded, GangStarted, GangStartFailed
from gantree.model.gpu_partitions import GpuPartitioner, PartitionFault
from gantree.model.orders import StartGang
from gantree.model.placements import GpuChange, MigPart
from gantree.telemetry.partitions.simulated import SimulatedPartitioner
from gantree.topology.hardware.mig import TABLES
from support.gangs import GangStage, four_nodes, left_over, start_order

SMALL, OTHER = MigPart(1, "1g.10gb", 6), MigPart(1, "1g.10gb", 4)
HALF = MigPart(1, "3g.40gb", 4)
PRINT = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES")


class Partitioned(GangStage):
    """A stage whose node n0 has GPUs that are partitioned by a simulated NVML."""

    def __init__(self, folder: Path) -> None:
        self.gpus = SimulatedPartitioner(folder / "gpus" / "n0.json", "n0", TABLES["H100-80GB"])
        super().__init__(folder / "state", four_nodes(), partitioner_of=self._partitioner)

    def _partitioner(self, node: str) -> GpuPartitioner | None:
        return self.gpus if node == "n0" else None

    def needs(
        self, *run: str, parts: tuple[MigPart, ...], job: str = "j", **fields: Any
    ) -> StartGang:
        """Start a gang of one member that has these instances."""
        order = start_order(*run, job=job, **fields)
        member = replace(order.members[0], mig=parts)
        order = replace(order, members=(member,))
        self.cluster.carry_out(order)
        return order

    def there(self) -> set[MigPart]:
        """The instances of GPU 1."""
        return set(self.gpus.instances(1))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Partitioned]:
    stage = Partitioned(tmp_path)
    yield stage
    stage.end_all()
    stage.cluster.close()
    assert left_over(tmp_path) == []


def until_prepared(stage: Partitioned) -> None:
    """Wait until the thread that partitions has nothing left to do."""
    thread = stage.cluster._launcher._preparation._thread
    if thread is not None:
        thread.join()


def change(
    mode: bool | None, create: tuple[MigPart, ...] = (), destroy: tuple[MigPart, ...] = ()
) -> GpuChange:
    return GpuChange("n0", 1, mode, destroy, create, 1.0)


def test_a_gang_gets_instances_that_are_made_for_it(stage: Partitioned) -> None:
    stage.needs(*PRINT, parts=(SMALL, OTHER), changes=(change(True, (SMALL, OTHER)),))
    assert stage.until_ended() == 0
    uuids = stage.gpus.instances(1)
    assert stage.log().strip() == f"{uuids[SMALL]},{uuids[OTHER]}"
    assert not stage.told(GangEnded)[-1].gpus_unchanged


def test_an_instance_that_a_gang_has_left_is_used_again(stage: Partitioned) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    before = stage.gpus.instances(1)
    stage.needs(*PRINT, parts=(SMALL,), job="next")
    stage.until_told(GangEnded, 2)
    assert stage.gpus.instances(1) == before
    assert stage.log(job="next").strip() == before[SMALL]


def test_the_same_order_twice_makes_everything_once(stage: Partitioned) -> None:
    order = stage.needs("sleep", "600", parts=(SMALL,))
    stage.cluster.carry_out(order)
    stage.until_told(GangStarted)
    before = stage.gpus.instances(1)
    stage.cluster.carry_out(order)
    stage.open().adopt()
    stage.cluster.carry_out(order)
    stage.cluster.poll()
    assert stage.gpus.instances(1) == before
    assert len(before) == 1


def test_another_profile_takes_the_place_of_idle_instances(stage: Partitioned) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    wanted = change(None, (HALF,), (SMALL,))
    stage.needs("true", parts=(HALF,), job="next", changes=(wanted,))
    stage.until_told(GangEnded, 2)
    assert stage.there() == {HALF}


def test_an_idle_instance_of_which_the_order_knows_nothing_gives_way(stage: Partitioned) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    stage.needs("true", parts=(HALF,), job="next")
    assert stage.until_told(GangEnded, 2).exit_code == 0
    assert stage.there() == {HALF}


def test_an_instance_of_a_running_gang_stays(stage: Partitioned) -> None:
    stage.needs("sleep", "600", parts=(SMALL,))
    stage.until_told(GangStarted)
    stage.needs("true", parts=(HALF,), job="next", changes=(change(None, (HALF,), (SMALL,)),))
    told = stage.until_told(GangStartFailed)
    assert not told.final
    assert "3g.40gb at slice 4 on GPU 1: Insufficient resources" in told.reason
    assert "1g.10gb at slice 6 must stay" in told.reason
    assert stage.until_told(GangEnded).gpus_unchanged
    assert stage.there() == {SMALL}


def test_an_instance_that_somebody_else_made_is_never_destroyed(stage: Partitioned) -> None:
    stage.gpus.set_mig_mode(1, on=True)
    stage.gpus.create(1, SMALL.profile, SMALL.start)
    stage.needs("true", parts=(SMALL,))
    assert stage.until_ended() == 0
    stage.needs("true", parts=(HALF,), job="half", changes=(change(None, (HALF,), (SMALL,)),))
    assert "must stay" in stage.until_told(GangStartFailed).reason
    off = change(False, (), (SMALL,))
    stage.start("true", job="whole", gpus=(1,), changes=(off,))
    stage.until_told(GangStartFailed, 2)
    reason = stage.told(GangStartFailed)[-1].reason
    assert "not 1g.10gb at slice 6: nvidia-smi mig -i 1 -dci" in reason
    assert stage.there() == {SMALL}
    assert stage.gpus.mig_mode(1) == (True, True)


def test_a_gpu_leaves_mig_mode_for_a_gang_that_has_it_whole(stage: Partitioned) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    stage.start("true", job="whole", gpus=(1,), changes=(change(False, (), (SMALL,)),))
    assert stage.until_told(GangEnded, 2).exit_code == 0
    assert stage.gpus.mig_mode(1) == (False, False)
    assert stage.there() == set()


@pytest.mark.parametrize(
    ("call", "fault", "final"),
    [
        ("create", PartitionFault.INSUFFICIENT_RESOURCES, False),
        ("create", PartitionFault.UNKNOWN, False),
        ("create", PartitionFault.NO_PERMISSION, True),
        ("set_mig_mode", PartitionFault.IN_USE, False),
        ("set_mig_mode", PartitionFault.RESET_REQUIRED, False),
        ("set_mig_mode", PartitionFault.NOT_SUPPORTED, True),
    ],
)
def test_what_nvml_refuses_fails_the_start_in_words_and_leaves_no_trace(
    stage: Partitioned, call: str, fault: PartitionFault, final: bool
) -> None:
    stage.gpus.fail_next(call, fault)
    stage.needs("true", parts=(SMALL,), changes=(change(True, (SMALL,)),))
    told = stage.until_told(GangStartFailed)
    assert told.final is final
    assert "on GPU 1" in told.reason
    assert fault.replace("_", " ").capitalize() in told.reason
    assert stage.until_ended() == 126
    assert stage.told(GangEnded)[-1].gpus_unchanged
    assert stage.there() == set()
    assert stage.gpus.mig_mode(1) == (False, False)
    assert CreatedInstances(stage.state_dir).every() == []


def test_a_gang_of_which_the_second_instance_fails_leaves_none(stage: Partitioned) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    wanted = (HALF, MigPart(1, "7g.80gb", 0))
    stage.needs("true", parts=wanted, job="next", changes=(change(None, wanted, (SMALL,)),))
    stage.until_told(GangStartFailed)
    assert stage.there() == {SMALL}
    assert CreatedInstances(stage.state_dir).every() == [("n0", SMALL)]


def test_a_crash_between_making_and_launching_is_made_good_by_the_next_daemon(
    stage: Partitioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GpuPreparation, "finished", lambda self: iter(()))
        stage.needs(*PRINT, parts=(SMALL, OTHER), changes=(change(True, (SMALL, OTHER)),))
        until_prepared(stage)
    before = stage.gpus.instances(1)
    assert set(before) == {SMALL, OTHER}
    stage.open().adopt()
    assert stage.until_ended() == 0
    assert stage.gpus.instances(1) == before
    assert stage.log().strip() == f"{before[SMALL]},{before[OTHER]}"


def test_an_instance_that_was_about_to_be_made_at_a_crash_is_known_to_the_next_daemon(
    stage: Partitioned,
) -> None:
    stage.gpus.set_mig_mode(1, on=True)
    created = CreatedInstances(stage.state_dir)
    created.note("n0", SMALL, "")
    created.note("n0", OTHER, "")
    uuid = stage.gpus.create(1, SMALL.profile, SMALL.start)
    stage.open().adopt()
    stage.needs("true", parts=(HALF,))
    assert stage.until_ended() == 0
    assert stage.there() == {HALF}
    assert not CreatedInstances(stage.state_dir).has("n0", SMALL, uuid)


@pytest.mark.parametrize("restarted", [False, True])
def test_an_instance_with_the_place_but_not_the_uuid_of_ours_is_not_ours(
    stage: Partitioned, restarted: bool
) -> None:
    stage.needs("true", parts=(SMALL,))
    stage.until_ended()
    stage.gpus.destroy(1, SMALL.profile, SMALL.start)
    stage.gpus.create(1, SMALL.profile, SMALL.start)
    if restarted:
        stage.open().adopt()
    stage.needs("true", parts=(HALF,), job="next", changes=(change(None, (HALF,), (SMALL,)),))
    assert "must stay" in stage.until_told(GangStartFailed).reason


def test_a_gang_that_is_stopped_while_its_gpus_are_partitioned_never_starts(
    stage: Partitioned, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(GpuPreparation, "finished", lambda self: iter(()))
        stage.needs("sleep", "600", parts=(SMALL,))
        stage.stop()
        stage.until_ended()
    until_prepared(stage)
    stage.cluster.poll()
    assert stage.told(GangStarted) == []


def test_gangs_on_nodes_that_nobody_partitions_use_what_is_there(stage: Partitioned) -> None:
    order = start_order("true")
    member = replace(order.members[0], node="n1", mig=(SMALL,))
    stage.cluster.carry_out(replace(order, members=(member,)))
    assert "may not partition GPUs" in stage.until_told(GangStartFailed).reason
