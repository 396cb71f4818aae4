"""Defragmentation as one question to CP-SAT: which running gangs to move, and where to, so that a wanted gang fits.

Each movable gang either keeps its placement or gets a new one: members per node are variables, its request is a set of
constraints (`gang_constraints`). On each node, new and kept members use no more than is free without all movable gangs.
The plan with the least GPU-seconds of moving wins; among equals the fewest gangs, then the fewest domains.

Counts of GPUs, NICs, cores and memory per node are not sufficient: requests for tiers inside a node, or several gangs
on it, may still conflict. So the plan is carried out member by member on a copy of the occupancy. A node where that
fails becomes a constraint, and the model is solved again. All moved gangs stop before any of them starts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.members.members import placement_of
from gantree.placement.members.on_node import inside_node
from gantree.placement.optimum.gang_constraints import (
    UsedDomains,
    constrain_to_request,
    weights_of_tiers,
)
from gantree.placement.optimum.solver import Answer, Work, cp_model, solved
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Counts, Problem, Spread
from gantree.topology.occupancy.occupancy import Occupancy, memory_KiB, microcpus

MOST_TRIES = 32
"""Plans that fail inside a node before it is given up."""
COST_UNITS = 1000
"""Costs are whole thousandths of a GPU-second in the model."""


@dataclass(frozen=True, slots=True)
class Movable:
    """A running gang (its owner in the occupancy), and the GPU-seconds that it loses if it moves."""

    owner: str
    job: Job
    cost_gpu_s: float


@dataclass(frozen=True, slots=True)
class Move:
    """The new placement of a gang that moves."""

    owner: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Moves:
    """Where the wanted gang goes, and what moves for it. proven: no plan costs less."""

    placement: Placement
    moves: tuple[Move, ...]
    cost_gpu_s: float
    proven: bool


def defragmented(
    occupancy: Occupancy, movable: Sequence[Movable], wanted: Job, work_s: float = 10.0
) -> Moves | None:
    """The cheapest plan by which a wanted gang fits; None where there is none, or none was found within the work.

    occupancy is left as it is; each movable gang holds something there under its owner's name. Raises Unsupported
    without OR-Tools and for gangs that must be apart from other jobs, and as `request.topology_request_of` does.
    """
    work = Work(work_s)
    owners = (wanted.name, *(gang.owner for gang in movable))
    collisions: list[Collision] = []
    for _ in range(MOST_TRIES):
        plan = _Plan(occupancy, movable, wanted, collisions)
        plan.model.minimize(plan.cost)
        cheapest = solved(plan.model, [*plan.moved, *plan.variables], work)
        if cheapest.values is None:
            return None
        values = _closer(plan, cheapest.values, work)
        made = _made(occupancy, plan.gangs, owners, plan.spreads(values))
        if isinstance(made, list):
            return _as_moves(movable, made, cheapest)
        collisions.append(made)
    return None


def _closer(plan: "_Plan", values: Sequence[int], work: Work) -> Sequence[int]:
    """Among plans that move the same gangs, one in few domains."""
    moved, members = values[: len(plan.moved)], values[len(plan.moved) :]
    for variable, value in zip(plan.moved, moved, strict=True):
        plan.model.add(variable == value)
    for variable, value in zip(plan.variables, members, strict=True):
        plan.model.add_hint(variable, value)
    plan.model.minimize(plan.domains)
    return solved(plan.model, plan.variables, work).values or members


def _as_moves(
    movable: Sequence[Movable], made: Sequence[Placement | None], cheapest: Answer
) -> Moves:
    """Return the plan by owners."""
    wanted = made[0]
    assert wanted is not None, "the wanted gang always gets a place"
    moves = [
        (gang, placement)
        for gang, placement in zip(movable, made[1:], strict=True)
        if placement is not None
    ]
    return Moves(
        placement=wanted,
        moves=tuple(Move(gang.owner, placement) for gang, placement in moves),
        cost_gpu_s=sum(gang.cost_gpu_s for gang, _ in moves),
        proven=cheapest.proven,
    )


Amounts = tuple[int, int, int, int]
"""GPUs, microcpus, KiB of memory, NICs."""


class _Gang:
    """A gang that gets a place if `present`; x[role][node] are its members."""

    def __init__(self, model: Any, emptied: Occupancy, job: Job, present: Any) -> None:
        request = topology_request_of(emptied.fabric, job)
        if request.apart:
            raise Unsupported(
                f"job {job.name}: topology.apart: a plan that moves gangs cannot keep other jobs' domains apart; leave "
                f"this gang out of those that may move"
            )
        models = tuple(role.shape.models for role in request.roles)
        self.problem = Problem.of(emptied, request, models)
        self.job, self.present = job, present
        self.x: list[dict[int, Any]] = [
            self._members(model, role) for role in range(len(request.roles))
        ]
        nodes = sorted({node for members in self.x for node in members})
        used = {node: self._used(model, node) for node in nodes}
        if request.contradiction:
            model.add(present == 0)
        self.used_domains: UsedDomains = constrain_to_request(
            model, emptied.fabric, request, self.x, used, present
        )

    @property
    def domains(self) -> Any:
        """Domains used, tier by tier as digits."""
        weights = weights_of_tiers(self.problem.fabric, sum(self.problem.members))
        return sum(w * self.used_domains.domains(tier) for tier, w in enumerate(weights) if w)

    def amounts(self, node: int) -> Iterator[tuple[Any, Amounts]]:
        """(members, what each takes) of each role that may be on a node."""
        for role, members in zip(self.problem.request.roles, self.x, strict=True):
            if node in members:
                shape = role.shape
                cpus, memory = microcpus(shape.cpus), memory_KiB(shape.memory_GiB)
                yield members[node], (shape.gpus, cpus, memory, shape.nics)

    def _members(self, model: Any, role: int) -> dict[int, Any]:
        slots = self.problem.tables[role].of_node.tolist()
        most = self.problem.members[role]
        return {
            node: model.new_int_var(0, min(most, room), f"{self.job.name}/{role}/{node}")
            for node, room in enumerate(slots)
            if room
        }

    def _used(self, model: Any, node: int) -> Any:
        used = model.new_bool_var(f"{self.job.name}/used/{node}")
        here = [(members[node], role) for role, members in enumerate(self.x) if node in members]
        model.add(sum(count for count, _ in here) >= 1).only_enforce_if(used)
        for count, role in here:
            model.add(count <= self.problem.members[role] * used)
        return used


Collision = tuple[int, tuple[tuple[int, ...], ...]]
"""A node and the members of each gang, role by role, that it does not hold together after all."""


class _Plan:
    """The model of one question, without the plans that are known to collide."""

    def __init__(
        self,
        occupancy: Occupancy,
        movable: Sequence[Movable],
        wanted: Job,
        collisions: Sequence[Collision],
    ) -> None:
        self.model = cp_model().CpModel()
        self._movable = movable
        self._occupancy = occupancy
        emptied = occupancy.copy()
        for gang in movable:
            emptied.give_back(gang.owner)
        self.moved = [self.model.new_bool_var(f"moved/{gang.owner}") for gang in movable]
        self.gangs = [_Gang(self.model, emptied, wanted, 1)] + [
            _Gang(self.model, emptied, gang.job, moved)
            for gang, moved in zip(movable, self.moved, strict=True)
        ]
        for node in range(len(occupancy.fabric.nodes)):
            self._fill(emptied, node)
        for node, members in collisions:
            self._forbid(node, members)

    @property
    def cost(self) -> Any:
        """Thousandths of GPU-seconds, and among equals the number of gangs that move."""
        scale = len(self._movable) + 1
        return sum(
            (scale * round(gang.cost_gpu_s * COST_UNITS) + 1) * moved
            for gang, moved in zip(self._movable, self.moved, strict=True)
        )

    @property
    def domains(self) -> Any:
        """Domains that all gangs use that get a place."""
        return sum(gang.domains for gang in self.gangs)

    def spreads(self, values: Sequence[int]) -> list[Spread]:
        """What the variables say, gang by gang; () for one that stays."""
        read, spreads = iter(values), []
        for gang in self.gangs:
            counts: dict[int, list[int]] = {}
            for role, members in enumerate(gang.x):
                for node in members:
                    counts.setdefault(node, [0] * len(gang.x))[role] = next(read)
            spreads.append([(n, tuple(counts[n])) for n in sorted(counts) if any(counts[n])])
        return spreads

    @property
    def variables(self) -> list[Any]:
        """All members of all gangs, in the order in which `spreads` reads them."""
        return [count for gang in self.gangs for members in gang.x for count in members.values()]

    def _fill(self, emptied: Occupancy, node: int) -> None:
        """No more on a node than is free, counting what stays."""
        asked = [each for gang in self.gangs for each in gang.amounts(node)]
        for resource, free in enumerate(_free(emptied, node)):
            stays = sum(
                held * (1 - moved)
                for moved, gang in zip(self.moved, self._movable, strict=True)
                if (held := _held(self._occupancy, gang.owner, node)[resource])
            )
            self.model.add(sum(each[0] * each[1][resource] for each in asked) + stays <= free)

    def _forbid(self, node: int, members: Sequence[Sequence[int]]) -> None:
        """Something on this node must be different."""
        differs = []
        for gang, of_roles in zip(self.gangs, members, strict=True):
            for role, count in enumerate(of_roles):
                variable = gang.x[role].get(node)
                if variable is None:
                    continue
                for limit in (variable >= count + 1, variable <= count - 1):
                    literal = self.model.new_bool_var("differs")
                    self.model.add(limit).only_enforce_if(literal)
                    differs.append(literal)
        self.model.add_bool_or(differs)


def _free(occupancy: Occupancy, node: int) -> Amounts:
    return (
        int(occupancy.free_gpus_of_node[node]),
        int(occupancy.free_microcpus_of_node[node]),
        int(occupancy.free_memory_KiB_of_node[node]),
        int(occupancy.free_nics_of_node[node]),
    )


def _held(occupancy: Occupancy, owner: str, node: int) -> Amounts:
    """What an owner holds on a node."""
    name = occupancy.fabric.nodes[node].name
    held = [member for member in occupancy.owners.get(owner, ()) if member.node == name]
    return (
        sum(len(member.gpus) for member in held),
        sum(microcpus(member.cpus) for member in held),
        sum(memory_KiB(member.memory_GiB) for member in held),
        sum(len(member.nics) for member in held),
    )


def _made(
    occupancy: Occupancy, gangs: Sequence[_Gang], owners: Sequence[str], spreads: Sequence[Spread]
) -> list[Placement | None] | Collision:
    """The placement of each gang that gets a place, or the node on which they collide."""
    left = occupancy.copy()
    for owner, spread in zip(owners[1:], spreads[1:], strict=True):
        if spread:
            left.give_back(owner)
    made: list[Placement | None] = []
    for gang, owner, spread in zip(gangs, owners, spreads, strict=True):
        problem = replace(gang.problem, occupancy=left)
        for node, counts in spread:
            if not _holds(problem, node, counts):
                return node, tuple(
                    _members_on(g, s, node) for g, s in zip(gangs, spreads, strict=True)
                )
        made.append(placement_of(problem, spread, gang.job) if spread else None)
        if spread:
            left.take(f"moved to make room: {owner}", placement_of(problem, spread).members)
    return made


def _holds(problem: Problem, node: int, counts: Counts) -> bool:
    if inside_node(problem, node, counts) is None:
        return False
    return not problem.occupancy.missing(placement_of(problem, [(node, counts)]).members)


def _members_on(gang: _Gang, spread: Spread, node: int) -> Counts:
    return dict(spread).get(node, (0,) * len(gang.x))
