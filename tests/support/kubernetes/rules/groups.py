"""What a server asks of Workloads and PodGroups: v1alpha2 was observed, the later versions were read."""

from collections.abc import Iterator
from typing import Any

from support.kubernetes.rules.priorities import resolved
from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json, bad_request, forbidden, invalid

GROUP = "scheduling.k8s.io"
PROTECTION = "scheduling.k8s.io/podgroup-protection"
OBSERVED = "v1alpha2"
MAX_TEMPLATES, MAX_CONSTRAINTS, MAX_CLAIMS = 8, 1, 4
Cause = tuple[str, str]


class WorkloadRules(Rules):
    """Those of Workloads."""

    def __init__(self, version: str) -> None:
        self.version = version

    def create(self, others: Others, new: Json) -> Json:
        """With few enough templates, each in order."""
        templates = (new.get("spec") or {}).get("podGroupTemplates") or []
        causes = list(_too_many("spec.podGroupTemplates", templates, MAX_TEMPLATES))
        for index, template in enumerate(templates):
            _check_form(template, self.version)
            causes += _bad_spec(f"spec.podGroupTemplates[{index}]", template)
        if causes:
            raise invalid("Workload", GROUP, new["metadata"]["name"], *causes)
        return new


class GroupRules(Rules):
    """Those of PodGroups and, where they are served, of CompositePodGroups."""

    def __init__(self, plural: str, kind: str, version: str) -> None:
        self.plural = plural
        self.kind = kind
        self.version = version

    def create(self, others: Others, new: Json) -> Json:
        """Protected from a deletion while it is in use, and with a priority."""
        metadata, spec = new["metadata"], new.get("spec") or {}
        _check_form(spec, self.version)
        causes = list(_bad_spec("spec", spec)) if self.kind == "PodGroup" else []
        if causes:
            raise invalid(self.kind, GROUP, metadata["name"], *causes)
        self._check_workload(others, metadata, spec)
        finalizers = metadata.get("finalizers") or []
        if PROTECTION not in finalizers:
            metadata = {**metadata, "finalizers": [*finalizers, PROTECTION]}
        return {
            **new,
            "metadata": metadata,
            "spec": {
                **self._defaults(),
                **spec,
                "priority": self._priority(others, metadata, spec),
            },
            "status": {},
        }

    def _defaults(self) -> Json:
        """What a group is given that does not say it."""
        is_observed = self.version == OBSERVED and self.kind == "PodGroup"
        return {"disruptionMode": "Pod"} if is_observed else {}

    def update(self, others: Others, old: Json, new: Json) -> Json:
        """The spec never changes."""
        if old.get("spec") != new.get("spec"):
            why = "Invalid value: field is immutable"
            raise invalid(self.kind, GROUP, old["metadata"]["name"], ("spec", why))
        return new

    def update_status(self, others: Others, old: Json, new: Json) -> Json:
        """Conditions are whole."""
        causes = [
            (f"status.conditions[{index}].{field}", "Required value")
            for index, each in enumerate(new["status"].get("conditions") or ())
            for field in ("type", "status", "lastTransitionTime", "reason")
            if not each.get(field)
        ]
        if causes:
            raise invalid(self.kind, GROUP, old["metadata"]["name"], *causes)
        return new

    def _check_workload(self, others: Others, metadata: Json, spec: Json) -> None:
        """The Workload that it says it comes from must be there."""
        if self.version == OBSERVED:
            told = (spec.get("podGroupTemplateRef") or {}).get("workload") or {}
        else:
            told = spec.get("workloadRef") or {}
        workload = told.get("workloadName")
        if workload and not others.lookup(GROUP, "workloads", metadata["namespace"], workload):
            why = f'{self.kind} rejected: Workload "{workload}" not found'
            raise forbidden(self.plural, GROUP, metadata["name"], why)

    def _priority(self, others: Others, metadata: Json, spec: Json) -> int:
        found = resolved(others, spec.get("priorityClassName"))
        if found is None:
            why = f"no PriorityClass with name {spec['priorityClassName']} was found"
            raise forbidden(self.plural, GROUP, metadata["name"], why)
        return found[0]


def _check_form(spec: Json, version: str) -> None:
    """disruptionMode was a word and became an object."""
    mode, form = spec.get("disruptionMode"), str if version == OBSERVED else dict
    if mode is not None and not isinstance(mode, form):
        raise bad_request(f"json: cannot unmarshal disruptionMode {mode!r} as of {GROUP}/{version}")


def _bad_spec(where: str, spec: Json) -> Iterator[Cause]:
    policy = spec.get("schedulingPolicy") or {}
    told = [name for name in ("basic", "gang") if policy.get(name) is not None]
    if len(told) != 1:
        yield (
            f"{where}.schedulingPolicy",
            "Invalid value: must specify exactly one of: `basic`, `gang`",
        )
    if "gang" in told and not _is_positive(policy["gang"].get("minCount")):
        yield f"{where}.schedulingPolicy.gang.minCount", "Invalid value: must be greater than zero"
    constraints = (spec.get("schedulingConstraints") or {}).get("topology") or []
    yield from _too_many(f"{where}.schedulingConstraints.topology", constraints, MAX_CONSTRAINTS)
    yield from _too_many(f"{where}.resourceClaims", spec.get("resourceClaims") or [], MAX_CLAIMS)


def _is_positive(count: Any) -> bool:
    return isinstance(count, int) and count > 0


def _too_many(field: str, told: list[Any], at_most: int) -> Iterator[Cause]:
    if len(told) > at_most:
        yield field, f"Too many: {len(told)}: must have at most {at_most} items"
