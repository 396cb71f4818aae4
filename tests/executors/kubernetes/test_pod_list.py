"""Pods as kubectl lists them, as gangs that ran: which pods belong together, and for how long."""

import json
from typing import Any

import pytest

from gantree.executors.kubernetes.tools.pod_list import gangs_of_list
from gantree.model.errors import BadFields

HOUR_S = 3600.0


def pod(name: str, start: str = "08:05", end: str = "09:05", group: str = "", gpus: int = 8) -> Any:
    """A pod of 6 January 2026 that was created at 8:00; without a start or an end it has none."""
    labels = {"scheduling.x-k8s.io/pod-group": group} if group else {}
    status: dict[str, Any] = {"phase": "Succeeded" if end else "Running" if start else "Pending"}
    if start:
        status["startTime"] = f"2026-01-06T{start}:00Z"
    if end:
        ended = {"terminated": {"exitCode": 0, "finishedAt": f"2026-01-06T{end}:00Z"}}
        status["containerStatuses"] = [{"name": "main", "state": ended}]
    wanted = {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "ml", "uid": name, "labels": labels,
            "creationTimestamp": "2026-01-06T08:00:00Z",
        },
        "spec": {"containers": [{"name": "main", "resources": wanted}]},
        "status": status,
    }  # fmt: skip


def listed(*items: Any) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()


def test_pods_of_a_group_are_one_gang_from_its_last_start_to_its_last_end() -> None:
    pods = [pod("w-0", group="w"), pod("w-1", "08:15", "09:25", group="w"), pod("alone", gpus=1)]
    gangs, left_out = gangs_of_list(listed(*pods), "pods.json")
    assert left_out == {}
    alone, group = gangs
    assert (alone.job.name, alone.ran_s) == ("ml/alone", HOUR_S)
    assert (group.job.name, group.ran_s) == ("ml/w", 70 * 60)
    (role,) = group.job.roles
    assert (role.members, role.shape.gpus, role.shape.cpus, role.shape.memory_GiB) == (2, 8, 4, 8)
    assert (group.job.user, group.submitted_at) == ("ml", 1_767_686_400)


def test_gangs_that_run_count_up_to_the_newest_moment_of_the_list() -> None:
    gangs, _ = gangs_of_list(listed(pod("old"), pod("running", "08:30", "")), "pods.json")
    assert {gang.job.name: gang.ran_s for gang in gangs} == {
        "ml/old": HOUR_S, "ml/running": 35 * 60,
    }  # fmt: skip


def test_gangs_of_which_a_pod_never_started_are_left_out() -> None:
    pods = [pod("w-0", group="w"), pod("w-1", "", "", group="w"), pod("waits", "", "")]
    assert gangs_of_list(listed(*pods), "pods.json") == ([], {"never started": 2})


def test_gangs_without_gpus_are_left_out() -> None:
    assert gangs_of_list(listed(pod("a", gpus=0)), "pods.json") == ([], {"without GPUs": 1})


def test_of_several_attempts_the_last_counts_since_the_first_submission() -> None:
    again = pod("w-0-again", "09:10", "10:00", group="w")
    again["metadata"]["creationTimestamp"] = "2026-01-06T09:06:00Z"
    lasting = pod("w-1", "08:05", "10:00", group="w")
    ((gang,), _) = gangs_of_list(listed(pod("w-0", group="w"), lasting, again), "pods.json")
    assert gang.job.roles[0].members == 2
    assert (gang.submitted_at, gang.ran_s) == (1_767_686_400, 50 * 60)


def test_an_evicted_pod_ended_with_its_last_condition() -> None:
    evicted = pod("a", end="")
    evicted["status"] |= {
        "phase": "Failed",
        "conditions": [{"type": "Ready", "lastTransitionTime": "2026-01-06T08:35:00Z"}],
    }
    gangs, _ = gangs_of_list(listed(evicted, pod("b", end="11:00")), "pods.json")
    assert gangs[0].ran_s == 30 * 60


def test_other_objects_are_passed_over() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n0"}}
    gangs, _ = gangs_of_list(listed(node, pod("a")), "pods.json")
    assert [gang.job.name for gang in gangs] == ["ml/a"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{}", "items"),
        (b"{", "kubectl get pods"),
        (listed({"kind": "Pod", "metadata": 7}), r"items\[0\]"),
        (listed({"kind": "Pod", "metadata": {"name": "a"}}), "creationTimestamp"),
        (listed(pod("a", "noon")), "an object of Kubernetes"),
        (listed({"kind": "Pod", "metadata": {"creationTimestamp": "2026-01-06T08:00:00"}}), "zone"),
    ],
)
def test_what_is_no_list_of_pods_is_refused(text: bytes, words: str) -> None:
    with pytest.raises(BadFields, match=words):
        gangs_of_list(text, "pods.json")
