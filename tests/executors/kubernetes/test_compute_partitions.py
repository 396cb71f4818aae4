"""Nodes with GPUs of AMD that get another GPU config profile for a gang: DCM answers, fails, or never does."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.apiserver.objects import (
    Metadata,
    Node,
    NodeSpec,
    NodeStatus,
    NodeTaint,
)
from gantree.executors.kubernetes.apiserver.rbac import RBAC_RULES, RBAC_TO_PARTITION
from gantree.executors.kubernetes.controllers import mig_repartitioning
from gantree.executors.kubernetes.nodes import mig_orders
from gantree.executors.kubernetes.nodes.compute_partitions import offers_of
from gantree.executors.kubernetes.nodes.mig_orders import WANTED, WRONG
from gantree.executors.kubernetes.nodes.partition_managers import DCM, PARTITIONABLE
from gantree.executors.kubernetes.writes import pod_status
from gantree.formats.gpu_config_profiles import read_gpu_config_profiles
from gantree.model.errors import BadFields
from gantree.model.mig_configs import GpuConfigProfile, PartitionNodes
from support.kubernetes.client import MERGE
from support.kubernetes.controllers.device_config_manager import DeviceConfigManager
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

pytestmark = pytest.mark.only_ours
SMALL, WHOLE = "amd.com/cpx_nps4", "amd.com/spx_nps1"
PROFILES = """{"gpu-config-profiles": {
  "whole": {"profiles": [{"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 2}]},
  "both": {"skippedGPUs": {"ids": []}, "profiles": [
    {"computePartition": "CPX", "memoryPartition": "NPS1", "numGPUsAssigned": 1},
    {"computePartition": "SPX", "memoryPartition": "NPS1", "numGPUsAssigned": 1}]},
  "small": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS4", "numGPUsAssigned": 2}]},
  "of-eight": {"profiles": [{"computePartition": "CPX", "memoryPartition": "NPS4", "numGPUsAssigned": 8}]}},
 "gpuClientSystemdServices": {"names": ["amd-metrics-exporter"]}}"""
OFFERS = {
    "whole": {WHOLE: 2},
    "both": {WHOLE: 1, "amd.com/cpx_nps1": 8},
    "small": {SMALL: 16},
}
ALLOWED = PartitionNodes((("pool", "amd"),), (), read_gpu_config_profiles(PROFILES, "config.json"))
LABELS = {
    "pool": "amd",
    PARTITIONABLE: "true",
    "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
    "amd.com/gpu.vram": "192G",
}
OTHER_TAINT = {"key": "site", "value": "a", "effect": "PreferNoSchedule"}


class AmdStage(PodStage):
    """A stage on which gantree may patch nodes, with nodes of two MI300X that are whole."""

    rules = (*RBAC_RULES, RBAC_TO_PARTITION)

    def amd_nodes(self, *names: str) -> None:
        capacity = {"cpu": "96", "memory": "1024Gi", "pods": "110", WHOLE: "2"}
        for name in names:
            self.running.run(self.kubelet.register(name, capacity, LABELS))
            taints = {"spec": {"taints": [OTHER_TAINT]}}
            assert self.api.patch(f"/api/v1/nodes/{name}", taints, MERGE).status_code == 200

    def node(self, name: str) -> Json:
        found: Json = self.api.get(f"/api/v1/nodes/{name}").json()
        return found

    def taints(self, name: str) -> list[str]:
        return [each["key"] for each in self.node(name)["spec"].get("taints") or []]

    def notes(self, name: str) -> dict[str, str]:
        """The annotations of a node by orders."""
        found = self.node(name)["metadata"].get("annotations") or {}
        return {key: value for key, value in found.items() if key.startswith("gantree.io/mig")}

    def asks(self, name: str, resource: str, count: int = 1, **more: Any) -> None:
        limits = {resource: str(count)}
        container = {"name": "main", "image": "train", "resources": {"limits": limits}}
        self.pod(name, spec={"containers": [container]}, **more)

    @contextmanager
    def manager(self, answer: str = "success") -> Iterator[DeviceConfigManager]:
        client = self.client()
        manager = DeviceConfigManager(client, OFFERS, answer)
        self.running.run(client.__aenter__())
        self.running.run(manager.__aenter__())
        try:
            yield manager
        finally:
            self.running.run(manager.__aexit__(None, None, None))
            self.running.run(client.__aexit__(None, None, None))

    def says(self, name: str) -> str:
        conditions = self.pods()[name]["status"].get("conditions") or []
        return next((str(each["message"]) for each in conditions if each["status"] == "False"), "")


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AmdStage]:
    monkeypatch.setattr(mig_repartitioning, "EVERY_S", 0.05)
    monkeypatch.setattr(mig_repartitioning, "AGAIN_S", 0.3)
    monkeypatch.setattr(pod_status, "EVERY_S", 0.2)
    with AmdStage(tmp_path) as stage:
        yield stage


def test_a_node_gets_the_profile_and_then_the_gang_and_afterwards_whole_gpus(
    stage: AmdStage,
) -> None:
    stage.amd_nodes("n0")
    with stage.manager() as manager:
        stage.start(partition_nodes=ALLOWED)
        stage.asks("p0", SMALL, 3)
        stage.until(lambda: stage.bound("p0"))
        assert manager.asked == [("n0", "small")] and manager.tainted == {"n0"}
        assert stage.taints("n0") == ["site"]
        stage.until(lambda: stage.notes("n0") == {})
        stage.exit("p0")
        stage.asks("whole", WHOLE, 2)
        stage.until(lambda: stage.bound("whole"))
        assert [config for _, config in manager.asked] == ["small", "whole"]


def test_a_manager_that_tries_again_may_fail_at_first(stage: AmdStage) -> None:
    stage.amd_nodes("n0")
    with stage.manager("busy") as manager:
        stage.running.call(manager.tries_again.clear)
        stage.start(partition_nodes=ALLOWED)
        stage.asks("p0", SMALL)
        stage.until(lambda: "(the manager says failure)" in stage.says("p0"))
        assert WRONG not in stage.notes("n0") and "amd-dcm" in stage.taints("n0")
        stage.running.call(manager.tries_again.set)
        stage.until(lambda: stage.bound("p0"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("failure", "the manager could not apply config small: see its log on this node"),
        ("never", "the manager did not apply config small within 0.5 s: the manager has not answered"),
    ],
)  # fmt: skip
def test_a_manager_that_fails_or_never_answers_leaves_the_node_as_it_is_without_the_taint(
    stage: AmdStage, monkeypatch: pytest.MonkeyPatch, answer: str, reason: str
) -> None:
    monkeypatch.setattr(mig_repartitioning, "WITHIN_S", 0.5)
    monkeypatch.setattr(mig_repartitioning, "FAILURE_WITHIN_S", 0.3)
    stage.amd_nodes("n0")
    with stage.manager(answer) as manager:
        stage.start(partition_nodes=ALLOWED)
        stage.asks("p0", SMALL)
        stage.until(lambda: stage.notes("n0").get(WRONG) == reason)
        assert WANTED not in stage.notes("n0") and stage.taints("n0") == ["site"]
        said = f"node n0 got no other GPU config profile: {reason}"
        stage.until(lambda: said in stage.says("p0"))
        cordon = stage.controller.decided.site.cordon_reason
        stage.until(lambda: (cordon("n0") or "").startswith(f"Compute partitions: {reason}"))
        assert manager.asked == [("n0", "small")], "it is not tried again"


def test_the_next_leader_goes_on_where_the_last_one_stopped(stage: AmdStage) -> None:
    stage.amd_nodes("n0")
    with stage.manager() as manager:
        stage.running.call(manager.may_go_on.clear)
        stage.start(partition_nodes=ALLOWED)
        stage.asks("p0", SMALL)
        stage.until(lambda: bool(manager.asked))
        stage.kill()
        stage.running.call(manager.may_go_on.set)
        stage.start(partition_nodes=ALLOWED)
        stage.until(lambda: stage.bound("p0"))
        assert manager.asked == [("n0", "small")] and stage.taints("n0") == ["site"]


@pytest.mark.parametrize(
    ("labels", "capacity", "offers"),
    [
        ({}, {WHOLE: "2"}, {name: OFFERS[name] for name in OFFERS}),
        ({}, {"amd.com/cpx_nps1": "8", WHOLE: "1"}, {name: OFFERS[name] for name in OFFERS}),
        ({DCM.config: "whole", DCM.state: "success"}, {WHOLE: "2"}, {name: OFFERS[name] for name in ("both", "small")}),
        ({DCM.config: "whole", DCM.state: "failure"}, {WHOLE: "2"}, {}),
        ({}, {"amd.com/gpu": "2"}, {}),
        ({}, {"amd.com/cpx_nps1": "17"}, {}),
        ({}, {WHOLE: "4"}, {}),
        ({"amd.com/gpu.product-name": "AMD_Instinct_MI210"}, {WHOLE: "2"}, {}),
    ],
)  # fmt: skip
def test_a_node_offers_what_suits_its_number_of_gpus_and_its_model(
    labels: dict[str, str], capacity: dict[str, str | float], offers: dict[str, dict[str, int]]
) -> None:
    node = Node(metadata=Metadata(labels=LABELS | labels), status=NodeStatus(capacity=capacity))
    assert offers_of(node, ALLOWED.profiles) == offers


def test_profiles_that_the_manager_would_refuse_or_that_leave_gpus_out_are_not_used() -> None:
    sets = ("cpx", "nps1", 2)
    wrong = (
        GpuConfigProfile("skips", (sets,), skipped=1),
        GpuConfigProfile("two-memories", (("cpx", "nps1", 1), ("cpx", "nps4", 1))),
        GpuConfigProfile("no-such-mode", (("tpx", "nps1", 2),)),
    )
    node = Node(metadata=Metadata(labels=LABELS), status=NodeStatus(capacity={WHOLE: "2"}))
    assert offers_of(node, wrong) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "gpu-config-profiles"),
        ('{"gpu-config-profiles": {"a": []}}', "gpu-config-profiles.a: found an empty list; allowed: a mapping"),
        (PROFILES.replace("NPS4", "NPS3"), "memoryPartition: found `NPS3`"),
        (PROFILES.replace('"CPX"', '"cpx"'), "computePartition: found `cpx`; allowed: one of SPX"),
        (PROFILES.replace(": 8}", ": 0}"), "numGPUsAssigned: found `0`; allowed: a number from 1"),
        (PROFILES.replace('{"ids": []}', "[]"), "skippedGPUs: found an empty list; allowed: a mapping with"),
        ("kind: ConfigMap\ndata: {a: b}", "data.config.json"),
    ],
)  # fmt: skip
def test_profiles_of_another_form_are_an_error_that_names_the_field(text: str, words: str) -> None:
    with pytest.raises(BadFields) as error:
        read_gpu_config_profiles(text, "config.json")
    assert words in str(error.value)


def test_profiles_are_read_from_the_config_map_too() -> None:
    indented = PROFILES.replace("\n", "\n    ")
    text = f"kind: ConfigMap\ndata:\n  config.json: |\n    {indented}\n"
    assert read_gpu_config_profiles(text, "map.yaml") == ALLOWED.profiles


def test_a_change_of_taints_keeps_the_others_and_fails_where_the_node_has_changed_since() -> None:
    by_taint_manager = NodeTaint("site", "a", "NoExecute", time_added="2026-11-01T00:00:00Z")
    node = Node(
        Metadata(name="n0", resource_version="17", labels=LABELS),
        NodeSpec(taints=(by_taint_manager,)),
    )
    patch: Any = mig_orders.ask("small", 5.0, node)
    assert patch["metadata"]["resourceVersion"] == "17"
    kept = {"key": "site", "value": "a", "effect": "NoExecute", "timeAdded": "2026-11-01T00:00:00Z"}
    assert patch["spec"]["taints"] == [
        kept, {"key": "amd-dcm", "value": "up", "effect": "NoExecute"}
    ]  # fmt: skip
    released: Any = mig_orders.release(node)
    assert (released["metadata"], released["spec"]) == (
        {"resourceVersion": "17"},
        {"taints": [kept]},
    )
