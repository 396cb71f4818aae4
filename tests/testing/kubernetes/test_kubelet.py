"""The kubelet that runs nothing, and the controllers: what they make of pods, claims, budgets, groups and owners.

They are clients. A clock of theirs decides nothing here: the tests wait for what is to come.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.kubernetes.client import Client
from support.kubernetes.controllers.controllers import DELETE_PROTECTION, Controllers, desired
from support.kubernetes.controllers.kubelet import Kubelet
from support.kubernetes.controllers.node_room import requests
from support.kubernetes.samples import allocation, binding, claim, consumer, pod, pod_group
from support.kubernetes.server.thread import Api, ServerThread

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
GROUPS = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
COMES_WITHIN_S = 300.0
Content = dict[str, Any]


@pytest.fixture
def kubelet(running: ServerThread) -> Iterator[Kubelet]:
    """It and the controllers, beside the server."""
    client = Client(running.url)
    kubelet, controllers = Kubelet(client), Controllers(client, "v1alpha2")
    for each in (client, kubelet, controllers):
        running.run(each.__aenter__())
    yield kubelet
    for each in (controllers, kubelet, client):
        running.run(each.__aexit__(None, None, None))


def comes(api: Api, path: str, is_so: Callable[[Content], bool]) -> Content:
    """What is at a path, as soon as it is as it should be; what is not there is empty."""
    ends_at = time.monotonic() + COMES_WITHIN_S
    while True:
        answer = api.get(path)
        told: Content = answer.json() if answer.status_code == 200 else {}
        if is_so(told):
            return told
        assert time.monotonic() < ends_at, told
        time.sleep(0.02)


def phase(told: Content) -> str:
    return str(told.get("status", {}).get("phase", ""))


def bound(api: Api, name: str, annotations: dict[str, str] | None = None, **spec: Any) -> Content:
    told = {f"kubelet.gantree/{key}": value for key, value in (annotations or {}).items()}
    assert api.post(PODS, pod(name, {"annotations": told}, **spec)).status_code == 201
    assert api.post(f"{PODS}/{name}/binding", binding(name, "n0")).status_code == 201
    made: Content = api.get(f"{PODS}/{name}").json()
    return made


def is_gone(told: Content) -> bool:
    return told == {}


def test_a_bound_pod_runs(ours: Api, kubelet: Kubelet) -> None:
    """Convention: Running, with an address, ready; PodScheduled stays."""
    bound(ours, "a")
    status = comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")["status"]
    assert status["podIP"].startswith("10.")
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {
        "PodScheduled": "True",
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    assert "running" in status["containerStatuses"][0]["state"]


@pytest.mark.parametrize(("code", "expected"), [("0", "Succeeded"), ("7", "Failed")])
def test_a_pod_ends_as_its_annotations_say(
    ours: Api, kubelet: Kubelet, code: str, expected: str
) -> None:
    """Convention: with restartPolicy Never an exit code of 0 is Succeeded, another Failed."""
    bound(ours, "a", {"runs-s": "0.05", "exit-code": code})
    status = comes(ours, f"{PODS}/a", lambda told: phase(told) == expected)["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == int(code)


def test_a_pod_ends_when_a_test_says_so(running: ServerThread, ours: Api, kubelet: Kubelet) -> None:
    """A knob: exit; only of the pod that is named."""
    for name in "ab":
        bound(ours, name)
        comes(ours, f"{PODS}/{name}", lambda told: phase(told) == "Running")
    running.run(kubelet.exit("default", "a", 3))
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Failed")
    assert phase(ours.get(f"{PODS}/b").json()) == "Running"


def test_a_pod_ends_also_of_which_its_kubelet_has_not_heard_yet(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """A knob: exit; a test that sees a pod bound may be ahead of the kubelet's watch."""
    with ThreadPoolExecutor(1) as beside:
        told = beside.submit(lambda: running.run(kubelet.exit("default", "a", 3)))
        bound(ours, "a")
        told.result()
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Failed")


