"""Objects and annotations of others with odd values at every path: each is left out or read, and nothing ends."""

import logging
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods.gang_spec import GangSpec, GroupKind, InvalidObject
from gantree.executors.kubernetes.pods.hived import SPEC, hived_of
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.workloads import gang_owners as owners
from gantree.executors.kubernetes.workloads.gang_labels import (
    GROUP_KINDS,
    gang_spec_of_group,
    gang_spec_of_pod,
    over,
)
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB, pods_of
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of, order_of
from gantree.executors.kubernetes.workloads.keys import key_of
from gantree.executors.kubernetes.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    GROVE,
    KAI,
    PLUGINS,
    VOLCANO,
)
from support.kubernetes.server.statuses import Json

REPLICAS = {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}
CONSTRAINT = {"topology": "t", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "rack"}
NETWORK = {"mode": "hard", "highestTierAllowed": 1, "highestTierName": "rack"}
POLICY = {"minAvailable": 2, "queue": "q", "minResources": {"cpu": 1}, "priorityClass": "p"}
SPECS: dict[GroupKind, Json] = {
    CORE: {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "disruptionMode": {"single": {}},
        "priority": 7,
        "parentCompositePodGroupName": "c",
    },
    COMPOSITE: {
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "schedulingConstraints": {"topology": [{"key": "rack"}]},
        "priority": 7,
        "parentCompositePodGroupName": "c",
    },
    PLUGINS: {"minMember": 4, "minResources": {"cpu": 1}, "scheduleTimeoutSeconds": 5},
    VOLCANO: {
        "minMember": 4,
        "queue": "q",
        "minTaskMember": {"master": 1},
        "networkTopology": NETWORK,
        "subGroupPolicy": [{"subGroupSize": 2, "networkTopology": NETWORK, "matchLabelKeys": ["a"]}],
    },
    KAI: {
        "minMember": 4,
        "queue": "q",
        "preemptibility": "preemptible",
        "topologyConstraint": CONSTRAINT,
        "subGroups": [{"name": "a", "minMember": 2, "topologyConstraint": CONSTRAINT}],
    },
    GROVE: {
        "podgroups": [{"name": "a", "minReplicas": 2, "topologyConstraint": {"packConstraint": {"required": "rack"}}}],
        "topologyConstraint": {"packConstraint": {"required": "rack", "preferred": "rack"}},
    },
    GANGJOB: {
        "queue": "q",
        "priority": 5,
        "preemptible": True,
        "gang": [{"role": "a", "members": 2, "topology": {"required": "rack"}, "template": {"spec": {}}}],
        "topology": {"required": "rack", "slices": {"members": 2, "required": "rack"}},
        "restarts": {"limit": 1, "backoffSeconds": 0.5, "backoffMaxSeconds": 9},
        "timeLimitSeconds": 9.5,
    },
    owners.JOBSET: {
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
        "replicatedJobs": [
            {
                "name": "a",
                "replicas": 2,
                "dependsOn": [{"name": "b"}],
                "template": {"metadata": {"annotations": {"a": "b"}}, "spec": {"parallelism": 2, "completions": 2}},
            }
        ],
    },
    owners.LWS: {"leaderWorkerTemplate": {"size": 4}, "startupPolicy": "LeaderReady"},
    owners.RAY: {
        "enableInTreeAutoscaling": True,
        "workerGroupSpecs": [{"minReplicas": 2, "replicas": 3, "numOfHosts": 2, "suspend": False}],
    },
    owners.JOB: {"parallelism": 4, "completions": 8},
    **{
        kind: {
            f"{word}ReplicaSpecs": REPLICAS,
            "runPolicy": {"schedulingPolicy": POLICY},
            "elasticPolicy": {"minReplicas": 1},
            "launcherCreationPolicy": "AtStartup",
        }
        for kind, word in zip(owners.KUBEFLOW.values(), owners.REPLICAS, strict=True)
    },
}  # fmt: skip
ODD: tuple[Any, ...] = (
    5,
    -5,
    1.5,
    10**30,
    True,
    "odd",
    "9" * 5000,
    ["odd"],
    [5],
    {"odd": 5},
    [[]],
    [None],
)


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All places in a spec."""
    if path:
        yield path
    if isinstance(value, dict | list):
        for step, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(each, (*path, step))


def with_odd(value: Any, path: tuple[Any, ...], odd: Any) -> Any:
    """A copy of a spec with something else at a place."""
    if not path:
        return odd
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = with_odd(copy[path[0]], path[1:], odd)
    return copy


def group(spec: Json) -> Group:
    metadata = {"name": "g", "namespace": "d", "uid": "u"}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Group)


def pod(**told: Any) -> Pod:
    return msgspec.convert({"metadata": {"name": "p-0", "namespace": "d", "uid": "u", **told}}, Pod)


def becomes_a_job(terms: GangSpec) -> None:
    job, _, _ = job_of(gang_of(("d", "g", "k"), terms, [pod()]), {"rack": "rack"}.get)
    assert job.members == 1


@pytest.mark.parametrize("kind", GROUP_KINDS, ids=lambda kind: str(kind.plural + kind.group))
def test_an_object_is_read_or_left_out_whatever_stands_in_it(
    kind: GroupKind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    sound = gang_spec_of_group(kind, group(SPECS[kind]))
    assert sound is not None
    becomes_a_job(sound)
    left_out = 0
    for path in paths(SPECS[kind]):
        for odd in ODD:
            terms = gang_spec_of_group(kind, group(with_odd(SPECS[kind], path, odd)))
            left_out += terms is None
            if terms is not None:
                becomes_a_job(terms)
        if isinstance(path[-1], str):
            assert gang_spec_of_group(kind, group(with_odd(SPECS[kind], path, None))) is not None
    warned = [record for record in caplog.records if record.name == gang_spec_of_group.__module__]
    assert left_out == len(warned) > 0


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (CORE, {"schedulingConstraints": {"topology": [5]}}),
        (CORE, {"disruptionMode": 5}),
        (VOLCANO, {"minMember": 2, "networkTopology": {"highestTierName": ["rack"]}}),
        (KAI, {"queue": 5}),
        (GROVE, {"podgroups": [{"minReplicas": "2"}]}),
        (owners.RAY, {"workerGroupSpecs": {"a": 1}}),
        (GANGJOB, {"gang": [{"role": 5}]}),
    ],
)
def test_what_asks_for_something_oddly_is_not_read_as_asking_for_nothing(
    kind: GroupKind, spec: Json
) -> None:
    assert gang_spec_of_group(kind, group(spec)) is None


def test_pods_of_a_gangjob_are_made_or_it_is_odd() -> None:
    role = {
        "role": "a",
        "members": 2,
        "processes": 2,
        "each": {"gpus": 1, "cpus": 1.5, "memoryGiB": 1, "devices": {"rdma/hca": 1}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"env": [{"name": "A"}]}]}},
    }  # fmt: skip
    spec = {"gang": [role], "masterPort": 5}
    assert set(pods_of(group(spec), "gantree")) == {"g-a-0", "g-a-1"}
    for path in paths(spec):
        for odd in ODD[:-1]:
            changed = group(with_odd(spec, path, odd))
            if gang_spec_of_group(GANGJOB, changed) is not None:
                made = _made(changed)
                assert made is None or isinstance(made, dict)


def _made(changed: Group) -> Json | None:
    try:
        return pods_of(changed, "gantree")
    except InvalidObject:
        return None


KEYS = (
    "gantree.io/gang", "gantree.io/gang-size", "gantree.io/processes", "gantree.io/priority", "gantree.io/slice-size",
    "gantree.io/index", "gantree.io/gangjob", "kueue.x-k8s.io/pod-group-total-count",
    "kueue.x-k8s.io/podset-required-topology", "kai.scheduler/segment-size", "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/job-index", "jobset.sigs.k8s.io/job-global-index", "jobset.sigs.k8s.io/replicatedjob-name",
    "alpha.jobset.sigs.k8s.io/exclusive-topology", "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index",
    "leaderworkerset.sigs.k8s.io/exclusive-topology", "training.kubeflow.org/job-name",
    "training.kubeflow.org/operator-name", "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index",
    "ray.io/cluster", "ray.io/node-type", "ray.io/group", "batch.kubernetes.io/job-completion-index",
    "volcano.sh/task-spec", "hivedscheduler.microsoft.com/pod-scheduling-spec",
)  # fmt: skip
SAYINGS = (
    "",
    "5",
    "-5",
    "0",
    "9" * 5000,
    "x" * 5000,
    "\u0665",
    "a b/c:d\n",
    "1.5",
    "[",
    "{a: [",
    "a: &a [*a]",
    "a: 2026-99-99",
    "[" * 9999,
)


@pytest.mark.parametrize("key", KEYS)
def test_labels_and_annotations_may_say_anything(key: str) -> None:
    every = dict.fromkeys(KEYS, "1")
    for said in SAYINGS:
        for told in (
            pod(labels={key: said}),
            pod(annotations={**every, key: said}, labels={**every, key: said}),
        ):
            gang_spec_of_pod(told)
            order_of(told)
            pod_request(told)
            namespace, name, _ = key_of(told)
            assert namespace == "d"
            assert re.fullmatch(r"[\w.:-]{1,600}", name, re.ASCII)


def test_the_project_is_that_of_the_group_or_of_its_pods_and_no_longer_than_a_label() -> None:
    told = gang_spec_of_pod(pod(labels={"gantree.io/project": "llm"}))
    assert told.project == "llm"
    assert over(GangSpec(), told).project == "llm"
    assert over(GangSpec(project="vision"), told).project == "vision"
    long = gang_spec_of_pod(pod(annotations={"gantree.io/project": "x" * 5000}))
    assert long.project == "x" * 63


@pytest.mark.parametrize("deep", ["[" * 9999, "{a: " * 9999, "- " * 9999])
def test_words_of_hived_that_are_nested_without_end_are_refused_at_a_depth_that_none_needs(
    deep: str,
) -> None:
    told = hived_of(pod(annotations={SPEC: deep}))
    assert told is not None
    assert told.trouble == "it is nested more than 32 deep"


def test_words_of_hived_that_merge_aliases_are_refused_before_they_grow_tenfold_with_each_line() -> (
    None
):
    more = (f"a{n + 1}: &a{n + 1} {{<<: [{', '.join([f'*a{n}'] * 10)}]}}" for n in range(12))
    told = hived_of(pod(annotations={SPEC: "\n".join(("a0: &a0 {k: 1}", *more))}))
    assert told is not None
    assert told.trouble == "it refers to itself by an alias"
