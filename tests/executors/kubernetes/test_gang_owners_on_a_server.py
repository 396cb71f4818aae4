"""Gangs by who owns the pods: each kind with its object and its pods as its operator makes them, and the nodes it got.

Objects are as in examples upstream (named at each), their pods have the labels and annotations of the label tables of
their operators. There are three nodes of leaf l0 and four of leaf l1; what is there stays until a test ends.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gantree.executors.kubernetes.pods.gang_spec import GangSpec, RoleSpec
from gantree.executors.kubernetes.workloads.pod_groups import grove
from support.kubernetes.server.statuses import Json
from support.pods import PodStage

LEAF = "network.topology.nvidia.com/leaf"
KINDS = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("kubeflow.org", "v2beta1", "MPIJob", "mpijobs"),
    ("scheduler.grove.io", "v1alpha1", "PodGang", "podgangs"),
)
PLURAL = {kind: (f"apis/{group}/{version}", plural) for group, version, kind, plural in KINDS}
PLURAL["Job"] = ("apis/batch/v1", "jobs")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodStage]:
    with PodStage(tmp_path_factory.mktemp("owners")) as stage:
        for group in dict.fromkeys(group for group, *_ in KINDS):
            for kind in [kind for kind in KINDS if kind[0] == group]:
                define(stage, *kind)
        stage.nodes("a[0-2]", network_topology_nvidia_com__leaf="l0")
        stage.nodes("b[0-3]", network_topology_nvidia_com__leaf="l1")
        stage.start()
        yield stage


@pytest.fixture
def stage(running: PodStage, monkeypatch: pytest.MonkeyPatch) -> Iterator[PodStage]:
    """All is free before a test, and after it. Each pod is looked at before the next one comes."""
    plain, cluster = running.pod, running.controller.cluster

    def pod(name: str, gpus: int = 0, **told: Any) -> Json:
        made = plain(name, gpus, **told)
        seen: Any = cluster
        running.until(lambda: made["metadata"]["uid"] in seen._attempts.pods)
        for _ in range(3):
            running.controller.step()
        return made

    monkeypatch.setattr(running, "pod", pod)
    yield running
    monkeypatch.undo()
    for kind, (path, plural) in PLURAL.items():
        for each in running.api.get(f"/{path}/{plural}").json()["items"]:
            name = each["metadata"]["name"]
            answer = running.api.delete(f"/{path}/namespaces/default/{plural}/{name}")
            assert answer.status_code == 200, (kind, answer.text)
    for name in running.pods():
        running.api.delete(f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
    running.until(lambda: not running.pods() and not running.controller.ledger.holding)


def define(stage: PodStage, group: str, version: str, kind: str, plural: str) -> None:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version_of = {"name": version, "served": True, "storage": True}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{**version_of, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    stage.api.define(body)


def make(stage: PodStage, kind: str, spec: Json, **metadata: Any) -> None:
    path, plural = PLURAL[kind]
    version = path.removeprefix("apis/")
    body = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "train", **metadata},
        "spec": spec,
    }
    answer = stage.api.post(f"/{path}/namespaces/default/{plural}", body)
    assert answer.status_code == 201, answer.text


def of_jobset(
    job: str, number: int, index: int, jobs_before: int = 0, more: Json | None = None
) -> Json:
    """Labels and annotations of a pod of a JobSet: api/jobset/v1alpha2/jobset_types.go, and those of its Job."""
    told = {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/replicatedjob-name": job,
        "jobset.sigs.k8s.io/job-index": str(number),
        "jobset.sigs.k8s.io/job-global-index": str(jobs_before + number),
        "batch.kubernetes.io/job-completion-index": str(index),
    }
    return {"labels": told, "annotations": {**told, **(more or {})}}


def replicated(name: str, replicas: int, parallelism: int, **more: Any) -> Json:
    template = {"spec": {"parallelism": parallelism, "completions": parallelism}}
    return {"name": name, "replicas": replicas, "template": template, **more}


def jobset(stage: PodStage) -> list[str]:
    """site/static/examples/simple/driver-worker-success-policy.yaml, with Kueue's annotation on each pod template."""
    make(stage, "JobSet", {"replicatedJobs": [replicated("leader", 1, 1), replicated("workers", 2, 2)]})  # fmt: skip
    wish = {"kueue.x-k8s.io/podset-required-topology": LEAF}
    names = [f"train-workers-{job}-{index}" for job in (0, 1) for index in (0, 1)]
    for name in names:
        job, index = int(name[-3]), int(name[-1])
        stage.pod(name, gpus=8, **of_jobset("workers", job, index, 1, wish))
    stage.pod("train-leader-0-0", **of_jobset("leader", 0, 0, 0, wish))
    return names


