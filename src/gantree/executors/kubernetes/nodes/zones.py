"""Which GPUs of a node are on one socket, by its NodeResourceTopology: the zones that an agent on the node tells
(Node Feature Discovery's topology updater, or a resource topology exporter).

Names are those of k8stopologyawareschedwg/noderesourcetopology-api `pkg/apis/topology/v1alpha2/types.go`. Zones of type
`Node` are NUMA nodes, `node-0`, `node-1`, ...; each tells how much it has of every resource, and how far it is from the
others. Where device plugins count the GPUs, a zone tells a number of them and not which: positions are given out zone
by zone. So `required: socket` is right by counts, as all of gantree's is with device plugins; which GPUs a pod gets is
the kubelet's choice, and its Topology Manager's, if its policy keeps to zones.

NUMA nodes nearer to each other than Linux takes two sockets to be (`REMOTE_DISTANCE`) are of one socket, which some
machines show as several. What of a zone is free is not read: it changes with every pod.
"""

import re
from collections.abc import Sequence
from typing import Any

from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.pods.gang_spec import (
    GroupKind,
    InvalidObject,
    Spec,
    number,
    tables,
    text,
)
from gantree.model.jobs import GPU_RESOURCES
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

ZONES = GroupKind("topology.node.k8s.io", "noderesourcetopologies", ("v1alpha2", "v1alpha1"))
NUMA_NODE = "Node"
REMOTE = 20
"""Distance from which on Linux takes NUMA nodes for remote; of one to itself it is 10."""
MOST_GPUS = 1024
_NUMBER = re.compile(r"([0-9]{1,4})$")


class NodeZones(Group, frozen=True, dict=True, gc=True):
    """A NodeResourceTopology: it has the name of its node. Its dict keeps what was read of it."""

    zones: Any = None


def sockets_of(node: NodeZones) -> tuple[int, ...]:
    """The number of the socket of each GPU of a node. Raises InvalidObject."""
    kept: dict[str, tuple[int, ...]] = node.__dict__
    if "sockets" not in kept:
        kept["sockets"] = _sockets_of(tables({"zones": node.zones}, "zones"))
    return kept["sockets"]


def has_equal_zones(before: Group | None, after: Group | None) -> bool:
    """Whether two states of such an object tell the same."""
    return _told(before) == _told(after)


def _told(node: Group | None) -> tuple[int, ...] | None:
    try:
        return sockets_of(node) if isinstance(node, NodeZones) else None
    except InvalidObject:
        return None


def _sockets_of(told: Sequence[Spec]) -> tuple[int, ...]:
    zones = sorted((zone for zone in told if text(zone, "type") == NUMA_NODE), key=_place)
    gpus = [_gpus(zone) for zone in zones]
    if sum(gpus) > MOST_GPUS:
        raise InvalidObject(f"its zones have {sum(gpus)} GPUs")
    return tuple(
        socket for socket, count in zip(_sockets(zones), gpus, strict=True) for _ in range(count)
    )


def _place(zone: Spec) -> int:
    """Return the number in the name of a zone; zones without one sort first, in their order."""
    found = _NUMBER.search(text(zone, "name") or "")
    return int(found[1]) if found else -1


def _gpus(zone: Spec) -> int:
    told = (each for each in tables(zone, "resources") if text(each, "name") in GPU_RESOURCES)
    return sum(int(quantity(str(each.get("capacity"))) or 0) for each in told)


def _sockets(zones: Sequence[Spec]) -> list[int]:
    """The socket of each zone: that of the first zone that is near to it, which may be itself."""
    near = [
        {text(each, "name") for each in tables(zone, "costs") if _is_near(each)} for zone in zones
    ]
    names = [text(zone, "name") for zone in zones]
    sockets: list[int] = []
    for zone, name in enumerate(names):
        before = (
            other for other in range(zone) if names[other] in near[zone] or name in near[other]
        )
        first = next(before, None)
        sockets.append(zone if first is None else sockets[first])
    return sockets


def _is_near(cost: Spec) -> bool:
    value = number(cost, "value")
    return value is not None and value < REMOTE
