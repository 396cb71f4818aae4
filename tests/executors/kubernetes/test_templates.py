"""Pods of one template: what is worked out once for all of them, and what is theirs alone."""

from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Claimed, Pod
from gantree.executors.kubernetes.pods.gang_spec import GangSpec
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.pods.templates import kept_of
from gantree.executors.kubernetes.workloads import gangs
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of
from gantree.executors.kubernetes.workloads.keys import key_of
from support.kubernetes.server.statuses import Json

AMOUNTS = {"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
TOKEN = {"name": "kube-api-access-x7k2p", "projected": {"sources": []}}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}


def pod(name: str, spec: Json | None = None, **metadata: Any) -> Pod:
    container = {"name": "main", "resources": {"requests": AMOUNTS, "limits": AMOUNTS}}
    told = {"name": name, "namespace": "d", "uid": name, **metadata}
    return msgspec.convert(
        {"metadata": told, "spec": {"containers": [container], **(spec or {})}}, Pod
    )


@pytest.mark.parametrize(
    "other",
    [
        pod("b"),
        pod("b", ownerReferences=[{"kind": "ReplicaSet", "name": "r", "uid": "1"}]),
        pod("b", {"volumes": [TOKEN]}),
    ],
)
def test_pods_that_differ_in_name_alone_share_what_follows_from_the_rest(other: Pod) -> None:
    assert kept_of(other) is kept_of(pod("a"))
    assert pod_request(other) is pod_request(pod("a"))


@pytest.mark.parametrize(
    "other",
    [
        pod("b", namespace="e"),
        pod("b", labels={"app": "x"}),
        pod("b", annotations={"gantree.io/queue": "x"}),
        pod("b", {"volumes": [DATA]}),
        pod("b", {"priority": 7}),
        msgspec.structs.replace(pod("b"), claimed=Claimed(gpus=1)),
    ],
)
def test_pods_that_differ_in_anything_that_counts_share_nothing(other: Pod) -> None:
    assert kept_of(other) is not kept_of(pod("a"))


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"labels": {"gantree.io/queue": "q", "gantree.io/priority": "7"}},
        {"annotations": {"gantree.io/checkpoint": "all"}},
        {"annotations": {"gantree.io/required-topology": "leaf"}},
        {"annotations": {"gantree.io/gang": "g", "gantree.io/gang-size": "1"}},
        {"labels": {"kai.scheduler/preemption-delay": "9"}},
    ],
)
def test_a_gang_of_one_is_the_job_that_it_would_be_if_it_were_the_first_of_its_template(
    metadata: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = pod("a-0", **metadata), pod("a-1", **metadata)
    job_of(gang_of(key_of(first), None, [first]), _tier, "d")
    shared = gang_of(key_of(second), None, [second])
    alone = gangs._gang_of(key_of(second), None, [second])
    assert shared == alone
    assert job_of(shared, _tier, "d") == gangs._job_of(alone, _tier, "d")


def test_what_the_object_of_a_group_says_counts_beside_what_its_template_does() -> None:
    alone, of_group = pod("a"), pod("b")
    assert job_of(gang_of(key_of(alone), None, [alone]), _tier, "d")[0].queue == "default"
    gang = gang_of(("d", "g", "batch"), GangSpec(queue="q"), [of_group])
    assert job_of(gang, _tier, "d")[0].queue == "q"


@pytest.mark.parametrize("priority", [None, 0, 10, -5, 1_000_000])
def test_the_priority_of_a_pod_is_kubernetes_own_and_without_a_class_0(
    priority: int | None,
) -> None:
    told = pod("a", spec={} if priority is None else {"priority": priority})
    job = job_of(gang_of(key_of(told), None, [told]), _tier, "d")[0]
    assert job.priority == (priority or 0)


def test_what_is_asked_of_the_topology_is_read_anew_for_every_site() -> None:
    asks = pod("a", annotations={"gantree.io/required-topology": "leaf"})
    gang = gang_of(key_of(asks), None, [asks])
    assert job_of(gang, lambda word: None, "d")[1] == ("leaf",)
    assert job_of(gang, _tier, "d")[0].topology.required == "leaf"


def _tier(word: str) -> str | None:
    return word if word == "leaf" else None