def trainer(stage: PodStage) -> list[str]:
    """The JobSet that Kubeflow Trainer v2 makes of a TrainJob with initializers (runtime torch-distributed)."""
    done = [{"name": "dataset-initializer", "status": "Complete"}]
    jobs = [replicated("dataset-initializer", 1, 1), replicated("node", 1, 4, dependsOn=done)]
    make(stage, "JobSet", {"replicatedJobs": jobs}, annotations={"gantree.io/required-topology": LEAF})  # fmt: skip
    stage.pod("train-dataset-initializer-0-0", **of_jobset("dataset-initializer", 0, 0))
    stage.until(lambda: stage.bound("train-dataset-initializer-0-0"))
    stage.exit("train-dataset-initializer-0-0")
    for index in range(4):
        stage.pod(f"train-node-0-{index}", gpus=8, **of_jobset("node", 0, index, 1))
    return [f"train-node-0-{index}" for index in range(4)]


def pytorchjob(stage: PodStage) -> list[str]:
    """examples/pytorch/simple.yaml of kubeflow/training-operator, with three workers."""
    replicas = {"Master": {"replicas": 1}, "Worker": {"replicas": 3}}
    queue = {"gantree.io/required-topology": LEAF}
    make(stage, "PyTorchJob", {"pytorchReplicaSpecs": replicas}, annotations=queue)
    for role, index in (("worker", 0), ("worker", 1), ("worker", 2), ("master", 0)):
        labels = {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/operator-name": "pytorchjob-controller",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(index),
        }
        stage.pod(f"train-{role}-{index}", gpus=8, labels=labels)
    return ["train-master-0", "train-worker-0", "train-worker-1", "train-worker-2"]


def mpijob(stage: PodStage) -> list[str]:
    """examples/v2beta1/pi of kubeflow/mpi-operator, whose launcher is made when the workers are ready."""
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas}
    make(stage, "MPIJob", spec, annotations={"gantree.io/required-topology": LEAF})

    def labels(role: str, index: int) -> Json:
        return {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/operator-name": "mpi-operator",
            "training.kubeflow.org/job-role": role,
            "training.kubeflow.org/replica-index": str(index),
        }

    for index in range(4):
        stage.pod(f"train-worker-{index}", gpus=8, labels=labels("worker", index))
    stage.until(lambda: stage.bound(*(f"train-worker-{index}" for index in range(4))))
    stage.pod("train-launcher", labels=labels("launcher", 0))
    stage.until(lambda: stage.bound("train-launcher"))
    return [f"train-worker-{index}" for index in range(4)]


def leaderworkerset(stage: PodStage) -> list[str]:
    """docs/examples/sample/lws.yaml of kubernetes-sigs/lws: two groups of two; one of them is a pod short."""
    make(stage, "LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": {"size": 4}})
    for group, size in ((0, 4), (1, 3)):
        for index in range(size):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": "train",
                "leaderworkerset.sigs.k8s.io/group-index": str(group),
                "leaderworkerset.sigs.k8s.io/worker-index": str(index),
            }
            wish = {"gantree.io/required-topology": LEAF, "leaderworkerset.sigs.k8s.io/size": "4"}
            name = f"train-{group}-{index}" if index else f"train-{group}"
            stage.pod(name, gpus=8 if group == 0 else 0, labels=labels, annotations=wish)
    return ["train-0", "train-0-1", "train-0-2", "train-0-3"]


