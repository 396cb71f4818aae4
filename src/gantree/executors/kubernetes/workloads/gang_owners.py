"""Gangs by who owns the pods: JobSet (which Kubeflow Trainer v2 makes too), the Kubeflow operators, LeaderWorkerSet,
RayCluster and plain Jobs.

Pods say by labels which object they are of and which place they have in it; how many they are only the object says.
Names are those of the API types and label tables upstream: kubernetes-sigs/jobset `api/jobset/v1alpha2`,
kubernetes-sigs/lws `api/leaderworkerset/v1`, kubeflow/training-operator `pkg/apis/kubeflow.org/v1`,
kubeflow/mpi-operator `pkg/apis/kubeflow/v2beta1`, ray-project/kuberay `ray-operator/controllers/ray/utils/constant.go`.

Where an operator makes some pods only after others have a node (exclusive topology of JobSet and LeaderWorkerSet) or
run (`dependsOn`, `startupPolicy`), waiting for all of them would be for ever: there the gang is the part that is made
at once.
"""

from collections.abc import Iterator

from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods.gang_spec import (
    PART,
    GangSpec,
    GroupKind,
    GroupRef,
    Spec,
    count,
    flag,
    labels,
    table,
    tables,
    text,
    there,
)
from gantree.executors.kubernetes.workloads.gangjob import OF_GANGJOB, ROLE

JOBSET = GroupKind("jobset.x-k8s.io", "jobsets", ("v1alpha2",))
LWS = GroupKind("leaderworkerset.x-k8s.io", "leaderworkersets", ("v1",))
RAY = GroupKind("ray.io", "rayclusters", ("v1", "v1alpha1"))
JOB = GroupKind("batch", "jobs", ("v1",))
_KUBEFLOW = "kubeflow.org"
KUBEFLOW = {
    word: GroupKind(_KUBEFLOW, f"{word}s", versions, f"{word}s.{_KUBEFLOW}")
    for word, versions in (
        ("pytorchjob", ("v1",)),
        ("tfjob", ("v1",)),
        ("mpijob", ("v2beta1", "v1")),
        ("xgboostjob", ("v1",)),
        ("paddlejob", ("v1",)),
        ("jaxjob", ("v1",)),
    )
}
"""Kinds of the training operator and of the MPI operator, by their names in small letters."""
REPLICAS = ("pytorch", "tf", "mpi", "xgb", "paddle", "jax")
"""What stands before `ReplicaSpecs` in them."""

_JOBSET, _LWS, _TRAINING, _RAY = (
    "jobset.sigs.k8s.io/",
    "leaderworkerset.sigs.k8s.io/",
    "training.kubeflow.org/",
    "ray.io/",
)
JOBSET_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
JOBSET_SELECTS = "alpha.jobset.sigs.k8s.io/node-selector"
"""With it JobSet gives every pod a node selector at once, and makes none wait for another."""
LWS_EXCLUSIVE = f"{_LWS}exclusive-topology"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
LONGEST_ROLE = 63
REPLACED_WITHIN_S = 300.0
"""Workers under torchrun's elastic agents meet again without the one that was lost, and with the one in its place."""
FOLLOWERS, GROUP, LEADER, WORKER = "followers", "group", "leader", "worker"
TASK, SUBGROUP = "volcano.sh/task-spec", "kai.scheduler/subgroup-name"
PODCLIQUE = "grove.io/podclique"
"""The pod group of Grove, which has the name of its PodClique."""
FIRST_ROLES = ("chief", "master", "launcher", "head", LEADER, "driver", "ps", "evaluator")
"""Roles that count before all others, in the order in which their frameworks number them."""

OWNED = (f"{_JOBSET}jobset-name", f"{_LWS}name", f"{_TRAINING}job-name", f"{_RAY}cluster")
"""Labels of which a pod has one that an operator made."""
_ROLES = (
    ROLE,
    f"{_JOBSET}replicatedjob-name",
    f"{_TRAINING}replica-type",
    f"{_TRAINING}job-role",
    f"{_RAY}group",
    TASK,
    SUBGROUP,
    PODCLIQUE,
)
_HAS_ROLE = frozenset((*_ROLES, f"{_LWS}worker-index", f"{_RAY}node-type"))


