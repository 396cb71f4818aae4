"""The fields of Kubernetes objects that gantree reads, typed; all others are skipped while decoding.

Objects of pod groups (`workloads.pod_groups`) are read as plain JSON instead, as their versions come and go.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypedDict, TypeVar

import msgspec

T = TypeVar("T")


class Object(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """What all of them have in common: names are written as Kubernetes writes them. Nobody changes one.

    Made of JSON, they never refer to each other in a circle, so Python need not look for garbage among them.
    """


class OwnerReference(Object, frozen=True):
    """Who made an object."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class Metadata(Object, frozen=True):
    """What every object has."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    finalizers: tuple[str, ...] = ()
    generation: int = 0


class Condition(Object, frozen=True):
    """One condition of a status."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class Resources(Object, frozen=True):
    """What a container asks for, in quantities of the API; numbers may come as numbers."""

    requests: dict[str, str | float] = {}
    limits: dict[str, str | float] = {}


class Port(Object, frozen=True):
    """A port that a container may hold of its node."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"


class Container(Object, frozen=True):
    """One container of a pod. restart_policy is "Always" for one that starts first and stays (a sidecar)."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[Port, ...] = ()
    restart_policy: str | None = None


class NodeSelectorRequirement(Object, frozen=True):
    """One expression of a node affinity."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Object, frozen=True):
    """Expressions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Object, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Object, frozen=True):
    """Nodes that a pod rather goes to, and how much that weighs."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Object, frozen=True):
    """What nodes a pod must have, and which it rather has."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class SelectorRequirement(Object, frozen=True):
    """One expression of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Object, frozen=True):
    """Labels that must be equal, and expressions that must hold (`selectors`). An empty one is like all labels."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[SelectorRequirement, ...] = ()


class PodTerm(Object, frozen=True):
    """Pods to be near to, or away from (`affinity`), and the label of nodes that says what near is."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PreferredPodTerm(Object, frozen=True):
    """Pods that a pod had rather be near to, or away from, and how much that weighs."""

    weight: int = 0
    pod_affinity_term: PodTerm = PodTerm()


class PodTerms(Object, frozen=True):
    """Affinity to other pods."""

    required_during_scheduling_ignored_during_execution: tuple[PodTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredPodTerm, ...] = ()


class Affinity(Object, frozen=True):
    """Affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodTerms | None = None
    pod_anti_affinity: PodTerms | None = None


class Toleration(Object, frozen=True):
    """A taint that a pod puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class SpreadConstraint(Object, frozen=True):
    """Pods of a kind in equal parts over the domains of a label of nodes (`spread`)."""

    max_skew: int = 1
    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()


class ClaimSource(Object, frozen=True):
    """Which PersistentVolumeClaim a volume is."""

    claim_name: str = ""


class Volume(Object, frozen=True):
    """A volume of a pod; ephemeral: its claim is named after the pod and the volume."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: msgspec.Raw | None = None


class SchedulingGroup(Object, frozen=True):
    """The pod group of the gang API."""

    pod_group_name: str = ""


class PodClaim(Object, frozen=True):
    """Devices that a pod uses, by its own name for them: a claim, or one that is made for it of a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(Object, frozen=True):
    """What a pod asks for."""

    node_name: str = ""
    scheduler_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: dict[str, str | float] = {}
    resources: Resources | None = None
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    host_network: bool = False
    volumes: tuple[Volume, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_gates: tuple[msgspec.Raw, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()
    scheduling_group: SchedulingGroup | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None

    @property
    def anti_affinity_terms(self) -> tuple[PodTerm, ...]:
        """Pods that it must not be near to."""
        terms = self.affinity and self.affinity.pod_anti_affinity
        return terms.required_during_scheduling_ignored_during_execution if terms else ()

    @property
    def affinity_terms(self) -> tuple[PodTerm, ...]:
        """Pods that it must be near to."""
        terms = self.affinity and self.affinity.pod_affinity
        return terms.required_during_scheduling_ignored_during_execution if terms else ()

    @property
    def preferred_pod_terms(self) -> tuple[tuple[int, PodTerm], ...]:
        """Pods that it had rather be near to, each with a weight; below zero where it had rather be away."""
        if self.affinity is None:
            return ()
        near, away = self.affinity.pod_affinity, self.affinity.pod_anti_affinity
        to = near.preferred_during_scheduling_ignored_during_execution if near else ()
        off = away.preferred_during_scheduling_ignored_during_execution if away else ()
        return (
            *((each.weight, each.pod_affinity_term) for each in to),
            *((-each.weight, each.pod_affinity_term) for each in off),
        )


class Terminated(Object, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    reason: str = ""


class ContainerState(Object, frozen=True):
    """What a container does; only its end is read."""

    terminated: Terminated | None = None


class ContainerStatus(Object, frozen=True):
    """What became of a container: resources it runs with, allocated_resources its kubelet has admitted.

    started: it runs, and its startup probe has succeeded where it has one.
    """

    name: str = ""
    state: ContainerState = ContainerState()
    resources: Resources | None = None
    allocated_resources: dict[str, str | float] = {}
    started: bool | None = None


class MadeClaim(Object, frozen=True):
    """A claim that was made for a pod of a template; without a name the pod needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class SpecialClaim(Object, frozen=True):
    """The claim that was made for extended resources of a pod."""

    resource_claim_name: str = ""


