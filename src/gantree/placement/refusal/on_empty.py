"""What the empty, healthy fabric could hold; cached, because every refusal needs it.

The memory lies beside `Occupancy.emptied()`, which never changes.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gantree.model.jobs import Shape
from gantree.placement.counting.solve import solvable, solve
from gantree.placement.members.members import placement_of
from gantree.placement.request.topology_request import RoleRequest, TopologyRequest
from gantree.placement.slots.slots import slots_of
from gantree.topology.fabric.fabric import BoolArray
from gantree.topology.occupancy.occupancy import Occupancy

MOST_REMEMBERED = 4096
"""Answers of each kind; then all are forgotten."""


@dataclass(frozen=True, slots=True)
class Eligible:
    """Nodes that could hold a member of a role if they were empty, as a mask; some, every: whether any or all can."""

    nodes: BoolArray
    some: bool
    every: bool

    @classmethod
    def of(cls, nodes: BoolArray) -> "Eligible":
        """These nodes."""
        return cls(nodes, bool(nodes.any()), bool(nodes.all()))


@dataclass(slots=True)
class OnEmpty:
    """Answers for one fabric."""

    empty: Occupancy
    _holds: dict[TopologyRequest, bool] = field(default_factory=dict)
    _best_comm_s: dict[TopologyRequest, float | None] = field(default_factory=dict)
    _eligible: dict[Shape, Eligible] = field(default_factory=dict)

    @classmethod
    def of(cls, occupancy: Occupancy) -> "OnEmpty":
        """The answers kept for the fabric of an occupancy."""
        empty = occupancy.emptied()
        kept = empty.indexes.get(_KEPT)
        if not isinstance(kept, OnEmpty):
            kept = empty.indexes[_KEPT] = OnEmpty(empty)
        return kept

    def check(self, occupancy: Occupancy) -> None:
        """AssertionError if a cached answer differs from a recomputed one."""
        assert occupancy is self.empty, "kept beside another occupancy"
        for request, holds in self._holds.items():
            assert holds == solvable(occupancy, request), f"whether {request} fits is stale"

    def holds(self, request: TopologyRequest) -> bool:
        """Whether a gang has a place there."""
        answer = self._holds.get(request)
        if answer is None:
            _make_room(self._holds)
            answer = self._holds[request] = solvable(self.empty, request)
        return answer

    def best_comm_s(self, request: TopologyRequest) -> float | None:
        """Predicted communication time of the best place there; None where there is none."""
        if request not in self._best_comm_s:
            _make_room(self._best_comm_s)
            best = solve(self.empty, request) if self.holds(request) else None
            comm_s = None if best is None else placement_of(*best).predicted.comm_s
            self._best_comm_s[request] = comm_s
        return self._best_comm_s[request]

    def eligible(self, role: RoleRequest) -> Eligible:
        """Nodes that could hold a member."""
        answer = self._eligible.get(role.shape)
        if answer is None:
            _make_room(self._eligible)
            nodes: BoolArray = slots_of(self.empty, role.shape, role.shape.models).of_node > 0
            answer = self._eligible[role.shape] = Eligible.of(nodes)
        return answer


_KEPT = "what the empty fabric holds"


def _make_room(answers: dict[Any, Any]) -> None:
    if len(answers) >= MOST_REMEMBERED:
        answers.clear()


def union(eligible: list[Eligible]) -> Eligible:
    """Nodes that could hold a member of any of several roles."""
    if len(eligible) == 1 or any(each.every for each in eligible):
        return next((each for each in eligible if each.every), eligible[0])
    nodes: BoolArray = np.logical_or.reduce([each.nodes for each in eligible])
    return Eligible.of(nodes)
