"""CompositePodGroups: pod groups that start together. Kubernetes has them from 1.37 on: read, not run on a real one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.pods.gang_spec import GangSpec
from gantree.executors.kubernetes.workloads.composite_groups import MISSING, GroupTree, Key
from gantree.executors.kubernetes.workloads.pod_groups import COMPOSITE, CORE
from gantree.executors.kubernetes.writes import pod_status as telling
from support.kubernetes.server.server import Settings
from support.pods import PodStage

GROUPS = "/apis/scheduling.k8s.io/v1alpha3/namespaces/default/"
LEAF = "topology.kubernetes.io/zone"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path, settings=Settings(gang_api="v1alpha3")) as stage:
        yield stage


def composite(stage: PodStage, name: str, groups: int, **spec: Any) -> None:
    policy: dict[str, Any] = {"gang": {"minGroupCount": groups}} if groups else {"basic": {}}
    made(stage, "compositepodgroups", "CompositePodGroup", name, schedulingPolicy=policy, **spec)


def group(stage: PodStage, name: str, members: int, parent: str, **spec: Any) -> None:
    told = {"schedulingPolicy": {"gang": {"minCount": members}}, **spec}
    made(stage, "podgroups", "PodGroup", name, parentCompositePodGroupName=parent, **told)


def made(stage: PodStage, plural: str, kind: str, name: str, **spec: Any) -> None:
    body = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": kind, "metadata": {"name": name}}
    answer = stage.api.post(GROUPS + plural, {**body, "spec": spec})
    assert answer.status_code == 201, answer.text


def members(stage: PodStage, of: str, count: int, gpus: int = 8) -> list[str]:
    names = [f"{of}-{number}" for number in range(count)]
    for name in names:
        stage.pod(name, gpus, spec={"schedulingGroup": {"podGroupName": of}})
    return names


def in_zone(key: str = LEAF) -> dict[str, Any]:
    return {"schedulingConstraints": {"topology": [{"key": key}]}}


def zone_of(stage: PodStage, name: str) -> str:
    return stage.node_of(name)[0]


def condition(stage: PodStage, name: str) -> tuple[str, str]:
    told = stage.api.get(f"{GROUPS}podgroups/{name}").json().get("status", {})
    found = told.get("conditions", [{"type": "", "status": ""}])[0]
    return found["type"], found["status"]


def test_groups_of_a_composite_start_together_each_in_its_domain(stage: PodStage) -> None:
    for zone in ("a", "b"):
        stage.nodes(f"{zone}[0-2]", topology_kubernetes_io__zone=zone)
    stage.start()
    composite(stage, "root", 2)
    group(stage, "prefill", 2, "root", **in_zone())
    pods = members(stage, "prefill", 2)
    stage.pod("alone", 1)
    stage.until(lambda: stage.bound("alone"))
    stage.exit("alone")
    assert not any(map(stage.bound, pods))
    group(stage, "decode", 3, "root", **in_zone())
    pods += members(stage, "decode", 3)
    stage.until(lambda: stage.bound(*pods))
    (state,) = (each for each in stage.controller.ledger.holding.values())
    assert [role.name for role in state.spec.roles] == ["decode", "prefill"]
    zones = [{zone_of(stage, each) for each in pods if each.startswith(g)} for g in ("pre", "dec")]
    assert [len(each) for each in zones] == [1, 1]
    done = ("PodGroupInitiallyScheduled", "True")
    stage.until(lambda: condition(stage, "prefill") == condition(stage, "decode") == done)


def test_a_composite_that_is_not_whole_says_what_is_missing(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "LATER_S", 0.0)
    monkeypatch.setattr(telling, "EVERY_S", 0.1)
    stage.nodes("n[0-2]")
    stage.start()
    group(stage, "g", 1, "root")
    (name,) = members(stage, "g", 1)
    stage.until(lambda: "no pod group 'root'" in said(stage, name))
    composite(stage, "root", 2)
    stage.until(lambda: "1 of 2 pods of 'root'" in said(stage, name))
    group(stage, "h", 1, "root")
    (other,) = members(stage, "h", 1)
    stage.until(lambda: stage.bound(name, other))


def said(stage: PodStage, name: str) -> str:
    told = [c for c in stage.pods()[name]["status"].get("conditions", ()) if c["status"] == "False"]
    return str(told[0]["message"]) if told else ""


def test_a_composite_is_in_one_domain(stage: PodStage) -> None:
    for zone, last in (("a", 1), ("b", 3)):
        stage.nodes(f"{zone}[0-{last}]", topology_kubernetes_io__zone=zone)
    stage.start()
    composite(stage, "root", 2, **in_zone())
    pods: list[str] = []
    for name in ("g", "h"):
        group(stage, name, 2, "root")
        pods += members(stage, name, 2)
    stage.until(lambda: stage.bound(*pods))
    assert {zone_of(stage, name) for name in pods} == {"b"}


def test_groups_below_a_basic_composite_start_each_by_itself(stage: PodStage) -> None:
    stage.nodes("n[0-1]")
    stage.start()
    composite(stage, "root", 0)
    group(stage, "g", 1, "root")
    group(stage, "h", 9, "root")
    (name,) = members(stage, "g", 1)
    stage.until(lambda: stage.bound(name))


def key(name: str, kind: str = CORE.key_word) -> Key:
    return "default", name, kind


def root(name: str) -> Key:
    return key(name, COMPOSITE.key_word)


def spec(parent: str | None, members: int = 1, required: str | None = None) -> GangSpec:
    return GangSpec(members=members, parent=parent, required=required)


def above(parent: str | None = None, groups: int = 1, required: str | None = None) -> GangSpec:
    return GangSpec(members=0, parent=parent, groups=groups, required=required)


def test_a_tree_is_one_gang_up_to_a_basic_composite() -> None:
    tree = GroupTree()
    tree.set(root("top"), above(groups=0))
    tree.set(root("job"), above("top", 2))
    tree.set(root("half"), above("job", 1, "rack"))
    tree.set(key("a"), spec("half", 3))
    tree.set(key("b"), spec("job", 2, "row"))
    assert {tree.gang_key(key(name)) for name in "ab"} == {root("job")}
    merged = tree.spec_of(root("job"))
    assert merged is not None
    assert [(r.name, r.members, r.required) for r in merged.roles] == [
        ("a", 3, "rack"),
        ("b", 2, "row"),
    ]
    assert (merged.members, merged.unknown) == (5, ())
    tree.set(key("c"), spec("half"))
    merged = tree.spec_of(root("job"))
    assert merged is not None
    assert [role.required for role in merged.roles] == [None, "row", None]
    assert len(merged.unknown) == 2
    for name in ("a", "b", "c"):
        tree.set(key(name), None)
    for name in ("top", "job", "half"):
        tree.set(root(name), None)
    assert not tree.specs
    assert not tree._children


def test_groups_that_are_yet_to_come_are_counted_at_every_level() -> None:
    tree = GroupTree()
    tree.set(root("job"), above(groups=3))
    tree.set(root("half"), above("job", 2))
    tree.set(key("a"), spec("half"))
    merged = tree.spec_of(root("job"))
    assert merged is not None
    assert sum(role.name.startswith(MISSING) for role in merged.roles) == 3


def test_groups_in_a_circle_end_nothing() -> None:
    tree = GroupTree()
    tree.set(root("x"), above("y"))
    tree.set(root("y"), above("x"))
    tree.set(key("a"), spec("x"))
    gang = tree.gang_key(key("a"))
    assert tree.groups_of(gang) == [key("a")]
    assert tree.spec_of(gang) is not None
