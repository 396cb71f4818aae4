"""What pods only prefer of other pods: taken among places that are as good, however many come together."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Node, Pod
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.constraints.preferred_pod_affinity import preferred_pod_affinity
from gantree.executors.kubernetes.pods.self_affinity import self_affinity_devices
from gantree.model.jobs import PreferredMembers
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        stage.nodes("a[0-1]", topology_kubernetes_io__zone="a")
        stage.nodes("b[0-1]", topology_kubernetes_io__zone="b")
        yield stage


def prefers(which: str, key: str, weight: int = 100, **labels: str) -> Json:
    """An affinity (`podAffinity`, `podAntiAffinity`) to pods with labels that is only preferred."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    told = [{"weight": weight, "podAffinityTerm": term}]
    return {"affinity": {which: {"preferredDuringSchedulingIgnoredDuringExecution": told}}}


def evenly(key: str, **labels: str) -> Json:
    told = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway"}
    return {"topologySpreadConstraints": [{**told, "labelSelector": {"matchLabels": labels}}]}


def of(stage: PodStage, prefix: str) -> list[str]:
    """The nodes of pods whose names begin so."""
    pods = stage.pods()
    return [p["spec"].get("nodeName", "") for name, p in pods.items() if name.startswith(prefix)]


def replicas(stage: PodStage, app: str, count: int, spec: Json, **told: Any) -> None:
    for number in range(count):
        stage.pod(f"{app}-{number}", labels={"app": app}, spec=spec, **told)
    stage.until(lambda: all(of(stage, f"{app}-")))


def test_replicas_that_come_together_are_apart_as_far_as_nodes_go(stage: PodStage) -> None:
    """The fifth has no node of its own, and does not wait for one. Nobody is told that this is not honoured."""
    stage.start()
    replicas(stage, "web", 5, prefers("podAntiAffinity", HOSTNAME, app="web"))
    assert sorted(Counter(of(stage, "web-")).values()) == [1, 1, 1, 2]
    events = stage.api.get("/api/v1/events").json()["items"]
    assert not [each for each in events if each["reason"] == "NotHonoured"]


def test_a_spread_that_may_be_broken_is_kept_where_there_is_room(stage: PodStage) -> None:
    """One of another scheduler counts too, and whoever must not be in zone b is not kept waiting."""
    theirs = {"schedulerName": "other", "nodeName": "a0"}
    stage.pod("web-theirs", labels={"app": "web"}, spec=theirs)
    stage.start()
    stage.until(lambda: bool(stage.controller.ledger.site.others))
    replicas(stage, "web", 5, evenly(ZONE, app="web"))
    assert Counter(node[0] for node in of(stage, "web-")) == {"a": 3, "b": 3}
    pinned = {**evenly(ZONE, app="web"), "nodeSelector": {ZONE: "a"}}
    replicas(stage, "web-only-a", 2, pinned)


def test_company_goes_both_ways_and_does_not_pull_a_gang_apart(stage: PodStage) -> None:
    stage.pod("db", labels={"app": "db"}, spec={"schedulerName": "other", "nodeName": "b1"})
    shy = {
        "schedulerName": "other",
        "nodeName": "a0",
        **prefers("podAntiAffinity", ZONE, app="loud"),
    }
    stage.pod("shy", spec=shy)
    stage.start()
    stage.until(lambda: len(stage.controller.ledger.site.others) == 2)
    near_db = prefers("podAffinity", HOSTNAME, app="db")
    stage.pod("p0", spec=near_db)
    stage.pod("loud", labels={"app": "loud"})
    stage.pod("pinned", spec={"nodeSelector": {HOSTNAME: "a1"}})
    stage.until(lambda: stage.bound("p0", "loud", "pinned"))
    assert stage.node_of("pinned") == "a1"
    assert (stage.node_of("p0"), stage.node_of("loud")[0]) == ("b1", "b")
    apart = prefers("podAntiAffinity", HOSTNAME, app="gang")
    told = {"labels": {"app": "gang", "gantree.io/gang": "gang", "gantree.io/gang-size": "2"}}
    for number in range(2):
        stage.pod(f"gang-{number}", gpus=4, spec=apart, **told)
    stage.until(lambda: stage.bound("gang-0", "gang-1"))
    assert len(set(of(stage, "gang-"))) == 1


def pod(uid: str, app: str, **spec: Any) -> Pod:
    metadata = {"name": uid, "uid": uid, "namespace": "x", "labels": {"app": app}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


def index() -> PodIndex:
    found = PodIndex()
    for name in ("a0", "a1", "b0"):
        labels = {ZONE: name[0], HOSTNAME: name}
        found.update_node(
            name, msgspec.convert({"metadata": {"name": name, "labels": labels}}, Node)
        )
    return found


def test_those_who_hold_the_device_of_their_kind_are_not_counted_twice() -> None:
    """Another of the kind does not prefer anything, so it is counted by name; one that ends is not any more."""
    apart = prefers("podAntiAffinity", ZONE, 7, app="web")
    own, there = pod("new", "web", **apart), index()
    there.place(pod("same", "web", **apart), "a0")
    there.place(pod("other", "web"), "b0")
    (kin,) = self_affinity_devices(own)
    assert preferred_pod_affinity(there, own) == (PreferredMembers(ZONE, kin, -14, (("b", 1),)),)
    there.remove("other")
    assert preferred_pod_affinity(there, own) == (PreferredMembers(ZONE, kin, -14, ()),)


def test_what_those_who_are_there_prefer_is_the_sum_of_their_weights_by_domain() -> None:
    """A pod that must be near to others weighs one to each of them."""
    there, new = index(), pod("new", "web")
    assert preferred_pod_affinity(there, new) == ()
    must = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": ZONE}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [must]}
    there.place(pod("one", "db", **prefers("podAffinity", ZONE, 5, app="web")), "a0")
    there.place(pod("two", "db", **prefers("podAntiAffinity", ZONE, 9, app="web")), "a1")
    there.place(pod("three", "db", affinity={"podAffinity": required}), "b0")
    assert preferred_pod_affinity(there, new) == (
        PreferredMembers(ZONE, "", 1, (("a", -4), ("b", 1))),
    )
    assert preferred_pod_affinity(there, pod("else", "cache")) == ()
    for uid in ("one", "two", "three"):
        there.remove(uid)
    assert not there.preferred_affinity.has_any