def test_a_pod_that_restarts_runs_on(running: ServerThread, ours: Api, kubelet: Kubelet) -> None:
    """Convention: restartPolicy OnFailure starts it again after a failure, and ends it after a success."""
    bound(ours, "a", restartPolicy="OnFailure")
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    running.run(kubelet.exit("default", "a", 1))
    comes(
        ours, f"{PODS}/a", lambda told: told["status"]["containerStatuses"][0]["restartCount"] == 1
    )
    assert phase(ours.get(f"{PODS}/a").json()) == "Running"
    running.run(kubelet.exit("default", "a", 0))
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Succeeded")


def test_a_kubelet_refuses_a_pod(running: ServerThread, ours: Api, kubelet: Kubelet) -> None:
    """Convention: Failed with reason UnexpectedAdmissionError; by annotation or by a knob, and the next one runs."""
    bound(ours, "a", {"refused": "no device"})
    told = comes(ours, f"{PODS}/a", lambda told: phase(told) == "Failed")
    assert told["status"]["reason"] == "UnexpectedAdmissionError"
    running.call(kubelet.refuse_next)
    bound(ours, "b")
    comes(ours, f"{PODS}/b", lambda told: phase(told) == "Failed")
    bound(ours, "c")
    comes(ours, f"{PODS}/c", lambda told: phase(told) == "Running")


def test_a_pod_that_is_told_to_go_goes(ours: Api, kubelet: Kubelet) -> None:
    """Convention: its kubelet stops it, says how it ended and takes it away; the grace ends one that would not stop."""
    for name, annotations, grace_s in (("a", {}, 30), ("b", {"stops-s": "3600"}, 1)):
        bound(ours, name, annotations)
        comes(ours, f"{PODS}/{name}", lambda told: phase(told) == "Running")
        version = ours.get(PODS).json()["metadata"]["resourceVersion"]
        ours.delete(f"{PODS}/{name}", gracePeriodSeconds=grace_s)
        with ours.watch(PODS, resourceVersion=version) as events:
            told = [next(events) for _ in range(3)]
        assert [each["type"] for each in told[:2]] == ["MODIFIED", "MODIFIED"]
        assert phase(told[1]["object"]) == "Failed"
        comes(ours, f"{PODS}/{name}", is_gone)


