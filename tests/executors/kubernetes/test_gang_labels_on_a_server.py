"""Every dialect with a manifest as its users write it: the gang is bound whole, where it asked to be.

Sources of the manifests: the user guides of scheduler-plugins, Volcano, KAI and Kueue, and the gang API of Kubernetes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.kubernetes.server.statuses import Json
from support.pods import PodStage

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
    stage.api.define(body)


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
    annotations = [stage.pods()[name]["metadata"]["annotations"] for name in names]
    assert [annotation["gantree.io/rank"] for annotation in annotations] == ["0", "1", "2", "3"]
    assert {annotation["gantree.io/domain"] for annotation in annotations} == {"leaf:l1"}


def test_a_group_whose_topology_is_odd_waits_and_others_start(stage: PodStage) -> None:
    """Known to have ended the daemon: a list of what is no object."""
    stage.start()
    topology = {"requiredTopologyLevel": ["rack"]}
    create(stage, "scheduling.run.ai/v2alpha2", "PodGroup", "g", {"topologyConstraint": topology})
    stage.pod("odd", gpus=1, annotations={"pod-group-name": "g"})
    stage.pod("p0", gpus=1)
    stage.until(lambda: stage.bound("p0") and "conditions" in stage.pods()["odd"]["status"])
    (condition,) = stage.pods()["odd"]["status"]["conditions"]
    assert condition["message"] == "Waiting: there is no pod group 'g' that can be read."


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


def six(stage: PodStage, word: str, **annotations: str) -> None:
    """Two pods of role a and four of role b, each for a whole node. word is a label and an annotation."""
    for number in range(6):
        role = "a" if number < 2 else "b"
        told = {**annotations, word: role}
        stage.pod(f"train-{role}-{number}", gpus=8, labels={word: role}, annotations=told)


def leaves(stage: PodStage) -> dict[str, set[str]]:
    """The leaves that the pods of each role are in, once all have a node."""
    stage.until(lambda: len(stage.pods()) == 6 and stage.bound(*stage.pods()))
    found: dict[str, set[str]] = {}
    for name in stage.pods():
        found.setdefault(name[6], set()).add(stage.node_of(name)[0])
    return found


def test_subgroups_of_kai_are_roles_with_a_topology_of_their_own(stage: PodStage) -> None:
    """The example of KAI's design for hierarchical pod groups: prefill and decode, each in one rack."""
    rack = {"topology": "racks", "requiredTopologyLevel": LEAF}
    members = {"a": 2, "b": 4}
    subgroups = [
        {"name": name, "minMember": number, "topologyConstraint": rack}
        for name, number in members.items()
    ]
    stage.start()
    spec = {"minMember": 6, "subGroups": subgroups}
    create(stage, "scheduling.run.ai/v2alpha2", "PodGroup", "g", spec)
    six(stage, "kai.scheduler/subgroup-name", **{"pod-group-name": "g"})
    assert leaves(stage) == {"a": {"a"}, "b": {"b"}}


def test_each_subgroup_of_volcano_is_in_one_domain(stage: PodStage) -> None:
    """The example of Volcano's guide to network topology: subgroups of one policy, by their size."""
    network = {"mode": "hard", "highestTierName": "leaf"}
    policy = {"name": "task", "subGroupSize": 2, "networkTopology": network}
    stage.start()
    spec = {"minMember": 6, "subGroupPolicy": [policy]}
    create(stage, "scheduling.volcano.sh/v1beta1", "PodGroup", "g", spec)
    six(stage, "volcano.sh/task-spec", **{"scheduling.k8s.io/group-name": "g"})
    leaves(stage)
    nodes = [stage.node_of(name) for name in sorted(stage.pods(), key=lambda name: name[-1])]
    assert all(nodes[number][0] == nodes[number + 1][0] for number in (0, 2, 4))


def test_a_gang_of_volcano_waits_for_each_of_its_tasks(stage: PodStage) -> None:
    """As the controller of Volcano's jobs writes it: minAvailable of each task."""
    spec = {"minMember": 3, "minTaskMember": {"master": 1, "worker": 2}}
    create(stage, "scheduling.volcano.sh/v1beta1", "PodGroup", "g", spec)
    stage.start()
    group = {"scheduling.k8s.io/group-name": "g"}
    for number in range(3):
        told = {**group, "volcano.sh/task-spec": "worker"}
        stage.pod(f"worker-{number}", gpus=1, annotations=told)
    stage.pod("alone", gpus=1)
    stage.until(lambda: stage.bound("alone") and "conditions" in stage.pods()["worker-0"]["status"])
    (condition,) = stage.pods()["worker-0"]["status"]["conditions"]
    assert condition["message"].endswith("are not all that are asked for: 1 master, 2 worker.")
    stage.pod("master-0", annotations={**group, "volcano.sh/task-spec": "master"})
    stage.until(lambda: stage.bound("master-0", "worker-0", "worker-1", "worker-2"))
    assert stage.pods()["master-0"]["metadata"]["annotations"]["gantree.io/rank"] == "0"


def test_of_a_gang_of_several_roles_each_has_the_topology_that_kueue_asks_for(
    stage: PodStage,
) -> None:
    """Kueue asks for it of each pod set, not of all together."""
    stage.start()
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": "6",
        "kueue.x-k8s.io/podset-required-topology": LEAF,
    }
    for number in range(6):
        role = "a" if number < 2 else "b"
        labels = {"kueue.x-k8s.io/pod-group-name": "g", "gantree.io/role": role}
        stage.pod(f"train-{role}-{number}", gpus=8, labels=labels, annotations=annotations)
    assert leaves(stage) == {"a": {"a"}, "b": {"b"}}
