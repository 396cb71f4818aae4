"""Places a gang that fits on one node directly from free resources, without a slot table.

Half of what comes has one member. For these, and for small gangs, each resource is one comparison over all nodes; the
nodes with the fewest free GPUs that suffice are then found by trying numbers from the least on. Of these nodes the one
in the fullest domain is taken, among the first in topology order: so what is taken moves together at one end of the
fabric, and whole domains stay free at the other. The next of the same kind then goes beside it
(`placement.counting.last_node_cache`).
"""

from gantree.placement.counting.last_node_cache import cache_tightest_node, cached_tightest_node
from gantree.placement.slots.gpu_splitting import IncomingMembers, least_split
from gantree.placement.slots.parts import is_apart
from gantree.placement.slots.problem import Problem
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.occupancy.occupancy import memory_KiB, microcpus

NODES_COMPARED = 2048
"""Nodes, from the first equally tight one on, among which the fullest domain is looked for."""


def is_plain_inside(problem: Problem) -> bool:
    """Whether nothing but amounts decides if the one role fits a node: no request inside it, no parts, no limits."""
    request, role = problem.request, problem.request.roles[0]
    shape = role.shape
    if request.together is not None or role.layers or shape.part or shape.memory_GBps:
        return False
    if shape.gpus * role.members > problem.fabric.most_gpus_of_node:
        return False
    return not role.most_in_domain or role.most_in_domain[-1] >= role.members


def tightest_node(problem: Problem) -> int | None:
    """The node that holds the one role whole and has fewest free GPUs; None where none does."""
    node = cached_tightest_node(problem)
    if node is None:
        node = tightest_anew(problem)
        cache_tightest_node(problem, node)
    return node


def tightest_anew(problem: Problem) -> int | None:
    """As `tightest_node`, looking at all nodes."""
    members, shape = problem.members[0], problem.request.roles[0].shape
    occupancy, fabric = problem.occupancy, problem.fabric
    fits = _admitted(problem)
    if shape.cpus:
        fits = fits & (occupancy.free_microcpus_of_node >= members * microcpus(shape.cpus))
    if shape.memory_GiB:
        fits = fits & (occupancy.free_memory_KiB_of_node >= members * memory_KiB(shape.memory_GiB))
    if shape.nics:
        fits = fits & (occupancy.free_nics_of_node >= members * shape.nics)
    for name, count in shape.scarce:
        fits = fits & (occupancy.devices.free(name) >= members * count)
    free = occupancy.free_gpus_of_node
    for gpus in range(members * shape.gpus, fabric.most_gpus_of_node + 1):
        found = _first_in_fullest(problem, fits & (free == gpus))
        if found is not None:
            return found
    return None


def tightest_of(problem: Problem, fits: BoolArray) -> int:
    """Of the nodes that hold the gang, at least one, that with fewest free GPUs, in the fullest domain.

    Members with parts of GPUs first look at what they break there.
    """
    role = problem.request.roles[0]
    if role.shape.part:
        incoming = IncomingMembers(role.shape, problem.members[0], is_apart(problem.request))
        fits = least_split(problem.occupancy, incoming, fits)
    free = problem.occupancy.free_gpus_of_node
    found = _first_in_fullest(problem, fits & (free == free[fits].min()))
    assert found is not None, "some node holds the gang"
    return found


def _admitted(problem: Problem) -> BoolArray:
    """Nodes that may be used for the one role at all."""
    occupancy, fabric = problem.occupancy, problem.fabric
    shape, models = problem.request.roles[0].shape, problem.models_of_role[0]
    admitted = occupancy.usable_node
    if fabric.cluster.spares:
        admitted = admitted & ~occupancy.held_back_node
    if shape.labels or models or fabric.has_spot or fabric.has_taints:
        admitted = admitted & fabric.nodes_with(shape.labels, models)
    among = problem.among_of(0)
    if among is not None:
        admitted = admitted & fabric.nodes_named[among]
    return admitted


def _first_in_fullest(problem: Problem, fits: BoolArray) -> int | None:
    first = int(fits.argmax())
    if not fits[first]:
        return None
    nodes = fits[first : first + NODES_COMPARED].nonzero()[0] + first
    if len(nodes) == 1:
        return first
    fabric = problem.fabric
    above = fabric.node_tier - 1
    around = problem.occupancy.free_gpus_in_domain(above)[fabric.domain_of_node[above][nodes]]
    return int(nodes[around.argmin()])
