"""Parts of GPUs for the members of one node: how many members fit, and which part each gets.

Instances of MIG are chosen in `placement.machine.mig`, shares in `placement.machine.shares`; here is what they have in
common: members and roles are served one after the other on the state of a node, which is a value, and ranks that talk
to each other are kept on GPUs of their own. NCCL refuses two ranks on one GPU, be they on MIG instances of it or not:
its `init.cc` compares the bus ids of ranks on one host and ends with "Duplicate GPU detected" (ncclInvalidUsage), and
the instances of a GPU have its bus id.

Larger profiles are placed before smaller ones. Where several roles then find no room, members that must be apart are
matched to GPUs exactly; others are tried in other places, a limited number of times, so that for several profiles at
once on one node a possible arrangement may, rarely, be missed. For one profile or share the count is exact.
"""

from collections.abc import Hashable, Iterator, Sequence
from functools import lru_cache

from gantree.model.jobs import Shape
from gantree.model.placements import MigPart, SharePart
from gantree.placement.machine import mig, shares
from gantree.placement.request.topology_request import TopologyRequest
from gantree.topology.hardware.masks import gpus_of
from gantree.topology.occupancy.gpus.gpu_state import PartRules
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import Occupancy

Part = MigPart | SharePart
Asked = Sequence[tuple[Shape, int]]
"""(shape of a member with a part of a GPU, number of members), per role."""
Chosen = tuple[tuple[Part, ...], ...]
"""Per role the part of each member."""

MOST_TRIES = 512
"""Members placed in vain before a node is given up as too full for several profiles."""


@lru_cache(maxsize=1 << 16)
def members_of_part(state: NodeState, shape: Shape, apart: bool, within: int = -1) -> int:
    """How many members of a shape with a part find GPUs on a node; other resources are not counted.

    apart: they are ranks that talk to each other, each on a physical GPU of its own. within is the mask of the GPUs
    that may be used.
    """
    if shape.mig is not None:
        return mig.count(state, shape.mig, apart, within)
    return shares.count(state, shape, apart, within)


def equivalence_key(occupancy: Occupancy, node: int, shape: Shape) -> Hashable:
    """Return a key that is equal for nodes that hold equally many members with a part; cheap for whole nodes."""
    rules = occupancy.fabric.nodes[node]
    use = occupancy.host.numa_of_node.get(node) if shape.memory_GBps else None
    return (
        int(occupancy.fabric.machine_index_of_node[node]),
        rules.mig_by == "gpu" or occupancy.state_of_node(node).recut,
        rules.shares,
        rules.tenants,
        occupancy.parts_of_node.get(node, occupancy.free_mask_of_node[node]),
        use,
    )


def is_apart(request: TopologyRequest) -> bool:
    """Whether the members of a gang that have GPUs, or parts of them, must be on different ones; one alone need not."""
    with_gpus = sum(role.members for role in request.roles if role.shape.on_gpus)
    return request.one_member_per_gpu and with_gpus > 1


def choose_parts(
    state: NodeState, asked: Asked, apart: bool, excluded: int = 0, sparing: bool = False
) -> tuple[Chosen, NodeState] | None:
    """A part for each member of each role, with the node's state after; None where they do not all fit.

    excluded is a mask of GPUs that are not to be used. sparing: GPUs that others could have whole are broken into last,
    even where more must be cut then.
    """
    return _chosen(state, tuple(asked), apart, excluded, sparing)


@lru_cache(maxsize=1 << 14)
def _chosen(
    state: NodeState,
    asked: tuple[tuple[Shape, int], ...],
    apart: bool,
    excluded: int,
    sparing: bool,
) -> tuple[Chosen, NodeState] | None:
    order = sorted(range(len(asked)), key=lambda role: _size(state.rules, asked[role][0]))
    members = [asked[role][0] for role in order for _ in range(asked[role][1])]
    found = _one_by_one(state, members, apart, excluded, sparing)
    if found is None and len(asked) > 1:
        search = _matched if apart else _tried
        found = search(state, members, excluded)
    if found is None:
        return None
    parts = iter(found)
    of_role = {role: tuple(next(parts) for _ in range(asked[role][1])) for role in order}
    return tuple(of_role[role] for role in range(len(asked))), _after(state, found)


