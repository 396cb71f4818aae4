"""Nodes that get another MIG config for a gang, by the operator's label: the manager answers, fails, or never does."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES, RBAC_TO_PARTITION
from gantree.executors.kubernetes.controllers import mig_repartitioning
from gantree.executors.kubernetes.nodes.mig_orders import WANTED, WRONG
from gantree.executors.kubernetes.nodes.partition_managers import CONFIG, STATE
from gantree.executors.kubernetes.writes import pod_status
from gantree.formats.mig_configs import read_mig_configs
from gantree.model.mig_configs import PartitionNodes
from support.kubernetes.client import MERGE
from support.kubernetes.controllers.mig_manager import MigManager
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

pytestmark = pytest.mark.only_ours
SMALL, HALF, WHOLE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/gpu"
TEXT = """
mig-configs:
  all-disabled: [{devices: all, mig-enabled: false}]
  all-1g.5gb: [{devices: all, mig-enabled: true, mig-devices: {1g.5gb: 7}}]
  all-balanced:
    - {device-filter: ["0x20B0"], devices: all, mig-enabled: true, mig-devices: {1g.5gb: 2, 3g.20gb: 1}}
    - {device-filter: ["0x2330"], devices: all, mig-enabled: true, mig-devices: {1g.10gb: 2, 3g.40gb: 1}}
  all-1g.10gb: [{devices: all, mig-enabled: true, mig-devices: {1g.10gb: 7}}]
  half: [{devices: [0], mig-enabled: false}, {devices: [1], mig-enabled: true, mig-devices: {3g.40gb: 2}}]
