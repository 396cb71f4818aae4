"""The topology request of a gang as constraints of CP-SAT: members per node, domains used, slices, spreading.

x[role][node] are members, integer variables or sums of them. used[tier][domain] is true exactly where a member is
inside. The constraints are those of `placement.request.topology_request`: the members of each role, a multiple of the
slice in every domain, all members of a role or none where one domain is required, at most so many in a domain where
they are spread. What fits on a node is constrained elsewhere (`options`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.topology.fabric.fabric import Fabric

MembersOnNode = Mapping[int, Any]
"""x[node] of one role: a variable, or a sum of them; nodes that are not there hold none."""


@dataclass(frozen=True, slots=True)
class UsedDomains:
    """used[tier][domain]: whether a member is in a domain; only domains of nodes that could hold one have an entry."""

    used: tuple[Mapping[int, Any], ...]

    def domains(self, tier: int) -> Any:
        """Return the number of domains of a tier that the gang uses."""
        return sum(self.used[tier].values())


def constrain_to_request(
    model: Any,
    fabric: Fabric,
    request: TopologyRequest,
    x: Sequence[MembersOnNode],
    used_nodes: Mapping[int, Any],
    present: Any,
) -> UsedDomains:
    """Constrain x to what a gang requests; present is true where the gang is placed at all (else x is 0).

    used_nodes[node] is true exactly where some member is on the node.
    """
    used = _used(model, fabric, used_nodes)
    for role, members in zip(request.roles, x, strict=True):
        model.add(sum(members.values()) == role.members * present)
        for tier in range(1, fabric.node_tier + 1):
            for domain, inside in _by_domain(fabric, tier, members).items():
                _bind_domain(model, role, tier, sum(inside), f"{role.name}/{tier}/{domain}")
    if request.whole_at:
        model.add(sum(used[request.whole_at].values()) <= 1)
    return UsedDomains(used)


def _used(
    model: Any, fabric: Fabric, used_nodes: Mapping[int, Any]
) -> tuple[Mapping[int, Any], ...]:
    """used[tier][domain], from the nodes up."""
    used: list[Mapping[int, Any]] = [used_nodes]
    for tier in range(fabric.node_tier - 1, -1, -1):
        children = _by_domain(fabric, tier, used_nodes)
        of_tier = {}
        for domain, inside in children.items():
            of_tier[domain] = model.new_bool_var(f"used/{tier}/{domain}")
            model.add_max_equality(of_tier[domain], inside)
        used.append(of_tier)
    return tuple(reversed(used))


def _by_domain(fabric: Fabric, tier: int, of_node: Mapping[int, Any]) -> dict[int, list[Any]]:
    """Group values of nodes by domain of a tier."""
    inside: dict[int, list[Any]] = {}
    for node, said in of_node.items():
        inside.setdefault(int(fabric.domain_of_node[tier][node]), []).append(said)
    return inside


def _bind_domain(model: Any, role: RoleRequest, tier: int, inside: Any, name: str) -> None:
    """Add the constraints of a request on the members of one role inside one domain."""
    multiple = role.multiple_in_domain[tier]
    if multiple > 1:
        slices = model.new_int_var(0, role.members // multiple, f"slices/{name}")
        model.add(inside == multiple * slices)
    if role.whole_at == tier:
        whole = model.new_bool_var(f"whole/{name}")
        model.add(inside == role.members * whole)
    if role.most_in_domain and role.most_in_domain[tier] < role.members:
        model.add(inside <= role.most_in_domain[tier])


def weights_of_tiers(fabric: Fabric, members: int) -> list[int]:
    """weight[tier] by which one domain more of a tier outweighs all that could be saved below it; 0 for the fabric."""
    weights, weight = [0] * (fabric.node_tier + 1), 1
    for tier in range(fabric.node_tier, 0, -1):
        weights[tier] = weight
        weight *= min(members, fabric.domains(tier)) + 1
    return weights


def domains_spanned(fabric: Fabric, nodes: Sequence[int]) -> tuple[int, ...]:
    """Domains of each tier that nodes lie in, widest first, the fabric left out."""
    index = np.array(nodes, dtype=np.int64)
    return tuple(
        len(set(fabric.domain_of_node[tier][index].tolist()))
        for tier in range(1, fabric.node_tier + 1)
    )
