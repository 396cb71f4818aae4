"""Pods that may not be just anywhere: ports of the node, others to keep away from or near to, spreads, volumes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gantree.testing.kubernetes.statuses import Json
from gantree.testing.pods import PodStage

HOSTNAME = "kubernetes.io/hostname"


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
