"""Objects that only declare a gang: the gang API of Kubernetes, scheduler-plugins, Volcano, KAI, Grove.

Each reader takes the spec of an object and returns a `GangSpec`, with the fields that gantree does not act on. Names
are those of the API types upstream: kubernetes `scheduling.k8s.io`, kubernetes-sigs/scheduler-plugins
`scheduling/v1alpha1/types.go`, volcano.sh/apis `scheduling/v1beta1/types.go`, KAI-Scheduler
`scheduling/v2alpha2/podgroup_types.go`, ai-dynamo/grove `scheduler/api/core/v1alpha1/podgang.go`. Readers raise
InvalidObject.
"""

from gantree.executors.kubernetes.pods.gang_spec import (
    GangSpec,
    GroupKind,
    InvalidObject,
    RoleSpec,
    Spec,
    count,
    number,
    table,
    tables,
    text,
    texts,
    there,
)

CORE = GroupKind("scheduling.k8s.io", "podgroups", ("v1", "v1beta1", "v1alpha3", "v1alpha2"))
COMPOSITE = GroupKind(
    "scheduling.k8s.io",
    "compositepodgroups",
    ("v1", "v1beta1", "v1alpha3"),
    "composite.scheduling.k8s.io",
)
PLUGINS = GroupKind("scheduling.x-k8s.io", "podgroups", ("v1alpha1",))
VOLCANO = GroupKind("scheduling.volcano.sh", "podgroups", ("v1beta1",))
KAI = GroupKind("scheduling.run.ai", "podgroups", ("v2alpha2",))
GROVE = GroupKind("scheduler.grove.io", "podgangs", ("v1alpha1",))


def scheduled_condition(path: str) -> str:
    """The condition that says whether a pod group was scheduled, by the path of its status: 1.37 has renamed it."""
    return "PodGroupScheduled" if "/v1alpha2/" in path else "PodGroupInitiallyScheduled"


TIER_NUMBER = "hypernode-tier:"
"""Before the number of a tier of Volcano's HyperNodes, where a group names it by number."""
IS_PREEMPTIBLE = {"preemptible": True, "non-preemptible": False}


def core(spec: Spec) -> GangSpec:
    """A PodGroup of Kubernetes."""
    gang = table(table(spec, "schedulingPolicy"), "gang")
    topology = tables(table(spec, "schedulingConstraints"), "topology")
    mode = spec.get("disruptionMode")
    if not isinstance(mode, str | dict | None):
        raise InvalidObject("disruptionMode is neither a word nor an object")
    priority = number(spec, "priority") or None
    return GangSpec(
        members=count(gang, "minCount") or 1,
        priority=priority if priority is not None else None,
        required=text(topology[0], "key") if topology else None,
        unknown=(
            *there(spec, "resourceClaims"),
            *(("schedulingConstraints.topology after the first",) if len(topology) > 1 else ()),
        ),
        parent=text(spec, "parentCompositePodGroupName"),
    )


def composite(spec: Spec) -> GangSpec:
    """A CompositePodGroup of Kubernetes 1.37: groups that start together, or each by itself."""
    policy = table(spec, "schedulingPolicy")
    least = count(table(policy, "gang"), "minGroupCount") or 1
    topology = tables(table(spec, "schedulingConstraints"), "topology")
    return GangSpec(
        members=0,
        priority=number(spec, "priority") or None,
        required=text(topology[0], "key") if topology else None,
        unknown=("schedulingConstraints.topology after the first",) if len(topology) > 1 else (),
        parent=text(spec, "parentCompositePodGroupName"),
        groups=least if "gang" in policy else 0,
    )


def plugins(spec: Spec) -> GangSpec:
    """A PodGroup of scheduler-plugins."""
    return GangSpec(
        members=count(spec, "minMember") or 1,
        unknown=there(spec, "minResources", "scheduleTimeoutSeconds"),
    )


def volcano(spec: Spec) -> GangSpec:
    """A PodGroup of Volcano. Tasks are roles: so many members of each must be there."""
    required, preferred = _volcano_topology(table(spec, "networkTopology"))
    tasks = table(spec, "minTaskMember")
    roles = tuple(RoleSpec(name, count(tasks, name) or 0) for name in tasks)
    size, tier, unknown = _volcano_subgroups(spec)
    return GangSpec(
        members=count(spec, "minMember") or 1,
        queue=text(spec, "queue"),
        required=required,
        preferred=preferred,
        slice_members=size,
        slice_required=tier,
        roles=roles,
        unknown=(*there(spec, "minResources"), *unknown),
    )


