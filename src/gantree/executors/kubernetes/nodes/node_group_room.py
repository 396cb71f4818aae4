"""Whether a gang would fit on new nodes of a node group: the nodes that it may have, alone and empty, as a site.

They stand in one domain of each tier for which their labels say no other. Constraints about other pods and volumes are
not looked at; they are checked when the nodes are there.
"""

from collections.abc import Iterable, Sequence

from gantree.executors.kubernetes.apiserver.objects import (
    Metadata,
    Node,
    NodeSpec,
    NodeStatus,
    NodeTaint,
)
from gantree.executors.kubernetes.nodes.site import SiteReading, site_of
from gantree.executors.kubernetes.nodes.topologies import NodeTopologies
from gantree.executors.kubernetes.workloads.gangs import Gang, job_of
from gantree.model.errors import GantreeError
from gantree.model.node_groups import NodeGroup
from gantree.placement.choice.search import fits
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

NODE, NVLINK = "node", "nvlink"


def groups_with_room(
    gang: Gang, groups: Sequence[NodeGroup], site: SiteReading, levels: Sequence[str]
) -> list[NodeGroup]:
    """The groups of which new nodes hold a gang, in their order."""
    return [group for group in groups if _has_room(gang, group, site, levels)]


def _has_room(gang: Gang, group: NodeGroup, site: SiteReading, levels: Sequence[str]) -> bool:
    """Whether a gang fits. A topology that these nodes cannot have, or odd labels, are no room."""
    asked = NodeTopologies(asked=tuple(sorted(site.asked)))
    try:
        empty = site_of(group.name, _nodes(group, _keys_of_tiers(site)), levels, asked)
        spec, barred, _ = job_of(gang, empty.tier, gang.key[0])
        return not barred and fits(Occupancy(Fabric.build(empty.cluster)), spec)
    except GantreeError:
        return False


def _keys_of_tiers(site: SiteReading) -> list[str]:
    """The label keys that say where nodes stand, above the node and its NVLink domain."""
    tiers = set(site.cluster.tiers) - {NODE, NVLINK}
    return [key for key, tier in site.tier_of_key.items() if tier in tiers]


def _nodes(group: NodeGroup, keys: Iterable[str]) -> list[Node]:
    labels = {**dict.fromkeys(keys, group.name), **dict(group.labels)}
    amounts: dict[str, str | float] = dict(group.allocatable)
    taints = tuple(NodeTaint(each.key, each.value, each.effect) for each in group.taints)
    return [
        Node(
            Metadata(f"{group.name}-{number}", labels=labels),
            NodeSpec(taints=taints),
            NodeStatus(amounts, amounts),
        )
        for number in range(group.max_nodes)
    ]
