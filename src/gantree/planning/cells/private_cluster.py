"""The private cluster of a queue, searched for a placement: as it is, then with more and more guests removed.

GPUs outside of it are held by ELSEWHERE or not usable; nodes without GPUs belong to all queues. Removing more guests
never makes a gang fit worse, so the shortest sufficient run of guests, in some order, is found by trying 1, 3, 7, ...
and bisection.

The rest of a GPU outside of which a gang holds a part cannot be taken as a whole. So gangs that request parts are
placed on these tentatively, until a placement is found that is wholly inside, or none.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import inf

import numpy as np

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.cells.view import Binding, CellView
from gantree.topology.fabric.fabric import BoolArray, FloatArray
from gantree.topology.occupancy.occupancy import Occupancy

ELSEWHERE = "cells:elsewhere"
"""Owner of what is no part of a private cluster, in the occupancies that it is searched on."""


def orders(view: CellView, private: Sequence[Binding], job: Job) -> list[FloatArray]:
    """Orders in which to empty the private cluster, as a rank of each GPU, lowest first.

    Domain by domain, cheapest first, and in it node by node: what a gang of whole nodes needs. For members that are
    smaller than a node also with all GPUs alike, which leaves it to the harm of each guest.
    """
    node_of_gpu, nodes = view.cell_domains.node_of_gpu, len(view.cell_domains.fabric.nodes)
    rank = np.full(len(node_of_gpu), np.inf)
    costs = [float(view.cost_of_gpu[view.gpus_of([one])].sum()) for one in private]
    cheapest_first = sorted(range(len(private)), key=costs.__getitem__)
    cost_of_node = np.bincount(node_of_gpu, view.cost_of_gpu, minlength=nodes)
    place_of_node = np.empty(nodes)
    place_of_node[np.lexsort((np.arange(nodes), cost_of_node))] = np.arange(nodes)
    for position, number in enumerate(cheapest_first):
        gpus = view.gpus_of([private[number]])
        rank[gpus] = position * nodes + place_of_node[node_of_gpu[gpus]]
    smallest = min((role.shape.gpus for role in job.roles if role.shape.gpus), default=0)
    if smallest >= view.cell_domains.fabric.most_gpus_of_node:
        return [rank]
    return [rank, np.zeros(len(node_of_gpu))]


class PrivateCluster:
    """Searches on a private cluster with fewer and fewer guests in it; what is outside is held by ELSEWHERE."""

    def __init__(self, view: CellView, mask: BoolArray) -> None:
        """Wall in the GPUs of a mask."""
        self._view = view
        self._mask = mask
        self._inside = np.bincount(
            view.cell_domains.node_of_gpu[mask], minlength=len(view.cell_domains.fabric.nodes)
        )
        self._split = (self._inside > 0) & (self._inside < view.cell_domains.fabric.gpus_of_node)
        self._walled = self._wall()
        self.guests = self._guests()

    def places(
        self, job: Job, orders: Iterable[FloatArray], preferences: PlacementPreferences
    ) -> Iterator[Placement]:
        """For each order of GPUs, a placement without the shortest sufficient run of guests; one if none need leave."""
        if self._fits(self._walled, job):
            place = self._find(self._walled, job, preferences)
            assert place is not None, f"{job.name} fits and has no place"
            yield place
            return
        if not self.guests or not self._fits(self._without(self.guests), job):
            return
        for rank_of_gpu in orders:
            emptier = self._without(self._enough(job, self._ordered(rank_of_gpu)))
            place = self._find(emptier, job, preferences)
            assert place is not None, f"{job.name} fits and has no place"
            yield place

    def _fits(self, occupancy: Occupancy, job: Job) -> bool:
        """Whether a job has a place inside."""
        if any(role.shape.part for role in job.roles):
            return self._find(occupancy, job, DEFAULT_PREFERENCES) is not None
        return fits(occupancy, job)

    def _find(
        self, occupancy: Occupancy, job: Job, preferences: PlacementPreferences
    ) -> Placement | None:
        """A place inside; parts of GPUs outside that would be in it are taken, for the next search, too."""
        while (place := find(occupancy, job, preferences)) is not None:
            outside = [each for each in map(self._outside, place.members) if each is not None]
            if not outside:
                return place
            occupancy.take(ELSEWHERE, outside)
        return None

    def _outside(self, member: MemberPlacement) -> MemberPlacement | None:
        """The part of a GPU outside that a member holds; None for a member inside."""
        cell_domains = self._view.cell_domains
        first = int(cell_domains.first_gpu_of_node[cell_domains.fabric.index_of_node[member.node]])
        if all(self._mask[first + gpu] for gpu in member.parts):
            return None
        role = f"{member.role} elsewhere"
        return replace(
            member, role=role, gpus=(), nics=(), cpus=0.0, memory_GiB=0.0, devices=(), numa=()
        )

    def _ordered(self, rank_of_gpu: FloatArray) -> Sequence[str]:
        """Guests by the lowest rank among their GPUs, then by harm."""
        view = self._view
        rank = rank_of_gpu.tolist()
        key = {
            owner: min((rank[gpu] for gpu in view.gpus_of_owner[owner]), default=inf)
            for owner in self.guests
        }
        return sorted(self.guests, key=key.__getitem__)

    def _enough(self, job: Job, guests: Sequence[str]) -> Sequence[str]:
        """The shortest run of guests without which a job fits; all of them are known to suffice."""
        too_few, enough = self._bracket(job, guests)
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if self._fits(self._without(guests[:middle]), job):
                enough = middle
            else:
                too_few = middle
        return guests[:enough]

    def _bracket(self, job: Job, guests: Sequence[str]) -> tuple[int, int]:
        """(too few, enough) guests gone: 1, 3, 7, ... of them leave one emptied occupancy, which is cheap."""
        emptier, gone, step = self._walled.copy(), 0, 1
        while gone + step < len(guests):
            self._evict(emptier, guests[gone : gone + step])
            if self._fits(emptier, job):
                return gone, gone + step
            gone, step = gone + step, 2 * step
        return gone, len(guests)

    def in_the_way(self, placement: Placement) -> tuple[str, ...]:
        """Guests on GPUs of a place, then others on its nodes, until nothing of it is missing."""
        view = self._view
        used = np.zeros(len(self._mask), dtype=np.bool_)
        used[view.gpus_of_members(placement.members)] = True
        after = view.occupancy.copy()
        evicted: list[str] = []
        for owner in self._beside(placement, used):
            if not after.missing(placement.members):
                break
            after.give_back(owner)
            evicted.append(owner)
        missing = after.missing(placement.members)
        assert not missing, f"a place at home that is not free: {missing}"
        return tuple(evicted)

    def _beside(self, placement: Placement, used: BoolArray) -> Sequence[str]:
        """Guests on the nodes of a place, those on its GPUs first, then by harm."""
        view = self._view
        nodes = frozenset(member.node for member in placement.members)
        beside = [
            owner
            for owner in self.guests
            if any(member.node in nodes for member in view.occupancy.owners[owner])
        ]
        return sorted(
            beside, key=lambda owner: not any(used[gpu] for gpu in view.gpus_of_owner[owner])
        )

    def _guests(self) -> list[str]:
        """Owners that may leave and hold something on a node of the private cluster, least harm first."""
        view, index_of_node = self._view, self._view.cell_domains.fabric.index_of_node
        inside = (self._inside > 0).tolist()
        guests = [
            owner
            for owner, members in view.occupancy.owners.items()
            if owner in view.harm_of_owner
            and owner not in view.homes
            and any(inside[index_of_node[member.node]] for member in members)
        ]
        return sorted(guests, key=lambda owner: view.harm_of_owner[owner])

    def _wall(self) -> Occupancy:
        """The occupancy in which nothing outside the private cluster can be taken. Nodes without GPUs stay open."""
        view = self._view
        walled = view.occupancy.copy()
        outside = (
            (self._inside == 0) & (view.cell_domains.fabric.gpus_of_node > 0) & walled.usable_node
        )
        for node in np.flatnonzero(outside).tolist():
            walled.mark(view.cell_domains.fabric.nodes[node].name, usable=False, same_spares=True)
        self._block(walled, np.flatnonzero(self._split).tolist())
        return walled

    def _without(self, guests: Sequence[str]) -> Occupancy:
        """The private cluster with some guests gone."""
        emptier = self._walled.copy()
        self._evict(emptier, guests)
        return emptier

    def _evict(self, occupancy: Occupancy, guests: Sequence[str]) -> None:
        """Let guests go, and take what they leave outside the private cluster."""
        index_of_node = self._view.cell_domains.fabric.index_of_node
        nodes: dict[int, None] = {}
        for owner in guests:
            for member in occupancy.owners[owner]:
                nodes[index_of_node[member.node]] = None
            occupancy.give_back(owner)
        self._block(occupancy, [node for node in sorted(nodes) if self._split[node]])

    def _block(self, occupancy: Occupancy, nodes: Iterable[int]) -> None:
        """Take what is free on some nodes and not of the private cluster."""
        cell_domains = self._view.cell_domains
        for node in nodes:
            first, mask = (
                int(cell_domains.first_gpu_of_node[node]),
                occupancy.free_mask_of_node[node],
            )
            gpus = tuple(
                gpu
                for gpu in range(mask.bit_length())
                if mask >> gpu & 1 and not self._mask[first + gpu]
            )
            if gpus:
                name = cell_domains.fabric.nodes[node].name
                occupancy.take(ELSEWHERE, (MemberPlacement("elsewhere", first, name, gpus),))
