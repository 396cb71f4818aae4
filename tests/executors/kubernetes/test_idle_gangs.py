"""Idle gangs on a server: an event on their pods, a save, and their GPUs for others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.control.nodes.idle_watch import IdleWatch
from gantree.model.idle_facts import GangIdleWarned, GangReclaimed
from gantree.model.orders import WriteToLog
from gantree.policy.idle import IdleRule
from gantree.policy.rules import Policy
from support.pods import PodStage

HUNG = {
    "DCGM_FI_DEV_GPU_UTIL": 100.0,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.0,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.0,
}
RULE = IdleRule(warn_s=0.4, reclaim_s=0.8, grace_s=0.0)


class SampledStage(PodStage):
    """A stage whose nodes' GPUs all hang, which is seen whenever the test samples."""

    watch = IdleWatch()

    def sampled(self) -> bool:
        ledger, now = self.controller.ledger, self.controller.clock()
        assert ledger.fabric is not None
        told = {node: dict.fromkeys(range(8), HUNG) for node in ledger.fabric.index_of_node}
        judged = self.watch.judge(told, ledger.fabric, now)
        for event in self.watch.events(judged, ledger, now, self.controller.epoch):
            self.controller.inbox.enqueue(event)
        return False

    def messages(self, reason: str) -> list[tuple[str, str]]:
        items = self.api.get("/api/v1/events").json()["items"]
        return [
            (each["involvedObject"]["name"], each["message"])
            for each in items
            if each["reason"] == reason
        ]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[SampledStage]:
    with SampledStage(tmp_path / "a", Policy(idle=RULE)) as stage:
        yield stage


def test_a_hung_pod_is_warned_by_an_event_and_its_gpus_go_to_the_next(stage: SampledStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.phase("p0") == "Running")
    stage.pod("p1", gpus=8)
    (job,) = [state.job for state in stage.controller.ledger.holding.values()]
    stage.until(lambda: stage.sampled() or bool(stage.messages("GangIdle")))
    (pod, sentence), *more = stage.messages("GangIdle")
    assert pod == "p0" and not more
    assert sentence.startswith("The 8 GPUs of this job have not computed for ")
    assert f"gantree extend {job} 2h" in sentence
    stage.until(lambda: stage.sampled() or stage.bound("p1"))
    facts = [each.fact for each in stage.controller.journal.facts(0)]
    kinds = [
        type(fact).__name__ for fact in facts if isinstance(fact, GangIdleWarned | GangReclaimed)
    ]
    assert kinds[:2] == ["GangIdleWarned", "GangReclaimed"]


def test_an_order_that_is_carried_out_again_writes_no_second_event(stage: SampledStage) -> None:
    stage.nodes("n0")
    stage.start()
    stage.pod("p0", gpus=8)
    stage.until(lambda: stage.phase("p0") == "Running")
    (job,) = [state.job for state in stage.controller.ledger.holding.values()]
    for number in (1, 1, 2):
        order = WriteToLog(
            id=f"{job}/1/idle-warning-{number}", job=job, attempt=1, text=f"it is idle ({number})"
        )
        stage.controller.cluster.carry_out(order)
    stage.until(lambda: len(stage.messages("GangIdle")) > 1)
    assert sorted(stage.messages("GangIdle")) == [
        ("p0", "It is idle (1)."),
        ("p0", "It is idle (2)."),
    ]
