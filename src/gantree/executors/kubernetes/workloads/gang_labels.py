"""Gang membership by labels and annotations of many schedulers, and the objects to which they refer.

Here is what pods and objects say about themselves by labels and annotations, and the table of kinds of objects; the
readers of objects are in `pod_groups` and `gang_owners`, that of HiveD's annotation in `pods.hived`.
What a reader does not know is told, never passed over; an object with odd values is left out as a whole, with a
warning. docs/kubernetes.md has the table of what is honoured.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods import hived
from gantree.executors.kubernetes.pods.gang_spec import (
    PART,
    GangSpec,
    GroupKind,
    GroupRef,
    InvalidObject,
    Spec,
    parsed_count,
    parsed_priority,
    parsed_seconds,
)
from gantree.executors.kubernetes.workloads import gang_owners as owners
from gantree.executors.kubernetes.workloads import gangjob
from gantree.executors.kubernetes.workloads import pod_groups as groups
from gantree.executors.kubernetes.workloads.pod_groups import (
    COMPOSITE,
    CORE,
    GROVE,
    IS_PREEMPTIBLE,
    KAI,
    PLUGINS,
    VOLCANO,
)

log = logging.getLogger(__name__)


def _of_spec(read: Callable[[Spec], GangSpec]) -> Callable[[Group], GangSpec]:
    return lambda group: read(group.spec)


_READERS: dict[GroupKind, Callable[[Group], GangSpec]] = {
    CORE: _of_spec(groups.core),
    COMPOSITE: _of_spec(groups.composite),
    PLUGINS: _of_spec(groups.plugins),
    VOLCANO: _of_spec(groups.volcano),
    KAI: _of_spec(groups.kai),
    GROVE: _of_spec(groups.grove),
    gangjob.GANGJOB: _of_spec(gangjob.gang_spec),
    owners.JOBSET: owners.jobset,
    owners.LWS: owners.lws,
    owners.RAY: owners.ray,
    owners.JOB: owners.job,
    **dict.fromkeys(owners.KUBEFLOW.values(), owners.kubeflow),
}
GROUP_KINDS = tuple(_READERS)

GANG, SIZE = "gantree.io/gang", "gantree.io/gang-size"
REQUIRED, PREFERRED = "gantree.io/required-topology", "gantree.io/preferred-topology"
SLICE_SIZE, SLICE_REQUIRED = "gantree.io/slice-size", "gantree.io/slice-required-topology"
QUEUE, PRIORITY = "gantree.io/queue", "gantree.io/priority"
PROJECT = "gantree.io/project"
"""The label of users' accounts: `project` of a job file."""
MOST_OF_A_LABEL = 63
"""Letters of a value; an annotation may have more."""
REPLACE_WITHIN = "gantree.io/replace-within"
"""A duration: the others of a gang run on for so long while a member that was lost is replaced."""
_KUEUE, _KAI = "kueue.x-k8s.io/podset-", "kai.scheduler/"
_PODSET = (f"{_KUEUE}required-topology", f"{_KUEUE}preferred-topology", f"{_KUEUE}unconstrained-topology")  # fmt: skip


_OF_PLUGINS, _OF_KAI, _OF_KUEUE = (
    "scheduling.x-k8s.io/pod-group",
    "pod-group-name",
    "kueue.x-k8s.io/pod-group-name",
)
_OF_GROVE = "grove.io/podgang"
_OF_VOLCANO = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
_SAYS_SO = frozenset(
    (GANG, gangjob.OF_GANGJOB, _OF_PLUGINS, _OF_KAI, _OF_KUEUE, _OF_GROVE,
     *_OF_VOLCANO, *_PODSET, hived.SPEC, *owners.OWNED)
)  # fmt: skip
"""Labels and annotations of which a pod in a group has one: most pods of a cluster have none."""


def group_of(pod: Pod) -> GroupRef | None:
    """The group that a pod says it is of; None for a pod that stands alone."""
    meta = pod.metadata
    is_silent = _SAYS_SO.isdisjoint(meta.labels) and _SAYS_SO.isdisjoint(meta.annotations)
    if is_silent and pod.spec.scheduling_group is None:
        return None
    return next((ref for ref in _refs(pod) if ref.name), None)


def _refs(pod: Pod) -> Iterator[GroupRef]:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    home = pod.metadata.namespace
    if pod.spec.scheduling_group:
        yield GroupRef(CORE, home, pod.spec.scheduling_group.pod_group_name)
    yield GroupRef(gangjob.GANGJOB, home, labels.get(gangjob.OF_GANGJOB, ""))
    yield from _by_word(pod)
    yield GroupRef(PLUGINS, home, labels.get(_OF_PLUGINS, ""))
    for key in _OF_VOLCANO:
        yield GroupRef(VOLCANO, home, annotations.get(key, ""))
    yield GroupRef(KAI, home, annotations.get(_OF_KAI, ""))
    yield GroupRef(GROVE, home, labels.get(_OF_GROVE, ""))
    yield GroupRef(None, home, labels.get(_OF_KUEUE, ""))
    of_hived = hived.hived_of(pod)
    if of_hived is not None and of_hived.group:
        yield GroupRef(None, home, f"hived{PART}{of_hived.group}")
    yield from owners.refs_of(pod)