def test_a_frozen_node_does_nothing_until_it_is_thawed(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """A knob: freeze. A pod of a node that is lost stays Terminating, as its kubelet never says that it is gone."""
    bound(ours, "a")
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    running.call(kubelet.freeze, "n0")
    ours.delete(f"{PODS}/a", gracePeriodSeconds=0 + 1)
    running.run(asyncio.sleep(1.5))
    assert phase(ours.get(f"{PODS}/a").json()) == "Running"
    running.call(kubelet.thaw, "n0")
    comes(ours, f"{PODS}/a", is_gone)


def container(**more: Any) -> Content:
    return {"name": "main", "image": "i", **more}


def needs(**amounts: str) -> Content:
    told = {name.replace("__", "/").replace("_", "."): each for name, each in amounts.items()}
    return container(resources={"requests": told, "limits": told})


PORT = container(ports=[{"containerPort": 80, "hostPort": 80}])
OTHER_PORT = container(ports=[{"containerPort": 80, "hostPort": 81}])


@pytest.mark.parametrize(
    ("first", "fits", "refused", "reason", "message"),
    [
        (needs(cpu="1500m"), needs(cpu="0.5"), needs(cpu="501m"), "OutOfcpu",
         "cpu, requested: 501, used: 1500, capacity: 2000"),
        (needs(memory="3Gi"), needs(memory="1Gi"), needs(memory="1025Mi"), "OutOfmemory", "enough resource: memory"),
        (
            needs(nvidia_com__gpu="1"), needs(nvidia_com__gpu="1"), needs(nvidia_com__gpu="2"),
            "UnexpectedAdmissionError", "devices unavailable for nvidia.com/gpu. Requested: 2, Available: 1",
        ),
        (PORT, OTHER_PORT, PORT, "NodePorts", "free ports"),
    ],
    ids=["cpu", "memory", "devices", "ports"],
)  # fmt: skip
def test_a_pod_that_has_no_room_is_refused(
    running: ServerThread,
    ours: Api,
    kubelet: Kubelet,
    first: Content,
    fits: Content,
    refused: Content,
    reason: str,
    message: str,
) -> None:
    """Fact (read): pkg/kubelet/lifecycle/predicate.go; the device manager comes before it. Failed for good, and what
    has ended holds no room."""
    room = {"cpu": "2", "memory": "4Gi", "pods": "110", "nvidia.com/gpu": "2"}
    running.run(kubelet.register("n0", room))
    bound(ours, "first", containers=[first])
    comes(ours, f"{PODS}/first", lambda told: phase(told) == "Running")
    bound(ours, "refused", containers=[refused])
    told = comes(ours, f"{PODS}/refused", lambda told: phase(told) == "Failed")["status"]
    assert told["reason"] == reason
    assert message in told["message"]
    assert told["message"].startswith("Pod was rejected: ")
    bound(ours, "fits", containers=[fits])
    comes(ours, f"{PODS}/fits", lambda told: phase(told) == "Running")
    for name in ("first", "fits"):
        running.run(kubelet.exit("default", name, 0))
        comes(ours, f"{PODS}/{name}", lambda told: phase(told) == "Succeeded")
    bound(ours, "again", containers=[refused])
    comes(ours, f"{PODS}/again", lambda told: phase(told) == "Running")


def test_a_node_holds_so_many_pods(running: ServerThread, ours: Api, kubelet: Kubelet) -> None:
    """Fact (read): pods are a resource of a node."""
    running.run(kubelet.register("n0", {"cpu": "2", "pods": "1"}))
    bound(ours, "a")
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    bound(ours, "b")
    told = comes(ours, f"{PODS}/b", lambda told: phase(told) == "Failed")
    assert told["status"]["reason"] == "OutOfpods"


@pytest.mark.parametrize(
    ("effect", "tolerations", "expected"),
    [
        ("NoExecute", [], "Failed"),
        ("NoSchedule", [], "Running"),
        ("NoExecute", [{"key": "gpu", "operator": "Exists"}], "Running"),
        ("NoExecute", [{"key": "gpu", "operator": "Equal", "value": "b"}], "Failed"),
    ],
)
def test_a_pod_that_a_taint_would_drive_out_is_refused(
    running: ServerThread,
    ours: Api,
    kubelet: Kubelet,
    effect: str,
    tolerations: list[Content],
    expected: str,
) -> None:
    """Fact (read): the kubelet is only interested in the taint NoExecute."""
    running.run(kubelet.register("n0", {"cpu": "2"}))
    taint = {"key": "gpu", "value": "a", "effect": effect}
    assert ours.patch("/api/v1/nodes/n0", {"spec": {"taints": [taint]}}).status_code == 200
    bound(ours, "a", tolerations=tolerations)
    told = comes(ours, f"{PODS}/a", lambda told: phase(told) == expected)
    assert told["status"].get("reason") == ("TaintToleration" if expected == "Failed" else None)


def test_a_pod_asks_for_the_most_that_its_containers_need_at_a_time() -> None:
    """Fact (read): init containers run one by one before the others; one that restarts always runs beside them."""
    spec = {
        "containers": [needs(cpu="1"), needs(cpu="500m")],
        "initContainers": [
            needs(cpu="2"),
            {**needs(cpu="250m"), "restartPolicy": "Always"},
            needs(cpu="2"),
        ],
        "overhead": {"cpu": "10m"},
    }
    assert requests({"spec": spec})["cpu"] == 2260


def test_a_node_is_not_ready_and_ready_again(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """Convention: the condition Ready, and the taint of the node lifecycle controller."""
    running.run(kubelet.register("n0", {"cpu": "8"}, {"rack": "r0"}))
    for status, taints in (
        ("False", ["node.kubernetes.io/not-ready"]),
        ("Unknown", ["node.kubernetes.io/unreachable"]),
        ("True", []),
    ):
        running.run(kubelet.tell_ready("n0", status))
        told = ours.get("/api/v1/nodes/n0").json()
        assert [each["status"] for each in told["status"]["conditions"]] == [status]
        expected = [{"key": k, "effect": e} for k in taints for e in ("NoSchedule", "NoExecute")]
    assert (told["spec"].get("taints") or []) == expected
    assert told["metadata"]["labels"]["rack"] == "r0"


def test_pods_run_whatever_becomes_of_watches(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """Fact: a watcher that re-lists loses none: watches end every two events, and their past is forgotten."""

    def lose_place() -> None:
        running.server.end_watches()
        running.server.compact()

    running.server.faults.watch_events = 2
    for number in range(12):
        bound(ours, f"p{number}")
        if number % 4 == 0:
            ours.post(f"{PODS[: -len('pods')]}configmaps", {"metadata": {"name": f"c{number}"}})
            running.call(lose_place)
    comes(ours, PODS, lambda told: [phase(each) for each in told["items"]] == ["Running"] * 12)


def allocate(api: Api, name: str, made: Content) -> None:
    status = {"allocation": allocation("gpu-0"), "reservedFor": [consumer(made)]}
    assert api.patch(f"{CLAIMS}/{name}/status", {"status": status}).status_code == 200


@pytest.mark.parametrize("is_protected", [False, True])
def test_a_claim_is_cleared_when_its_pod_ends(
    running: ServerThread, ours: Api, kubelet: Kubelet, is_protected: bool
) -> None:
    """Fact: without the finalizer only reservedFor is cleared and the ALLOCATION STAYS; with it allocation and
    finalizer are cleared as well."""
    ours.post(CLAIMS, claim("c"))
    if is_protected:
        ours.patch(f"{CLAIMS}/c", {"metadata": {"finalizers": [DELETE_PROTECTION]}})
    made = ours.post(
        PODS, pod("a", resourceClaims=[{"name": "g", "resourceClaimName": "c"}])
    ).json()
    allocate(ours, "c", made)
    ours.post(f"{PODS}/a/binding", binding("a", "n0"))
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    assert ours.get(f"{CLAIMS}/c").json()["status"]["reservedFor"]
    running.run(kubelet.exit("default", "a", 0))
    told = comes(
        ours,
        f"{CLAIMS}/c",
        lambda told: (
            not told["status"].get("reservedFor") and not told["metadata"].get("finalizers")
        ),
    )
    assert ("allocation" in told["status"]) != is_protected


def test_a_pod_does_not_start_before_its_claim_is_reserved_for_it(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """Fact (read): the kubelet refuses to prepare a claim that is not allocated, or reserved for others, and tries
    again."""
    ours.post(CLAIMS, claim("c"))
    wants = [{"name": "g", "resourceClaimName": "c"}]
    other = ours.post(PODS, pod("other")).json()
    allocate(ours, "c", other)
    made = bound(ours, "a", resourceClaims=wants)
    bound(ours, "b")
    comes(ours, f"{PODS}/b", lambda told: phase(told) == "Running")
    assert phase(ours.get(f"{PODS}/a").json()) == "Pending"
    allocate(ours, "c", made)
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")


def test_a_template_makes_a_claim_that_goes_with_its_pod(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """Fact: the controller-manager makes the claim and names it in status.resourceClaimStatuses[].resourceClaimName."""
    ours.post(TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": claim("x")["spec"]}})
    ours.post(PODS, pod("a", resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]))
    told = comes(ours, f"{PODS}/a", lambda told: bool(told["status"].get("resourceClaimStatuses")))
    (named,) = told["status"]["resourceClaimStatuses"]
    assert named["name"] == "g"
    path = f"{CLAIMS}/{named['resourceClaimName']}"
    metadata = ours.get(path).json()["metadata"]
    assert metadata["name"].startswith("a-g-")
    assert metadata["ownerReferences"][0]["uid"] == told["metadata"]["uid"]
    ours.patch(path, {"metadata": {"finalizers": [DELETE_PROTECTION]}})
    allocate(ours, named["resourceClaimName"], told)
    ours.post(f"{PODS}/a/binding", binding("a", "n0"))
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    running.run(kubelet.exit("default", "a", 0))
    comes(ours, path, is_gone)


def test_a_budget_counts_its_pods(running: ServerThread, ours: Api, kubelet: Kubelet) -> None:
    """Convention: disruptionsAllowed is what is healthy beyond what is desired; an eviction beyond it is 429."""
    spec = {
        "minAvailable": "50%",
        "selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
    }
    ours.post(BUDGETS, {"metadata": {"name": "b"}, "spec": spec})
    for name in "abc":
        ours.post(PODS, pod(name, {"labels": {"app": "x"}}))
        ours.post(f"{PODS}/{name}/binding", binding(name, "n0"))
    told = comes(ours, f"{BUDGETS}/b", lambda told: told["status"].get("currentHealthy") == 3)
    assert (told["status"]["desiredHealthy"], told["status"]["disruptionsAllowed"]) == (2, 1)
    running.call(kubelet.freeze, "n0")
    codes = [
        ours.post(f"{PODS}/{name}/eviction", {"metadata": {"name": name}}).status_code
        for name in "ab"
    ]
    assert codes == [201, 429]


@pytest.mark.parametrize(
    ("spec", "allowed"), [({"minAvailable": 1}, 1), ({"minAvailable": "50%"}, 0), ({"maxUnavailable": 1}, 0)]
)  # fmt: skip
def test_a_share_of_pods_whose_owner_does_not_say_how_many_lets_none_go(
    running: ServerThread, ours: Api, kubelet: Kubelet, spec: dict[str, Any], allowed: int
) -> None:
    """As test_services_with_kubectl has it of a real server: its owner would have to say how many there are to be."""
    selector = {"matchLabels": {"app": "x"}}
    home = "/api/v1/namespaces/default/configmaps"
    made = ours.post(home, {"metadata": {"name": "g"}}).json()["metadata"]
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "g",
        "uid": made["uid"],
        "controller": True,
    }
    for name in "ab":
        ours.post(PODS, pod(name, {"labels": {"app": "x"}, "ownerReferences": [owner]}))
        ours.post(f"{PODS}/{name}/binding", binding(name, "n0"))
        comes(ours, f"{PODS}/{name}", lambda told: phase(told) == "Running")
    ours.post(BUDGETS, {"metadata": {"name": "b"}, "spec": {**spec, "selector": selector}})

    def is_so(told: Content) -> bool:
        status = told["status"]
        reasons = [each["reason"] for each in status.get("conditions", ())]
        return (status["disruptionsAllowed"], "SyncFailed" in reasons) == (allowed, not allowed)

    comes(ours, f"{BUDGETS}/b", is_so)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 2}, 2),
        ({"minAvailable": "34%"}, 2),
        ({"maxUnavailable": 1}, 2),
        ({"maxUnavailable": "34%"}, 1),
    ],
)
def test_a_budget_says_how_many_must_stay(spec: dict[str, Any], expected: int) -> None:
    """Convention: minAvailable, or all but maxUnavailable; shares of the pods are rounded up. Here of three."""
    assert desired(spec, 3) == expected


def test_a_group_is_protected_by_its_pods(
    running: ServerThread, ours: Api, kubelet: Kubelet
) -> None:
    """Convention, by the name of the finalizer: podgroup-protection keeps a group while a pod of it lives."""
    ours.post(GROUPS, pod_group("g", 1))
    bound(ours, "a", schedulingGroup={"podGroupName": "g"})
    comes(ours, f"{PODS}/a", lambda told: phase(told) == "Running")
    ours.delete(f"{GROUPS}/g")
    assert ours.get(f"{GROUPS}/g").status_code == 200
    running.run(kubelet.exit("default", "a", 0))
    comes(ours, f"{GROUPS}/g", is_gone)