def podgang(stage: PodStage) -> list[str]:
    """A PodGang as the operator of ai-dynamo/grove makes it of
    operator/samples/user-guide/01_core-concepts/multi-node-disaggregated.yaml, with one group of fewer workers.
    """
    required = {"topologyConstraint": {"packConstraint": {"required": LEAF}}}
    cliques = {"train-0-prefill-0-pleader": 1, "train-0-prefill-0-pworker": 3}
    groups = [
        {"name": name, "minReplicas": least, "podReferences": [], "topologyConstraint": {}}
        for name, least in cliques.items()
    ]
    make(stage, "PodGang", {"podgroups": groups, **required})
    names = []
    for clique, members in cliques.items():
        for index in range(members):
            labels = {
                "grove.io/podgang": "train",
                "grove.io/podclique": clique,
                "grove.io/podclique-pod-index": str(index),
                "grove.io/podcliqueset-replica-index": "0",
                "app.kubernetes.io/part-of": "train",
            }
            names.append(f"{clique}-x{9 - index}")
            stage.pod(names[-1], gpus=8, labels=labels)
    return names


def raycluster(stage: PodStage) -> list[str]:
    """ray-operator/config/samples/ray-cluster.autoscaler.yaml: a head, and two workers at least."""
    workers = {"groupName": "small", "replicas": 3, "minReplicas": 2, "maxReplicas": 4, "numOfHosts": 2}  # fmt: skip
    spec = {"enableInTreeAutoscaling": True, "headGroupSpec": {}, "workerGroupSpecs": [workers]}
    make(stage, "RayCluster", spec, annotations={"gantree.io/required-topology": LEAF})
    cluster = {"ray.io/cluster": "train"}
    for index in range(4):
        labels = {**cluster, "ray.io/node-type": "worker", "ray.io/group": "small"}
        stage.pod(f"train-small-worker-{index}", gpus=8, labels=labels)
    head = {**cluster, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    stage.pod("train-head", labels=head)
    return [f"train-small-worker-{index}" for index in range(4)]


def plain_job(stage: PodStage) -> list[str]:
    """The sample of Kueue's topology-aware scheduling: an indexed Job whose pod template asks for a topology."""
    spec = {"parallelism": 4, "completions": 4, "completionMode": "Indexed"}
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    make(stage, "Job", {**spec, "template": template}, labels={"kueue.x-k8s.io/queue-name": "default"})  # fmt: skip
    uid = stage.api.get("/apis/batch/v1/namespaces/default/jobs/train").json()["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}  # fmt: skip
    for index in range(4):
        stage.pod(f"train-{index}", gpus=8, owners=[owner], **of_job(index))
    return [f"train-{index}" for index in range(4)]


def of_job(index: int) -> Json:
    return {
        "labels": {"batch.kubernetes.io/job-completion-index": str(index)},
        "annotations": {"kueue.x-k8s.io/podset-required-topology": LEAF},
    }


def hived(stage: PodStage) -> list[str]:
    """example/request/design/request.yaml of microsoft/hivedscheduler, for the cells that are here."""
    told = """
virtualCluster: default
priority: 1000
leafCellType: H100
leafCellNumber: 8
affinityGroup:
  name: default/job1
  members:
  - podNumber: 4
    leafCellNumber: 8
"""
    annotations = {
        "hivedscheduler.microsoft.com/pod-scheduling-spec": told,
        "gantree.io/required-topology": LEAF,
    }
    for index in range(4):
        stage.pod(f"train-{index}", annotations=annotations, spec=asks_hived())
    return [f"train-{index}" for index in range(4)]


def asks_hived() -> Json:
    limits = {"hivedscheduler.microsoft.com/pod-scheduling-enable": "1"}
    return {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]}


@pytest.mark.parametrize(
    "apply",
    [jobset, trainer, pytorchjob, mpijob, leaderworkerset, podgang, raycluster, plain_job, hived],
    ids=lambda each: str(each.__name__),
)
def test_a_gang_of_its_owner_is_bound_whole_in_the_leaf_that_holds_it(
    stage: PodStage, apply: Callable[[PodStage], list[str]]
) -> None:
    names = apply(stage)
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name) for name in names} == {"b0", "b1", "b2", "b3"}
    pods = stage.pods()
    ranks = [int(pods[name]["metadata"]["annotations"]["gantree.io/rank"]) for name in names]
    assert ranks == list(range(ranks[0], ranks[0] + 4))


