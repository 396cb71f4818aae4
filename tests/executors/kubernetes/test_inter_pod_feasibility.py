"""Pods that may not be just anywhere: ports of the node, others to keep away from or near to, spreads, volumes."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.constraints import pod_turns
from gantree.executors.kubernetes.writes import pod_status as telling
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


@pytest.fixture(autouse=True)
def _reasons_are_told_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for the next turn of a gang."""
    monkeypatch.setattr(telling, "EVERY_S", 0.2)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def with_port(number: int, **port: str | int) -> Json:
    """A spec whose container takes a port of the node."""
    ports = [{"containerPort": number, "hostPort": number, **port}]
    resources = {"requests": {"cpu": "1"}}
    return {"containers": [{"name": "main", "image": "i", "ports": ports, "resources": resources}]}


def away_from(labels: Json, key: str = HOSTNAME) -> Json:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAntiAffinity": required}}


def said(stage: PodStage, name: str) -> str:
    """What the condition PodScheduled of a pod says while it waits."""
    told = [c for c in stage.pods()[name]["status"].get("conditions", ()) if c["status"] == "False"]
    return str(told[0]["message"]) if told else ""


def test_a_port_of_a_node_is_had_by_one_pod(stage: PodStage) -> None:
    """One of another scheduler has it on n0; another protocol is another port."""
    stage.nodes("n[0-1]")
    stage.pod("theirs", spec={"schedulerName": "other", "nodeName": "n0", **with_port(8080)})
    stage.start()
    stage.pod("p0", spec=with_port(8080))
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") == "n1"
    stage.pod("p1", spec=with_port(8080))
    stage.pod("p2", spec=with_port(8080, protocol="UDP"))
    stage.until(lambda: stage.bound("p2") and said(stage, "p1") != "")
    assert "port 8080/TCP" in said(stage, "p1")
    stage.exit("theirs")
    stage.until(lambda: stage.bound("p1"))
    assert stage.node_of("p1") == "n0"


def test_pods_that_keep_from_their_kind_are_on_a_node_each(stage: PodStage) -> None:
    stage.nodes("n[0-2]")
    stage.start()
    for number in range(2):
        labels = {"gantree.io/gang": "g", "app": "web"}
        told = {"gantree.io/gang-size": "2"}
        stage.pod(f"g-{number}", 1, labels=labels, annotations=told, spec=away_from({"app": "web"}))
    stage.until(lambda: stage.bound("g-0", "g-1"))
    stage.pod("p0", labels={"app": "web"}, spec=away_from({"app": "web"}))
    stage.pod("p1", labels={"app": "web"}, spec=away_from({"app": "web"}))
    stage.until(lambda: stage.bound("p0") and said(stage, "p1") != "")
    nodes = {stage.node_of(name) for name in ("g-0", "g-1", "p0")}
    assert nodes == {"n0", "n1", "n2"}
    assert "away from" in said(stage, "p1")


def zoned(stage: PodStage, **nodes: str) -> None:
    """Nodes by zone."""
    for zone, names in nodes.items():
        stage.nodes(names, topology_kubernetes_io__zone=zone)


def zone_of(stage: PodStage, name: str) -> str:
    """The zone of the node of a pod: the letter that its name begins with."""
    return stage.node_of(name)[0]


def near_to(labels: Json, key: str = ZONE) -> Json:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": key}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {"affinity": {"podAffinity": required}}


def spread_over(key: str, labels: Json, **more: object) -> Json:
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
        **more,
    }
    return {"topologySpreadConstraints": [constraint]}


def test_a_pod_keeps_away_from_others_and_others_keep_it_away(stage: PodStage) -> None:
    """Both directions: p0 asks for it, p1 is told by a pod that was there before it."""
    zoned(stage, a="a[0-1]", b="b[0-1]")
    db = {"schedulerName": "other", "nodeName": "a0"}
    stage.pod("db", labels={"app": "db"}, spec={**db, **away_from({"app": "batch"}, ZONE)})
    stage.start()
    stage.pod("p0", spec=away_from({"app": "db"}, ZONE))
    stage.pod("p1", labels={"app": "batch"})
    stage.until(lambda: stage.bound("p0", "p1"))
    assert {zone_of(stage, "p0"), zone_of(stage, "p1")} == {"b"}


def test_a_pod_that_no_domain_will_do_for_waits_until_one_does(stage: PodStage) -> None:
    zoned(stage, a="a0", b="b0")
    for node in ("a0", "b0"):
        stage.pod(
            f"on-{node}", labels={"app": "db"}, spec={"schedulerName": "other", "nodeName": node}
        )
    stage.start()
    stage.pod("p0", spec=away_from({"app": "db"}, ZONE))
    stage.until(lambda: said(stage, "p0") != "")
    assert "pods that it keeps away from are there" in said(stage, "p0")
    stage.exit("on-b0")
    stage.until(lambda: stage.bound("p0"))
    assert stage.node_of("p0") == "b0"