def _by_word(pod: Pod) -> Iterator[GroupRef]:
    """Gangs of gantree's own labels; a plain Job is one where its pods ask for a gang or a topology without a size."""
    told = {**pod.metadata.labels, **pod.metadata.annotations}
    home, job = pod.metadata.namespace, owners.job_of_pod(pod)
    is_whole_job = told.get(GANG) and not told.get(SIZE)
    has_other = any(ref.name for ref in owners.refs_of(pod))
    is_podset = not has_other and any(told.get(key) for key in _PODSET)
    if job and (is_whole_job or is_podset) and not told.get(_OF_KUEUE):
        yield GroupRef(owners.JOB, home, job)
    yield GroupRef(None, home, told.get(GANG, ""))


def gang_spec_of_pod(pod: Pod) -> GangSpec:
    """What labels and annotations of a pod itself ask for."""
    gang_spec = _told_by({**pod.metadata.labels, **pod.metadata.annotations})
    of_hived = hived.hived_of(pod)
    return gang_spec if of_hived is None else over(of_hived.gang_spec, gang_spec)


def _told_by(told: Mapping[str, str]) -> GangSpec:
    unconstrained = told.get(f"{_KUEUE}unconstrained-topology") == "true"
    own_required, own_preferred = told.get(REQUIRED), told.get(PREFERRED)
    return GangSpec(
        members=parsed_count(told.get(SIZE) or told.get("kueue.x-k8s.io/pod-group-total-count"))
        or 1,
        queue=_first(
            told,
            QUEUE,
            "kueue.x-k8s.io/queue-name",
            f"{_KAI}queue",
            "runai/queue",
            "scheduling.volcano.sh/queue-name",
            "yunikorn.apache.org/queue",
        ),
        priority=parsed_priority(told.get(PRIORITY)),
        required=None
        if unconstrained
        else _first(told, REQUIRED, _PODSET[0], f"{_KAI}topology-required-placement"),
        preferred=_first(told, PREFERRED, _PODSET[1], f"{_KAI}topology-preferred-placement"),
        slice_members=parsed_count(
            _first(told, SLICE_SIZE, f"{_KUEUE}slice-size", f"{_KAI}segment-size")
        ),
        slice_required=_first(
            told,
            SLICE_REQUIRED,
            f"{_KUEUE}slice-required-topology",
            f"{_KAI}segment-topology-required-placement",
        ),
        preemptible=IS_PREEMPTIBLE.get(told.get(f"{_KAI}preemptibility", "")),
        replace_s=parsed_seconds(told.get(REPLACE_WITHIN)),
        unknown=tuple(_unknown_keys(told)),
        project=told.get(PROJECT, "")[:MOST_OF_A_LABEL],
        by_role=not (own_required or own_preferred) and any(told.get(key) for key in _PODSET),
    )


def gang_spec_of_group(kind: GroupKind, group: Group) -> GangSpec | None:
    """What the object of a group asks for, its labels and annotations included; None for one that is odd."""
    meta = group.metadata
    try:
        gang_spec = _READERS[kind](group)
    except InvalidObject as error:
        log.warning("%s %s/%s is left out: %s", kind.plural, meta.namespace, meta.name, error)
        return None
    found = over(gang_spec, _told_by({**meta.labels, **meta.annotations}))
    return (
        replace(found, assignment=gangjob.assignment_in(meta)) if kind is gangjob.GANGJOB else found
    )


def over(gang_spec: GangSpec, others: GangSpec) -> GangSpec:
    """Terms, and where they are silent others: of an object those of its pods, of a spec those of its annotations."""
    has_topology = bool(gang_spec.required or gang_spec.preferred)
    return replace(
        gang_spec,
        queue=gang_spec.queue or others.queue,
        priority=others.priority if gang_spec.priority is None else gang_spec.priority,
        required=gang_spec.required or others.required,
        preferred=gang_spec.preferred or others.preferred,
        slice_members=gang_spec.slice_members or others.slice_members,
        slice_required=gang_spec.slice_required or others.slice_required,
        preemptible=others.preemptible if gang_spec.preemptible is None else gang_spec.preemptible,
        replace_s=others.replace_s if gang_spec.replace_s is None else gang_spec.replace_s,
        unknown=tuple(dict.fromkeys((*gang_spec.unknown, *others.unknown))),
        by_role=gang_spec.by_role if has_topology else others.by_role,
        project=gang_spec.project or others.project,
    )


_NOT_HONOURED = (
    "kai.scheduler/preemption-delay", "kai.scheduler/batch-min-member", "gpu-fraction", "gpu-memory",
    "kueue.x-k8s.io/podset-slice-required-topology-constraints", "kueue.x-k8s.io/podset-group-name",
    "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/priority-boost", "volcano.sh/numa-topology-policy",
    "volcano.sh/revocable-zone", "volcano.sh/sla-waiting-time", "yunikorn.apache.org/task-groups",
    "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology",
)  # fmt: skip
"""Labels and annotations of other schedulers that have no effect here; users get a warning."""


def _unknown_keys(told: Mapping[str, str]) -> Iterator[str]:
    yield from (key for key in _NOT_HONOURED if key in told)
    if REPLACE_WITHIN in told and parsed_seconds(told[REPLACE_WITHIN]) is None:
        yield f"{REPLACE_WITHIN}: {told[REPLACE_WITHIN]!r} is no duration, such as 5m"


def _first(told: Mapping[str, str], *keys: str) -> str | None:
    return next((told[key] for key in keys if told.get(key)), None)
