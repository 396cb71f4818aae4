"""What preflight finds on clusters that lack something, and that it finds nothing on one that lacks nothing."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.tools.preflight import UPGRADE, Finding, Level, findings
from gantree.executors.kubernetes.tools.survey import survey
from support.kubernetes.controllers.compute_domains import DRIVER, GROUP, crd
from support.kubernetes.server.access import Access, Grant, User
from support.kubernetes.server.server import Settings
from support.kubernetes.server.thread import Api, ServerThread

SOUND = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/gpu.deploy.driver": "true",
    "nvidia.com/mig.config.state": "success",
    "feature.node.kubernetes.io/pci-15b3.present": "true",
    "feature.node.kubernetes.io/kernel-version.major": "5",
    "feature.node.kubernetes.io/kernel-version.minor": "4",
    "network.topology.nvidia.com/leaf": "l0",
}
NFD, LEAF = "feature.node.kubernetes.io/", "network.topology.nvidia.com/leaf"
NFD_LABELS = [key for key in SOUND if key.startswith(NFD)]
OPERATOR = "nvidia.com/gpu.deploy.driver"
COMPUTE_DOMAINS, SERVED = f"{GROUP}/v1beta1", frozenset({"computedomains"})


@pytest.fixture
def api() -> Iterator[Api]:
    with ServerThread() as running, Api(running.url) as api:
        yield api


def node(api: Api, name: str, **told: Any) -> None:
    """A node that lacks nothing, but for what is told otherwise: labels (None: not there), capacity, allocatable."""
    labels = {
        key: text for key, text in (SOUND | told.get("labels", {})).items() if text is not None
    }
    capacity = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8", "rdma/hca": "8"}
    capacity = {key: text for key, text in (capacity | told.get("capacity", {})).items() if text}
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": told.get("spec", {}),
        "status": {
            "capacity": capacity,
            "allocatable": capacity | told.get("allocatable", {}),
            "conditions": [{"type": "Ready", "status": told.get("ready", "True")}],
        },
    }
    assert api.post("/api/v1/nodes", body).status_code == 201
    driver = [
        {"name": "nvidia-driver-ctr", "image": "i"},
        {"name": "nvidia-peermem-ctr", "image": "i"},
    ]
    pod(api, f"driver-{name}", {"nodeName": name, "containers": driver})


def pod(api: Api, name: str, spec: dict[str, Any]) -> None:
    body = {"metadata": {"name": name}, "spec": spec}
    answer = api.post("/api/v1/namespaces/default/pods", body)
    assert answer.status_code == 201, answer.text


def found(api: Api, selector: str = "") -> list[Finding]:
    told = asyncio.run(survey(Connection(api.url), selector))
    return [each for each in findings(told, "gantree") if each.level is not Level.NOTE]


def test_a_cluster_that_lacks_nothing_has_no_finding(api: Api) -> None:
    node(api, "n0")
    node(api, "n1")
    assert found(api) == []


@pytest.mark.parametrize(
    ("odd", "level", "check", "words"),
    [
        ({"ready": "False"}, Level.PROBLEM, "nodes", "not ready"),
        ({"spec": {"unschedulable": True}}, Level.WARNING, "nodes", "cordoned"),
        ({"capacity": {"nvidia.com/gpu": ""}}, Level.PROBLEM, "device plugin", "reports none"),
        ({"allocatable": {"nvidia.com/gpu": "7"}}, Level.PROBLEM, "device plugin", "1 GPU of 8"),
        ({"capacity": {"nvidia.com/gpu": "7"}}, Level.WARNING, "device plugin", "label counts 8 GPUs, its capacity 7"),
        ({"labels": {OPERATOR: "paused-for-driver-upgrade"}}, Level.WARNING, "GPU Operator", "driver is not"),
        ({"labels": {UPGRADE: "upgrade-failed"}}, Level.PROBLEM, "GPU Operator", "upgrade-failed"),
        ({"labels": {"nvidia.com/mig.config.state": "failed"}}, Level.PROBLEM, "MIG", "failed"),
        ({"labels": {"nvidia.com/gpu.product": None}}, Level.WARNING, "labels", "no nvidia.com/gpu.product"),
        ({"labels": dict.fromkeys(NFD_LABELS)}, Level.WARNING, "labels", "no feature.node"),
        ({"capacity": {"rdma/hca": ""}}, Level.PROBLEM, "RDMA", "no resource that pods could ask for"),
        ({"capacity": {"rdma/hca": "", "rdma/ib": "8"}}, Level.WARNING, "RDMA", "name their NICs differently"),
        ({"labels": {f"{NFD}rdma.available": "false"}}, Level.PROBLEM, "RDMA", "kernel has no RDMA"),
        ({"labels": {LEAF: None}}, Level.WARNING, "topology", f"no label of {LEAF}"),
    ],
)  # fmt: skip
def test_a_node_that_lacks_something_is_named_with_it(
    api: Api, odd: dict[str, Any], level: Level, check: str, words: str
) -> None:
    node(api, "n0")
    node(api, "n1", **odd)
    told = [each for each in found(api) if each.check == check and words in each.what]
    assert [each.level for each in told] == [level], found(api)
    assert told[0].nodes in ((), ("n1",))
    assert told[0].fix


def test_peer_memory_is_asked_for_where_the_kernel_is_too_old_and_nothing_loads_it(
    api: Api,
) -> None:
    node(api, "n0")
    assert [each for each in found(api) if each.check == "GPUDirect RDMA"] == []
    api.delete("/api/v1/namespaces/default/pods/driver-n0", {"gracePeriodSeconds": 0})
    (told,) = (each for each in found(api) if each.check == "GPUDirect RDMA")
    assert (told.level, told.nodes) == (Level.PROBLEM, ("n0",))
    new = {"feature.node.kubernetes.io/kernel-version.minor": "15"}
    api.patch("/api/v1/nodes/n0", {"metadata": {"labels": new}})
    assert [each for each in found(api) if each.check == "GPUDirect RDMA"] == []


def test_a_pod_with_rdma_that_may_not_lock_memory_is_named(api: Api) -> None:
    node(api, "n0")
    limits = {"resources": {"limits": {"rdma/hca": "1"}}}
    lock = {"securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}
    pod(api, "good", {"containers": [{"name": "c", "image": "i", **limits, **lock}]})
    assert found(api) == []
    pod(api, "bare", {"containers": [{"name": "c", "image": "i", **limits}]})
    (told,) = found(api)
    assert (told.level, told.check) == (Level.PROBLEM, "memlock")
    assert "default/bare" in told.what
    assert "IPC_LOCK" in told.fix


def test_racks_with_nvlink_between_nodes_need_compute_domains(api: Api) -> None:
    clique = {"labels": {"nvidia.com/gpu.clique": "u.0"}}
    node(api, "n0", **clique)
    assert [each.check for each in found(api)] == []
    node(api, "n1", **clique)
    (told,) = found(api)
    assert (told.level, told.check, told.nodes) == (Level.PROBLEM, "IMEX", ("n0", "n1"))
    api.define(crd())
    (told,) = found(api)
    assert (told.nodes, "no slice of" in told.what) == (("n0", "n1"), True)
    for name in ("n0", "n1"):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {
            "driver": DRIVER,
            "nodeName": name,
            "pool": pool,
            "devices": [{"name": "channel-0"}],
        }
        body = {"metadata": {"name": name}, "spec": spec}
        assert api.post("/apis/resource.k8s.io/v1/resourceslices", body).status_code == 201
    assert found(api) == []
    old = replace(asyncio.run(survey(Connection(api.url))), resources={COMPUTE_DOMAINS: SERVED})
    (told,) = (each for each in findings(old, "gantree") if each.check == "IMEX")
    assert "resource.k8s.io/v1" in told.what


def test_gpus_that_pods_of_other_schedulers_hold_are_told(api: Api) -> None:
    node(api, "n0")
    limits = {"resources": {"limits": {"nvidia.com/gpu": "2"}, "requests": {"nvidia.com/gpu": "2"}}}
    ours = {
        "nodeName": "n0",
        "schedulerName": "gantree",
        "containers": [{"name": "c", "image": "i", **limits}],
    }
    pod(api, "ours", ours)
    assert found(api) == []
    pod(api, "theirs", {**ours, "schedulerName": "volcano"})
    (told,) = found(api)
    assert told.what == "pods of volcano hold 2 GPUs"


def test_nodes_that_are_not_chosen_are_not_looked_at(api: Api) -> None:
    node(api, "n0", labels={"pool": "a"})
    node(api, "n1", labels={"pool": "b"}, ready="False")
    assert found(api, "pool=a") == []
    assert [(each.check, each.what) for each in found(api)] == [("nodes", "not ready")]


def test_what_the_account_may_not_do_is_told_with_its_reason() -> None:
    every, look = (
        Grant(("*",), ("*",), ("*",)),
        Grant(("list", "watch", "get"), ("",), ("nodes", "pods")),
    )
    access = Access({"": User("admin", (every,)), "viewer": User("viewer", (look,))})
    with ServerThread(Settings(access=access)) as running, Api(running.url) as api:
        node(api, "n0")
        assert found(api) == []
        token = ("viewer", 60.0)
        connection = Connection(running.url, ask_token=lambda: token, namespace="sched")
        told = findings(asyncio.run(survey(connection)), "gantree")
    lacking = [each.what for each in told if each.check == "rights"]
    assert "this account may not create pods/binding of the core API" in lacking
    assert "this account may not list podgroups of scheduling.volcano.sh" in lacking
    assert "this account may not create leases of coordination.k8s.io in namespace sched" in lacking
    assert not any("list nodes" in each for each in lacking)


def test_without_gpus_there_is_nothing_to_schedule(api: Api, tmp_path: Path) -> None:
    (told,) = found(api)
    assert (told.level, told.what) == (Level.PROBLEM, "none of 0 nodes has GPUs")
