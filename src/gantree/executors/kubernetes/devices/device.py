"""A device as gantree sees it: what it is, where it sits, what it uses of counters, and what claims share of it.

GPUs are numbered by where they sit, as a machine prints them: NUMA node, PCIe root, address on the bus, index, name.
Position p of the core is the p-th of these. Partitions of a GPU, and GPUs that several claims may have, are devices of
their own, but no GPUs.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from gantree.executors.kubernetes.apiserver.device_objects import (
    Amount,
    Attribute,
    CapacityRange,
    CounterSet,
    DeviceTaint,
    RequestPolicy,
    SliceDevice,
    SliceSpec,
)
from gantree.executors.kubernetes.apiserver.objects import NodeSelector
from gantree.executors.kubernetes.pods.device_rules import Facts, Value, Version
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

STANDARD = "resource.kubernetes.io/"
PCIE_ROOT, BUS_ID = f"{STANDARD}pcieRoot", f"{STANDARD}pciBusID"
WHOLE_GPUS = frozenset({"gpu", "amdgpu"})
"""What drivers call whole GPUs in the attribute `type`, where they have it."""
_NUMA = ("numaNode", "numa", "numaNodeID")
_DIGITS = re.compile(r"([0-9]+)")

DeviceKey = tuple[str, str, str]
"""Driver, pool and name of a device."""
SetKey = tuple[str, str, str]
"""Driver, pool and name of a set of counters."""
Counters = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Capacity:
    """A capacity of a device, and how much of it one claim gets: the default, one of some values, or in a range.

    name is as its slice has it.
    """

    name: str
    value: float
    default: float | None = None
    values: tuple[float, ...] = ()
    least: float | None = None
    most: float | None = None
    step: float | None = None

    def share(self, asked: float | None) -> float | None:
        """What a claim gets that asks for so much (None: for nothing of it); None if it cannot have it."""
        unasked = self.value if self.default is None else self.default
        found = unasked if asked is None else self._rounded(asked)
        if found == self.default:
            return found
        is_valid = not self.values or found in self.values
        is_in_range = self.most is None or found <= self.most
        return found if is_valid and is_in_range and found <= self.value else None

    def _rounded(self, asked: float) -> float:
        if self.least is None:
            return next((value for value in self.values if asked <= value), asked)
        over = max(0.0, asked - self.least)
        return self.least + (ceil(round(over / self.step, 9)) * self.step if self.step else over)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """A device, the same as long as its slice is.

    node: where it is; "" for one that several nodes reach: those that a selector selects, or all (None). consumes: what
    it uses of sets of counters. capacity: what claims share, if several may have it. conditions: what has to be true of
    it before pods are bound, and what is not to be (`binding_conditions`); binds_to_node: it is then of one node.
    """

    key: DeviceKey
    facts: Facts
    node: str = ""
    selector: NodeSelector | None = None
    consumes: tuple[tuple[SetKey, Counters], ...] = ()
    capacity: tuple[Capacity, ...] = ()
    taints: tuple[DeviceTaint, ...] = ()
    conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False

    @property
    def is_gpu(self) -> bool:
        """Whether it is a whole GPU of one node, for one claim alone."""
        of_type = self.attribute(f"{self.key[0]}/type")
        is_whole = of_type is None or of_type in WHOLE_GPUS
        is_alone = bool(self.node) and not self.is_shared
        return self.key[0].startswith("gpu.") and is_whole and is_alone

    @property
    def home(self) -> str:
        """What has the record of its holders: its node, or its pool."""
        return self.node or "/".join(self.key[:2])

    @property
    def is_shared(self) -> bool:
        """Whether several claims may have it, as far as its capacity goes."""
        return self.facts.is_shared

    @property
    def capacity_set(self) -> SetKey:
        """The counters of its capacity, beside those that partitions share: no name of a set has a slash."""
        driver, pool, name = self.key
        return driver, pool, f"{name}/capacity"

    def attribute(self, name: str) -> Value | Version | None:
        """Return an attribute by its qualified name; None if it is not set."""
        return next((value for key, value in self.facts.attributes if key == name), None)

    @property
    def is_barred(self) -> bool:
        """Whether a taint keeps claims away that do not tolerate it."""
        return any(taint.effect in ("NoSchedule", "NoExecute") for taint in self.taints)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeDevices:
    """All devices of a node, its GPUs in the order of their positions, and how much each set of counters has.

    It is the same object as long as the node's slices are. elsewhere: devices that it does not reach, and that draw on
    the same counters.
    """

    devices: tuple[Device, ...] = ()
    gpus: tuple[DeviceKey, ...] = ()
    counters: tuple[tuple[SetKey, Counters], ...] = ()
    elsewhere: tuple[Device, ...] = ()

    @property
    def known(self) -> tuple[Device, ...]:
        """Those of whose holders it matters who they are."""
        return (*self.devices, *self.elsewhere)


NONE = NodeDevices()


def qualified(name: str, driver: str) -> str:
    """A name of an attribute or capacity with its domain: the driver's where it has none."""
    return name if "/" in name else f"{driver}/{name}"