def test_a_pod_is_near_to_those_that_it_must_be_near_to(stage: PodStage) -> None:
    zoned(stage, a="a[0-3]", b="b0")
    stage.pod("db", labels={"app": "db"}, spec={"schedulerName": "other", "nodeName": "b0"})
    stage.start()
    stage.pod("p0", spec=near_to({"app": "db"}))
    stage.pod("p1", spec=near_to({"app": "none"}))
    stage.until(lambda: stage.bound("p0") and said(stage, "p1") != "")
    assert stage.node_of("p0") == "b0"
    assert "the pods it must be near to are elsewhere" in said(stage, "p1")


def test_a_gang_that_is_near_to_itself_is_in_one_domain(stage: PodStage) -> None:
    zoned(stage, a="a[0-1]", b="b[0-2]")
    stage.start()
    labels, told = {"gantree.io/gang": "g", "app": "g"}, {"gantree.io/gang-size": "3"}
    for number in range(3):
        stage.pod(f"g-{number}", 8, labels=labels, annotations=told, spec=near_to({"app": "g"}))
    stage.until(lambda: stage.bound("g-0", "g-1", "g-2"))
    assert {zone_of(stage, f"g-{number}") for number in range(3)} == {"b"}
    for number in range(3):
        stage.exit(f"g-{number}")
    labels, told = {"gantree.io/gang": "h", "app": "h"}, {"gantree.io/gang-size": "4"}
    for number in range(4):
        stage.pod(f"h-{number}", 8, labels=labels, annotations=told, spec=near_to({"app": "h"}))
    stage.until(lambda: "in one zone" in said(stage, "h-0"))


def test_a_gang_is_spread_evenly_and_pods_after_it_keep_it_so(stage: PodStage) -> None:
    """Where upstream binds pod by pod, at no moment has a zone two more than another."""
    zoned(stage, a="a[0-3]", b="b0", c="c0")
    stage.start()
    labels, told = {"gantree.io/gang": "g", "app": "web"}, {"gantree.io/gang-size": "4"}
    spec = spread_over(ZONE, {"app": "web"})
    for number in range(4):
        stage.pod(f"g-{number}", 4, labels=labels, annotations=told, spec=spec)
    stage.until(lambda: stage.bound("g-0", "g-1", "g-2", "g-3"))
    counts = Counter(zone_of(stage, f"g-{number}") for number in range(4))
    assert sorted(counts.values()) == [1, 1, 2]
    for number in range(2):
        stage.pod(f"p{number}", labels={"app": "web"}, spec=spec)
    stage.until(lambda: stage.bound("p0", "p1"))
    counts.update(zone_of(stage, f"p{number}") for number in range(2))
    assert sorted(counts.values()) == [2, 2, 2]
    assert all(state.failures == 0 for state in stage.controller.ledger.jobs.values())


def test_a_spread_over_more_domains_than_there_are_keeps_each_at_its_skew(stage: PodStage) -> None:
    """minDomains: with fewer, the least counts as none."""
    zoned(stage, a="a[0-1]", b="b[0-1]")
    stage.start()
    spec = spread_over(ZONE, {"app": "web"}, minDomains=3)
    for number in range(3):
        stage.pod(f"p{number}", labels={"app": "web"}, spec=spec)
    names = ("p0", "p1", "p2")
    stage.until(lambda: sum(stage.bound(name) for name in names) == 2)
    (left,) = [name for name in names if not stage.bound(name)]
    stage.until(lambda: "skew of 1 over topology.kubernetes.io/zone" in said(stage, left))
    zoned(stage, c="c0")
    stage.until(lambda: stage.bound(*names))


def test_of_two_that_must_not_meet_and_are_placed_in_one_turn_one_is_bound(stage: PodStage) -> None:
    """Neither is on a node when the other is looked at: it is noticed before anything is written."""
    zoned(stage, a="a[0-1]")
    stage.pod("p0", labels={"app": "x"}, spec=away_from({"app": "y"}, ZONE))
    stage.pod("p1", labels={"app": "y"}, spec=away_from({"app": "x"}, ZONE))
    stage.start()
    stage.until(lambda: sum(map(stage.bound, ("p0", "p1"))) == 1)
    (left,) = [name for name in ("p0", "p1") if not stage.bound(name)]
    stage.until(lambda: "pods that it keeps away from are there" in said(stage, left))
    stage.exit("p0" if left == "p1" else "p1")
    stage.until(lambda: stage.bound(left))


def moments(stage: PodStage) -> int:
    """How many decisions placed the jobs that hold room."""
    return len(
        {state.placed_at for state in stage.controller.ledger.jobs.values() if state.placement}
    )


def test_with_affinity_to_their_own_kind_all_but_the_first_are_placed_at_once(
    stage: PodStage,
) -> None:
    zoned(stage, a="a[0-3]", b="b[0-3]")
    names = [f"p{number}" for number in range(24)]
    for name in names:
        stage.pod(name, labels={"app": "web"}, spec=near_to({"app": "web"}))
    stage.start()
    stage.until(lambda: stage.bound(*names))
    assert len({zone_of(stage, name) for name in names}) == 1
    assert moments(stage) <= 4