"""
OFFERS = {
    "all-disabled": {WHOLE: 2},
    "all-balanced": {SMALL: 4, HALF: 2},
    "all-1g.10gb": {SMALL: 14},
    "half": {WHOLE: 1, HALF: 2},
}
ALLOWED = PartitionNodes((("pool", "mig"),), read_mig_configs(TEXT, "configs.yaml"))
HIGH = {"priorityClassName": "high"}
MIXED = {"nvidia_com__mig_capable": "true", "nvidia_com__gpu_count": "2"}


class MigStage(PodStage):
    """A stage on which gantree may patch nodes."""

    rules = (*RBAC_RULES, RBAC_TO_PARTITION)

    def mig_nodes(self, names: str, **labels: str) -> None:
        """Nodes of two H100 whose MIG mode is off, of the pool that may be changed."""
        told = {"pool": "mig", **MIXED, **labels}
        self.nodes(names, gpus=2, **told)
        for name in self.names():
            strategy = {
                "nvidia.com/mig.strategy": "mixed",
                "nvidia.com/mig.capable": "true",
                "nvidia.com/gpu.count": "2",
            }
            self.label(name, strategy)

    def names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.api.get("/api/v1/nodes").json()["items"]]

    def label(self, node: str, labels: Mapping[str, str | None]) -> None:
        told = self.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": labels}}, MERGE)
        assert told.status_code == 200, told.text

    def node(self, name: str) -> Json:
        found: Json = self.api.get(f"/api/v1/nodes/{name}").json()
        return found

    def notes(self, name: str) -> dict[str, str]:
        """The annotations of a node by orders."""
        found = self.node(name)["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key.startswith("gantree.io/mig")}

    def asks(self, name: str, resource: str, count: int = 1, **more: Any) -> None:
        """A pod for gantree that asks for GPUs or instances."""
        limits = {resource: str(count)}
        container = {"name": "main", "image": "train", "resources": {"limits": limits}}
        self.pod(name, spec={"containers": [container], **more.pop("spec", {})}, **more)

    def go(self) -> None:
        self.start(partition_nodes=ALLOWED)

    @contextmanager
    def manager(self, answer: str = "success", **told: Any) -> Iterator[MigManager]:
        """A manager on all nodes."""
        client = self.client()
        manager = MigManager(client, OFFERS, answer, **told)
        self.running.run(client.__aenter__())
        self.running.run(manager.__aenter__())
        try:
            yield manager
        finally:
            self.running.run(manager.__aexit__(None, None, None))
            self.running.run(client.__aexit__(None, None, None))

    def says(self, name: str) -> str:
        """What the condition PodScheduled of a pod says."""
        conditions = self.pods()[name]["status"].get("conditions") or []
        return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")

    def cordon(self, name: str) -> str | None:
        return self.controller.decided.site.cordon_reason(name)


def high_priority(stage: MigStage) -> None:
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    told = stage.api.post(classes, {"metadata": {"name": "high"}, "value": 1000})
    assert told.status_code == 201, told.text


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MigStage]:
    monkeypatch.setattr(mig_repartitioning, "EVERY_S", 0.05)
    monkeypatch.setattr(mig_repartitioning, "AGAIN_S", 0.3)
    monkeypatch.setattr(pod_status, "EVERY_S", 0.2)
    with MigStage(tmp_path) as stage:
        yield stage


def test_a_node_gets_the_config_with_the_fewest_other_instances_and_then_the_gang(
    stage: MigStage,
) -> None:
    """all-1g.10gb comes after all-balanced in the file, which makes halves that nobody asks for."""
    stage.mig_nodes("n[0-1]")
    with stage.manager(reboots=True) as manager:
        stage.go()
        stage.asks("p0", SMALL)
        stage.until(lambda: stage.bound("p0"))
        assert manager.asked == [("n0", "all-1g.10gb")]
        assert [state for _, state in manager.said] == ["pending", "rebooting", "success"]
        assert stage.node_of("p0") == "n0"
        stage.until(lambda: stage.notes("n0") == {} and stage.cordon("n0") is None)
        assert stage.cordon("n1") is None


def test_a_gang_gets_as_many_nodes_as_it_needs_and_no_more(stage: MigStage) -> None:
    stage.mig_nodes("n[0-3]")
    with stage.manager() as manager:
        stage.go()
        gang: Json = {
            "labels": {"gantree.io/gang": "g"},
            "annotations": {"gantree.io/gang-size": "5"},
        }
        for number in range(5):
            stage.asks(f"g-{number}", HALF, **gang)
        stage.until(lambda: stage.bound(*(f"g-{number}" for number in range(5))))
        assert {config for _, config in manager.asked} == {"half"}
        assert [node for node, _ in manager.asked] == ["n0", "n1", "n2"]


def test_instances_give_way_to_whole_gpus(stage: MigStage) -> None:
    stage.mig_nodes("n0")
    with stage.manager() as manager:
        stage.go()
        stage.asks("small", SMALL)
        stage.until(lambda: stage.bound("small"))
        stage.exit("small")
        stage.asks("whole", WHOLE, 2)
        stage.until(lambda: stage.bound("whole"))
        assert [config for _, config in manager.asked] == ["all-1g.10gb", "all-disabled"]


def test_nothing_starts_on_the_node_before_the_device_plugin_offers_all_of_it(
    stage: MigStage,
) -> None:
    """Nor does the gang take another node meanwhile."""
    stage.mig_nodes("n[0-1]")
    with stage.manager() as manager:
        stage.running.call(manager.plugin_starts.clear)
        stage.go()
        stage.asks("p0", SMALL)
        stage.until(lambda: ("n0", "success") in manager.said)
        stage.until(
            lambda: "n0 gets MIG config all-1g.10gb (the manager says success)" in stage.says("p0")
        )
        stage.work_for(1.0)
        assert not stage.bound("p0")
        assert stage.cordon("n0") == "MIG: it gets config all-1g.10gb"
        assert manager.asked == [("n0", "all-1g.10gb")]
        stage.running.call(manager.plugin_starts.set)
        stage.until(lambda: stage.bound("p0"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("failed", "the manager could not apply config all-1g.10gb: see its log on this node"),
        ("never", "the manager did not apply config all-1g.10gb within 0.5 s: the manager has not answered"),
    ],
)  # fmt: skip
def test_a_manager_that_fails_or_never_answers_ends_with_a_reason_and_the_node_as_it_is(
    stage: MigStage, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str
) -> None:
    monkeypatch.setattr(mig_repartitioning, "WITHIN_S", 0.5)
    stage.mig_nodes("n0")
    stage.label("n0", {CONFIG: "all-disabled", STATE: "success"})
    with stage.manager(answer) as manager:
        stage.go()
        stage.asks("p0", SMALL)
        stage.until(lambda: stage.notes("n0").get(WRONG) == reason)
        assert WANTED not in stage.notes("n0")
        stage.until(lambda: f"node n0 got no other MIG config: {reason}" in stage.says("p0"))
        stage.until(lambda: (stage.cordon("n0") or "").startswith(f"MIG: {reason}; to use it"))
        events = stage.api.get("/api/v1/namespaces/default/events").json()["items"]
        assert [each["message"] for each in events if each["reason"] == "MigConfigFailed"] == [
            reason
        ]
        stage.work_for(1.0)
        assert manager.asked == [("n0", "all-1g.10gb")], "it is not tried again"
        stage.asks("whole", WHOLE)
        stage.api.patch("/api/v1/nodes/n0", {"metadata": {"annotations": {WRONG: None}}}, MERGE)
        stage.until(lambda: stage.bound("whole"))


def test_jobs_of_lower_priority_leave_first_where_no_idle_node_is_enough(stage: MigStage) -> None:
    stage.mig_nodes("n0")
    high_priority(stage)
    with stage.manager() as manager:
        stage.go()
        stage.asks("low", WHOLE)
        stage.until(lambda: stage.phase("low") == "Running")
        stage.asks("high", SMALL, spec=HIGH)
        stage.until(lambda: stage.bound("high"))
        assert stage.phase("low") == ""
        assert [state for _, state in manager.said] == ["pending", "success"], "no GPU was in use"


def test_an_idle_node_comes_before_one_that_somebody_must_leave(stage: MigStage) -> None:
    stage.mig_nodes("n[0-1]")
    high_priority(stage)
    with stage.manager() as manager:
        stage.go()
        stage.asks("low", WHOLE)
        stage.until(lambda: stage.phase("low") == "Running")
        idle = "n1" if stage.node_of("low") == "n0" else "n0"
        stage.asks("high", SMALL, spec=HIGH)
        stage.until(lambda: stage.bound("high"))
        assert stage.phase("low") == "Running"
        assert manager.asked == [(idle, "all-1g.10gb")]


def test_jobs_of_no_lower_priority_stay_and_the_node_with_them(stage: MigStage) -> None:
    stage.mig_nodes("n0")
    with stage.manager() as manager:
        stage.go()
        stage.asks("first", WHOLE)
        stage.until(lambda: stage.phase("first") == "Running")
        stage.asks("second", SMALL)
        stage.until(lambda: stage.says("second") != "")
        stage.work_for(1.0)
        assert (manager.asked, stage.notes("n0"), stage.phase("first")) == ([], {}, "Running")


def test_a_gang_that_only_waits_for_room_gets_idle_nodes_alone(stage: MigStage) -> None:
    stage.mig_nodes("n[0-1]")
    with stage.manager() as manager:
        stage.go()
        for number in range(14):
            stage.asks(f"a{number}", SMALL)
        stage.until(lambda: stage.bound(*(f"a{number}" for number in range(14))))
        assert manager.asked == [("n0", "all-1g.10gb")]
        stage.asks("b", SMALL)
        stage.until(lambda: stage.bound("b"))
        assert manager.asked == [("n0", "all-1g.10gb"), ("n1", "all-1g.10gb")]


def test_for_room_alone_nobody_has_to_leave(stage: MigStage) -> None:
    """All instances are held by jobs of the same priority, and a node by one of a lower."""
    stage.mig_nodes("n[0-1]")
    high_priority(stage)
    with stage.manager() as manager:
        stage.go()
        for number in range(14):
            stage.asks(f"a{number}", SMALL, spec=HIGH)
        stage.until(lambda: stage.bound(*(f"a{number}" for number in range(14))))
        stage.asks("low", WHOLE)
        stage.until(lambda: stage.phase("low") == "Running")
        stage.asks("more", SMALL, spec=HIGH)
        stage.until(lambda: stage.says("more") != "")
        stage.work_for(1.5)
        assert (len(manager.asked), stage.phase("low")) == (1, "Running")


def test_nodes_that_gantree_was_not_told_of_are_never_changed(stage: MigStage) -> None:
    stage.mig_nodes("n0", pool="other")
    stage.mig_nodes("single[0-1]")
    for name in ("single0", "single1"):
        stage.label(name, {"nvidia.com/mig.strategy": "single"})
    with stage.manager() as manager:
        stage.go()
        stage.asks("p0", SMALL)
        stage.until(lambda: stage.says("p0").startswith("Never fits"))
        stage.work_for(1.0)
        assert (manager.asked, stage.notes("n0"), stage.notes("single0")) == ([], {}, {})


@pytest.mark.parametrize("is_asked", [False, True])
def test_the_next_leader_goes_on_where_the_last_one_stopped(
    stage: MigStage, monkeypatch: pytest.MonkeyPatch, is_asked: bool
) -> None:
    stage.mig_nodes("n0")
    with stage.manager() as manager:
        stage.running.call(manager.may_go_on.clear)
        with monkeypatch.context() as patch:
            if not is_asked:
                patch.setattr(mig_repartitioning.MigRepartitioning, "_carry_on", lambda *of: None)
            stage.go()
            stage.asks("p0", SMALL)
            stage.until(lambda: bool(manager.asked if is_asked else stage.notes("n0")))
            stage.kill()
        stage.running.call(manager.may_go_on.set)
        stage.go()
        stage.until(lambda: stage.bound("p0"))
        assert manager.asked == [("n0", "all-1g.10gb")]
        stage.until(lambda: stage.notes("n0") == {} and stage.cordon("n0") is None)


def test_an_order_for_a_job_that_is_gone_is_taken_back_before_the_manager_is_asked(
    stage: MigStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.mig_nodes("n0")
    with stage.manager() as manager:
        with monkeypatch.context() as patch:
            patch.setattr(mig_repartitioning.MigRepartitioning, "_carry_on", lambda *of: None)
            stage.go()
            stage.asks("p0", SMALL)
            stage.until(lambda: bool(stage.notes("n0")))
            (job,) = stage.controller.ledger.jobs
            stage.controller.jobs.cancel(job)
        stage.until(lambda: stage.notes("n0") == {} and stage.cordon("n0") is None)
        assert manager.asked == []
