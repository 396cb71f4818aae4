"""docs/kubernetes-services.md with kubectl on a real server: its controllers, admission and roles; no test server."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.kubernetes.metrics_api import CustomMetrics
from support.kubernetes.real import ASSETS, is_asked_for, real_controllers, real_server
from support.kubernetes.shared import or_skipped
from support.trial import ROOT, Cluster, Json
from support.yaml_text import read_yaml

PAGE = ROOT / "docs" / "kubernetes-services.md"
WITHIN_S = 300.0
CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "disruption-controller", "endpointslice-controller",
    "horizontal-pod-autoscaler-controller", "resourcequota-controller", "clusterrole-aggregation-controller",
)  # fmt: skip
ADMISSION, POLICY = "admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Six nodes of eight GPUs, and gantree as its manifest installs it."""
    if not is_asked_for():
        pytest.skip(f"{ASSETS} names no real server")
    place = tmp_path_factory.mktemp("services")
    with (
        or_skipped(),
        real_server(place) as (url, token),
        real_controllers(place, url, *CONTROLLERS),
        Cluster(place, url, token) as cluster,
    ):
        cluster.nodes(*(f"n{number}" for number in range(6)))
        cluster.insist("kubectl apply -f deploy/kubernetes/crds -f deploy/kubernetes/gantree.yaml")
        with cluster.deployed("gantree") as log:
            until(lambda: "ready" in log.read_text(), log.read_text)
            yield cluster


@pytest.fixture
def cluster(installed: Cluster) -> Iterator[Cluster]:
    """The same, with nothing in the namespace default; what a test makes there goes with it."""
    yield installed
    installed.insist("kubectl delete gangservices,hpa,pdb,quota --all --timeout=300s")
    until(lambda: not installed.objects("pods"), lambda: installed.objects("pods"))


