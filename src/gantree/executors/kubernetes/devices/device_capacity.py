"""How many pods with the same claims a node can serve: a count for the core, which has no devices.

GPUs of claims are the core's GPUs, on nodes that have enough of them in slices (`CLAIMED_GPUS`). Everything else that
claims request (a NIC on the same PCIe root, a partition, a selector, an alternative) counts as one unit: a node has as
many units as allocations succeed one after the other, and a pod takes one.

What is taken otherwise (claims of others, partitions of a GPU, tainted devices, units of other requests) is reported as
held by others, whenever it changes; what of it comes free when a job of ours leaves, as held beside that job. Units of
different requests draw on the same devices, so two gangs that are placed at the same time may both seem to fit: then
allocation refuses one, and it waits with that reason.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from weakref import WeakKeyDictionary

from gantree.executors.kubernetes.devices.allocation import FreeDevices, count_allocations
from gantree.executors.kubernetes.devices.claims import (
    ClaimRequests,
    DeviceRequest,
    is_eligible,
)
from gantree.executors.kubernetes.devices.device import (
    Counters,
    DeviceKey,
    NodeDevices,
    totals,
)
from gantree.executors.kubernetes.devices.extended_resources import not_offered
from gantree.executors.kubernetes.pods.shapes import OF_SELECTOR
from gantree.model.placements import MemberPlacement
from gantree.topology.occupancy.member_parts import is_nothing, without

HOLDER, ROLE = "devices of ", "others"
_KEPT = 65_536
PLENTY = 1_000_000
Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CountedPod:
    """What the core counts a pod of ours by: GPUs of its node, and units of requests by name. job: whose pod it is."""

    job: str
    node: str
    gpus: tuple[int, ...] = ()
    counted: Amounts = ()


@dataclass(frozen=True, slots=True)
class Holding:
    """A device of a node, or a share of it, that a claim has. job: whose claim it is, "" for others."""

    device: DeviceKey
    share: Counters
    job: str


def held_by(holdings: Iterable[Holding]) -> dict[DeviceKey, Counters]:
    """The devices that are held, and how much of each."""
    return totals((each.device, each.share) for each in holdings)


class DeviceCapacity:
    """Requests by the names that they are counted under, and their counts.

    An extended resource is one: a node has as many units as it has devices of its class. Where a device plugin offers
    the resource, the node's own count stands. So is each selector: requests that select the same devices share these.
    """

    def __init__(self) -> None:
        self.name_of_requests: dict[ClaimRequests, str] = {}
        self._offered: dict[str, frozenset[str]] = {}
        """What device plugins offer of these, by node."""
        self._selector_of: dict[str, str] = {}
        """The name of the selector of each extended resource."""
        self._kept: dict[object, int] = {}
        self._number_of_kind: dict[object, int] = {}
        self._relevant_of_node: WeakKeyDictionary[
            NodeDevices, dict[str, tuple[int, tuple[DeviceKey, ...]]]
        ] = WeakKeyDictionary()
        self._totals: WeakKeyDictionary[NodeDevices, dict[str, int]] = WeakKeyDictionary()

    def count(self, claim_requests: ClaimRequests) -> Amounts:
        """The names under which requests are counted, and how much of each: as a whole, and as devices by selector."""
        found = {self.name(claim_requests): 1}
        for _, (request, *others) in claim_requests.requests:
            if not others and request.count is not None and not request.is_admin:
                name = self._name_of_selector(request)
                found[name] = found.get(name, 0) + request.count
        return tuple(found.items())

    def _name_of_selector(self, request: DeviceRequest) -> str:
        """The name under which devices of a selector are counted, whatever class and request have it."""
        unit = ClaimRequests(((0, (DeviceRequest("", "", request.selector),)),))
        mark = sha256(repr(request.selector).encode()).hexdigest()[:8]
        return self.name_of_requests.setdefault(unit, OF_SELECTOR + mark)

    def name(self, claim_requests: ClaimRequests) -> str:
        """The name under which requests are counted: their classes, and a digest."""
        found = self.name_of_requests.get(claim_requests)
        if found is None:
            parts = (
                f"{_count(request.count)}{request.class_name}"
                for _, (request, *_) in claim_requests.requests
            )
            mark = sha256(repr(claim_requests).encode()).hexdigest()[:8]
            found = self.name_of_requests[claim_requests] = f"claims({', '.join(parts)})-{mark}"
        return found

    def count_resource(self, name: str, amount: int, unit: ClaimRequests) -> Amounts:
        """The names under which an extended resource is counted beside its own: the devices of its class."""
        if self.name_of_requests.get(unit) != name:
            self.forget_resources((name,))  # its class is another one now
            self.name_of_requests[unit] = name
        ((_, (request,)),) = unit.requests
        self._selector_of[name] = self._name_of_selector(request)
        return ((self._selector_of[name], amount),)

    def forget_resources(self, names: Collection[str]) -> None:
        """No class backs these resources any more."""
        kept = {unit: name for unit, name in self.name_of_requests.items() if name not in names}
        if len(kept) < len(self.name_of_requests):
            self.name_of_requests = kept
            for cache in (self._totals, self._relevant_of_node, self._kept):
                cache.clear()

    def missing(
        self, node: str, allocatable: Mapping[str, object], totals: Mapping[str, int]
    ) -> dict[str, str]:
        """The counts of a node that its own status does not list; plenty of what its plugins offer otherwise."""
        lacking = not_offered(tuple(totals.items()), allocatable)
        offered = [name for name in totals if name not in lacking]
        plenty = {self._selector_of[name]: PLENTY for name in offered if name in self._selector_of}
        self._offered[node] = frozenset((*offered, *plenty))
        counts = {name: totals[name] for name in lacking if totals[name]} | plenty
        return {name: str(count) for name, count in counts.items()}

    def offers(self, node: str, name: str) -> bool:
        """Whether a device plugin of a node offers a resource."""
        return name in self._offered.get(node, ())

    def totals(self, there: NodeDevices) -> dict[str, int]:
        """How often a node of which nothing is held can serve each."""
        known = self._totals.setdefault(there, {})
        for claim_requests, name in islice(self.name_of_requests.items(), len(known), None):
            known[name] = self._number(name, claim_requests, there, {})
        return known

    def taken(
        self,
        node: str,
        there: NodeDevices,
        held: Mapping[DeviceKey, Counters],
        counted_pods: Iterable[CountedPod],
    ) -> MemberPlacement | None:
        """What of a node is taken in ways that the core does not know."""
        counted = list(counted_pods)
        gpus = _positions(there, held, counted)
        totals, devices = self.totals(there), {}
        offered, ours = self._offered.get(node, ()), Counter[str]()
        for counted_pod in counted:
            ours.update(dict(counted_pod.counted))
        for claim_requests, name in self.name_of_requests.items() if held else ():
            if name in offered or not totals[name]:
                continue
            lost = totals[name] - self._number(name, claim_requests, there, held) - ours[name]
            if lost > 0:
                devices[name] = lost
        if not gpus and not devices:
            return None
        return MemberPlacement(ROLE, 0, node, gpus, devices=tuple(sorted(devices.items())))

    def taken_beside(
        self,
        node: str,
        there: NodeDevices,
        holdings: Collection[Holding],
        counted_pods: Collection[CountedPod],
    ) -> tuple[MemberPlacement | None, dict[str, MemberPlacement]]:
        """What `taken` says: what nobody gives back, and what comes free with each job alone.

        What comes free only when several jobs have left is nobody's to give back.
        """
        beside = dict[str, MemberPlacement]()
        rest = self.taken(node, there, held_by(holdings), counted_pods)
        every = rest
        for job in dict.fromkeys(each.job for each in holdings if each.job):
            if rest is None or every is None:
                break
            held = held_by(each for each in holdings if each.job != job)
            others = [each for each in counted_pods if each.job != job]
            freed = without(every, self.taken(node, there, held, others))
            lacking = without(rest, freed)
            if lacking != rest:
                beside[job] = without(rest, lacking)
                rest = None if is_nothing(lacking) else lacking
        return rest, beside

    def _number(
        self,
        name: str,
        claim_requests: ClaimRequests,
        there: NodeDevices,
        held: Mapping[DeviceKey, Counters],
    ) -> int:
        """Nodes that are equal for the requests are counted once."""
        kind, devices = self._relevant(name, claim_requests, there)
        elsewhere = tuple(device.key for device in there.elsewhere if device.key in held)
        key = name, kind, tuple(map(held.get, devices)), elsewhere
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[key] = count_allocations(claim_requests, FreeDevices.of(there, held))
        return found

    def _relevant(
        self, name: str, claim_requests: ClaimRequests, there: NodeDevices
    ) -> tuple[int, tuple[DeviceKey, ...]]:
        """The devices that matter to requests, and a number that nodes have in common if these are alike."""
        of_node = self._relevant_of_node.setdefault(there, {})
        found = of_node.get(name)
        if found is None:
            told = _relevant(claim_requests, there)
            kind = tuple(told.values()), tuple(counters for _, counters in there.counters)
            number = self._number_of_kind.setdefault(kind, len(self._number_of_kind))
            found = of_node[name] = number, tuple(told)
        return found


def _relevant(claim_requests: ClaimRequests, there: NodeDevices) -> dict[DeviceKey, object]:
    """Devices that matter to requests: matching selectors, attributes of constraints, shared counters and capacity."""
    kinds = list(dict.fromkeys(request.selector for request in claim_requests.device_requests))
    number_of_set = {key: number for number, (key, _) in enumerate(there.counters)}
    devices: dict[DeviceKey, object] = {}
    for device in there.devices:
        of = tuple(is_eligible(selector, device) for selector in kinds)
        if any(of) or device.consumes:
            values = tuple(
                device.attribute(constraint.attribute) for constraint in claim_requests.constraints
            )
            uses = tuple((number_of_set.get(key, -1), used) for key, used in device.consumes)
            shared = device.capacity if device.is_shared else ()
            devices[device.key] = of, values, uses, shared
    return devices


def _positions(
    there: NodeDevices, held: Mapping[DeviceKey, Counters], counted_pods: Iterable[CountedPod]
) -> tuple[int, ...]:
    """GPUs that cannot be had and that no pod of ours is counted by; as many as there are more than of ours."""
    free = FreeDevices.of(there, held)
    of_key = {device.key: device for device in there.devices}
    lost = [
        position
        for position, key in enumerate(there.gpus)
        if of_key[key].is_barred or not free.has(of_key[key])
    ]
    ours = [gpu for counted_pod in counted_pods for gpu in counted_pod.gpus]
    foreign = [position for position in lost if position not in ours]
    return tuple(foreign[: max(0, len(lost) - len(ours))])


def _count(count: int | None) -> str:
    return "all " if count is None else "" if count == 1 else f"{count} "
