"""docs/kubernetes-trial.md, command by command, on a real server with its controllers and kube-scheduler."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.kubernetes.real import (
    ASSETS,
    is_asked_for,
    real_controllers,
    real_scheduler,
    real_server,
)
from support.kubernetes.shared import or_skipped
from support.trial import ROOT, Cluster, Json, commands_of

WITHIN_S = 120.0
THEIRS, OURS = "default-scheduler", "gantree"
PAGE = ROOT / "docs" / "kubernetes-trial.md"
CONTROLLERS = (
    "deployment-controller", "replicaset-controller", "job-controller", "statefulset-controller",
    "garbage-collector-controller", "namespace-controller", "persistentvolumeclaim-protection-controller",
)  # fmt: skip


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two nodes of eight GPUs, the namespace research, and kube-scheduler."""
    if not is_asked_for():
        pytest.skip(f"{ASSETS} names no real server")
    with (
        or_skipped(),
        real_server(tmp_path) as (url, token),
        real_controllers(tmp_path, url, *CONTROLLERS),
        real_scheduler(tmp_path, url),
        Cluster(tmp_path, url, token) as cluster,
    ):
        cluster.nodes("n0", "n1")
        cluster.insist("kubectl create namespace research")
        yield cluster


def until(done: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def workload(kind: str, name: str, gpus: int, count: int) -> str:
    """A Deployment, a Job or a bare Pod whose pods take GPUs."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    pod: Json = {"containers": [{"name": "main", "image": "x", "resources": resources}]}
    body: Json = {"kind": kind, "metadata": {"name": name, "namespace": "research"}}
    labels = {"app": name}
    if kind == "Pod":
        body |= {"apiVersion": "v1", "spec": pod}
    elif kind == "Job":
        template = {"spec": {**pod, "restartPolicy": "Never"}}
        spec: Json = {"parallelism": count, "completions": count, "backoffLimit": 0}
        body |= {"apiVersion": "batch/v1", "spec": {**spec, "template": template}}
    else:
        template = {"metadata": {"labels": labels}, "spec": pod}
        spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": template}
        body |= {"apiVersion": "apps/v1", "spec": spec}
    return json.dumps(body)


def pods(cluster: Cluster) -> dict[str, list[tuple[str, str]]]:
    """(scheduler, phase) of the pods of each workload."""
    found: dict[str, list[tuple[str, str]]] = {}
    for pod in cluster.objects("pods -n research"):
        owner = pod["metadata"]["name"].partition("-")[0]
        state = pod["spec"]["schedulerName"], pod["status"]["phase"]
        found.setdefault(owner, []).append(state)
    return {owner: sorted(states) for owner, states in found.items()}


def uids(cluster: Cluster, phase: str) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in cluster.objects("pods -n research")
        if pod["status"]["phase"] == phase
    }


def test_an_operator_tries_switches_a_namespace_and_goes_back(cluster: Cluster) -> None:
    told = iter(commands_of(PAGE))

    cluster.insist(next(told))  # the name of the image
    assert (
        "registry.example/gantree:0.1.0"
        in (cluster.place / "deploy/kubernetes/gantree.yaml").read_text()
    )

    assert "Kubernetes v1." in cluster.shell(next(told)).stdout  # preflight
    compare(cluster, told)
    running = switch_and_go_back(cluster, told)
    assert cluster.insist(next(told)) == "No namespace is switched.\n"
    cluster.insist(next(told))
    assert uids(cluster, "Running") == running
    create(cluster, "Deployment", "new", 2)
    until(lambda: pods(cluster)["new"] == [(THEIRS, "Running")], lambda: pods(cluster))
    (job,) = cluster.objects("jobs -n research")
    assert not job["status"].get("failed"), job
    assert list(told) == []


def compare(cluster: Cluster, told: Iterator[str]) -> None:
    """A dry run beside the scheduler in charge, and its report."""
    cluster.insist(next(told))
    report = next(told)
    with cluster.deployed("gantree-shadow") as log:
        until(lambda: "ready" in log.read_text(), log.read_text)
        create(cluster, "Deployment", "old", 4)
        until_pods(cluster, {"old": [(THEIRS, "Running")]})
        until(lambda: "of 1 that both started" in cluster.insist(report), log.read_text)
    assert "Nothing was written to the cluster" in cluster.insist(report)


def switch_and_go_back(cluster: Cluster, told: Iterator[str]) -> set[str]:
    """One namespace is gantree's for a while; the uids of pods that run since then."""
    cluster.insist(next(told))
    with cluster.deployed("gantree") as log:
        until(lambda: "ready" in log.read_text(), log.read_text)
        cluster.insist(next(told))
        until_switched(cluster)
        create(cluster, "Deployment", "web", 4, 2)
        until_pods(cluster, {"old": [(THEIRS, "Running")], "web": [(OURS, "Running")] * 2})
        create(cluster, "Deployment", "late", 8)
        create(cluster, "Job", "batch", 8, 2)
        create(cluster, "Pod", "bare", 8)
        until_pods(
            cluster,
            {
                "old": [(THEIRS, "Running")],
                "web": [(OURS, "Running")] * 2,
                "late": [(OURS, "Pending")],
                "batch": [(OURS, "Pending")] * 2,
                "bare": [(OURS, "Pending")],
            },
        )
        listing = cluster.insist(next(told))
        assert ("late" in listing, "default-scheduler" in listing) == (True, True)
        running = uids(cluster, "Running")
        back = next(told)
        done = cluster.shell(back)
        assert done.returncode == 1, done.stderr
        assert "research: released; 1 pod evicted, 1 Job restarted, 1 left" in done.stdout
        assert "research/bare: it has no controller" in done.stdout
        until_pods(
            cluster,
            {
                "old": [(THEIRS, "Running")],
                "web": [(OURS, "Running")] * 2,
                "late": [(THEIRS, "Pending")],
                "batch": [(THEIRS, "Pending")] * 2,
                "bare": [(OURS, "Pending")],
            },
        )
        assert uids(cluster, "Running") == running
        cluster.insist("kubectl delete pod bare -n research")
        assert (
            cluster.insist(back) == "research: released; 0 pods evicted, 0 Jobs restarted, 0 left\n"
        )
    return running


def until_pods(cluster: Cluster, wanted: dict[str, list[tuple[str, str]]]) -> None:
    until(lambda: pods(cluster) == wanted, lambda: (pods(cluster), wanted))


def create(cluster: Cluster, kind: str, name: str, gpus: int, count: int = 1) -> None:
    cluster.insist("kubectl create -f -", workload(kind, name, gpus, count))


def until_switched(cluster: Cluster) -> None:
    """Until the server's policy knows the label: it comes to know it a moment later."""
    probe = workload("Pod", "probe", 0, 1)

    def is_switched() -> bool:
        made = json.loads(cluster.insist("kubectl create --dry-run=server -o json -f -", probe))
        is_ours: bool = made["spec"]["schedulerName"] == "gantree"
        return is_ours

    until(is_switched, lambda: cluster.objects("mutatingadmissionpolicies"))
