"""Which devices of a node a wish gets: exact, by trying, the best ways first.

Every device has one holder, but for those asked for by an administrator; partitions draw on counters that they share,
and what is left of those must suffice. Devices that are alike are tried once. Of many ways the first choice is that of
the devices that the core's placement named, then partitions of hardware of which a part is in use already, then those
that use the least, then the order of devices on the node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from gantree.executors.kubernetes.devices.claims import Ask, Rule, Wish, is_of
from gantree.executors.kubernetes.devices.slices import Device, DeviceKey, NodeDevices, SetKey

TRIES = 20_000
"""How many devices are tried for one wish on one node at most; what was not found by then counts as not there."""
MOST_COPIES = 128


@dataclass(frozen=True, slots=True)
class Given:
    """One device for one ask: the number of its claim among the pod's, the ask, and the device."""

    claim: int
    ask: Ask
    device: Device


@dataclass(slots=True)
class Stock:
    """What is free on a node: devices that nobody has, and what is left of counters. Taking changes it."""

    devices: dict[DeviceKey, Device]
    left: dict[SetKey, dict[str, float]]
    all_devices: tuple[Device, ...]
    begun: dict[SetKey, int] = field(default_factory=dict)
    """How many devices draw on a set of counters."""

    @staticmethod
    def of(there: NodeDevices, held: Mapping[DeviceKey, object]) -> "Stock":
        """The stock of a node where some devices are held."""
        left = {key: dict(counters) for key, counters in there.counters}
        stock = Stock({each.key: each for each in there.devices}, left, there.devices)
        for device in there.devices:
            if device.key in held:
                stock.take(device)
        return stock

    def has(self, device: Device) -> bool:
        """Whether a device is free, with all that it draws on."""
        return device.key in self.devices and all(
            self.left.get(key, {}).get(name, 0.0) >= amount
            for key, counters in device.consumes
            for name, amount in counters
        )

    def take(self, device: Device) -> None:
        """Somebody has a device now."""
        self.devices.pop(device.key, None)
        self._draw(device, 1)

    def give_back(self, device: Device) -> None:
        """Nobody has it any more."""
        self.devices[device.key] = device
        self._draw(device, -1)

    def _draw(self, device: Device, times: int) -> None:
        for key, counters in device.consumes:
            self.begun[key] = self.begun.get(key, 0) + times
            left = self.left.setdefault(key, {})
            for name, amount in counters:
                left[name] = left.get(name, 0.0) - times * amount


def allocate(wish: Wish, stock: Stock, first: Sequence[DeviceKey] = ()) -> list[Given] | None:
    """The devices that a wish gets, those of `first` before others; None where it cannot be had. Takes nothing."""
    tries = [TRIES]
    for ways in product(*(ways for _, ways in wish.requests)):
        asks = [(number, ask) for (number, _), ask in zip(wish.requests, ways, strict=True)]
        slots = _slots(asks, stock)
        if slots is None:
            continue
        search = _Search(wish, stock, slots, dict.fromkeys(first), tries)
        if search.go(0):
            return search.given
    return None


def copies(wish: Wish, stock: Stock) -> int:
    """How often a wish can be had, one after the other. What is taken is not given back."""
    found = 0
    while found < MOST_COPIES and (given := allocate(wish, stock)) is not None:
        if all(each.ask.is_admin for each in given):
            return MOST_COPIES
        for each in given:
            if not each.ask.is_admin:
                stock.take(each.device)
        found += 1
    return found


Slot = tuple[int, Ask]


def _slots(asks: Sequence[Slot], stock: Stock) -> list[Slot] | None:
    """One slot for each device that is asked for; None where all are asked for and some are not free, or none is."""
    slots: list[Slot] = []
    for number, ask in asks:
        count = ask.count
        if count is None:
            there = [device for device in stock.all_devices if is_of(ask.kind, device)]
            if not there or not (ask.is_admin or all(map(stock.has, there))):
                return None
            count = len(there)
        slots += [(number, ask)] * count
    return slots


@dataclass(slots=True)
class _Search:
    """A search for one way of a wish. tries: how many are left, shared by all ways."""

    wish: Wish
    stock: Stock
    slots: Sequence[Slot]
    first: Mapping[DeviceKey, None]
    tries: list[int]
    given: list[Given] = field(default_factory=list)
    _order: dict[Ask, list[Device]] = field(default_factory=dict)

    def go(self, at: int, start: int = 0) -> bool:
        """Fill the slots from `at` on; devices of one ask are taken in order, from `start` on."""
        if at == len(self.slots):
            return True
        number, ask = self.slots[at]
        devices = self._candidates(ask)
        alike: set[object] = set()
        for place in range(start, len(devices)):
            device = devices[place]
            looks = self._looks(device)
            if looks in alike or not self._fits(number, ask, device):
                continue
            alike.add(looks)
            self.tries[0] -= 1
            if self.tries[0] < 0:
                return False
            if self._try(at, place, device):
                return True
        return False

    def _try(self, at: int, place: int, device: Device) -> bool:
        number, ask = self.slots[at]
        self.given.append(Given(number, ask, device))
        if not ask.is_admin:
            self.stock.take(device)
        is_same = at + 1 < len(self.slots) and self.slots[at + 1] == self.slots[at]
        found = self.go(at + 1, place + 1 if is_same else 0)
        if not ask.is_admin:
            self.stock.give_back(device)
        if not found:
            self.given.pop()
        return found

    def _candidates(self, ask: Ask) -> list[Device]:
        """Devices of an ask's kind, the best first."""
        found = self._order.get(ask)
        if found is None:
            of_kind = [each for each in self.stock.all_devices if is_of(ask.kind, each)]
            found = self._order[ask] = sorted(of_kind, key=self._rank)
        return found

    def _rank(self, device: Device) -> tuple[bool, bool, float]:
        is_whole = not any(self.stock.begun.get(key) for key, _ in device.consumes)
        use = sum(amount for _, counters in device.consumes for _, amount in counters)
        return device.key not in self.first, is_whole, use

    def _fits(self, number: int, ask: Ask, device: Device) -> bool:
        if not ask.is_admin and not self.stock.has(device):
            return False
        if any(each.device is device for each in self.given):
            return False
        return all(
            self._keeps(rule, device) for rule in self.wish.rules if rule.binds(number, ask.name)
        )

    def _keeps(self, rule: Rule, device: Device) -> bool:
        """Whether a device is as a rule asks beside those that were chosen; one without the attribute is not."""
        value = device.attribute(rule.attribute)
        others = [
            each.device.attribute(rule.attribute)
            for each in self.given
            if rule.binds(each.claim, each.ask.name)
        ]
        return value is not None and all((value == other) is rule.is_match for other in others)

    def _looks(self, device: Device) -> object:
        """What tells a device from others for this wish: where it failed, those that look the same fail too."""
        values = tuple(device.attribute(rule.attribute) for rule in self.wish.rules)
        kinds = tuple(is_of(ask.kind, device) for _, ask in self.slots)
        return values, kinds, device.consumes
