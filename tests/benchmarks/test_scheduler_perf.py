"""The operation lists of Kubernetes' benchmark: numbers and templates are filled in, and operations carried out."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.kubernetes.client import Client
from support.kubernetes.server.thread import Api, ServerThread

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from scheduler_perf.lists import Workload, largest, workloads  # found by then
from scheduler_perf.operations import Operations
from scheduler_perf.pods import Pods
from scheduler_perf.server import Server
from scheduler_perf.templates import CannotRun, rendered

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "pod-", "labels": {"n": "{{Mod .Index 2}}"}},
    "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
}
CASES = [
    {
        "name": "Basic",
        "defaultPodTemplatePath": "pod.yaml",
        "featureGates": {"A": True},
        "workloadTemplate": [
            {
                "opcode": "createNodes",
                "countParam": "$nodes",
                "labelNodePrepareStrategy": {"labelKey": "zone", "labelValues": ["x", "y"]},
            },
            {
                "opcode": "createPodSets",
                "count": 2,
                "namespacePrefix": "set",
                "createPodsOp": {"opcode": "createPods", "countParam": "$pods"},
            },
            {"opcode": "createPods", "countParam": "$pods", "namespace": "w", "skipWaitToCompletion": True},
            {"opcode": "startCollectingMetrics", "namespaces": ["w"], "labelSelector": {"n": "1"}},
            {"opcode": "barrier"},
            {"opcode": "deletePods", "namespace": "w", "labelSelector": {"n": "0"}, "deletePodsPerSecond": 1000},
            {"opcode": "createPods", "countParam": "$pods", "collectMetrics": True},
        ],
        "workloads": [
            {"name": "small", "params": {"nodes": 2, "pods": 3}},
            {"name": "large", "params": {"nodes": 3, "pods": 4}, "featureGates": {"B": False}},
            {"name": "newer", "params": {"nodes": 3, "pods": 4}},
            {"name": "too large", "params": {"nodes": 3, "pods": 400}},
        ],
    },
]  # fmt: skip


@pytest.fixture
def lists(tmp_path: Path) -> Path:
    """A folder with one list."""
    folder = tmp_path / "lists" / "misc"
    folder.mkdir(parents=True)
    (folder / "pod.yaml").write_text(yaml.safe_dump(POD))
    (folder / "performance-config.yaml").write_text(yaml.safe_dump(CASES))
    return folder.parent


def test_a_template_is_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(
        "{a: {{.Index}}, b: {{ Mod .Index 5 }}, c: {{DivideInt 30000 .Count }}Mi, d: {{AddInt -1 .Index}}}"
    )
    assert rendered(file, 7, 4) == {"a": 7, "b": 2, "c": "7500Mi", "d": 6}


@pytest.mark.parametrize("text", ["{{Sin .Index 1}}", "{{.Name}}", "{{Mod .Index}}"])
def test_what_a_template_wants_beyond_that_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "t.yaml"
    file.write_text(text)
    with pytest.raises(CannotRun, match="the template has"):
        rendered(file)


def test_of_each_case_the_largest_within_limits_runs_the_last_of_equal_ones(lists: Path) -> None:
    every = list(workloads(lists))
    assert [(each.title, each.nodes, each.pods) for each in every][:2] == [
        ("misc/Basic/small", 2, 12), ("misc/Basic/large", 3, 16),
    ]  # fmt: skip
    assert every[1].gates == {"A": True, "B": False}
    assert [each.name for each in largest(every, 1000, 100)] == ["newer"]


def run(workload: Workload) -> tuple[Operations, dict[str, Any]]:
    """A workload on an API server where somebody binds each pod to the first node; what is there in the end."""
    with ServerThread() as server, Api(server.url) as api:

        async def bind_all(client: Client) -> None:
            async for kind, pod in client.follow("/api/v1/pods", {}):
                meta = pod["metadata"]
                if kind == "ADDED":
                    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
                    target = {"apiVersion": "v1", "kind": "Node", "name": "anywhere"}
                    await client.ask(
                        "POST", path, {"metadata": {"name": meta["name"]}, "target": target}
                    )

        async def life() -> Operations:
            async with Client(server.url) as client:
                pods = Pods(client)
                pods.start()
                binder = asyncio.create_task(bind_all(client))
                operations = Operations(Server(client), workload, pods)
                try:
                    await operations.run()
                finally:
                    binder.cancel()
                    await asyncio.gather(binder, return_exceptions=True)
                    await pods.stop()
                return operations

        operations = asyncio.run(life())
        return operations, {
            kind: api.get(f"/api/v1/{kind}").json()["items"] for kind in ("nodes", "pods")
        }


def test_operations_are_carried_out_in_order_and_pods_are_measured(lists: Path) -> None:
    workload = next(each for each in workloads(lists) if each.name == "large")
    operations, there = run(workload)
    zones = sorted(node["metadata"]["labels"]["zone"] for node in there["nodes"])
    assert zones == ["x", "x", "y"]
    spaces = [pod["metadata"]["namespace"] for pod in there["pods"]]
    assert {space: spaces.count(space) for space in dict.fromkeys(sorted(spaces))} == {
        "namespace-0": 4, "set-0": 4, "set-1": 4, "w": 2,
    }  # fmt: skip
    (measured,) = operations.measured
    assert len(measured.pods) == 4
    assert all(measured.began_at < pod.bound_at <= measured.ended_at for pod in measured.pods)


def test_an_operation_that_there_is_not_is_named(lists: Path) -> None:
    file = lists / "misc" / "performance-config.yaml"
    case = {
        **CASES[0],
        "workloadTemplate": [{"opcode": "paint"}],
        "workloads": [{"name": "w", "params": {}}],
    }
    file.write_text(yaml.safe_dump([case]))
    with pytest.raises(CannotRun, match="there is no operation paint"):
        run(next(iter(workloads(lists))))
