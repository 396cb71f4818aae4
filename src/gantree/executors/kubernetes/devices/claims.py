"""The requests of a pod's claims: what each device must match, and constraints among devices; parsed once.

`ClaimRequests` are all requests of a pod's claims that are not allocated yet. Pods of one template have equal ones,
whatever their claims are called, so nodes count by them (`device_capacity`) and devices are chosen by them
(`allocation`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from gantree.executors.kubernetes.apiserver.device_objects import (
    DeviceClass,
    DeviceTaint,
    DeviceToleration,
    Exactly,
    Request,
    ResourceClaim,
)
from gantree.executors.kubernetes.devices.device import Counters, Device, qualified
from gantree.executors.kubernetes.pods.device_rules import BadRule, Facts, means
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

MODES = ("ExactCount", "All")
_MATCHES = 262_144


@dataclass(frozen=True, slots=True)
class DeviceSelector:
    """What a device must be like: the expressions are true of it, it has the capacities, its taints are borne."""

    expressions: tuple[str, ...]
    capacity: tuple[tuple[str, float], ...] = ()
    tolerations: tuple[DeviceToleration, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices of one kind for one request. name is as results say it; count None: all of the node.

    is_admin: devices that others have are as good, and stay theirs.
    """

    name: str
    class_name: str
    selector: DeviceSelector
    count: int | None = 1
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """Devices of these asks of one claim are equal in an attribute, or each different in it.

    names are sorted: nodes count by a digest of what is written of it, in this process and the next.
    """

    claim: int
    names: tuple[str, ...]
    attribute: str
    is_match: bool

    def binds(self, claim: int, name: str) -> bool:
        """Whether an ask of a claim is one of them: by its own name, or by that of the request it is a way of."""
        is_named = not self.names or name in self.names or name.partition("/")[0] in self.names
        return claim == self.claim and is_named


@dataclass(frozen=True, slots=True)
class ClaimRequests:
    """Requests of all claims of a pod, each as its alternatives (one for most) with the number of its claim."""

    requests: tuple[tuple[int, tuple[DeviceRequest, ...]], ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()

    @property
    def device_requests(self) -> Iterator[DeviceRequest]:
        """All that it may ask for."""
        return (request for _, alternatives in self.requests for request in alternatives)


class Unfit(Exception):
    """A claim that cannot be allocated as it is; the text says why."""


def requests_of(
    claims: Mapping[str, ResourceClaim], classes: Mapping[str, DeviceClass]
) -> ClaimRequests:
    """The requests of a pod's claims, which are given by the pod's names for them. Raises Unfit."""
    requests: list[tuple[int, tuple[DeviceRequest, ...]]] = []
    constraints: list[DeviceConstraint] = []
    for number, claim in enumerate(claims.values()):
        requests += [
            (number, tuple(_requests(request, claim, classes)))
            for request in claim.spec.devices.requests
        ]
        constraints += _rules(number, claim)
    return ClaimRequests(tuple(requests), tuple(constraints))


def is_eligible(selector: DeviceSelector, device: Device) -> bool:
    """Whether a device is of a kind, its taints borne or none."""
    if not device.taints:
        return is_selected(selector, device)
    borne = all(
        any(_tolerates(told, taint) for told in selector.tolerations) for taint in _barring(device)
    )
    return borne and is_selected(selector, device)


@lru_cache(maxsize=_MATCHES)
def is_selected(selector: DeviceSelector, device: Device) -> bool:
    """Whether a device is of a kind, whatever its taints."""
    if selector.capacity and share_of(selector, device) is None:
        return False
    return all(means(expression, device.facts) for expression in selector.expressions)


@lru_cache(maxsize=_MATCHES)
def share_of(selector: DeviceSelector, device: Device) -> Counters | None:
    """What a claim gets of each capacity of a device; None if it asks for one that is not there, or for too much."""
    asked = {qualified(name, device.key[0]): amount for name, amount in selector.capacity}
    shares = tuple(
        (each.name, each.share(asked.pop(qualified(each.name, device.key[0]), None)))
        for each in device.capacity
    )
    found = tuple((name, share) for name, share in shares if share is not None)
    return None if asked or len(found) < len(shares) else found


def _barring(device: Device) -> Iterator[DeviceTaint]:
    return (each for each in device.taints if each.effect in ("NoSchedule", "NoExecute"))


def _tolerates(told: DeviceToleration, taint: DeviceTaint) -> bool:
    is_key = told.key in ("", taint.key) and (told.key or told.operator == "Exists")
    is_value = told.operator == "Exists" or told.value == taint.value
    return bool(is_key) and is_value and told.effect in ("", taint.effect)


def _requests(
    request: Request, claim: ResourceClaim, classes: Mapping[str, DeviceClass]
) -> Iterator[DeviceRequest]:
    told = (
        [("", request.exactly)]
        if request.exactly
        else [(f"/{e.name}", e) for e in request.first_available]
    )
    if not told:
        raise Unfit(
            f"request {request.name!r} of claim {claim.metadata.name!r} is of a kind that is not known"
        )
    for suffix, exactly in told:
        yield _request(request.name + suffix, exactly, claim, classes)


def _request(
    name: str, told: Exactly, claim: ResourceClaim, classes: Mapping[str, DeviceClass]
) -> DeviceRequest:
    where = f"request {name!r} of claim {claim.metadata.name!r}"
    found = classes.get(told.device_class_name)
    if found is None:
        raise Unfit(f"{where}: there is no device class {told.device_class_name!r}")
    if told.allocation_mode not in MODES:
        raise Unfit(f"{where}: allocation mode {told.allocation_mode!r} is not known")
    selectors = (*found.spec.selectors, *told.selectors)
    selector = DeviceSelector(
        tuple(each.cel.expression for each in selectors),
        tuple(_capacity(told)),
        told.tolerations,
    )
    _check(selector, where)
    count = None if told.allocation_mode == "All" else told.count
    return DeviceRequest(name, told.device_class_name, selector, count, told.admin_access)


def _capacity(told: Exactly) -> Iterator[tuple[str, float]]:
    for name, text in sorted((told.capacity.requests if told.capacity else {}).items()):
        yield name, quantity(str(text)) or 0.0


def _check(selector: DeviceSelector, where: str) -> None:
    """Raise Unfit for an expression that cannot be read."""
    for expression in selector.expressions:
        try:
            means(expression, Facts(""))
        except BadRule as error:
            raise Unfit(f"{where}: {error}") from error


def _rules(number: int, claim: ResourceClaim) -> Iterator[DeviceConstraint]:
    for each in claim.spec.devices.constraints:
        attribute = each.match_attribute or each.distinct_attribute
        if attribute is None:
            name = claim.metadata.name
            raise Unfit(f"a constraint of claim {name!r} is of a kind that is not known")
        yield DeviceConstraint(
            number, tuple(sorted(each.requests)), attribute, each.match_attribute is not None
        )
