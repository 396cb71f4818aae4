"""What a server asks of ResourceClaims and ResourceSlices, and what not.

It knows the form of an allocation and nothing else: neither that a device exists, nor how many were asked for, nor
constraints, nor that another claim holds the same device. Only a scheduler prevents double allocation.
"""

from collections.abc import Iterator

from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json, invalid

GROUP, KIND = "resource.k8s.io", "ResourceClaim"
RESULT_FIELDS = ("request", "driver", "pool", "device")
MAX_CONSUMERS = 256
PLACES = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
NEEDS_BINDING = (
    "changing status.allocation or status.reservedFor requires resource=resourceclaims/binding"
)
Cause = tuple[str, str]


class SliceRules(Rules):
    """Those of slices: of one place, and of devices or of counters (resource.k8s.io/v1, ResourceSliceSpec)."""

    def create(self, others: Others, new: Json) -> Json:
        """One way of saying where it is, and devices or what they share."""
        spec = new.get("spec") or {}
        causes: list[Cause] = []
        if sum(bool(spec.get(place)) for place in PLACES) != 1:
            told = ", ".join(f"`{place}`" for place in PLACES)
            causes.append(("spec", f"Invalid value: exactly one of {told} is required"))
        if None not in (spec.get("devices"), spec.get("sharedCounters")):
            why = 'Invalid value: "": only one of `sharedCounters` or `devices` is allowed'
            causes.append(("spec", why))
        if causes:
            raise invalid("ResourceSlice", GROUP, new["metadata"]["name"], *causes)
        return new


class ClassRules(Rules):
    """Those of device classes: what they select by can be read."""

    def create(self, others: Others, new: Json) -> Json:
        """Every selector is CEL."""
        causes = list(_bad_selectors("spec", new.get("spec") or {}))
        if causes:
            raise invalid("DeviceClass", GROUP, new["metadata"]["name"], *causes)
        return new


class TemplateRules(Rules):
    """Those of templates of claims: what they make is a claim."""

    def create(self, others: Others, new: Json) -> Json:
        """Its spec is of the form of a claim's."""
        below = (new.get("spec") or {}).get("spec") or {}
        causes = list(_bad_requests("spec.spec", below))
        if causes:
            raise invalid("ResourceClaimTemplate", GROUP, new["metadata"]["name"], *causes)
        return new


class ClaimRules(Rules):
    """Those of claims."""

    def create(self, others: Others, new: Json) -> Json:
        """With a spec of the form of v1, in which a request nests under exactly."""
        causes = list(_bad_requests("spec", new.get("spec") or {}))
        if causes:
            raise invalid(KIND, GROUP, new["metadata"]["name"], *causes)
        return {**new, "status": {}}

    def update(self, others: Others, old: Json, new: Json) -> Json:
        """The spec of a claim never changes."""
        if old.get("spec") != new.get("spec"):
            why = "Invalid value: field is immutable"
            raise invalid(KIND, GROUP, old["metadata"]["name"], ("spec", why))
        return new

    def update_status(self, others: Others, old: Json, new: Json) -> Json:
        """An allocation is checked for its form, and stays until it is cleared."""
        name, namespace = old["metadata"]["name"], old["metadata"]["namespace"]
        before, after = old.get("status") or {}, new["status"]
        causes = [*_bad_allocation(old, after), *_bad_consumers(after), *_changed(before, after)]
        if _is_bound_otherwise(before, after) and not _may_bind(others, namespace):
            causes.append(("status", f"Forbidden: {NEEDS_BINDING}"))
        if causes:
            raise invalid(KIND, GROUP, name, *causes)
        return new


def _may_bind(others: Others, namespace: str) -> bool:
    return any(
        others.may(verb, GROUP, "resourceclaims/binding", namespace) for verb in ("update", "patch")
    )


def _is_bound_otherwise(before: Json, after: Json) -> bool:
    return any(before.get(name) != after.get(name) for name in ("allocation", "reservedFor"))


def _bad_requests(prefix: str, spec: Json) -> Iterator[Cause]:
    for index, each in enumerate((spec.get("devices") or {}).get("requests") or ()):
        where = f"{prefix}.devices.requests[{index}]"
        if not each.get("name"):
            yield f"{where}.name", "Required value"
        told = [field for field in ("exactly", "firstAvailable") if each.get(field)]
        if len(told) != 1:
            yield where, "Required value: exactly one of `exactly` or `firstAvailable` is required"
        if each.get("exactly") and not each["exactly"].get("deviceClassName"):
            yield f"{where}.exactly.deviceClassName", "Required value"
        yield from _bad_selectors(f"{where}.exactly", each.get("exactly") or {})
        for number, below in enumerate(each.get("firstAvailable") or ()):
            yield from _bad_selectors(f"{where}.firstAvailable[{number}]", below)


def _bad_selectors(prefix: str, told: Json) -> Iterator[Cause]:
    for index, each in enumerate(told.get("selectors") or ()):
        from support.kubernetes.rules.conditions import is_cel

        expression = (each.get("cel") or {}).get("expression", "")
        if not is_cel(expression):
            where = f"{prefix}.selectors[{index}].cel.expression"
            yield where, f'Invalid value: "{expression}": compilation failed: Syntax error'


def _bad_allocation(claim: Json, status: Json) -> Iterator[Cause]:
    devices = (status.get("allocation") or {}).get("devices") or {}
    known = set(_request_names(claim.get("spec") or {}))
    for index, result in enumerate(devices.get("results") or ()):
        where = f"status.allocation.devices.results[{index}]"
        for field in RESULT_FIELDS:
            if not result.get(field):
                yield f"{where}.{field}", "Required value"
        if result.get("request") and result["request"] not in known:
            why = f"Invalid value: {result['request']!r}: must be REQUEST or REQUEST/SUBREQUEST of the claim"
            yield f"{where}.request", why


def _request_names(spec: Json) -> Iterator[str]:
    """Those that a result may name: REQUEST, or REQUEST/SUBREQUEST where there are alternatives."""
    for each in (spec.get("devices") or {}).get("requests") or ():
        if not each.get("firstAvailable"):
            yield each["name"]
        for below in each.get("firstAvailable") or ():
            yield f"{each['name']}/{below['name']}"


def _bad_consumers(status: Json) -> Iterator[Cause]:
    consumers = status.get("reservedFor") or []
    if consumers and not status.get("allocation"):
        yield "status.reservedFor", "Forbidden: may not be specified when `allocated` is not set"
    if len(consumers) > MAX_CONSUMERS:
        yield (
            "status.reservedFor",
            f"Too many: {len(consumers)}: must have at most {MAX_CONSUMERS} items",
        )
    uids: set[str] = set()
    for index, each in enumerate(consumers):
        for field in ("resource", "name", "uid"):
            if not each.get(field):
                yield f"status.reservedFor[{index}].{field}", "Required value"
        if each.get("uid") in uids:
            yield f"status.reservedFor[{index}].uid", f'Duplicate value: "{each["uid"]}"'
        uids.add(each.get("uid", ""))


def _changed(before: Json, after: Json) -> Iterator[Cause]:
    old, new = before.get("allocation"), after.get("allocation")
    if old and new and old != new:
        yield "status.allocation", "Invalid value: field is immutable"
