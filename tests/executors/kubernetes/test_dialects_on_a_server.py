"""Every dialect with a manifest as its users write it: the gang is bound whole, where it asked to be.

Sources of the manifests: the user guides of scheduler-plugins, Volcano, KAI and Kueue, and the gang API of Kubernetes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.testing.kubernetes.statuses import Json
from gantree.testing.pods import PodStage

LEAF = "network.topology.nvidia.com/leaf"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    """Three nodes in leaf l0 and four in l1: a gang of four whole nodes fits l1 alone."""
    with PodStage(tmp_path) as stage:
        for kind in (
            ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"),
            ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            ("scheduling.run.ai", "v2alpha2", "PodGroup", "podgroups"),
        ):
            define(stage, *kind)
        stage.nodes("a[0-2]", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-3]", network_topology_nvidia_com__leaf="l1")
        yield stage


def define(stage: PodStage, group: str, version: str, kind: str, plural: str) -> None:
    """A kind of objects, as its operator's custom resource definition has it."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }
    answer = stage.api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    assert answer.status_code == 201, answer.text


def create(stage: PodStage, api_version: str, kind: str, name: str, spec: Json) -> None:
    body = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    url = f"/apis/{api_version}/namespaces/default/{kind.lower()}s"
    answer = stage.api.post(url, body)
    assert answer.status_code == 201, answer.text


def pods(stage: PodStage, **told: Any) -> None:
    for number in range(4):
        stage.pod(f"train-{number}", gpus=8, **told)


def core(stage: PodStage) -> None:
    spec = {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": LEAF}]},
    }
    create(stage, "scheduling.k8s.io/v1alpha2", "PodGroup", "g", spec)
    pods(stage, spec={"schedulingGroup": {"podGroupName": "g"}})


def scheduler_plugins(stage: PodStage) -> None:
    create(stage, "scheduling.x-k8s.io/v1alpha1", "PodGroup", "g", {"minMember": 4})
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    pods(stage, labels=labels, annotations={"gantree.io/required-topology": "leaf"})


def volcano(stage: PodStage) -> None:
    spec = {
        "minMember": 4,
        "queue": "default",
        "networkTopology": {"mode": "hard", "highestTierName": LEAF},
    }
    create(stage, "scheduling.volcano.sh/v1beta1", "PodGroup", "g", spec)
    pods(stage, annotations={"scheduling.k8s.io/group-name": "g"})


def kai(stage: PodStage) -> None:
    spec = {
        "minMember": 4,
        "queue": "default",
        "topologyConstraint": {"topology": "racks", "requiredTopologyLevel": LEAF},
    }
    create(stage, "scheduling.run.ai/v2alpha2", "PodGroup", "g", spec)
    pods(stage, annotations={"pod-group-name": "g"}, labels={"kai.scheduler/queue": "default"})


def kueue(stage: PodStage) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "default", "kueue.x-k8s.io/pod-group-name": "g"}
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": "4",
        "kueue.x-k8s.io/podset-required-topology": LEAF,
    }
    pods(stage, labels=labels, annotations=annotations)


def our_own(stage: PodStage) -> None:
    labels = {"gantree.io/gang": "g", "gantree.io/queue": "default"}
    annotations = {"gantree.io/gang-size": "4", "gantree.io/required-topology": LEAF}
    pods(stage, labels=labels, annotations=annotations)


@pytest.mark.parametrize(
    "apply",
    [core, scheduler_plugins, volcano, kai, kueue, our_own],
    ids=lambda each: str(each.__name__),
)
def test_a_gang_is_bound_whole_in_one_leaf(
    stage: PodStage, apply: Callable[[PodStage], None]
) -> None:
    stage.start()
    apply(stage)
    names = [f"train-{number}" for number in range(4)]
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name) for name in names} == {"b0", "b1", "b2", "b3"}
    marks = [stage.pods()[name]["metadata"]["annotations"] for name in names]
    assert [mark["gantree.io/rank"] for mark in marks] == ["0", "1", "2", "3"]
    assert {mark["gantree.io/domain"] for mark in marks} == {"leaf:l1"}


def test_a_topology_that_the_site_does_not_have_keeps_a_gang_waiting(stage: PodStage) -> None:
    stage.start()
    stage.pod("p0", gpus=1, annotations={"kueue.x-k8s.io/podset-required-topology": "rack"})
    stage.pod("p1", gpus=1)
    stage.until(lambda: stage.bound("p1") and "conditions" in stage.pods()["p0"]["status"])
    (condition,) = stage.pods()["p0"]["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert condition["message"] == (
        "Waiting: the site has no topology 'rack'; its tiers are leaf, node."
    )
