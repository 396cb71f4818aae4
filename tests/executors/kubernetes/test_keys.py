"""Which gang a pod is of when its object comes late, changes, or makes gangs of its parts; and who stands alone."""

from typing import Any

import msgspec
import pytest

from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods.gang_spec import GangSpec
from gantree.executors.kubernetes.workloads import gang_owners as owners
from gantree.executors.kubernetes.workloads.gangs import gang_of, job_of, order_of
from gantree.executors.kubernetes.workloads.keys import key_of
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from support.kubernetes.server.statuses import Json

JOBSET, LWS = owners.JOBSET.key_word, owners.LWS.key_word
SET = "jobset.sigs.k8s.io/"
WHOLE = ("d", "train", JOBSET)


def pod(name: str, **labels: str) -> Pod:
    metadata = {"name": name, "namespace": "d", "uid": name, "labels": labels}
    return msgspec.convert({"metadata": metadata}, Pod)


def of_set(job: str, index: int = 0) -> Pod:
    told = {f"{SET}jobset-name": "train", f"{SET}replicatedjob-name": job}
    return pod(f"{job}-{index}", **told, **{owners.COMPLETION_INDEX: str(index)})


def group(spec: Json) -> Group:
    return msgspec.convert({"metadata": {"name": "train", "namespace": "d"}, "spec": spec}, Group)


def jobset(**more: Any) -> Group:
    template = {"spec": {"parallelism": 2}}
    jobs = [{"name": "a", "template": template}, {"name": "b", "template": template, **more}]
    return group({"replicatedJobs": jobs})


def crowded(waiting: PendingPods) -> dict[str, list[str]]:
    return {
        key[1]: sorted(pending_gang.pods)
        for key, pending_gang in waiting.gangs.items()
        if pending_gang.pods
    }


def test_pods_move_to_the_part_that_they_are_of_when_their_object_says_so() -> None:
    waiting = PendingPods()
    for job in "ab":
        waiting.update(of_set(job), waits=True)
    assert crowded(waiting) == {"train": ["a-0", "b-0"]}
    assert waiting.gang(WHOLE) is None
    depends = owners.jobset(jobset(dependsOn=[{"name": "a", "status": "Complete"}]))
    waiting.update_group(WHOLE, depends)
    assert crowded(waiting) == {"train:a": ["a-0"], "train:b": ["b-0"]}
    waiting.update(of_set("a", 1), waits=True)
    found = waiting.gang(("d", "train:a", JOBSET))
    assert found is not None
    assert [each.metadata.name for each in found.pods] == ["a-0", "a-1"]
    assert waiting.gang(("d", "train:b", JOBSET)) is None
    waiting.update_group(WHOLE, owners.jobset(jobset()))
    assert crowded(waiting) == {"train": ["a-0", "a-1", "b-0"]}
    waiting.update(of_set("b", 0), waits=False)
    assert crowded(waiting) == {"train": ["a-0", "a-1"]}


def test_leaders_that_must_be_ready_first_are_no_part_of_their_workers_gang() -> None:
    waiting = PendingPods()
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}}
    waiting.update_group(("d", "train", LWS), owners.lws(group(spec)))
    prefix = "leaderworkerset.sigs.k8s.io/"
    for index in range(3):
        told = {"name": "train", "group-index": "1", "worker-index": str(index)}
        labels = {f"{prefix}{key}": value for key, value in told.items()}
        waiting.update(pod(f"p{index}", **labels), waits=True)
    assert crowded(waiting) == {"train:leader:group:1": ["p0"], "train:worker:group:1": ["p1", "p2"]}  # fmt: skip
    for key in list(waiting.gangs):
        assert waiting.gang(key) is not None


def test_who_stands_alone_does_so_after_a_restart_too() -> None:
    """The job of such a pod says so by its id; it is adopted before pods are seen."""
    late = pod("p9", **{"gantree.io/gang": "g"})
    waiting = PendingPods()
    waiting.set_job("d.p9.pod.p9", ("d", "p9", "pod"))
    waiting.update(late, waits=True)
    assert crowded(waiting) == {"p9": ["p9"]}
    waiting.keys.forget("p9")
    assert waiting.keys.of(late) == key_of(late) == ("d", "g", "gang")


@pytest.mark.parametrize(
    ("key", "of_gang", "of_roles"),
    [
        ("gantree.io/required-topology", "leaf", [None, None]),
        ("kueue.x-k8s.io/podset-required-topology", None, [None, "leaf"]),
    ],
)
def test_what_only_some_roles_ask_for_is_not_lost(
    key: str, of_gang: str | None, of_roles: list[str | None]
) -> None:
    """Users often annotate the template of the workers alone."""
    label = "training.kubeflow.org/replica-type"
    workers = [pod(f"w{number}", **{label: "worker", key: "leaf"}) for number in range(2)]
    gang = gang_of(("d", "g", "k"), GangSpec(members=3), [pod("m", **{label: "master"}), *workers])
    job, barred, lost = job_of(gang, {"leaf": "leaf"}.get)
    assert (job.topology.required, barred, lost) == (of_gang, (), ())
    assert [(role.name, role.topology.required) for role in job.roles] == [
        ("master", of_roles[0]),
        ("worker", of_roles[1]),
    ]


@pytest.mark.parametrize(
    ("roles", "order"),
    [
        (["worker-1", "worker-0", "master-0"], ["master-0", "worker-0", "worker-1"]),
        (
            ["worker-0", "evaluator-0", "ps-0", "chief-0"],
            ["chief-0", "ps-0", "evaluator-0", "worker-0"],
        ),
        (["worker-10", "worker-9", "launcher-0"], ["launcher-0", "worker-9", "worker-10"]),
    ],
)
def test_members_are_numbered_as_their_framework_numbers_them(
    roles: list[str], order: list[str]
) -> None:
    prefix = "training.kubeflow.org/"
    pods = []
    for name in roles:
        role, _, index = name.partition("-")
        pods.append(pod(name, **{f"{prefix}replica-type": role, f"{prefix}replica-index": index}))
    assert [each.metadata.name for each in sorted(pods, key=order_of)] == order


def test_pods_of_a_set_of_jobs_are_numbered_by_job_and_then_by_completion() -> None:
    jobs = {"z": 0, "a": 1}
    pods = [
        pod(
            f"{job}-{index}",
            **{
                f"{SET}replicatedjob-name": job,
                f"{SET}job-global-index": str(number),
                owners.COMPLETION_INDEX: str(index),
            },
        )
        for index in (1, 0)
        for job, number in jobs.items()
    ]
    names = [each.metadata.name for each in sorted(pods, key=order_of)]
    assert names == ["z-0", "z-1", "a-0", "a-1"]
