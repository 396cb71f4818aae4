"""Who belongs to which gang, in the words of many schedulers: labels, annotations, and the objects they point to.

One function a dialect says which group a pod is of; `GROUP_KINDS` are the objects that such a group may be, each with a
reader of what it asks for. What a reader does not know is told, never passed over. Sources: `peers` of the
documentation (docs/kubernetes.md has the table of what is honoured).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gantree.executors.kubernetes.objects import Group, Pod

Spec = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class GroupKind:
    """A kind of objects that make gangs: API group, plural, and the versions that are understood, newest first."""

    group: str
    plural: str
    versions: tuple[str, ...]

    def path(self, version: str) -> str:
        """Where its objects are, below the server."""
        return f"apis/{self.group}/{version}/{self.plural}"


CORE = GroupKind("scheduling.k8s.io", "podgroups", ("v1", "v1beta1", "v1alpha3", "v1alpha2"))
PLUGINS = GroupKind("scheduling.x-k8s.io", "podgroups", ("v1alpha1",))
VOLCANO = GroupKind("scheduling.volcano.sh", "podgroups", ("v1beta1",))
KAI = GroupKind("scheduling.run.ai", "podgroups", ("v2alpha2",))
GROUP_KINDS = (CORE, PLUGINS, VOLCANO, KAI)


@dataclass(frozen=True, slots=True)
class GroupRef:
    """A group of pods: the kind of its object and its name; kind None for a gang that annotations alone make."""

    kind: GroupKind | None
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Terms:
    """What a group asks for. required and preferred are label keys or names of tiers, as its author wrote them."""

    members: int = 1
    queue: str | None = None
    priority: str | int | None = None
    required: str | None = None
    preferred: str | None = None
    slice_members: int | None = None
    slice_required: str | None = None
    preemptible: bool | None = None
    unknown: tuple[str, ...] = field(default=())


GANG, SIZE = "gantree.io/gang", "gantree.io/gang-size"
REQUIRED, PREFERRED = "gantree.io/required-topology", "gantree.io/preferred-topology"
SLICE_SIZE, SLICE_REQUIRED = "gantree.io/slice-size", "gantree.io/slice-required-topology"
QUEUE, PRIORITY = "gantree.io/queue", "gantree.io/priority"


def group_of(pod: Pod) -> GroupRef | None:
    """The group that a pod says it is of; None for a pod that stands alone."""
    return next((ref for ref in _refs(pod) if ref.name), None)


def _refs(pod: Pod) -> Iterator[GroupRef]:
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    home = pod.metadata.namespace
    if pod.spec.scheduling_group:
        yield GroupRef(CORE, home, pod.spec.scheduling_group.pod_group_name)
    yield GroupRef(None, home, labels.get(GANG) or annotations.get(GANG, ""))
    yield GroupRef(PLUGINS, home, labels.get("scheduling.x-k8s.io/pod-group", ""))
    for key in ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"):
        yield GroupRef(VOLCANO, home, annotations.get(key, ""))
    yield GroupRef(KAI, home, annotations.get("pod-group-name", ""))
    yield GroupRef(None, home, labels.get("kueue.x-k8s.io/pod-group-name", ""))


def terms_of_pod(pod: Pod) -> Terms:
    """What labels and annotations of a pod itself ask for."""
    told = {**pod.metadata.labels, **pod.metadata.annotations}
    kueue = "kueue.x-k8s.io/podset-"
    unconstrained = told.get(f"{kueue}unconstrained-topology") == "true"
    return Terms(
        members=_count(told.get(SIZE) or told.get("kueue.x-k8s.io/pod-group-total-count")) or 1,
        queue=_first(
            told,
            QUEUE,
            "kueue.x-k8s.io/queue-name",
            "kai.scheduler/queue",
            "runai/queue",
            "scheduling.volcano.sh/queue-name",
            "yunikorn.apache.org/queue",
        ),
        priority=_priority(told.get(PRIORITY)),
        required=None
        if unconstrained
        else _first(
            told, REQUIRED, f"{kueue}required-topology", "kai.scheduler/topology-required-placement"
        ),
        preferred=_first(
            told,
            PREFERRED,
            f"{kueue}preferred-topology",
            "kai.scheduler/topology-preferred-placement",
        ),
        slice_members=_count(
            _first(told, SLICE_SIZE, f"{kueue}slice-size", "kai.scheduler/segment-size")
        ),
        slice_required=_first(
            told,
            SLICE_REQUIRED,
            f"{kueue}slice-required-topology",
            "kai.scheduler/segment-topology-required-placement",
        ),
        preemptible={"preemptible": True, "non-preemptible": False}.get(
            told.get("kai.scheduler/preemptibility", "")
        ),
        unknown=tuple(_unknown_keys(told)),
    )


def terms_of_group(kind: GroupKind, group: Group) -> Terms:
    """What the object of a group asks for."""
    return _READERS[kind](group.spec)


def _core(spec: Spec) -> Terms:
    gang = _inside(_inside(spec, "schedulingPolicy"), "gang")
    topology = _inside(spec, "schedulingConstraints").get("topology") or [{}]
    mode = spec.get("disruptionMode")
    return Terms(
        members=_count(gang.get("minCount")) or 1,
        priority=_priority(spec.get("priority") or None),
        required=topology[0].get("key"),
        unknown=tuple(
            name
            for name, is_there in (
                ("resourceClaims", spec.get("resourceClaims")),
                ("parentCompositePodGroupName", spec.get("parentCompositePodGroupName")),
                ("disruptionMode: pods one by one", mode == "Pod" or "single" in (mode or ())),
            )
            if is_there
        ),
    )


def _plugins(spec: Spec) -> Terms:
    return Terms(
        members=_count(spec.get("minMember")) or 1,
        unknown=_there(spec, "minResources", "scheduleTimeoutSeconds"),
    )


def _volcano(spec: Spec) -> Terms:
    topology = _inside(spec, "networkTopology")
    tier = topology.get("highestTierName")
    is_hard = topology.get("mode", "hard") == "hard"
    return Terms(
        members=_count(spec.get("minMember")) or 1,
        queue=spec.get("queue"),
        required=tier if is_hard else None,
        preferred=None if is_hard else tier,
        unknown=(
            *_there(spec, "minTaskMember", "minResources", "subGroupPolicy"),
            *(f"networkTopology.{name}" for name in _there(topology, "highestTierAllowed")),
        ),
    )


def _kai(spec: Spec) -> Terms:
    topology = _inside(spec, "topologyConstraint")
    return Terms(
        members=_count(spec.get("minMember")) or 1,
        queue=spec.get("queue"),
        required=topology.get("requiredTopologyLevel"),
        preferred=topology.get("preferredTopologyLevel"),
        preemptible={"preemptible": True, "non-preemptible": False}.get(
            spec.get("preemptibility", "")
        ),
        unknown=_there(
            spec,
            "minSubGroup",
            "subGroups",
            "schedulingBackoff",
            "preemptionDelay",
            "stalenessGracePeriod",
            "markUnschedulable",
        ),
    )


_READERS: dict[GroupKind, Callable[[Spec], Terms]] = {
    CORE: _core,
    PLUGINS: _plugins,
    VOLCANO: _volcano,
    KAI: _kai,
}

_NOT_HONOURED = (
    "kai.scheduler/subgroup-name", "kai.scheduler/preemption-delay", "kai.scheduler/batch-min-member", "gpu-fraction",
    "gpu-memory", "kueue.x-k8s.io/podset-slice-required-topology-constraints", "kueue.x-k8s.io/podset-group-name",
    "kueue.x-k8s.io/elastic-job", "kueue.x-k8s.io/priority-boost", "volcano.sh/numa-topology-policy",
    "volcano.sh/revocable-zone", "volcano.sh/sla-waiting-time", "yunikorn.apache.org/task-groups",
    "hivedscheduler.microsoft.com/pod-scheduling-spec",
)  # fmt: skip
"""Labels and annotations of other schedulers that mean something and are not acted upon: users are told."""


def _unknown_keys(told: Mapping[str, str]) -> Iterator[str]:
    return (key for key in _NOT_HONOURED if key in told)


def _inside(spec: Spec, key: str) -> Spec:
    found = spec.get(key)
    return found if isinstance(found, Mapping) else {}


def _there(spec: Spec, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if spec.get(name))


def _first(told: Mapping[str, str], *keys: str) -> str | None:
    return next((told[key] for key in keys if told.get(key)), None)


def _count(value: object) -> int | None:
    """A count of members; None for what is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdecimal() and int(text) > 0 else None


def _priority(value: object) -> str | int | None:
    """A class of the policy, or a number."""
    if value is None or isinstance(value, int):
        return value
    text = str(value)
    digits = text.removeprefix("-")
    return int(text) if digits.isascii() and digits.isdecimal() else text
