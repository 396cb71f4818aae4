"""Packs members at a site with typical members: on the node where future demand loses least.

The score is that of `placement.scoring.fragmentation`. Here it is put to work: `LeastLoss` chooses among nodes by their
states, wherever these come from; `Packing` is the index that keeps the states of an occupancy, following its change
log; and `best_node` is what a search asks. Whether a node has room for the member is the search's to know: it names the
nodes that do. How members that usually come are named is `placement.request.placement_preferences`.

How a cluster looks to the score:

    CPU, memory     what nobody holds, in milli CPUs and MiB, rounded down
    a GPU           one number, thousandths of it: 1000 where nobody holds anything, of a shared one what is left of
                    compute or memory, whichever is scarcer, 0 where nobody else may come. All models count alike.
    a node's kind   see `placement.scoring.demand_classes`
    other nodes     those that may not be used and those that are held back as spares have no GPU
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Self

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.machine.shares import Share, milli_left, share_on, sharing_of, tightest
from gantree.placement.request.placement_preferences import TypicalMember
from gantree.placement.scoring.demand_classes import Kinds, demand_of
from gantree.placement.scoring.fragmentation import Demand, Loss, NodeStates
from gantree.placement.scoring.fragmentation_state import FragmentationState, MemberDemand
from gantree.placement.scoring.share_prices import WHOLE_MILLI
from gantree.placement.scoring.simplex import FloatArray
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.occupancy.gpus.node_state import NodeState
from gantree.topology.occupancy.occupancy import UNCOUNTED, Occupancy

INDEX = "packing"
"""Key of the index beside an occupancy."""

MOST_SHAPES = 1024
"""Shapes of which is remembered what they ask, above which all are forgotten."""

Order = Callable[[IntArray], Iterator[int]]
"""Positions of nodes that are equally good, in the order in which they are taken."""


class LeastLoss:
    """Nodes, scored by what a member would take there from the demand to come.

    A caller reads `places`, chooses one, and reports it to `state.changed`. Nodes in equal states are scored once.
    """

    def __init__(self, demand: Demand, nodes: NodeStates) -> None:
        self.state = FragmentationState(demand, nodes)
        self._scratch: IntArray = np.empty(0, dtype=np.int64)

    def places(
        self, asked: Sequence[MemberDemand], nodes: Sequence[IntArray], order: Order
    ) -> Iterator[tuple[int, int]]:
        """Places for a member that asks asked[group] on nodes[group], best first: (node, thousandths left of the GPU).

        The GPU is the one that gives a share, the fullest in order for others. Places where the score sees no room are
        passed over.
        """
        every = nodes[0] if len(nodes) == 1 else np.concatenate(nodes)
        row_of_place, loss = self._losses(asked, nodes)
        while (least := loss.worth.min()) < np.inf:
            slot_value = np.where(loss.worth == least, loss.slot_value, np.inf)
            best = slot_value == slot_value.min()
            places = np.flatnonzero(best.any(axis=1)[row_of_place])
            for position in order(every[places]):
                place = int(places[position])
                node = int(every[place])
                for choice in np.flatnonzero(best[row_of_place[place]]).tolist():
                    yield node, self.state.gpu_left(node, choice)
            loss.worth[best] = np.inf

    def _losses(
        self, asked: Sequence[MemberDemand], nodes: Sequence[IntArray]
    ) -> tuple[IntArray, Loss]:
        """(row of each node of all groups, losses[row, choice]); one row for each state of a group."""
        rows, losses, first = [], [], 0
        for each, of_group in zip(asked, nodes, strict=True):
            numbers, row = self._distinct(of_group)
            rows.append(row + first)
            losses.append(self.state.losses(each, numbers))
            first += len(numbers)
        if len(losses) == 1:
            return rows[0], losses[0]
        choices = max(loss.worth.shape[1] for loss in losses)
        worth = np.vstack([_widened(loss.worth, choices) for loss in losses])
        slot_value = np.vstack([_widened(loss.slot_value, choices) for loss in losses])
        return np.concatenate(rows), Loss(worth, slot_value)

    def _distinct(self, nodes: IntArray) -> tuple[IntArray, IntArray]:
        """(numbers of the states of these nodes, position of each node's among them).

        Without a sort: a state stands at whichever of its nodes wrote itself last, and nothing is wiped in between.
        """
        if len(self._scratch) < self.state.states.count:
            self._scratch = np.empty(2 * self.state.states.count, dtype=np.int64)
        state_of_node, every = self.state.state_of_node[nodes], np.arange(len(nodes))
        self._scratch[state_of_node] = every
        numbers = state_of_node[self._scratch[state_of_node] == every]
        self._scratch[numbers] = every[: len(numbers)]
        return numbers, self._scratch[state_of_node]


def _widened(losses: FloatArray, choices: int) -> FloatArray:
    """Losses with columns of infinite ones added."""
    missing = choices - losses.shape[1]
    return np.pad(losses, ((0, 0), (0, missing)), constant_values=np.inf)


def best_node(
    occupancy: Occupancy, demand: tuple[TypicalMember, ...], shape: Shape, fitting: IntArray
) -> tuple[int, int | None]:
    """Of the nodes that have room for one member (rising, at least one) that where it takes least from those to come.

    The member has no MIG profile: which instance it gets decides more than which node (`placement.machine.mig`).
    With it comes the GPU that gives a share; None for other members. Of places of equal loss that one is taken around
    which domains are fullest, then the first. A share that the score sees no room for, because it is lopsided (much of
    the compute that is left of a GPU, little of its memory), goes by that order alone.
    """
    assert shape.mig is None, shape
    return packing(occupancy, demand).best_node(occupancy, shape, fitting)


def packing(occupancy: Occupancy, demand: tuple[TypicalMember, ...]) -> "Packing":
    """The current index of a demand, kept beside the occupancy."""
    index = occupancy.indexes.get(INDEX)
    if isinstance(index, Packing) and (index.typical is demand or index.typical == demand):
        return index.follow(occupancy)
    made = occupancy.indexes[INDEX] = Packing(demand, occupancy)
    return made


class Packing:
    """The nodes of an occupancy as the score sees them; current after `follow`."""

    def __init__(self, typical: tuple[TypicalMember, ...], occupancy: Occupancy) -> None:
        self.typical = typical
        self._kinds = Kinds.of(occupancy.fabric, typical)
        self._gpus = int(occupancy.fabric.gpus_of_node.max())
        self._asked: dict[Shape, tuple[MemberDemand, ...]] = {}
        self._row_of_mask: dict[int, tuple[int, ...]] = {}
        every = range(len(occupancy.fabric.nodes))
        self._least = LeastLoss(
            demand_of(typical, occupancy.fabric), self._states(occupancy, every)
        )
        self._seen = occupancy.version

    def follow(self, occupancy: Occupancy) -> Self:
        """Look again at the nodes that changed since the last time."""
        changed = occupancy.log.since(self._seen)
        if changed is None:
            changed = range(len(occupancy.fabric.nodes))
        if changed:
            nodes = np.array(changed, dtype=np.int64)
            self._least.state.changed(nodes, self._states(occupancy, changed))
        self._seen = occupancy.version
        return self

    def check(self, occupancy: Occupancy) -> None:
        """Look at all nodes again; AssertionError where the index says otherwise."""
        self.follow(occupancy)
        state = self._least.state
        fresh = self._states(occupancy, range(len(occupancy.fabric.nodes)))
        stale = np.flatnonzero(state.states.numbers(fresh) != state.state_of_node)
        assert not len(stale), f"packing of nodes {stale.tolist()} is stale"

    def best_node(
        self, occupancy: Occupancy, shape: Shape, fitting: IntArray
    ) -> tuple[int, int | None]:
        """See `best_node`."""

        def order(nodes: IntArray) -> Iterator[int]:
            return _fullest_domains_first(occupancy, nodes)

        asked, groups = self._grouped(shape, fitting)
        for node, left in self._least.places(asked, groups, order):
            if not shape.part:
                return node, None
            gpu = _gpu_with(occupancy.state_of_node(node), shape, left)
            if gpu is not None:
                return node, gpu
        node = int(fitting[next(order(fitting))])
        return node, _tightest_gpu(occupancy.state_of_node(node), shape) if shape.part else None

    def _grouped(self, shape: Shape, nodes: IntArray) -> tuple[list[MemberDemand], list[IntArray]]:
        """What the member asks, with the nodes on which it asks that."""
        asked_of_kind = self._asked.get(shape)
        if asked_of_kind is None:
            if len(self._asked) >= MOST_SHAPES:
                self._asked.clear()
            asked_of_kind = self._asked[shape] = self._kinds.asked(shape)
        distinct = dict.fromkeys(asked_of_kind)
        if len(distinct) == 1:
            return [asked_of_kind[0]], [nodes]
        kind_of_node = self._kinds.of_node[nodes]
        node_of_asked = {
            asked: nodes[
                np.isin(kind_of_node, [k for k, a in enumerate(asked_of_kind) if a == asked])
            ]
            for asked in distinct
        }
        groups = [(asked, of_it) for asked, of_it in node_of_asked.items() if len(of_it)]
        return [asked for asked, _ in groups], [of_it for _, of_it in groups]

    def _states(self, occupancy: Occupancy, nodes: Sequence[int]) -> NodeStates:
        """What is left on these nodes."""
        index = np.array(nodes, dtype=np.int64)
        usable = occupancy.usable_node & ~occupancy.held_back_node
        none = (0,) * self._gpus
        gpu_milli = [
            self._left_of_gpus(occupancy, node) if usable[node] else none for node in nodes
        ]
        return NodeStates(
            _counted(occupancy.free_microcpus_of_node[index]) // 1000,
            _counted(occupancy.free_memory_KiB_of_node[index]) // 1024,
            self._kinds.of_node[index],
            np.array(gpu_milli, dtype=np.int64).reshape(len(index), self._gpus),
        )

    def _left_of_gpus(self, occupancy: Occupancy, node: int) -> tuple[int, ...]:
        """Thousandths left of each GPU of a node, and 0 for those that larger nodes have."""
        mask, cut = occupancy.free_mask_of_node[node], occupancy.parts_of_node.get(node)
        row = self._row_of_mask.get(mask)
        if row is None:
            row = tuple(WHOLE_MILLI * (mask >> gpu & 1) for gpu in range(self._gpus))
            self._row_of_mask[mask] = row
        if cut is None:
            return row
        sharing = sharing_of(occupancy.state_of_node(node).rules)
        of_cut = [free or milli_left(sharing, gpu) for free, gpu in zip(row, cut, strict=False)]
        return (*of_cut, *row[len(of_cut) :])


def _gpu_with(state: NodeState, shape: Shape, left: int) -> int | None:
    """The first GPU that has so much left and takes the share; None where tenants share those in another way."""
    sharing = sharing_of(state.rules)
    for number, gpu in enumerate(state.for_shares()):
        if milli_left(sharing, gpu) == left and share_on(state, shape, number) is not None:
            return number
    return None


def _tightest_gpu(state: NodeState, shape: Shape) -> int | None:
    sharing = sharing_of(state.rules)
    share = Share.of(sharing, shape, apart=False)
    return None if share is None else tightest(state, sharing, share)


def _fullest_domains_first(occupancy: Occupancy, nodes: IntArray) -> Iterator[int]:
    """Positions of nodes by the free GPUs of their narrowest domains, then of wider ones, fewest first, then as given.

    The first is found without a sort; hardly anyone asks for another.
    """
    fabric = occupancy.fabric
    free = [
        occupancy.free_gpus_in_domain(tier)[fabric.domain_of_node[tier][nodes]]
        for tier in range(1, fabric.node_tier)
    ]
    first = np.arange(len(nodes))
    for free_around in reversed(free):
        around = free_around[first]
        first = first[around == around.min()]
    yield int(first[0])
    yield from np.lexsort([np.arange(len(nodes)), *free])[1:].tolist()


def _counted(free: IntArray) -> IntArray:
    """Free amounts, where a resource that the site does not count is always as plentiful."""
    return np.where(free > UNCOUNTED // 2, UNCOUNTED, free)
