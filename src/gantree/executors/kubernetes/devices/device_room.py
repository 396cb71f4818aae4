"""How much of each wish a node has, for the core, which counts and does not know devices.

The core's search is by counts. GPUs of claims are its GPUs; whatever else is asked of devices (a NIC on the same PCIe
root, a partition, a selector, an alternative) is counted as a whole: a node has as many of a wish as can be had of it
one after the other, and a pod takes one. So the core knows nodes on which a wish cannot be had now, in one number each.

What is taken in a way that the core does not know (claims of others, partitions of a GPU, tainted devices) is told as
room of others, anew whenever it changes. Numbers of different wishes draw on the same devices, so two gangs that are
placed in the same moment may both be counted in: then allocation refuses one, and it waits with that reason.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from weakref import WeakKeyDictionary

from gantree.executors.kubernetes.devices.allocation import Stock, copies
from gantree.executors.kubernetes.devices.claims import Wish, is_of
from gantree.executors.kubernetes.devices.slices import DeviceKey, NodeDevices
from gantree.model.placements import MemberPlacement

HOLDER, ROLE = "devices of ", "others"
_KEPT = 65_536


@dataclass(frozen=True, slots=True)
class Seat:
    """What the core counts a pod of ours by: GPUs of its node, and its wish."""

    node: str
    gpus: tuple[int, ...] = ()
    counted: str | None = None


class DeviceRoom:
    """Wishes by the names that they are counted under, and their numbers."""

    def __init__(self) -> None:
        self.name_of_wish: dict[Wish, str] = {}
        self._kept: dict[object, int] = {}
        self._totals: WeakKeyDictionary[NodeDevices, dict[str, int]] = WeakKeyDictionary()

    def name(self, wish: Wish) -> str:
        """What a wish is counted as: what it is of in short, and a number that tells it from others."""
        found = self.name_of_wish.get(wish)
        if found is None:
            parts = (f"{_count(ask.count)}{ask.class_name}" for _, (ask, *_) in wish.requests)
            mark = sha256(repr(wish).encode()).hexdigest()[:8]
            found = self.name_of_wish[wish] = f"claims({', '.join(parts)})-{mark}"
        return found

    def totals(self, there: NodeDevices) -> dict[str, int]:
        """How often each wish can be had of a node of which nothing is held."""
        known = self._totals.setdefault(there, {})
        for wish, name in islice(self.name_of_wish.items(), len(known), None):
            known[name] = self._number(wish, there, {})
        return known

    def taken(
        self, node: str, there: NodeDevices, held: Mapping[DeviceKey, object], seats: Iterable[Seat]
    ) -> MemberPlacement | None:
        """What of a node is taken in ways that the core does not know."""
        seated = list(seats)
        gpus = _positions(there, held, seated)
        totals, devices = self.totals(there), {}
        for wish, name in self.name_of_wish.items() if held else ():
            ours = sum(seat.counted == name for seat in seated)
            lost = totals[name] and totals[name] - self._number(wish, there, held) - ours
            if lost > 0:
                devices[name] = lost
        if not gpus and not devices:
            return None
        return MemberPlacement(ROLE, 0, node, gpus, devices=tuple(sorted(devices.items())))

    def _number(self, wish: Wish, there: NodeDevices, held: Mapping[DeviceKey, object]) -> int:
        """Nodes that look the same to a wish are counted once."""
        looks = wish, _looks(wish, there, held)
        found = self._kept.get(looks)
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept.clear()
            found = self._kept[looks] = copies(wish, Stock.of(there, held))
        return found


def _looks(wish: Wish, there: NodeDevices, held: Mapping[DeviceKey, object]) -> object:
    """All of a node's devices that a wish can see: what kinds they are of, what rules ask about, what they share."""
    kinds = list(dict.fromkeys(ask.kind for ask in wish.asks))
    number_of_set = {key: number for number, (key, _) in enumerate(there.counters)}
    devices = []
    for device in there.devices:
        of = tuple(is_of(kind, device) for kind in kinds)
        if any(of) or device.consumes:
            values = tuple(device.attribute(rule.attribute) for rule in wish.rules)
            uses = tuple((number_of_set.get(key, -1), used) for key, used in device.consumes)
            devices.append((of, values, uses, device.key in held))
    return tuple(devices), tuple(counters for _, counters in there.counters)


def _positions(
    there: NodeDevices, held: Mapping[DeviceKey, object], seats: Iterable[Seat]
) -> tuple[int, ...]:
    """GPUs that cannot be had and that no pod of ours is counted by; as many as there are more than of ours."""
    stock = Stock.of(there, held)
    of_key = {device.key: device for device in there.devices}
    lost = [
        position
        for position, key in enumerate(there.gpus)
        if of_key[key].is_barred or not stock.has(of_key[key])
    ]
    ours = [gpu for seat in seats for gpu in seat.gpus]
    foreign = [position for position in lost if position not in ours]
    return tuple(foreign[: max(0, len(lost) - len(ours))])


def _count(count: int | None) -> str:
    return "all " if count is None else "" if count == 1 else f"{count} "
