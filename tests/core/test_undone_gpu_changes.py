"""A start that failed before its GPUs were partitioned leaves them as they were, for everybody and after a restart."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Cluster, Mig
from gantree.model.events import GangEnded, GangStartFailed
from gantree.model.jobs import Job, Role, Shape
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from gantree.topology.occupancy.gpus.gpu_state import PLAIN, GpuState, Instance

TWO_GPUS = cluster(leaves=1, nodes=1, gpus=2)


def instances(name: str, profile: str, members: int = 1) -> Job:
    return Job(name, (Role("w", members, Shape(mig=profile), run=("true",)),))


def with_instances(*of_gpu_0: tuple[str, int]) -> Cluster:
    node = replace(TWO_GPUS.nodes[0], mig=(Mig(0, of_gpu_0),))
    return replace(TWO_GPUS, nodes=(node,))


def cannot_start(stage: Stage, name: str, *, gpus_unchanged: bool = True) -> None:
    stage.tell(GangStartFailed, job=name, attempt=1, reason="In use", final=True)
    stage.tell(GangEnded, job=name, attempt=1, exit_code=126, gpus_unchanged=gpus_unchanged)


def gpus(stage: Stage) -> tuple[GpuState, ...]:
    return stage.scheduler.ledger.rooms().state_of_node(0).gpus


def changes(stage: Stage, name: str) -> tuple[object, ...]:
    placement = stage.state(name).placement
    assert placement is not None
    return placement.changes


def test_instances_that_were_never_made_are_not_there_when_the_next_job_wants_whole_gpus() -> None:
    stage = Stage(TWO_GPUS)
    stage.submit(instances("parts", "1g.10gb", members=2))
    assert any(gpu.instances for gpu in gpus(stage))
    cannot_start(stage, "parts")
    assert gpus(stage) == (PLAIN, PLAIN)
    stage.submit(job("whole", gpus=2))
    assert changes(stage, "whole") == ()


def test_instances_stay_where_the_start_failed_for_another_reason() -> None:
    stage = Stage(TWO_GPUS)
    stage.submit(instances("parts", "1g.10gb"))
    cannot_start(stage, "parts", gpus_unchanged=False)
    assert sum(len(gpu.instances) for gpu in gpus(stage)) == 1


def test_an_instance_that_was_not_destroyed_is_idle_again() -> None:
    stage = Stage(with_instances(("3g.40gb", 4), ("1g.10gb", 0)))
    stage.submit(job("other", gpus=1), instances("parts", "7g.80gb"))
    assert gpus(stage)[0].instances == (Instance(0, "7g.80gb", held=True),)
    cannot_start(stage, "parts")
    assert gpus(stage)[0].instances == (Instance(0, "1g.10gb"), Instance(4, "3g.40gb"))


def test_a_gpu_that_did_not_leave_mig_mode_has_its_instances() -> None:
    stage = Stage(with_instances(("3g.40gb", 4)))
    stage.submit(job("whole", gpus=2))
    cannot_start(stage, "whole")
    assert gpus(stage)[0] == GpuState(mig=True, instances=(Instance(4, "3g.40gb"),))


def test_what_another_job_holds_on_the_gpu_meanwhile_stays() -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1))
    stage.submit(instances("parts", "1g.10gb"), instances("other", "1g.10gb"))
    cannot_start(stage, "parts")
    assert [one.held for one in gpus(stage)[0].instances] == [True]
    assert gpus(stage)[0].mig


@pytest.mark.parametrize("claimant", ["whole", "7g.80gb"])
def test_room_that_is_claimed_beside_it_is_partitioned_as_before(claimant: str) -> None:
    stage = Stage(cluster(leaves=1, nodes=1, gpus=1))
    stage.submit(instances("parts", "1g.10gb"), instances("other", "1g.10gb"))
    stage.started("other")
    big = job("big", gpus=1) if claimant == "whole" else instances("big", claimant)
    stage.submit(replace(big, priority="serving"))
    cannot_start(stage, "parts")
    stage.ended("other", 143)
    assert stage.phases()["big"] == "starting"
    stage.scheduler.ledger.rooms().check()