class PodStatus(Object, frozen=True):
    """What became of a pod."""

    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resources: Resources | None = None
    allocated_resources: dict[str, str | float] = {}
    nominated_node_name: str = ""
    resource_claim_statuses: tuple[MadeClaim, ...] = ()
    extended_resource_claim_status: SpecialClaim | None = None


class Claimed(Object, frozen=True):
    """What a pod's claims ask of a node; no field of the API, but what `allocator` has read out of many objects.

    counted: what it is counted as if it is for more than so many GPUs. nodes: where what it has already can be used.
    blocked: why its claims cannot be read yet; may_pass: that will be over in a moment, or else it is an error; in_use:
    other pods have to let go of one first. open: claims without devices that others may use, too (`claim_turns`).
    domains: the ComputeDomains, by uid, of which it has a channel (`channels`). backed: the extended resources that a
    device class backs, and how many of each (`extended_resources`).
    """

    gpus: int = 0
    counted: tuple[tuple[str, int], ...] = ()
    backed: tuple[tuple[str, int], ...] = ()
    nodes: tuple[NodeSelector, ...] = ()
    blocked: str = ""
    may_pass: bool = False
    in_use: bool = False
    open: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()


class Pod(Object, frozen=True, dict=True, gc=True):
    """A pod: one member of a gang. Its dict keeps what was worked out about it (`once_per_pod`)."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    claimed: Claimed | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, or will."""
        return self.status.phase in ("Succeeded", "Failed")


def once_per_pod(work_out: Callable[[Pod], T]) -> Callable[[Pod], T]:
    """What follows from a pod alone is worked out once: pods never change, and each is asked about again and again.

    It must not refer to the pod, or neither is ever freed (`Object`).
    """
    name = work_out.__qualname__

    @wraps(work_out)
    def known(pod: Pod) -> T:
        kept: dict[str, T] = pod.__dict__
        if name not in kept:
            kept[name] = work_out(pod)
        return kept[name]

    return known


class Group(Object, frozen=True):
    """An object that makes pods a gang, of any dialect: its spec is plain JSON."""

    metadata: Metadata
    api_version: str = ""
    kind: str = ""
    spec: Mapping[str, Any] = {}
    status: Mapping[str, Any] = {}


class ManagedFields(Object, frozen=True):
    """Which client of the API server has set which fields of an object, for FieldsV1."""

    manager: str = ""
    subresource: str = ""
    fields: Mapping[str, Any] = msgspec.field(default={}, name="fieldsV1")


class ManagedMetadata(Metadata, frozen=True):
    """Metadata with who has set what; of other objects that is not read, for it is long."""

    managed_fields: tuple[ManagedFields, ...] = ()


class ManagedGroup(Group, frozen=True):
    """A group of which it counts who has set a field."""

    metadata: ManagedMetadata = ManagedMetadata()


class JobSpec(TypedDict, total=False):
    """What of a Job says how many pods it has; its template is not kept, for there may be very many Jobs."""

    parallelism: Any
    completions: Any


class JobStatus(TypedDict, total=False):
    """How many pods of a Job have succeeded."""

    succeeded: Any


class JobObject(Group, frozen=True):
    """A plain Job."""

    spec: JobSpec = {}
    status: JobStatus = {}


class NodeTaint(Object, frozen=True):
    """What keeps pods off a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class NodeSpec(Object, frozen=True):
    """What an operator says of a node."""

    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class Address(Object, frozen=True):
    """Where a node is reached."""

    type: str = ""
    address: str = ""


class NodeStatus(Object, frozen=True):
    """What the kubelet says of a node."""

    capacity: dict[str, str | float] = {}
    allocatable: dict[str, str | float] = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[Address, ...] = ()


class Wiring(Object, frozen=True):
    """How GPUs of a node hang together, as their slices tell it; no field of the API. links are classes of paths.

    gpus is how many of them slices list.
    """

    gpus: int = 0
    numa: tuple[int | None, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()


class Node(Object, frozen=True):
    """A node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    wiring: Wiring = Wiring()

    @property
    def is_ready(self) -> bool:
        """Whether its kubelet says that it is ready; one that says nothing of it is taken as ready."""
        return all(each.status == "True" for each in self.status.conditions if each.type == "Ready")


def read_object(text: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]") -> T:
    """An object as the API tells it. Raises msgspec.DecodeError.

    Writers in Go leave null where a map or a list is empty: what is null is read as not there.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError:
        plain = _without_nulls(msgspec.json.decode(text))
        return decoder.decode(msgspec.json.encode(plain))


def _without_nulls(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_nulls(each) for key, each in value.items() if each is not None}
        case list():
            return [_without_nulls(each) for each in value if each is not None]
        case _:
            return value
