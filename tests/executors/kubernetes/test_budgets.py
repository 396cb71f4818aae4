"""A budget on a server: the pods of its queue are evicted when it is used up, and others are told why they wait."""

from pathlib import Path

from gantree.policy.rules import Budget, Policy, QueueRule
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

SMALL = Budget("total", 0.2, "GPU-minutes", 60.0, {}, 1.0, alerts=(), at_limit="stop")
"""A second and a half of eight GPUs."""


def is_evicted(pod: Json) -> bool:
    """Whether its owner knows that it did not fail."""
    conditions = pod["status"].get("conditions", ())
    return any(each["reason"] == "EvictionByEvictionAPI" for each in conditions if "reason" in each)


def test_pods_of_a_queue_are_evicted_when_its_budget_is_used_up(tmp_path: Path) -> None:
    rules = Policy(queues=(QueueRule("default", budgets=(SMALL,)),), grace_s=1.0)
    with PodStage(tmp_path, rules) as stage:
        stage.nodes("n0")
        stage.start()
        stage.pod("p0", gpus=8)
        stage.until(lambda: stage.phase("p0") == "Running")
        stage.running.call(stage.kubelet.freeze, "n0")
        stage.until(lambda: is_evicted(stage.pods()["p0"]))
        stage.running.call(stage.kubelet.thaw, "n0")
        stage.until(lambda: not stage.controller.ledger.holding)
        stage.pod("p1", gpus=8)
        stage.until(lambda: "queue default has used 0.2 of 0.2 GPU-minutes" in stage.told())