def _volcano_topology(topology: Spec) -> tuple[str | None, str | None]:
    """The tier that is required, and the one that is preferred: by its name, else by its number."""
    name, tier = text(topology, "highestTierName"), count(topology, "highestTierAllowed")
    word = name or (None if tier is None else f"{TIER_NUMBER}{tier}")
    is_hard = (text(topology, "mode") or "hard") == "hard"
    return (word, None) if is_hard else (None, word)


def _volcano_subgroups(spec: Spec) -> tuple[int | None, str | None, tuple[str, ...]]:
    """Members and tier of one kind of subgroups as slices of the gang, and what of subgroups is not acted upon.

    Subgroups of one policy without labels are runs of pods. Labels tell them apart otherwise than by number, several
    policies would be slices of several lengths, and a minimum of subgroups is less than all of them: these are told.
    """
    policies = tables(spec, "subGroupPolicy")
    if not policies:
        return None, None, ()
    policy = policies[0]
    table(policy, "labelSelector"), texts(policy, "matchLabelKeys")
    size = count(policy, "subGroupSize")
    required, preferred = _volcano_topology(table(policy, "networkTopology"))
    odd = there(policy, "labelSelector", "matchLabelKeys", "minSubGroups")
    odd = (*odd, *(("networkTopology.mode: soft",) if preferred else ()))
    if len(policies) > 1:
        return None, None, ("subGroupPolicy: more than one",)
    if not size or not required or {"labelSelector", "matchLabelKeys"} & set(odd):
        return None, None, ("subGroupPolicy",)
    return size, required, tuple(f"subGroupPolicy.{name}" for name in odd)


def kai(spec: Spec) -> GangSpec:
    """A PodGroup of KAI. Subgroups are roles, with members and a topology of their own."""
    topology = table(spec, "topologyConstraint")
    subgroups = tables(spec, "subGroups")
    roles = tuple(_kai_role(each) for each in subgroups if not there(each, "minSubGroup"))
    told = text(spec, "preemptibility")
    return GangSpec(
        members=count(spec, "minMember") or sum(role.members for role in roles) or 1,
        queue=text(spec, "queue"),
        required=text(topology, "requiredTopologyLevel"),
        preferred=text(topology, "preferredTopologyLevel"),
        preemptible=IS_PREEMPTIBLE.get(told or ""),
        roles=roles,
        unknown=(
            *there(
                spec, "minSubGroup", "schedulingBackoff", "preemptionDelay",
                "stalenessGracePeriod", "markUnschedulable",
            ),
            *dict.fromkeys(
                f"subGroups.{word}" for each in subgroups for word in there(each, "parent", "minSubGroup")
            ),
        ),
    )  # fmt: skip


def _kai_role(subgroup: Spec) -> RoleSpec:
    topology = table(subgroup, "topologyConstraint")
    return RoleSpec(
        text(subgroup, "name") or "",
        count(subgroup, "minMember") or 0,
        text(topology, "requiredTopologyLevel"),
        text(topology, "preferredTopologyLevel"),
    )


def grove(spec: Spec) -> GangSpec:
    """A PodGang of Grove, which Dynamo's graphs become: its pod groups are roles, with members and a topology each."""
    required, preferred = _grove_topology(spec)
    return GangSpec(
        members=sum(count(each, "minReplicas") or 0 for each in tables(spec, "podgroups")) or 1,
        required=required,
        preferred=preferred,
        roles=tuple(
            RoleSpec(
                text(each, "name") or "", count(each, "minReplicas") or 0, *_grove_topology(each)
            )
            for each in tables(spec, "podgroups")
        ),
        unknown=there(spec, "topologyConstraintGroupConfigs", "reuseReservationRef"),
    )


def _grove_topology(spec: Spec) -> tuple[str | None, str | None]:
    """The label of nodes whose domain is required, and the one that is preferred."""
    packed = table(table(spec, "topologyConstraint"), "packConstraint")
    return text(packed, "required"), text(packed, "preferred")
