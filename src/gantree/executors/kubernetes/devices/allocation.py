"""Allocates devices of a node to the requests of a pod: an exact search for the best devices.

Every device has one holder, but for those asked for by an administrator, and those that are shared by capacity.
Partitions draw on counters that they share, claims on the capacity of a shared device: what is left must suffice.
Devices that are alike are tried once. Of many ways the first choice is that of the devices that the core's placement
named, then partitions of hardware of which a part is in use already, then those that use the least, then the order of
devices on the node.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from gantree.executors.kubernetes.devices.claims import (
    ClaimRequests,
    DeviceConstraint,
    DeviceRequest,
    is_eligible,
    share_of,
)
from gantree.executors.kubernetes.devices.device import (
    Counters,
    Device,
    DeviceKey,
    NodeDevices,
    SetKey,
    totals,
)

TRIES = 20_000
"""Devices that are tried for the requests of one pod on one node; what is not found by then counts as missing."""
MOST_ALLOCATIONS = 128


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """One device for one ask: the number of its claim among the pod's, the ask, the device, and the share of it."""

    claim: int
    request: DeviceRequest
    device: Device
    share: Counters = ()


def shares_of(results: Iterable[DeviceResult]) -> dict[DeviceKey, Counters]:
    """The devices of some results, and how much they have of each."""
    return totals((each.device.key, each.share) for each in results)


@dataclass(slots=True)
class FreeDevices:
    """The free devices of a node, and what is left of its counters."""

    devices: dict[DeviceKey, Device]
    left: dict[SetKey, dict[str, float]]
    all_devices: tuple[Device, ...]
    begun: dict[SetKey, int] = field(default_factory=dict)
    """How many devices draw on a set of counters."""

    @staticmethod
    def of(there: NodeDevices, held: Mapping[DeviceKey, Counters]) -> "FreeDevices":
        """The free devices of a node where some are held, shared ones as far as these shares."""
        left = {key: dict(counters) for key, counters in there.counters}
        shared = (each for each in there.devices if each.is_shared)
        left |= {each.capacity_set: {c.name: c.value for c in each.capacity} for each in shared}
        free = FreeDevices({each.key: each for each in there.devices}, left, there.devices)
        for device in there.known:
            if device.key in held:
                free.take(device, held[device.key])
        return free

    def has(self, device: Device, share: Counters = ()) -> bool:
        """Whether a device, or this share of it, is free, with all that it draws on."""
        return device.key in self.devices and all(
            self.left.get(key, {}).get(name, 0.0) >= amount
            for key, counters in self._draws(device, share)
            for name, amount in counters
        )

    def take(self, device: Device, share: Counters = ()) -> None:
        """Somebody has a device, or this share of it, now."""
        if not device.is_shared:
            self.devices.pop(device.key, None)
        for key, counters in self._draws(device, share):
            self._draw(key, counters, 1)

    def give_back(self, device: Device, share: Counters = ()) -> None:
        """Nobody has it any more."""
        self.devices[device.key] = device
        if device.is_shared:
            self._draw(device.capacity_set, share, -1)
        for key, counters in self._draws(device, ()):
            if key != device.capacity_set:
                self._draw(key, counters, -1)

    def _draws(self, device: Device, share: Counters) -> Iterator[tuple[SetKey, Counters]]:
        """What it takes to have a device. The first share of one draws what the device does."""
        if not device.is_shared or not self.begun.get(device.capacity_set):
            yield from device.consumes
        if device.is_shared:
            yield device.capacity_set, share

    def _draw(self, key: SetKey, counters: Counters, times: int) -> None:
        self.begun[key] = self.begun.get(key, 0) + times
        left = self.left.setdefault(key, {})
        for name, amount in counters:
            left[name] = left.get(name, 0.0) - times * amount


def allocate(
    claim_requests: ClaimRequests, free: FreeDevices, first: Sequence[DeviceKey] = ()
) -> list[DeviceResult] | None:
    """Devices for all requests, those of `first` before others; None if there are none. Takes nothing."""
    tries = [TRIES]
    for alternatives in product(*(alternatives for _, alternatives in claim_requests.requests)):
        device_requests = [
            (number, request)
            for (number, _), request in zip(claim_requests.requests, alternatives, strict=True)
        ]
        slots = _slots(device_requests, free)
        if slots is None:
            continue
        search = _Search(claim_requests, free, slots, dict.fromkeys(first), tries)
        if search.go(0):
            return search.results
    return None