def refs_of(pod: Pod) -> Iterator[GroupRef]:
    """The objects that a pod says it is of, if any."""
    told, home = pod.metadata.labels, pod.metadata.namespace
    if told.get(f"{_JOBSET}jobset-name"):
        yield _of_jobset(pod, told[f"{_JOBSET}jobset-name"])
    if told.get(f"{_LWS}name"):
        yield _of_lws(pod, told[f"{_LWS}name"])
    kind = _kubeflow_kind(pod)
    if kind is not None:
        yield GroupRef(kind, home, told.get(f"{_TRAINING}job-name", ""))
    yield GroupRef(RAY, home, told.get(f"{_RAY}cluster", ""))


def job_of_pod(pod: Pod) -> str:
    """The name of the plain Job that made a pod; "" for others."""
    owners = (each for each in pod.metadata.owner_references if each.controller)
    is_job = (
        each.name for each in owners if each.kind == "Job" and each.api_version.startswith("batch/")
    )
    return next(is_job, "")


def role_of(pod: Pod) -> str:
    """Return the role of a pod in its gang by its controller's labels; "" without one."""
    meta = pod.metadata
    if _HAS_ROLE.isdisjoint(meta.labels) and _HAS_ROLE.isdisjoint(meta.annotations):
        return ""
    told = {**meta.labels, **meta.annotations}
    if f"{_LWS}worker-index" in told:
        return LEADER if told[f"{_LWS}worker-index"] == "0" else WORKER
    if told.get(f"{_RAY}node-type") == "head":
        return "head"
    return next((told[key].lower()[:LONGEST_ROLE] for key in _ROLES if told.get(key)), "")


def job_index_of(pod: Pod) -> int | None:
    """The number of a pod's Job among those of its JobSet; pods of a GangJob are numbered over all roles at once."""
    told = pod.metadata.labels
    if OF_GANGJOB in told:
        return 0
    said = told.get(f"{_JOBSET}job-global-index") or told.get(f"{_JOBSET}job-index", "")
    return int(said) if said.isascii() and said.isdecimal() and len(said) < 10 else None


def _of_jobset(pod: Pod, name: str) -> GroupRef:
    meta = pod.metadata
    told = {**meta.labels, **meta.annotations}
    if not told.get(JOBSET_EXCLUSIVE) or told.get(JOBSET_SELECTS):
        return GroupRef(JOBSET, meta.namespace, name)
    if told.get(COMPLETION_INDEX, "0") == "0":
        return GroupRef(None, meta.namespace, f"{meta.name}{PART}{LEADER}")
    job = PART.join((role_of(pod), told.get(f"{_JOBSET}job-index", "0")))
    return GroupRef(JOBSET, meta.namespace, name, f"{FOLLOWERS}{PART}{job}")


def _of_lws(pod: Pod, name: str) -> GroupRef:
    meta = pod.metadata
    group = meta.labels.get(f"{_LWS}group-index", "0")
    if not meta.annotations.get(LWS_EXCLUSIVE):
        return GroupRef(LWS, meta.namespace, name, f"{GROUP}{PART}{group}")
    if role_of(pod) == LEADER:
        return GroupRef(None, meta.namespace, f"{meta.name}{PART}{LEADER}")
    return GroupRef(LWS, meta.namespace, name, f"{FOLLOWERS}{PART}{group}")


def _kubeflow_kind(pod: Pod) -> GroupKind | None:
    """By the operator that labelled a pod, else by its owner: the launcher of an MPIJob belongs to a Job."""
    operator = pod.metadata.labels.get(f"{_TRAINING}operator-name", "")
    word = "mpijob" if operator == "mpi-operator" else operator.removesuffix("-controller")
    owners = (each.kind.lower() for each in pod.metadata.owner_references if each.controller)
    return KUBEFLOW.get(word) or KUBEFLOW.get(next(owners, ""))


# ----- what their objects ask for; each raises Odd


