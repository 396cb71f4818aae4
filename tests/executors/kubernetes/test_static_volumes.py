"""Volumes that are there already (local disks): found by their claims on the nodes where pods go, each by one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.apiserver.volume_objects import Claim, Volume
from gantree.executors.kubernetes.constraints import volume_writes
from gantree.executors.kubernetes.constraints.static_volumes import FreeVolumes, limit_of
from gantree.executors.kubernetes.writes import pod_status as telling
from support.kubernetes.controllers.binder import VolumeBinder
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
HOSTNAME = "kubernetes.io/hostname"


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that tests need not wait for the next turn of a gang."""
    monkeypatch.setattr(telling, "EVERY_S", 0.2)
    monkeypatch.setattr(volume_writes, "AGAIN_S", 0.05)


@contextmanager
def staged(state: Path) -> Iterator[tuple[PodStage, VolumeBinder]]:
    """Three nodes and a class of local volumes."""
    with PodStage(state) as stage:
        binder = VolumeBinder(stage.kubelet.client)
        stage.running.run(binder.__aenter__())
        try:
            stage.nodes("n[0-2]")
            body = {
                "metadata": {"name": "local"},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
            assert stage.api.post("/apis/storage.k8s.io/v1/storageclasses", body).status_code == 201
            yield stage, binder
        finally:
            stage.running.run(binder.__aexit__(None, None, None))


def volume_body(name: str, node: str, size: str = "10Gi", **spec: Any) -> Json:
    on_node = {"key": HOSTNAME, "operator": "In", "values": [node]}
    return {
        "metadata": {"name": name, "labels": spec.pop("labels", {})},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [on_node]}]}},
            **spec,
        },
    }


def claim_body(name: str, size: str = "10Gi", **spec: Any) -> Json:
    told = {"storageClassName": "local", "accessModes": ["ReadWriteOnce"]}
    resources = {"requests": {"storage": size}}
    return {"metadata": {"name": name}, "spec": {**told, "resources": resources, **spec}}


def volume(stage: PodStage, name: str, node: str, size: str = "10Gi", **spec: Any) -> None:
    assert stage.api.post(VOLUMES, volume_body(name, node, size, **spec)).status_code == 201


def claim(stage: PodStage, name: str, size: str = "10Gi") -> None:
    assert stage.api.post(CLAIMS, claim_body(name, size)).status_code == 201


def using(*claims: str) -> Json:
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return {"volumes": volumes}


def of_claim(stage: PodStage, name: str) -> str:
    """The volume that a claim has, "" for none."""
    found = stage.api.get(f"{CLAIMS}/{name}").json()
    is_bound = (found.get("status") or {}).get("phase") == "Bound"
    return str(found["spec"].get("volumeName", "")) if is_bound else ""


def said(stage: PodStage, name: str) -> str:
    told = [c for c in stage.pods()[name]["status"].get("conditions", ()) if c["status"] == "False"]
    return str(told[0]["message"]) if told else ""


def gang(stage: PodStage, count: int, gpus: int) -> None:
    """Pods with a claim each."""
    for number in range(count):
        stage.pod(
            f"g-{number}",
            gpus=gpus,
            labels={"gantree.io/gang": "g"},
            annotations={"gantree.io/gang-size": str(count)},
            spec=using(f"data-{number}"),
        )


def test_a_pod_goes_where_a_free_volume_suits_it_and_gets_the_smallest(tmp_path: Path) -> None:
    """A pod whose claim none suits waits, until there is one."""
    with staged(tmp_path) as (stage, _):
        for name, node, size in (("a", "n1", "50Gi"), ("b", "n1", "20Gi"), ("c", "n2", "5Gi")):
            volume(stage, name, node, size)
        stage.start()
        claim(stage, "data", "10Gi")
        stage.pod("p0", spec=using("data"))
        stage.until(lambda: stage.bound("p0"))
        assert (stage.node_of("p0"), of_claim(stage, "data")) == ("n1", "b")
        written = stage.api.get(f"{VOLUMES}/b").json()
        ref = written["spec"]["claimRef"]
        assert written["metadata"]["annotations"][volume_writes.BOUND_BY] == "yes"
        assert ref["uid"] == stage.api.get(f"{CLAIMS}/data").json()["metadata"]["uid"]
        claim(stage, "huge", "100Gi")
        stage.pod("p1", spec=using("huge"))
        stage.until(lambda: "no volume that is free suits it" in said(stage, "p1"))
        volume(stage, "d", "n0", "100Gi")
        stage.until(lambda: stage.bound("p1"))
        assert stage.node_of("p1") == "n0"


def test_a_gang_has_a_volume_for_each_member_where_it_goes(tmp_path: Path) -> None:
    """All four would fit on one node, which has two volumes: two each go where two are, and nowhere else."""
    with staged(tmp_path) as (stage, _):
        for name, node in (("a", "n0"), ("b", "n1"), ("c", "n1"), ("d", "n2"), ("e", "n2")):
            volume(stage, name, node)
        stage.start()
        for number in range(4):
            claim(stage, f"data-{number}")
        gang(stage, 4, gpus=2)
        stage.until(lambda: stage.bound(*(f"g-{n}" for n in range(4))))
        nodes = sorted(stage.node_of(f"g-{n}") for n in range(4))
        assert nodes == ["n1", "n1", "n2", "n2"]
        assert {of_claim(stage, f"data-{n}") for n in range(4)} == {"b", "c", "d", "e"}
        assert not any(state.failures for state in stage.controller.ledger.jobs.values())


