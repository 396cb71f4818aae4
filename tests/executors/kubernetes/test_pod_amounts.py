"""What pods take of their nodes: of containers, of the pod as a whole, and while they are resized."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.pod_amounts import amounts_of, bound_amounts_of
from support.kubernetes.client import STRATEGIC
from support.pods import PodStage

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        yield stage


def container(name: str, cpu: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": {"cpu": cpu}}, **more}


def pod(status: dict[str, Any] | None = None, **spec: Any) -> Pod:
    meta = {"name": "p", "uid": "u", "namespace": "default"}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status or {}}, Pod)


MAIN, SIDECAR = [container("main", "2"), container("more", "1")], {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "cpus"),
    [
        ({"containers": MAIN}, 3.0),
        ({"containers": MAIN, "initContainers": [container("i", "5")]}, 5.0),
        ({"containers": MAIN, "initContainers": [container("s", "1", **SIDECAR)]}, 4.0),
        (
            {
                "containers": MAIN,
                "initContainers": [container("s", "1", **SIDECAR), container("i", "4")],
            },
            5.0,
        ),
        ({"containers": MAIN, "overhead": {"cpu": "500m"}}, 3.5),
        ({"containers": MAIN, "resources": {"requests": {"cpu": "8"}}}, 8.0),
        (
            {
                "containers": MAIN,
                "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "4"}},
                "overhead": {"cpu": "1"},
            },
            2.0,
        ),
        ({"containers": MAIN, "resources": {"limits": {"cpu": "8"}}}, 3.0),
    ],
)
def test_a_pod_asks_for_what_its_kubelet_counts(spec: dict[str, Any], cpus: float) -> None:
    told = pod(**spec)
    assert amounts_of(told.spec) == {"cpu": cpus}
    assert bound_amounts_of(told) == {"cpu": cpus}


def resizing(used: str, admitted: str, reason: str = "") -> dict[str, Any]:
    """The status of a pod whose container `main` is resized."""
    status = {
        "name": "main",
        "resources": {"requests": {"cpu": used}},
        "allocatedResources": {"cpu": admitted},
    }
    condition = {"type": "PodResizePending", "status": "True", "reason": reason}
    return {"containerStatuses": [status], "conditions": [condition] if reason else []}


@pytest.mark.parametrize(
    ("status", "cpus"),
    [
        (resizing("2", "2"), 3.0),
        (resizing("1", "1"), 3.0),
        (resizing("4", "2"), 5.0),
        (resizing("1", "4"), 5.0),
        (resizing("1", "1", "Deferred"), 3.0),
        (resizing("1", "1", "Infeasible"), 2.0),
    ],
)
def test_a_bound_pod_takes_the_largest_of_what_is_wanted_admitted_and_used(
    status: dict[str, Any], cpus: float
) -> None:
    assert bound_amounts_of(pod(status, containers=MAIN)) == {"cpu": cpus}


def test_a_pod_as_a_whole_is_resized() -> None:
    spec = {"containers": MAIN, "resources": {"requests": {"cpu": "4"}}}
    status = {"resources": {"requests": {"cpu": "6"}}, "allocatedResources": {"cpu": "5"}}
    assert bound_amounts_of(pod(status, **spec)) == {"cpu": 6.0}


def said(stage: PodStage, name: str) -> str:
    """What the condition PodScheduled of a pod says while it waits."""
    told = [c for c in stage.pods()[name]["status"].get("conditions", ()) if c["status"] == "False"]
    return str(told[0]["message"]) if told else ""


def test_what_a_pod_requests_as_a_whole_counts(stage: PodStage) -> None:
    stage.nodes("n0")
    stage.start()
    for name in ("p0", "p1"):
        stage.pod(name, spec={"resources": {"requests": {"cpu": "60"}}})
    stage.until(lambda: any(map(stage.bound, ("p0", "p1"))))
    first, other = sorted(("p0", "p1"), key=stage.bound, reverse=True)
    stage.until(lambda: "needs 60 CPUs; 36 are free" in said(stage, other))
    stage.exit(first)
    stage.until(lambda: stage.bound(other))


def resize(stage: PodStage, name: str, cpu: str) -> None:
    told = {"cpu": cpu, "memory": "1Gi"}
    main = {"name": "main", "resources": {"requests": told, "limits": told}}
    path = f"{PODS}/{name}/resize"
    answer = stage.api.patch(path, {"spec": {"containers": [main]}}, STRATEGIC)
    assert answer.status_code == 200, answer.text


def others_on(stage: PodStage, node: str) -> float:
    """CPUs that count as foreign on a node."""
    held = stage.controller.ledger.site.others
    return sum(member.cpus for member in held.get(f"others on {node}", ()))


@pytest.mark.parametrize("scheduler", ["gantree", "other"])
def test_a_running_pod_that_is_resized_takes_more_or_less(stage: PodStage, scheduler: str) -> None:
    """Of a gang, more than its job holds; of another scheduler, all of it."""
    stage.nodes("n0")
    node = {} if scheduler == "gantree" else {"nodeName": "n0", "schedulerName": scheduler}
    stage.pod("p0", spec=node)
    stage.start()
    stage.until(lambda: stage.bound("p0"))
    resize(stage, "p0", "80")
    own = 1.0 if scheduler == "gantree" else 0.0
    stage.until(lambda: others_on(stage, "n0") == 80.0 - own)
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "20"}}}
    stage.pod("large", spec={"containers": [container]})
    stage.until(lambda: "needs 20 CPUs; 16 are free" in said(stage, "large"))
    stage.stop()
    stage.start()
    stage.until(lambda: others_on(stage, "n0") == 80.0 - own)
    resize(stage, "p0", "1")
    stage.until(lambda: stage.bound("large"))
    stage.until(lambda: others_on(stage, "n0") == 1.0 - own)