def jobset(group: Group) -> GangSpec:
    """A JobSet: so many Jobs of so many pods of each replicated job, all one gang if all are made at once."""
    spec = group.spec
    jobs = tables(spec, "replicatedJobs")
    order = text(table(spec, "startupPolicy"), "startupPolicyOrder")
    for_all = bool(_exclusive(group.metadata.annotations))
    parts, members = {}, 0
    for each in jobs:
        name, template = text(each, "name") or "", table(each, "template")
        pods, replicas = _job_members(table(template, "spec")), count(each, "replicas")
        whole = pods * (1 if replicas is None else replicas)
        parts[name] = whole
        parts[f"{FOLLOWERS}{PART}{name}{PART}"] = pods - 1
        told = labels(table(template, "metadata"), "annotations")
        members += 0 if for_all or _exclusive(told) else whole
    return GangSpec(
        members=members or 1,
        parts=parts,
        apart=order == "InOrder" or any(tables(each, "dependsOn") for each in jobs),
    )


def _exclusive(annotations: Spec) -> bool:
    return bool(annotations.get(JOBSET_EXCLUSIVE)) and not annotations.get(JOBSET_SELECTS)


def lws(group: Group) -> GangSpec:
    """A LeaderWorkerSet: each group of it is a gang."""
    spec = group.spec
    size = count(table(spec, "leaderWorkerTemplate"), "size") or 1
    return GangSpec(
        members=size,
        parts={
            f"{GROUP}{PART}": size,
            f"{FOLLOWERS}{PART}": size - 1,
            f"{LEADER}{PART}{GROUP}{PART}": 1,
            f"{WORKER}{PART}{GROUP}{PART}": size - 1,
        },
        apart=text(spec, "startupPolicy") == "LeaderReady",
    )


def kubeflow(group: Group) -> GangSpec:
    """A job of the training operator or the MPI operator: all replicas, or as few as it says it can do with."""
    spec = group.spec
    replicas = {
        role.lower(): 1 if (told := count(table(specs, role), "replicas")) is None else told
        for specs in (table(spec, f"{word}ReplicaSpecs") for word in REPLICAS)
        for role in specs
    }
    run = table(spec, "runPolicy")
    policy = table(run, "schedulingPolicy")
    least = count(table(spec, "elasticPolicy"), "minReplicas")
    workers = replicas.get("worker", 0)
    whole = sum(replicas.values()) - (max(0, workers - least) if least else 0)
    return GangSpec(
        members=count(policy, "minAvailable") or whole or 1,
        queue=text(policy, "queue"),
        parts=replicas,
        replace_s=REPLACED_WITHIN_S if table(spec, "elasticPolicy") else None,
        apart=text(spec, "launcherCreationPolicy") == "WaitForWorkersReady",
        unknown=tuple(
            f"schedulingPolicy.{name}"
            for name in there(policy, "minResources", "scheduleTimeoutSeconds", "priorityClass")
        ),
    )


def ray(group: Group) -> GangSpec:
    """A RayCluster: its head and the workers that it has at least; more come one by one, as its autoscaler asks."""
    spec, members = group.spec, 1
    scales = flag(spec, "enableInTreeAutoscaling")
    for each in tables(spec, "workerGroupSpecs"):
        least, wanted = count(each, "minReplicas") or 0, count(each, "replicas")
        replicas = least if scales or wanted is None else wanted
        members += 0 if flag(each, "suspend") else replicas * (count(each, "numOfHosts") or 1)
    return GangSpec(members=members)


def job(group: Group) -> GangSpec:
    """A plain Job: the pods that it runs at a time; towards its end only as many as have not succeeded."""
    completions, members = count(group.spec, "completions"), _job_members(group.spec)
    is_more = completions is not None and completions > members
    if completions is not None:
        members = min(members, completions - (count(group.status, "succeeded") or 0))
    return GangSpec(
        members=max(members, 1),
        unknown=("completions beyond parallelism: such pods are placed one by one",)
        if is_more
        else (),
        no_more=True,
    )


def _job_members(spec: Spec) -> int:
    parallelism, completions = count(spec, "parallelism"), count(spec, "completions")
    members = 1 if parallelism is None else parallelism
    return members if completions is None else min(members, completions)