def test_pods_keep_from_their_kind_in_several_namespaces(stage: PodStage) -> None:
    """All in one decision: the core counts them, as it does those of one namespace."""
    stage.nodes("n[0-5]")
    spec = away_from({"app": "web"})
    required = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    required[0]["namespaces"] = ["default", "other"]
    names = [f"p{number}" for number in range(7)]
    for name in names:
        stage.pod(name, labels={"app": "web"}, spec=spec)
    stage.start()
    stage.until(lambda: sum(map(stage.bound, names)) == 6)
    assert len({stage.node_of(name) for name in names if stage.bound(name)}) == 6
    (left,) = [name for name in names if not stage.bound(name)]
    stage.until(lambda: "away from" in said(stage, left))
    assert moments(stage) == 1


def test_a_pod_that_fits_nowhere_holds_back_its_kind_for_a_while(
    stage: PodStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a rollout with a request that no node has."""
    monkeypatch.setattr(pod_turns, "PATIENCE_S", 0.5)
    zoned(stage, a="a0", b="b0")
    stage.start()
    spec = spread_over(ZONE, {"app": "web"})
    stage.pod("big", gpus=16, labels={"app": "web"}, spec=spec)
    stage.until(lambda: said(stage, "big") != "")
    names = [f"p{number}" for number in range(4)]
    for name in names:
        stage.pod(name, gpus=2, labels={"app": "web"}, spec=spec)
    stage.until(lambda: stage.bound(*names))
    assert sorted(Counter(zone_of(stage, name) for name in names).values()) == [2, 2]


@pytest.mark.parametrize("skew", [1, 2, 5])
def test_batches_keep_the_skew(stage: PodStage, skew: int) -> None:
    """At no moment has a zone more than skew beyond another; one zone has no room for its share."""
    zoned(stage, a="a[0-1]", b="b[0-1]", c="c0")
    names = [f"p{number}" for number in range(18)]
    for name in names:
        spec = spread_over(ZONE, {"app": "web"}, maxSkew=skew)
        stage.pod(name, gpus=2, labels={"app": "web"}, spec=spec)
    stage.start()
    zones, most = {"a": 0, "b": 0, "c": 0}, 3 * 4 + 2 * skew

    def is_done() -> bool:
        counts = zones | Counter(zone_of(stage, name) for name in names if stage.bound(name))
        assert max(counts.values()) - min(counts.values()) <= skew
        return sum(counts.values()) == min(most, 18)

    stage.until(is_done)
    assert all(state.failures == 0 for state in stage.controller.ledger.jobs.values())


def test_many_that_count_their_own_kind_get_their_places_one_after_the_other(
    stage: PodStage,
) -> None:
    """Also where the one whose turn it is goes away before it has its place."""
    zoned(stage, a="a0", b="b0")
    stage.start()
    spec = spread_over(ZONE, {"app": "web"})
    stage.pod("big", gpus=16, labels={"app": "web"}, spec=spec)
    stage.until(lambda: said(stage, "big") != "")
    names = [f"p{number}" for number in range(8)]
    for name in names:
        stage.pod(name, gpus=2, labels={"app": "web"}, spec=spec)
    stage.until(
        lambda: all(
            "pods that its constraints count are placed first" in said(stage, name)
            for name in names
        )
    )
    stage.api.delete("/api/v1/namespaces/default/pods/p0")
    stage.api.delete("/api/v1/namespaces/default/pods/big")
    stage.until(lambda: stage.bound(*names[1:]))
    counts = Counter(zone_of(stage, name) for name in names[1:])
    assert sorted(counts.values()) == [3, 4]
    jobs = stage.controller.ledger.jobs.values()
    assert all(state.failures == 0 for state in jobs)


def rather(key: str, value: str, weight: int = 1) -> Json:
    """Preferred nodes."""
    asked = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    terms = [{"weight": weight, "preference": asked}]
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    }


def test_a_pod_goes_to_nodes_that_it_prefers_while_they_have_room(stage: PodStage) -> None:
    zoned(stage, a="a0", b="b0")
    stage.start()
    stage.pod("p0", 8, spec=rather(ZONE, "b"))
    stage.until(lambda: stage.bound("p0"))
    stage.pod("p1", 8, spec=rather(ZONE, "b"))
    stage.until(lambda: stage.bound("p1"))
    assert (zone_of(stage, "p0"), zone_of(stage, "p1")) == ("b", "a")


def test_a_pod_may_ask_for_a_host_by_name(stage: PodStage) -> None:
    """As pods with local volumes do. The host of n2 has another name than its node."""
    stage.nodes("n[0-1]")
    stage.nodes("n2", kubernetes_io__hostname="h2")
    stage.start()
    stage.pod("selects", spec={"nodeSelector": {HOSTNAME: "n1"}})
    term = {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["h2"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    stage.pod("likes", spec={"affinity": {"nodeAffinity": required}})
    stage.pod("nowhere", spec={"nodeSelector": {HOSTNAME: "n2"}})
    stage.until(lambda: stage.bound("selects", "likes") and said(stage, "nowhere") != "")
    assert (stage.node_of("selects"), stage.node_of("likes")) == ("n1", "n2")
    assert not stage.bound("nowhere")