def test_what_was_given_is_taken_back_where_the_gang_cannot_have_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is not bound in time: no pod is, and the volumes that are bound to nobody are free again."""
    monkeypatch.setattr(volume_writes, "MADE_WITHIN_S", 0.3)
    with staged(tmp_path) as (stage, binder):
        volume(stage, "a", "n0")
        volume(stage, "b", "n0")
        stage.running.call(binder.slow_claims.update, ("data-0", "data-1"))
        stage.start()
        claim(stage, "data-0")
        claim(stage, "data-1")
        gang(stage, 2, gpus=8)
        jobs = stage.controller.ledger.jobs
        volume(stage, "c", "n1")
        stage.until(lambda: any(state.failures for state in jobs.values()))
        assert not stage.bound("g-0")
        stage.running.call(binder.slow_claims.clear)
        free = [
            each
            for each in stage.api.get(VOLUMES).json()["items"]
            if not each["spec"].get("claimRef")
        ]
        assert len(free) == 3
        monkeypatch.setattr(volume_writes, "MADE_WITHIN_S", 60.0)
        stage.until(lambda: stage.bound("g-0", "g-1"))


# ----- which volume is whose


def node(name: str) -> Node:
    return msgspec.convert({"metadata": {"name": name, "labels": {HOSTNAME: name}}}, Node)


NODES = {name: node(name) for name in ("n0", "n1", "n2")}


def free_of(*bodies: Json) -> FreeVolumes:
    found = FreeVolumes()
    for body in bodies:
        told = {"status": {"phase": "Available"}, **body}
        found.update(body["metadata"]["name"], msgspec.convert(told, Volume))
    return found


def claimed(name: str, size: str = "10Gi", **spec: Any) -> Claim:
    body = claim_body(name, size, **spec)
    body["metadata"] |= {"namespace": "default", "uid": f"uid-{name}"}
    return msgspec.convert(body, Claim)


def chosen(free: FreeVolumes, asked: Claim, node: str = "n0") -> str:
    free.keep(asked, "local", node, NODES)
    return free.kept_for(("default", asked.metadata.name))


@pytest.mark.parametrize(
    ("spec", "asked"),
    [
        ({"size": "9Gi"}, {}),
        ({"storageClassName": "other"}, {}),
        ({"accessModes": ["ReadOnlyMany"]}, {}),
        ({"volumeMode": "Block"}, {}),
        ({"node": "n1"}, {}),
        ({"labels": {"disk": "hdd"}}, {"selector": {"matchLabels": {"disk": "ssd"}}}),
        ({"claimRef": {"namespace": "default", "name": "else"}}, {}),
        ({"claimRef": {"namespace": "default", "name": "data", "uid": "of-before"}}, {}),
    ],
)
def test_a_volume_that_does_not_suit_is_not_chosen(spec: Json, asked: Json) -> None:
    place = {"node": spec.pop("node", "n0"), "size": spec.pop("size", "10Gi")}
    free = free_of(volume_body("a", **place, **spec))
    assert chosen(free, claimed("data", **asked)) == ""


def test_the_one_that_names_the_claim_comes_before_the_smallest() -> None:
    named = {"claimRef": {"namespace": "default", "name": "data"}}
    free = free_of(volume_body("a", "n0"), volume_body("b", "n0", "99Gi", **named))
    assert chosen(free, claimed("data")) == "b"
    released = free_of({**volume_body("a", "n0"), "status": {"phase": "Released"}})
    assert chosen(released, claimed("data")) == ""


def test_one_that_is_on_no_node_in_particular_is_on_all() -> None:
    free = free_of(volume_body("a", "n0", "20Gi"), volume_body("b", "n0", nodeAffinity=None))
    assert chosen(free, claimed("x"), "n2") == "b"
    assert chosen(free, claimed("y"), "n2") == ""
    asked = [[("local", claimed("z"))]]
    assert limit_of(
        free_of(volume_body("c", "n0", nodeAffinity=None)), asked, NODES
    ).nodes == tuple(NODES)


def test_two_claims_never_keep_the_same_and_what_is_let_go_is_free() -> None:
    free = free_of(volume_body("a", "n0"), volume_body("b", "n0"))
    assert [chosen(free, claimed(name)) for name in ("x", "y", "z")] == ["a", "b", ""]
    free.let_go(("default", "x"))
    assert chosen(free, claimed("z")) == "a"
    free.update("b", None)
    assert chosen(free, claimed("y")) == ""


def test_a_node_that_holds_one_pod_has_volumes_for_one() -> None:
    """However many it has: else the nodes with fewer would be passed by."""
    free = free_of(*(volume_body(f"v{i}", f"n{digit}") for i, digit in enumerate("00112")))
    asked = [[("local", claimed(f"data-{number}"))] for number in range(2)]
    assert limit_of(free, asked, NODES, lambda node: 1).nodes == ("n0", "n1", "n2")


@pytest.mark.parametrize(
    ("on", "members", "nodes", "at_most"),
    [
        ("0", 1, "0", None),
        ("0011", 2, "01", None),
        ("0011", 4, "01", 2),
        ("0001122", 4, "012", 2),
        ("0012", 3, "012", 1),
        ("0000", 4, "0", None),
        ("", 2, "", None),
    ],
)
def test_a_role_is_limited_to_what_nodes_have_volumes_for(
    on: str, members: int, nodes: str, at_most: int | None
) -> None:
    """Each digit is a volume on the node of that number."""
    free = free_of(*(volume_body(f"v{i}", f"n{digit}") for i, digit in enumerate(on)))
    asked = [[("local", claimed(f"data-{number}"))] for number in range(members)]
    limit = limit_of(free, asked, NODES)
    assert limit.nodes == tuple(f"n{digit}" for digit in nodes)
    assert (limit.at_most if limit.nodes else None) == at_most
