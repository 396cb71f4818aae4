"""Each entry of "not honoured; an event says so" in docs/kubernetes.md gives an event on a pod that has it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gantree.executors.kubernetes.workloads.pod_groups import core
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

PAGE = Path(__file__).parents[3] / "docs" / "kubernetes.md"
NO_EVENT = {
    "gangs are disrupted as a whole, whatever `disruptionMode` says",
    ", beyond the affinities that its webhook writes",
    ": such pods are placed one by one",
}
"""What qualifies an entry, or holds for every gang."""
BETWEEN = re.compile(r"[,;\s]*")
KINDS = {
    "scheduling.x-k8s.io/v1alpha1": ("PodGroup", "podgroups"),
    "scheduling.volcano.sh/v1beta1": ("PodGroup", "podgroups"),
    "scheduling.run.ai/v2alpha2": ("PodGroup", "podgroups"),
    "scheduler.grove.io/v1alpha1": ("PodGang", "podgangs"),
    "kubeflow.org/v1": ("PyTorchJob", "pytorchjobs"),
}


@dataclass(frozen=True)
class Case:
    """An entry of a row of the table, what of the object or the pod has it, and the words of its event."""

    row: str
    entry: str
    said: str
    of_object: Json = field(default_factory=dict)
    of_pod: dict[str, str] = field(default_factory=dict)


SOFT = {"mode": "soft", "highestTierName": "leaf"}
HARD = {"mode": "hard", "highestTierName": "leaf"}


def runs(**told: object) -> Json:
    return {"runPolicy": {"schedulingPolicy": told}, "pytorchReplicaSpecs": {"Master": {}}}


def subgroups(*policies: Json) -> Json:
    return {"subGroupPolicy": list(policies)}


def hived(**told: object) -> dict[str, str]:
    words = {"virtualCluster": "default", "priority": 0, "leafCellNumber": 1, **told}
    text = "\n".join(f"{name}: {str(value).lower()}" for name, value in words.items())
    return {"hivedscheduler.microsoft.com/pod-scheduling-spec": text}


_KUEUE, _SLICES = "kueue.x-k8s.io/", "podset-slice-required-topology-constraints"
_LWS = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
_GROVE = "topologyConstraintGroupConfigs"
_SLICE = {"subGroupSize": 1, "networkTopology": HARD}
_CHILD = {"subGroups": [{"name": "a", "minMember": 1, "parent": "b"}]}
CORE, PLUGINS, TRAINING = "Kubernetes' gang API", "scheduler-plugins", "PyTorchJob"
CASES = [
    Case(CORE, "`resourceClaims`", "resourceClaims", {"resourceClaims": [{"name": "c"}]}),
    Case(PLUGINS, "`minResources`", "minResources", {"minResources": {"cpu": "1"}}),
    Case(PLUGINS, "`scheduleTimeoutSeconds`", "scheduleTimeout", {"scheduleTimeoutSeconds": 9}),
    Case("Volcano", "`minResources`", "minResources", {"minResources": {"cpu": "1"}}),
    Case("Volcano", "`subGroupPolicy` by labels", "subGroupPolicy", subgroups({**_SLICE, "matchLabelKeys": ["a"]})),
    Case("Volcano", "several of them", "subGroupPolicy: more than one", subgroups({}, {})),
    Case("Volcano", "soft ones", "subGroupPolicy", subgroups({"subGroupSize": 1, "networkTopology": SOFT})),
    Case("Volcano", "`minSubGroups`", "subGroupPolicy.minSubGroups", subgroups({**_SLICE, "minSubGroups": 1})),
    Case("KAI", "`minSubGroup`", "minSubGroup", {"minSubGroup": 1}),
    Case("KAI", "`parent` of subgroups", "subGroups.parent", _CHILD),
    Case("KAI", "backoff", "schedulingBackoff", {"schedulingBackoff": 1}),
    Case("KAI", "delays", "preemptionDelay", {"preemptionDelay": "1s"}),
    Case("KAI", "`gpu-fraction`", "gpu-fraction", {}, {"gpu-fraction": "0.5"}),
    Case("KAI", "`gpu-memory`", "gpu-memory", {}, {"gpu-memory": "1024"}),
    Case("Grove", "`topologyConstraintGroupConfigs`", _GROVE, {_GROVE: [{"name": "a"}]}),
    Case("Grove", "`reuseReservationRef`", "reuseReservationRef", {"reuseReservationRef": {"name": "a"}}),
    Case("Kueue", "slice constraints", _SLICES, {}, {f"{_KUEUE}{_SLICES}": "a"}),
    Case("Kueue", "groups of pod sets", "podset-group-name", {}, {f"{_KUEUE}podset-group-name": "a"}),
    Case("Kueue", "elastic jobs", "elastic-job", {}, {f"{_KUEUE}elastic-job": "true"}),
    Case("Kueue", "priority boosts", "priority-boost", {}, {f"{_KUEUE}priority-boost": "1"}),
    Case("plain Jobs", "completions beyond `parallelism`", "completions beyond parallelism"),
    Case(TRAINING, "`minResources`", "schedulingPolicy.minResources", runs(minResources={"cpu": "1"})),
    Case(TRAINING, "`scheduleTimeoutSeconds`", "schedulingPolicy.schedule", runs(scheduleTimeoutSeconds=9)),
    Case(TRAINING, "`priorityClass` of the scheduling policy", "schedulingPolicy.prio", runs(priorityClass="high")),
    Case("LeaderWorkerSet", "`subgroup-exclusive-topology`", _LWS, {}, {_LWS: "rack"}),
    Case("HiveD", "`pinnedCellId`", "hived pinnedCellId", {}, hived(pinnedCellId="c")),
    Case("HiveD", "`gangReleaseEnable`", "hived gangReleaseEnable", {}, hived(gangReleaseEnable=True)),
    Case("HiveD", "`lazyPreemptionEnable`", "hived lazyPreemptionEnable", {}, hived(lazyPreemptionEnable=True)),
]  # fmt: skip
API_OF = {
    "scheduler-plugins": "scheduling.x-k8s.io/v1alpha1",
    "Volcano": "scheduling.volcano.sh/v1beta1",
    "KAI": "scheduling.run.ai/v2alpha2",
    "Grove": "scheduler.grove.io/v1alpha1",
    "PyTorchJob": "kubeflow.org/v1",
}


def entries() -> dict[str, str]:
    """The last column of the table, by the start of its first."""
    lines = PAGE.read_text(encoding="utf-8").split("not honoured; an event says so |\n")[1]
    rows = [line.strip("|").split(" | ") for line in lines.split("\n\n")[0].splitlines()[1:]]
    return {row[0].strip(): row[-1].strip(" |") for row in rows}


def test_every_entry_of_the_table_has_a_case() -> None:
    for api, column in entries().items():
        left = column
        said = [each.entry for each in CASES if api.startswith(each.row)]
        for entry in sorted({*said, *NO_EVENT}, key=len, reverse=True):
            left = left.replace(entry, "", 1)
        assert BETWEEN.fullmatch(left), (api, left)
        assert all(entry in column for entry in said), api


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PodStage]:
    with PodStage(tmp_path) as stage:
        for api, (kind, plural) in KINDS.items():
            define(stage, api, kind, plural)
        yield stage


def define(stage: PodStage, api: str, kind: str, plural: str) -> None:
    group, _, version = api.partition("/")
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True}
    spec = {
        "group": group,
        "scope": "Namespaced",
        "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
        "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
    }
    stage.api.define({"metadata": {"name": f"{plural}.{group}"}, "spec": spec})


def make(stage: PodStage, name: str, case: Case) -> None:
    """The object of a case, if it has one, and its pod."""
    labels, annotations, owners = dict[str, str](), dict(case.of_pod), list[Json]()
    if case.row == "plain Jobs":
        owners = [a_job(stage, name)]
        labels = {"gantree.io/gang": name, "batch.kubernetes.io/job-name": name}
    elif case.row == "PyTorchJob":
        create(stage, API_OF[case.row], name, case.of_object)
        labels = {
            "training.kubeflow.org/job-name": name,
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": "master",
        }
    elif case.row in API_OF:
        create(stage, API_OF[case.row], name, {"minMember": 1, **case.of_object})
        by_label = {
            "scheduler-plugins": "scheduling.x-k8s.io/pod-group",
            "Grove": "grove.io/podgang",
        }
        labels = {by_label[case.row]: name} if case.row in by_label else {}
        told = {"Volcano": "scheduling.k8s.io/group-name", "KAI": "pod-group-name"}
        if case.row in told:
            annotations[told[case.row]] = name
        if "subGroups" in case.of_object:
            labels["kai.scheduler/subgroup-name"] = "a"
    stage.pod(name, gpus=1, labels=labels, annotations=annotations, owners=owners)


def create(stage: PodStage, api: str, name: str, spec: Json) -> None:
    kind, plural = KINDS[api]
    body = {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}
    answer = stage.api.post(f"/apis/{api}/namespaces/default/{plural}", body)
    assert answer.status_code == 201, answer.text


def a_job(stage: PodStage, name: str) -> Json:
    """A Job of more completions than it runs at a time; its owner reference."""
    container = {"name": "main", "image": "x"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"parallelism": 1, "completions": 2, "template": template}
    body = {"metadata": {"name": name}, "spec": spec}
    answer = stage.api.post("/apis/batch/v1/namespaces/default/jobs", body)
    assert answer.status_code == 201, answer.text
    uid = answer.json()["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


def test_each_gives_an_event_on_its_pod(stage: PodStage) -> None:
    stage.nodes("n[0-9]", network_topology_nvidia_com__leaf="l0")
    cases = {f"c{number}": case for number, case in enumerate(CASES) if case.row != CORE}
    stage.start()
    for name, case in cases.items():
        make(stage, name, case)

    def missing() -> list[tuple[str, str]]:
        events = stage.api.get("/api/v1/namespaces/default/events").json()["items"]
        said = [
            (each["involvedObject"]["name"], each["message"])
            for each in events
            if each["reason"] == "NotHonoured"
        ]
        return [
            (case.row, case.entry)
            for name, case in cases.items()
            if not any(pod == name and case.said in message for pod, message in said)
        ]

    stage.until(lambda: not missing())


@pytest.mark.parametrize("case", [each for each in CASES if each.row == CORE])
def test_fields_that_need_newer_servers_are_read(case: Case) -> None:
    assert any(case.said in word for word in core(case.of_object).unknown)