def until(done: Callable[[], bool], told: Callable[[], object]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not done():
        assert time.monotonic() < deadline, told()
        time.sleep(0.1)


def example(kind: str) -> Json:
    """The object of a kind that the page shows; its queue is the one that the manifest has."""
    _, _, after = PAGE.read_text().partition(f"    kind: {kind}\n")
    lines = [line[4:] for line in after.splitlines()]
    told: Json = read_yaml("\n".join(lines[: lines.index("")]))
    if kind == "GangService":
        told["spec"]["template"]["spec"]["queue"] = "default"
        del told["spec"]["template"]["spec"]["topology"]
        told["spec"] |= {"drainSeconds": 0, "replicas": {"min": 1, "max": 8}}
        told["spec"]["template"]["spec"]["gang"][0]["each"] = {"gpus": 1}
        return {"apiVersion": "gantree.io/v1alpha1", "kind": kind, **told}
    return {"apiVersion": "autoscaling/v2", "kind": kind, **told}


def apply(cluster: Cluster, body: Json, how: str = "apply") -> str:
    return cluster.insist(f"kubectl {how} -f -", json.dumps(body))


def refusal(cluster: Cluster, line: str, body: Json | None = None) -> str:
    """What kubectl says to something that the server does not do."""
    done = cluster.shell(line, "" if body is None else json.dumps(body))
    assert done.returncode, done.stdout
    return done.stderr


def status(cluster: Cluster) -> Json:
    found = cluster.objects("gangservices")
    told: Json = found[0].get("status", {}) if found else {}
    return told


def until_ready(cluster: Cluster, replicas: int) -> None:
    def is_so() -> bool:
        told = status(cluster)
        numbers = [told.get(each) for each in ("wanted", "replicas", "readyReplicas")]
        return numbers == [replicas] * 3 and told.get("reason") is None

    until(is_so, lambda: status(cluster))


def until_said(cluster: Cluster, reason: str, words: str) -> None:
    until(
        lambda: status(cluster).get("reason") == reason and words in status(cluster)["message"],
        lambda: status(cluster),
    )


def scale(cluster: Cluster, replicas: int) -> None:
    cluster.insist(f"kubectl scale gangservice chat --replicas {replicas}")


def deny(cluster: Cluster, message: str) -> None:
    """A policy that lets nobody create a GangJob."""
    resources = {"apiGroups": ["gantree.io"], "apiVersions": ["*"], "resources": ["gangjobs"]}
    rules = [{**resources, "operations": ["CREATE"]}]
    validations = [{"expression": "false", "message": message}]
    specs: dict[str, Json] = {
        POLICY: {"matchConstraints": {"resourceRules": rules}, "validations": validations},
        f"{POLICY}Binding": {"policyName": "no", "validationActions": ["Deny"]},
    }
    for kind, spec in specs.items():
        body = {"apiVersion": ADMISSION, "kind": kind, "metadata": {"name": "no"}, "spec": spec}
        apply(cluster, body)


def test_kubectl_applies_waits_scales_and_lists(cluster: Cluster) -> None:
    apply(cluster, example("GangService"))
    cluster.insist("kubectl wait --for=condition=Available gangservice/chat --timeout=300s")
    scale(cluster, 3)
    until_ready(cluster, 3)
    head, row = cluster.insist("kubectl get gs").splitlines()
    assert head.split()[:4] == ["NAME", "WANTED", "READY", "UPDATED"]
    assert row.split()[:4] == ["chat", "3", "3", "3"]
    firsts = {f"chat-{number}-worker-0" for number in (1, 2, 3)}

    def routed() -> set[str]:
        slices = cluster.objects("endpointslices -l kubernetes.io/service-name=chat")
        found = [each for one in slices for each in one.get("endpoints") or ()]
        return {each["targetRef"]["name"] for each in found if each["conditions"]["ready"]}

    until(lambda: routed() == firsts, routed)


def test_what_the_definition_does_not_allow_is_refused(cluster: Cluster) -> None:
    body = example("GangService")
    line = "kubectl create --dry-run=server -f -"
    for name, replicas, words in (
        ("chat", {"min": 3, "max": 2}, "replicas.min is at most replicas.max"),
        ("chat-3.1", {}, "the name has no dots"),
        ("c" * 35, {}, "the name is at most 34 characters long"),
    ):
        odd = {**body, "metadata": {"name": name}, "spec": {**body["spec"], "replicas": replicas}}
        assert words in refusal(cluster, line, odd)
    apply(cluster, body)
    patch = """kubectl patch gangservice chat --type merge -p '{"spec": {"port": 1}}'"""
    assert "the port does not change" in refusal(cluster, patch)


@pytest.mark.parametrize("how", ["apply", "apply --server-side"])
def test_a_manifest_without_a_number_leaves_it_as_it_was_scaled(cluster: Cluster, how: str) -> None:
    apply(cluster, example("GangService"), how)
    scale(cluster, 2)
    until_ready(cluster, 2)
    apply(cluster, example("GangService"), how)
    scaled = "kubectl get gangservice chat -o jsonpath={.spec.replicas.wanted}"
    assert cluster.insist(scaled) == "2"


def test_what_the_server_refuses_is_in_the_status_until_it_does_not(cluster: Cluster) -> None:
    cluster.insist("kubectl create quota pods --hard=pods=3")
    until(lambda: bool(cluster.objects("quota")[0].get("status")), lambda: cluster.objects("quota"))
    apply(cluster, example("GangService"))
    until_ready(cluster, 1)
    scale(cluster, 2)
    until_said(cluster, "PodNotMade", "exceeded quota: pods")
    cluster.insist("kubectl delete quota pods")
    until_ready(cluster, 2)
    deny(cluster, "not on Sundays")
    refused: Json = {
        "apiVersion": "gantree.io/v1alpha1",
        "kind": "GangJob",
        "metadata": {"name": "probe"},
    }
    refused["spec"] = {"gang": example("GangService")["spec"]["template"]["spec"]["gang"]}
    probe = "kubectl create --dry-run=server -f -"
    until(
        lambda: cluster.shell(probe, json.dumps(refused)).returncode != 0, lambda: "it is in force"
    )
    scale(cluster, 3)
    until_said(cluster, "ReplicaNotMade", "not on Sundays")
    cluster.insist(f"kubectl delete {POLICY},{POLICY}Binding no")
    until_ready(cluster, 3)


def test_one_that_is_made_again_at_once_has_a_service_of_its_own(cluster: Cluster) -> None:
    apply(cluster, example("GangService"))
    until_ready(cluster, 1)
    cluster.insist("kubectl delete gangservice chat --wait=false")
    apply(cluster, example("GangService"), "create")

    def owners() -> list[str]:
        (service,) = cluster.objects("services --field-selector metadata.name=chat") or [{}]
        return [each["uid"] for each in service.get("metadata", {}).get("ownerReferences", ())]

    (made,) = cluster.objects("gangservices")
    until(lambda: owners() == [made["metadata"]["uid"]], owners)
    until_ready(cluster, 1)


def test_a_deletion_in_the_foreground_ends(cluster: Cluster) -> None:
    apply(cluster, example("GangService"))
    until_ready(cluster, 1)
    cluster.insist("kubectl delete gangservice chat --cascade=foreground --timeout=300s")
    assert cluster.objects("gangjobs") == []


def test_a_horizontalpodautoscaler_scales_by_a_metric_of_the_first_pods(
    cluster: Cluster, tmp_path: Path
) -> None:
    def found(selector: str) -> list[tuple[str, str]]:
        return [
            ("default", each["metadata"]["name"]) for each in cluster.objects(f"pods -l {selector}")
        ]

    with CustomMetrics(tmp_path, "running_requests", found) as metrics:
        cluster.insist("kubectl apply -f -", metrics.manifest())
        apply(cluster, example("GangService"))
        until_ready(cluster, 1)
        metrics.value = 24
        apply(cluster, example("HorizontalPodAutoscaler"))
        until(lambda: status(cluster).get("readyReplicas", 0) >= 3, lambda: cluster.objects("hpa"))
        cluster.insist("kubectl delete hpa chat")
        cluster.insist("kubectl delete apiservice v1beta2.custom.metrics.k8s.io")


def test_a_budget_names_the_number_that_must_stay(cluster: Cluster) -> None:
    """Kubernetes does not know how many pods a GangJob is to have, and so no share of them."""
    apply(cluster, example("GangService"))
    scale(cluster, 2)
    until_ready(cluster, 2)
    for name, least in (("number", "1"), ("share", "50%")):
        line = f"kubectl create pdb {name} --min-available={least}"
        cluster.insist(f"{line} --selector=gantree.io/serves=chat")

    def told(name: str) -> tuple[int | None, str]:
        (budget,) = (one for one in cluster.objects("pdb") if one["metadata"]["name"] == name)
        status = budget.get("status", {})
        reasons = [each["reason"] for each in status.get("conditions", ())]
        return status.get("disruptionsAllowed"), "".join(reasons)

    until(lambda: told("number") == (1, "SufficientPods"), lambda: told("number"))
    until(lambda: told("share") == (0, "SyncFailed"), lambda: told("share"))


def test_editors_and_viewers_of_a_namespace_are_so_of_its_gangs(cluster: Cluster) -> None:
    for role in ("edit", "view"):
        cluster.insist(f"kubectl create rolebinding {role} --clusterrole={role} --user={role}")

    def may(user: str, what: str) -> bool:
        return cluster.shell(f"kubectl auth can-i {what} --as={user}").returncode == 0

    until(lambda: may("edit", "create gangservices"), lambda: "the role is aggregated")
    assert may("edit", "patch gangservices --subresource=scale")
    assert may("edit", "delete gangjobs")
    assert not may("edit", "patch gangservices --subresource=status")
    until(lambda: may("view", "get gangservices"), lambda: "the role is aggregated")
    assert not may("view", "create gangjobs")
