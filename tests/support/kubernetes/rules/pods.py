"""What a server asks of pods and does to them: defaults, priority, gates, what may change later, grace, binding.

A binding is checked against nothing but the pod: the node need not exist and need not have room, and a gang is no
matter of the server.
"""

from collections.abc import Iterator
from typing import Any

from support.kubernetes.rules.priorities import resolved
from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.metadata import check
from support.kubernetes.server.statuses import Json, conflict, forbidden, invalid

DEFAULT_GRACE_S = 30
TOLERATION = {"effect": "NoExecute", "tolerationSeconds": 300}
TOPOLOGY_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")
ENDED = frozenset({"Succeeded", "Failed"})
CHANGEABLE = frozenset({
    "containers", "initContainers", "activeDeadlineSeconds", "tolerations", "schedulingGates",
    "terminationGracePeriodSeconds",
})  # fmt: skip
ONLY_THESE = (
    "pod updates may not change fields other than `spec.containers[*].image`, `spec.initContainers[*].image`, "
    "`spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to existing tolerations)"
)
RESIZABLE = frozenset({"cpu", "memory"})
CHANGEABLE_WHEN_GATED = frozenset({"nodeSelector", "affinity"})
DEFAULTS: Json = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_S,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}


class PodRules(Rules):
    """Those of pods."""

    tells_deletion_first = True

    def defaulted(self, new: Json) -> Json:
        """With the defaults of its spec."""
        return {**new, "spec": {**DEFAULTS, **(new.get("spec") or {})}}

    def create(self, others: Others, new: Json) -> Json:
        """With defaults and a priority; Pending; held by its gates."""
        metadata, spec = new["metadata"], {**DEFAULTS, **(new.get("spec") or {})}
        if not others.serves("scheduling.k8s.io", "podgroups"):
            spec.pop("schedulingGroup", None)
        causes = [*_bad_containers(spec), *_bad_claims(spec), *_bad_gates(spec)]
        if causes:
            raise invalid("Pod", "", metadata["name"], *causes)
        spec["containers"] = [_defaulted_container(each) for each in spec["containers"]]
        spec["priority"] = _priority(others, metadata["name"], spec)
        spec["tolerations"] = _tolerations(spec.get("tolerations") or [])
        status: Json = {"phase": "Pending", "qosClass": _qos(spec["containers"])}
        if spec.get("schedulingGates"):
            status["conditions"] = [_condition("False", others.now(), "SchedulingGated")]
        return {**new, "spec": spec, "status": status}

    def update(self, others: Others, old: Json, new: Json) -> Json:
        """Only a few fields of a pod may change. The last gate that is taken away lets it be scheduled."""
        before, after = old["spec"], {**(new.get("spec") or {})}
        after["tolerations"] = _tolerations(after.get("tolerations") or [])
        new = {**new, "spec": after}
        causes = [*_changed_fields(before, after), *_changed_lists(before, after)]
        if causes:
            raise invalid("Pod", "", old["metadata"]["name"], *causes)
        if before.get("schedulingGates") and not after.get("schedulingGates"):
            conditions = [
                each
                for each in new["status"].get("conditions", ())
                if each.get("reason") != "SchedulingGated"
            ]
            return {**new, "status": {**new["status"], "conditions": conditions}}
        return new

    def resize(self, old: Json, new: Json) -> Json:
        """Other amounts of its containers; all else that was written is let drop."""
        told = {each["name"]: each.get("resources") or {} for each in new["spec"]["containers"]}
        before = old["spec"]["containers"]
        after = [
            _defaulted_container({**each, "resources": told.get(each["name"], each["resources"])})
            for each in before
        ]
        causes = [*_unsupported_resize(old), *_bad_resize(before, after)]
        if causes:
            raise invalid("Pod", "", old["metadata"]["name"], *causes)
        return {**old, "spec": {**old["spec"], "containers": after}}

    def grace_s(self, old: Json, asked_s: int | None) -> int:
        """A pod that no kubelet has, or that has ended, is gone at once."""
        if not old["spec"].get("nodeName") or old["status"].get("phase") in ENDED:
            return 0
        if asked_s is not None:
            return max(asked_s, 0)
        told: int = old["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_S)
        return told

    def answers_object_on_delete(self) -> bool:
        """Of pods, yes."""
        return True


def bind(others: Others, old: Json, binding: Json) -> Json:
    """The pod as a Binding makes it."""
    metadata = old["metadata"]
    told, target = binding.get("metadata") or {}, binding.get("target") or {}
    _check_binding(old, told, target)
    node = others.lookup("", "nodes", "", target["name"])
    labels = (node or {"metadata": {}})["metadata"].get("labels") or {}
    copied = {name: labels[name] for name in TOPOLOGY_LABELS if name in labels}
    merged = {**metadata}
    for field, more in (("annotations", {}), ("labels", copied)):
        values = {**metadata.get(field, {}), **(told.get(field) or {}), **more}
        merged |= {field: values} if values else {}
    if merged != metadata:
        check("Pod", "", merged)
    conditions = [
        each for each in old["status"].get("conditions", ()) if each["type"] != "PodScheduled"
    ]
    return {
        **old,
        "metadata": merged,
        "spec": {**old["spec"], "nodeName": target["name"]},
        "status": {**old["status"], "conditions": [*conditions, _condition("True", others.now())]},
    }


def _check_binding(old: Json, told: Json, target: Json) -> None:
    metadata, spec = old["metadata"], old["spec"]
    name = metadata["name"]
    if not target.get("name"):
        raise invalid("Binding", "", name, ("target.name", "Required value"))
    if told.get("uid", metadata["uid"]) != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {told['uid']}, UID in object meta: {metadata['uid']}"
        raise conflict("pods/binding", "", name, why)
    if "deletionTimestamp" in metadata:
        why = f"pod {name} is being deleted, cannot be assigned to a host"
        raise conflict("pods/binding", "", name, why)
    if spec.get("nodeName"):
        why = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict("pods/binding", "", name, why)
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")


def _condition(status: str, now: str, reason: str = "") -> Json:
    condition = {"type": "PodScheduled", "status": status, "lastTransitionTime": now}
    if reason:
        condition |= {
            "reason": reason,
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
    return condition


def _priority(others: Others, name: str, spec: Json) -> int:
    """The value of the pod's priority class, or of the default one."""
    found = resolved(others, spec.get("priorityClassName"))
    if found is None:
        why = f"no PriorityClass with name {spec['priorityClassName']} was found"
        raise forbidden("pods", "", name, why)
    value, class_name, preemption = found
    if class_name:
        spec["priorityClassName"] = class_name
        spec["preemptionPolicy"] = preemption
    if spec.get("priority", value) != value:
        why = "the integer value of priority must not be provided in pod spec: it is computed"
        raise forbidden("pods", "", name, why)
    return value


def _tolerations(told: list[Json]) -> list[Json]:
    """With those that every pod has: five minutes on a node that is not ready or cannot be reached."""
    keys = {each.get("key", "") for each in told if each.get("effect", "NoExecute") == "NoExecute"}
    added = [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", **TOLERATION}
        for state in ("not-ready", "unreachable")
    ]  # fmt: skip
    return told + [each for each in added if not {"", each["key"]} & keys]


def _defaulted_container(container: Json) -> Json:
    """What is limited and not requested is requested to its limit."""
    resources = container.get("resources") or {}
    if "limits" in resources:
        requests = {**resources["limits"], **(resources.get("requests") or {})}
        resources = {**resources, "requests": requests}
    return {**container, "resources": resources}


def _qos(containers: list[Json]) -> str:
    """The class of service, by requests and limits of cpu and memory."""
    all_told = [each["resources"] for each in containers]
    if not any(told.get("requests") or told.get("limits") for told in all_told):
        return "BestEffort"
    for told in all_told:
        limits, requests = told.get("limits") or {}, told.get("requests") or {}
        if any(
            limits.get(name) is None or limits[name] != requests.get(name)
            for name in ("cpu", "memory")
        ):
            return "Burstable"
    return "Guaranteed"


def _bad_containers(spec: Json) -> Iterator[tuple[str, str]]:
    if not spec.get("containers"):
        yield "spec.containers", "Required value"
    names: set[str] = set()
    for index, each in enumerate(spec.get("containers") or ()):
        where = f"spec.containers[{index}]"
        for field in ("name", "image"):
            if not each.get(field):
                yield f"{where}.{field}", "Required value"
        if each.get("name") in names:
            yield f"{where}.name", f'Duplicate value: "{each["name"]}"'
        names.add(each.get("name", ""))
        yield from _bad_amounts(f"{where}.resources", each.get("resources") or {})


def _bad_amounts(where: str, resources: Json) -> Iterator[tuple[str, str]]:
    """Of extended resources (vendor.example/gpu) as much is requested as is the limit."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, amount in requests.items():
        if "/" in name and name not in limits:
            yield (
                f"{where}.limits",
                "Required value: Limit must be set for non overcommitable resources",
            )
        elif "/" in name and str(limits[name]) != str(amount):
            why = f'Invalid value: "{amount}": must be equal to {name} limit of {limits[name]}'
            yield f"{where}.requests", why


def _bad_claims(spec: Json) -> Iterator[tuple[str, str]]:
    names = set()
    for index, each in enumerate(spec.get("resourceClaims") or ()):
        names.add(each.get("name"))
        told = [
            field for field in ("resourceClaimName", "resourceClaimTemplateName") if each.get(field)
        ]
        if len(told) != 1:
            why = "Invalid value: must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield f"spec.resourceClaims[{index}]", why
    for index, container in enumerate(spec.get("containers") or ()):
        for claim in (container.get("resources") or {}).get("claims") or ():
            if claim.get("name") not in names:
                yield (
                    f"spec.containers[{index}].resources.claims",
                    f'Not found: "{claim.get("name")}"',
                )


def _bad_gates(spec: Json) -> Iterator[tuple[str, str]]:
    if spec.get("schedulingGates") and spec.get("nodeName"):
        yield (
            "spec.nodeName",
            "Forbidden: cannot be set until all schedulingGates have been cleared",
        )


def _changed_fields(before: Json, after: Json) -> Iterator[tuple[str, str]]:
    """Fields that changed and may not. Images may, and where the pod is still gated so may what narrows its nodes."""
    may_change = CHANGEABLE | (CHANGEABLE_WHEN_GATED if before.get("schedulingGates") else set())
    names = [name for name in {**before, **after} if name not in may_change]
    changed = sorted(name for name in names if before.get(name) != after.get(name))
    for name in ("containers", "initContainers"):
        if [_without_image(c) for c in before.get(name) or ()] != [
            _without_image(_defaulted_container(c)) for c in after.get(name) or ()
        ]:
            changed.append(name)
    if changed:
        yield "spec", f"Forbidden: {ONLY_THESE} ({', '.join(changed)} changed)"


def _changed_lists(before: Json, after: Json) -> Iterator[tuple[str, str]]:
    gates = before.get("schedulingGates") or []
    if any(each not in gates for each in after.get("schedulingGates") or ()):
        yield (
            "spec.schedulingGates",
            "Forbidden: only deletion is allowed, but found new scheduling gate",
        )
    tolerations = after.get("tolerations") or []
    if any(each not in tolerations for each in before.get("tolerations") or ()):
        yield (
            "spec.tolerations",
            "Forbidden: existing toleration can not be modified except its tolerationSeconds",
        )


def _unsupported_resize(pod: Json) -> Iterator[tuple[str, str]]:
    """The first running container says whether its kubelet can: one that can tells what containers run with."""
    told = pod["status"].get("containerStatuses") or ()
    running = next((each for each in told if "running" in each.get("state", {})), None)
    if running is not None and "resources" not in running:
        yield "spec", "Forbidden: Pod running on node without support for resize"


def _bad_resize(before: list[Json], after: list[Json]) -> Iterator[tuple[str, str]]:
    if _qos(before) != _qos(after):
        yield "spec", "Invalid value: Pod QOS Class may not change as a result of resizing"
    if [_without_resizable(each) for each in before] != [
        _without_resizable(each) for each in after
    ]:
        yield "spec", "Forbidden: only cpu and memory resources are mutable"


def _without_resizable(container: Json) -> dict[str, Json]:
    return {
        kind: {name: amount for name, amount in amounts.items() if name not in RESIZABLE}
        for kind, amounts in container["resources"].items()
        if isinstance(amounts, dict)
    }


def _without_image(container: Any) -> Json:
    return {name: value for name, value in container.items() if name != "image"}