def count_allocations(claim_requests: ClaimRequests, free: FreeDevices) -> int:
    """How often all requests can be allocated, one after the other. The devices stay taken."""
    found = 0
    while found < MOST_ALLOCATIONS and (results := allocate(claim_requests, free)) is not None:
        if all(each.request.is_admin for each in results):
            return MOST_ALLOCATIONS
        for each in results:
            if not each.request.is_admin:
                free.take(each.device, each.share)
        found += 1
    return found


def _share(request: DeviceRequest, device: Device) -> Counters:
    """What a request gets of a device that it matches, if that is shared."""
    return (share_of(request.selector, device) or ()) if device.is_shared else ()


Slot = tuple[int, DeviceRequest]


def _slots(device_requests: Sequence[Slot], free: FreeDevices) -> list[Slot] | None:
    """One slot for each device that is asked for; None where all are asked for and some are not free, or none is."""
    slots: list[Slot] = []
    for number, request in device_requests:
        count = request.count
        if count is None:
            there = [device for device in free.all_devices if is_eligible(request.selector, device)]
            all_free = (free.has(device, _share(request, device)) for device in there)
            if not there or not (request.is_admin or all(all_free)):
                return None
            count = len(there)
        slots += [(number, request)] * count
    return slots


@dataclass(slots=True)
class _Search:
    """A search for one choice of alternatives. tries: how many are left for all of them."""

    claim_requests: ClaimRequests
    free: FreeDevices
    slots: Sequence[Slot]
    first: Mapping[DeviceKey, None]
    tries: list[int]
    results: list[DeviceResult] = field(default_factory=list)
    _order: dict[DeviceRequest, list[Device]] = field(default_factory=dict)

    def go(self, at: int, start: int = 0) -> bool:
        """Fill the slots from `at` on; devices of one ask are taken in order, from `start` on."""
        if at == len(self.slots):
            return True
        number, request = self.slots[at]
        devices = self._candidates(request)
        alike: set[object] = set()
        for place in range(start, len(devices)):
            device = devices[place]
            key = self._key(device)
            if key in alike or not self._fits(number, request, device):
                continue
            alike.add(key)
            self.tries[0] -= 1
            if self.tries[0] < 0:
                return False
            if self._try(at, place, device):
                return True
        return False

    def _try(self, at: int, place: int, device: Device) -> bool:
        number, request = self.slots[at]
        share = _share(request, device)
        self.results.append(DeviceResult(number, request, device, share))
        if not request.is_admin:
            self.free.take(device, share)
        is_same = at + 1 < len(self.slots) and self.slots[at + 1] == self.slots[at]
        found = self.go(at + 1, place + (not device.is_shared) if is_same else 0)
        if not request.is_admin:
            self.free.give_back(device, share)
        if not found:
            self.results.pop()
        return found

    def _candidates(self, request: DeviceRequest) -> list[Device]:
        """Devices that match a request, the best first."""
        found = self._order.get(request)
        if found is None:
            of_kind = [
                each for each in self.free.all_devices if is_eligible(request.selector, each)
            ]
            found = self._order[request] = sorted(of_kind, key=self._rank)
        return found

    def _rank(self, device: Device) -> tuple[bool, bool, float]:
        drawn = [key for key, _ in device.consumes]
        drawn += [device.capacity_set] if device.is_shared else []
        is_whole = not any(map(self.free.begun.get, drawn))
        use = sum(amount for _, counters in device.consumes for _, amount in counters)
        return device.key not in self.first, is_whole, use

    def _fits(self, number: int, request: DeviceRequest, device: Device) -> bool:
        if not request.is_admin and not self.free.has(device, _share(request, device)):
            return False
        if not device.is_shared and any(each.device is device for each in self.results):
            return False
        return all(
            self._keeps(constraint, device)
            for constraint in self.claim_requests.constraints
            if constraint.binds(number, request.name)
        )

    def _keeps(self, constraint: DeviceConstraint, device: Device) -> bool:
        """Whether a device is as a rule asks beside those that were chosen; one without the attribute is not."""
        value = device.attribute(constraint.attribute)
        others = [
            each.device.attribute(constraint.attribute)
            for each in self.results
            if constraint.binds(each.claim, each.request.name)
        ]
        return value is not None and all(
            (value == other) is constraint.is_match for other in others
        )

    def _key(self, device: Device) -> object:
        """Return a key that is equal for devices that are interchangeable for this request."""
        values = tuple(
            device.attribute(constraint.attribute) for constraint in self.claim_requests.constraints
        )
        kinds = tuple(is_eligible(request.selector, device) for _, request in self.slots)
        left = tuple(self.free.left[device.capacity_set].items()) if device.is_shared else ()
        return values, kinds, device.consumes, left
