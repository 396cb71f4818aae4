"""Fields of objects of dynamic resource allocation (resource.k8s.io/v1) that gantree reads.

Slices say which devices there are, classes and claims what is wanted of them, a claim's status what was given.
Configurations are opaque: they are passed on to the drivers as they are.
"""

from typing import Any

import msgspec

from gantree.executors.kubernetes.apiserver.client import Resource
from gantree.executors.kubernetes.apiserver.objects import (
    Condition,
    Metadata,
    NodeSelector,
    Object,
)

GROUP_VERSION = "resource.k8s.io/v1"


class Attribute(Object, frozen=True):
    """One attribute of a device; exactly one field is set."""

    bool_: bool | None = msgspec.field(default=None, name="bool")
    int_: int | None = msgspec.field(default=None, name="int")
    string: str | None = None
    version: str | None = None


class CapacityRange(Object, frozen=True):
    """Amounts of a capacity that one claim may have."""

    min: str | float | None = None
    max: str | float | None = None
    step: str | float | None = None


class RequestPolicy(Object, frozen=True):
    """How much of a capacity one claim gets: the default where it asks for none."""

    default: str | float | None = None
    valid_values: tuple[str | float, ...] = ()
    valid_range: CapacityRange | None = None


class Amount(Object, frozen=True):
    """A quantity of the API, of a capacity or of a counter."""

    value: str | float = "0"
    request_policy: RequestPolicy | None = None


class CounterSet(Object, frozen=True):
    """What partitions of one piece of hardware share, or what a device uses of it (then counter_set names it)."""

    name: str = ""
    counter_set: str = ""
    counters: dict[str, Amount] = msgspec.field(default_factory=dict)


class DeviceTaint(Object, frozen=True):
    """What keeps claims off a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class SliceDevice(Object, frozen=True):
    """One device as its driver describes it. Where it is says it, if its slice leaves that to each."""

    name: str
    attributes: dict[str, Attribute] = msgspec.field(default_factory=dict)
    capacity: dict[str, Amount] = msgspec.field(default_factory=dict)
    consumes_counters: tuple[CounterSet, ...] = ()
    allow_multiple_allocations: bool = False
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    taints: tuple[DeviceTaint, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    binds_to_node: bool = False


class Pool(Object, frozen=True):
    """The pool that a slice is of: its newest generation counts, once all slices of it are there."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Object, frozen=True):
    """Devices of one driver, and where they are."""

    driver: str = ""
    pool: Pool = Pool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool = False
    devices: tuple[SliceDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object, frozen=True):
    """A part of a pool of devices."""

    metadata: Metadata
    spec: SliceSpec = SliceSpec()


class CelSelector(Object, frozen=True):
    """An expression in CEL that is true of the devices that are meant."""

    expression: str = ""


class Selector(Object, frozen=True):
    """Which devices are meant."""

    cel: CelSelector = CelSelector()


class ClassSpec(Object, frozen=True):
    """What devices of a class are like, how drivers set them up, and the extended resource that they serve."""

    selectors: tuple[Selector, ...] = ()
    extended_resource_name: str = ""
    config: tuple[dict[str, Any], ...] = ()


class DeviceClass(Object, frozen=True):
    """A kind of devices, as its administrator names it."""

    metadata: Metadata
    spec: ClassSpec = ClassSpec()


class DeviceToleration(Object, frozen=True):
    """A taint of devices that a request puts up with."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class CapacityAsked(Object, frozen=True):
    """How much of each capacity a device must have."""

    requests: dict[str, str | float] = msgspec.field(default_factory=dict)


class Exactly(Object, frozen=True):
    """Devices of a class: so many, or all. name is that of an alternative."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityAsked | None = None


class Request(Object, frozen=True):
    """One request of a claim: of one kind, or the first of some alternatives that can be had."""

    name: str = ""
    exactly: Exactly | None = None
    first_available: tuple[Exactly, ...] = ()


class Constraint(Object, frozen=True):
    """Devices of these requests (none named: of all) are equal in an attribute, or all different in one."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DevicesAsked(Object, frozen=True):
    """What a claim is for."""

    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[dict[str, Any], ...] = ()


class ClaimSpec(Object, frozen=True):
    """What a claim asks for; it never changes."""

    devices: DevicesAsked = DevicesAsked()


class Result(Object, frozen=True):
    """One device that a claim was given, or a share of it."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool = False
    share_id: str = msgspec.field(default="", name="shareID")
    consumed_capacity: dict[str, str | float] = msgspec.field(default_factory=dict)
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


class Results(Object, frozen=True):
    """All of them."""

    results: tuple[Result, ...] = ()


class Allocation(Object, frozen=True):
    """What a claim was given, and on which nodes that can be used (None: on all)."""

    devices: Results = Results()
    node_selector: NodeSelector | None = None


class Consumer(Object, frozen=True):
    """Who may use a claim."""

    resource: str = ""
    name: str = ""
    uid: str = ""
    api_group: str = ""


class DeviceStatus(Object, frozen=True):
    """How an allocated device is, as its driver or who attaches it says."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str = msgspec.field(default="", name="shareID")
    conditions: tuple[Condition, ...] = ()


class ClaimStatus(Object, frozen=True):
    """What became of a claim."""

    devices: tuple[DeviceStatus, ...] = ()
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(Object, frozen=True):
    """A ResourceClaim: requested and allocated devices."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


SLICES: Resource[ResourceSlice] = Resource(f"apis/{GROUP_VERSION}/resourceslices", ResourceSlice)
CLASSES: Resource[DeviceClass] = Resource(f"apis/{GROUP_VERSION}/deviceclasses", DeviceClass)
CLAIMS: Resource[ResourceClaim] = Resource(f"apis/{GROUP_VERSION}/resourceclaims", ResourceClaim)