def _size(rules: PartRules, shape: Shape) -> tuple[int, bool, float]:
    """Return the order of placement: instances by memory slices, then shares of one isolation, by compute and memory.

    The larger first; who admits any way of sharing joins those who do not.
    """
    if shape.mig is None:
        part = max(shape.gpu_share or 0.0, (shape.gpu_memory_GiB or 0.0) / 1024)
        return 0, shape.isolation is None, -part
    if not mig.has_profile(rules.table, shape.mig):
        return 0, False, 0.0
    assert rules.table is not None
    return -rules.table.profile(shape.mig).memory_slices, False, 0.0


def _one_by_one(
    state: NodeState, members: Sequence[Shape], apart: bool, excluded: int, sparing: bool
) -> list[Part] | None:
    """The best part for each member in turn."""
    found: list[Part] = []
    for shape in members:
        part = best_part(state, shape, apart, excluded, sparing)
        if part is None:
            return None
        found.append(part)
        state = with_part(state, part)
        if apart:
            excluded |= 1 << part.gpu
    return found


def best_part(
    state: NodeState, shape: Shape, apart: bool, excluded: int = 0, sparing: bool = False
) -> Part | None:
    """The part that one member gets, None where there is none; excluded and sparing as in `choose_parts`."""
    if shape.mig is not None:
        return mig.best_part(state, shape.mig, excluded, sparing)
    chosen = shares.choose(state, shape, 1, apart, gpus_of(excluded))
    return None if chosen is None else chosen[0]


def with_part(state: NodeState, part: Part) -> NodeState:
    """The state of a node with a part held."""
    return state.take_instance(part) if isinstance(part, MigPart) else state.take_share(part)


def _after(state: NodeState, parts: Sequence[Part]) -> NodeState:
    for part in parts:
        state = with_part(state, part)
    return state


def _matched(state: NodeState, members: Sequence[Shape], excluded: int) -> list[Part] | None:
    """A GPU of its own for each member, by augmenting paths; on it the best part."""
    every = (1 << len(state.gpus)) - 1
    fits = [
        [
            gpu
            for gpu in range(len(state.gpus))
            if not excluded >> gpu & 1 and best_part(state, shape, True, every ^ 1 << gpu)
        ]
        for shape in members
    ]
    member_of_gpu: dict[int, int] = {}

    def seated(member: int, asked: set[int]) -> bool:
        for gpu in fits[member]:
            if gpu not in asked:
                asked.add(gpu)
                if gpu not in member_of_gpu or seated(member_of_gpu[gpu], asked):
                    member_of_gpu[gpu] = member
                    return True
        return False

    if not all(seated(member, set()) for member in range(len(members))):
        return None
    gpu_of_member = {member: gpu for gpu, member in member_of_gpu.items()}
    return [
        part
        for member, shape in enumerate(members)
        if (part := best_part(state, shape, True, every ^ 1 << gpu_of_member[member]))
    ]


def _tried(state: NodeState, members: Sequence[Shape], excluded: int) -> list[Part] | None:
    """Some arrangement of members that may share GPUs, going back where the rest then finds no room."""
    tries = iter(range(MOST_TRIES))

    def arranged(state: NodeState, at: int) -> list[Part] | None:
        if at == len(members):
            return []
        for part in _alternatives(state, members[at], excluded):
            if next(tries, None) is None:
                return None
            rest = arranged(with_part(state, part), at + 1)
            if rest is not None:
                return [part, *rest]
        return None

    return arranged(state, 0)


def _alternatives(state: NodeState, shape: Shape, excluded: int) -> Iterator[Part]:
    """Yield the best part on each GPU, one of GPUs in equal states; of MIG instances every start."""
    every, seen = (1 << len(state.gpus)) - 1, set()
    for gpu, here in enumerate(state.gpus):
        if here in seen or excluded >> gpu & 1:
            continue
        seen.add(here)
        if shape.mig is not None:
            yield from mig.parts_on(state, gpu, shape.mig)
        else:
            part = best_part(state, shape, False, every ^ 1 << gpu)
            if part is not None:
                yield part