def numa_of(device: Device) -> int | None:
    """Return the NUMA node of a device; None if the driver does not publish it."""
    for name in _NUMA:
        for domain in (device.key[0] + "/", STANDARD):
            value = device.attribute(domain + name)
            if isinstance(value, int) and not isinstance(value, bool):
                return value
    return None


def device_of(told: SliceDevice, spec: SliceSpec) -> Device:
    """A device of a slice."""
    driver, pool = spec.driver, spec.pool.name
    where = told if spec.per_device_node_selection else spec
    attributes = (
        (qualified(name, driver), _value(value)) for name, value in sorted(told.attributes.items())
    )
    capacity = (
        (qualified(name, driver), str(amount.value))
        for name, amount in sorted(told.capacity.items())
    )
    facts = Facts(
        driver,
        tuple((name, value) for name, value in attributes if value is not None),
        tuple(capacity),
        told.allow_multiple_allocations,
    )
    consumes = tuple(
        ((driver, pool, each.counter_set), counters_of(each)) for each in told.consumes_counters
    )
    shared = tuple(_capacity(name, amount) for name, amount in sorted(told.capacity.items()))
    selector = where.node_selector
    key = (driver, pool, told.name)
    return Device(
        key,
        facts,
        where.node_name,
        selector,
        consumes,
        shared,
        told.taints,
        told.binding_conditions,
        told.binding_failure_conditions,
        told.binds_to_node,
    )


def _capacity(name: str, told: Amount) -> Capacity:
    policy = told.request_policy or RequestPolicy()
    span = policy.valid_range or CapacityRange()
    return Capacity(
        name,
        _number(told.value) or 0.0,
        _number(policy.default),
        tuple(quantity(str(value)) or 0.0 for value in policy.valid_values),
        _number(span.min),
        _number(span.max),
        _number(span.step),
    )


def _number(text: str | float | None) -> float | None:
    return None if text is None else quantity(str(text))


def _value(told: Attribute) -> Value | Version | None:
    if told.version is not None:
        return Version(told.version)
    return next((v for v in (told.bool_, told.int_, told.string) if v is not None), None)


def totals(shares: Iterable[tuple[DeviceKey, Counters]]) -> dict[DeviceKey, Counters]:
    """Devices, and the sum of the shares of each."""
    found: dict[DeviceKey, dict[str, float]] = {}
    for device, share in shares:
        sums = found.setdefault(device, {})
        for name, amount in share:
            sums[name] = sums.get(name, 0.0) + amount
    return {device: tuple(sorted(sums.items())) for device, sums in found.items()}


def counters_of(told: CounterSet) -> Counters:
    """The counters of a set by name."""
    return tuple(
        (name, quantity(str(amount.value)) or 0.0) for name, amount in sorted(told.counters.items())
    )


def place_of(device: Device) -> tuple[object, ...]:
    """Return the sort key of a device by position; unknown values sort first."""
    index = device.attribute(f"{device.key[0]}/index")
    numa = numa_of(device)
    return (
        -1 if numa is None else numa,
        str(device.attribute(PCIE_ROOT) or ""),
        str(device.attribute(BUS_ID) or ""),
        index if isinstance(index, int) else -1,
        _words(device.key[2]),
    )


def _words(name: str) -> list[tuple[int, str]]:
    """A name in an order in which numbers in it count as numbers."""
    parts = _DIGITS.split(name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