def test_a_podgang_asks_for_topologies_as_a_whole_and_for_each_podclique() -> None:
    packed = {"packConstraint": {"required": LEAF, "preferred": "kubernetes.io/hostname"}}
    groups = [
        {"name": "decode", "minReplicas": 2, "topologyConstraint": packed},
        {"name": "router", "minReplicas": 1},
    ]
    assert grove({"podgroups": groups, "topologyConstraint": packed}) == GangSpec(
        members=3,
        required=LEAF,
        preferred="kubernetes.io/hostname",
        roles=(RoleSpec("decode", 2, LEAF, "kubernetes.io/hostname"), RoleSpec("router", 1)),
    )


def test_a_group_that_lacks_a_pod_waits_while_another_of_its_set_runs(stage: PodStage) -> None:
    names = leaderworkerset(stage)
    stage.until(lambda: stage.bound(*names))
    assert not any(stage.bound(name) for name in ("train-1", "train-1-1", "train-1-2"))


def test_leaders_of_an_exclusive_set_go_first_and_followers_follow_as_a_gang(
    stage: PodStage,
) -> None:
    """The webhook of JobSet refuses followers until their leader has a node, and pins them to its domain then."""
    exclusive = {"alpha.jobset.sigs.k8s.io/exclusive-topology": LEAF}
    make(stage, "JobSet", {"replicatedJobs": [replicated("workers", 2, 3)]}, annotations=exclusive)
    for job in (0, 1):
        stage.pod(f"train-workers-{job}-0", gpus=8, **of_jobset("workers", job, 0, 0, exclusive))
    stage.until(lambda: stage.bound("train-workers-0-0", "train-workers-1-0"))
    names = [f"train-workers-1-{index}" for index in (1, 2)]
    pinned = {"nodeSelector": {LEAF: "l1"}}
    told = of_jobset("workers", 1, 1, 0, exclusive)
    stage.pod(names[0], gpus=8, spec=pinned, **told)
    stage.pod("alone", gpus=1)
    stage.until(lambda: stage.bound("alone"))
    assert not stage.bound(names[0])
    stage.pod(names[1], gpus=8, spec=pinned, **of_jobset("workers", 1, 2, 0, exclusive))
    stage.until(lambda: stage.bound(*names))
    assert {stage.node_of(name)[0] for name in names} == {"b"}


def test_workers_that_an_autoscaler_adds_are_placed_one_by_one(stage: PodStage) -> None:
    names = raycluster(stage)
    stage.until(lambda: stage.bound(*names))
    stage.until(lambda: stage.phase("train-head") == "Running")
    labels = {
        "ray.io/cluster": "train",
        "ray.io/node-type": "worker",
        "ray.io/group": "small",
    }
    stage.pod("train-small-worker-4", gpus=8, labels=labels)
    stage.until(lambda: stage.bound("train-small-worker-4"))
    assert stage.node_of("train-small-worker-4")[0] == "a"
    assert stage.pods()["train-small-worker-4"]["metadata"]["annotations"]["gantree.io/members"] == "1"  # fmt: skip


def test_hived_pods_are_told_their_gpus_and_what_is_not_honoured(stage: PodStage) -> None:
    told = "{priority: -1, pinnedCellId: p, leafCellType: H100, leafCellNumber: 2}"
    annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": told}
    stage.pod("train-0", annotations=annotations, spec=asks_hived())
    stage.until(lambda: stage.bound("train-0"))
    annotations = stage.pods()["train-0"]["metadata"]["annotations"]
    assert (
        annotations["hivedscheduler.microsoft.com/pod-leaf-cell-isolation"]
        == annotations["gantree.io/gpus"]
    )
    assert len(annotations["gantree.io/gpus"].split(",")) == 2
    (state,) = stage.controller.ledger.holding.values()
    assert (state.spec.queue, state.priority) == ("default", -1)
    stage.until(
        lambda: any(
            "hived pinnedCellId" in event["message"]
            for event in stage.api.get("/api/v1/events").json()["items"]
        )
    )


def test_a_hived_pod_that_says_nothing_clear_does_not_run(stage: PodStage) -> None:
    annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": "leafCellNumber: [many"}
    stage.pod("train-0", annotations=annotations)
    stage.pod("train-1", gpus=1)
    stage.until(lambda: stage.bound("train-1"))
    assert not stage.bound("train-0")
