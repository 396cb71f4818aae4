"""Plans moves of running gangs so that a pending gang fits; each moved gang has a new place.

All moved gangs stop before any of them starts, so a gang may move onto what another one leaves. All of it or nothing.

The heuristic empties the place that costs least (`planning.preemption.plan`, with the cost of moving as harm), puts the
wanted gang there, and looks for a place for everybody who had to leave, the largest first. One that finds none may make
others move in its turn, at their cost. Where that does not end well, whoever was left over stays where it is, and
another place is emptied. What it finds is proven, since it is carried out on a copy; what it does not find may still be
there.

With OR-Tools, and time for it, a solver is asked too (`placement.optimum.moves`), and the cheaper plan wins.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gantree.model.errors import Unsupported
from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import find
from gantree.placement.optimum.moves import Movable, Move, defragmented
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.preemption.plan import Plan, Victim, plan_preemption
from gantree.topology.occupancy.occupancy import Occupancy

__all__ = ["Movable", "Move", "MovePlan", "plan_defragment"]

MOST_TRIES = 16
"""Places that are emptied in thought before it is given up."""

WANTED = "wanted:"
"""Prefix of the owner under which the wanted gang holds its place on the copy."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Where the wanted gang goes, and who moves where for it.

    cost_gpu_s is what is lost by moving, gain_gpu_s what is won, always more. proven: no plan costs less.
    """

    placement: Placement
    moves: tuple[Move, ...]
    cost_gpu_s: float
    gain_gpu_s: float
    proven: bool = False


def plan_defragment(
    occupancy: Occupancy,
    wanted: Job,
    movable: Sequence[Movable],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    *,
    gain_gpu_s: float,
    exact_s: float = 0.0,
) -> MovePlan | None:
    """The cheapest plan that was found; None where there is none, or none that costs less than it gains.

    Each movable gang holds a place under its owner's name, its job at the size that it has; cost_gpu_s is the work that
    it loses by moving and its new start. gain_gpu_s: what it is worth that the wanted gang starts now. exact_s: seconds
    for which OR-Tools, where installed, may look for a cheaper plan. occupancy is left as it is. Raises as
    `search.place`.
    """
    quick = _quick(occupancy, wanted, movable, preferences, gain_gpu_s)
    if exact_s > 0 and (quick is None or quick.moves):
        exact = _exact(occupancy, wanted, movable, gain_gpu_s, exact_s)
        if exact is not None and (quick is None or exact.cost_gpu_s <= quick.cost_gpu_s):
            return exact
    return quick


def _exact(
    occupancy: Occupancy, wanted: Job, movable: Sequence[Movable], gain_gpu_s: float, work_s: float
) -> MovePlan | None:
    """The solver's plan; None without OR-Tools, and for gangs that it cannot place."""
    try:
        found = defragmented(occupancy, movable, wanted, work_s)
    except Unsupported:
        return None
    if found is None or found.cost_gpu_s >= gain_gpu_s:
        return None
    return MovePlan(found.placement, found.moves, found.cost_gpu_s, gain_gpu_s, found.proven)


# ----- the heuristic


def _quick(
    occupancy: Occupancy,
    wanted: Job,
    movable: Sequence[Movable],
    preferences: PlacementPreferences,
    gain_gpu_s: float,
) -> MovePlan | None:
    """Empty the cheapest place, then the next one, until everybody who leaves one has a place."""
    stays: dict[str, None] = {}
    gang_of = {gang.owner: gang for gang in movable}
    for _ in range(MOST_TRIES):
        may_move = {owner: gang for owner, gang in gang_of.items() if owner not in stays}
        plan = _emptied(occupancy, wanted, may_move, preferences)
        if plan is None or plan.harm_gpu_s >= gain_gpu_s:
            return None
        moving = _Moving(occupancy.copy(), may_move, preferences, gain_gpu_s)
        moving.give_way(WANTED + wanted.name, plan)
        left_over = moving.place_again()
        if left_over is None:
            return MovePlan(plan.placement, tuple(moving.moves), moving.cost_gpu_s, gain_gpu_s)
        stays[left_over] = None
    return None


def _emptied(
    room: Occupancy, job: Job, may_move: Mapping[str, Movable], preferences: PlacementPreferences
) -> Plan | None:
    """The cheapest place for a gang, and who leaves it."""
    victims = [
        Victim(gang.owner, 0, gang.cost_gpu_s, seq) for seq, gang in enumerate(may_move.values())
    ]
    return plan_preemption(room, job, victims, preferences)


class _Moving:
    """A plan in the making, on a copy of the occupancy: who has left, who has a new place, what it costs so far."""

    def __init__(
        self,
        room: Occupancy,
        may_move: Mapping[str, Movable],
        preferences: PlacementPreferences,
        gain_gpu_s: float,
    ) -> None:
        self.room, self._preferences, self._gain_gpu_s = room, preferences, gain_gpu_s
        self._still = dict(may_move)
        self._homeless: list[Movable] = []
        self._for: dict[str, str] = {}
        self.moves: list[Move] = []
        self.cost_gpu_s = 0.0

    def give_way(self, owner: str, plan: Plan) -> None:
        """Let the victims of a plan leave, and the owner take the place."""
        for victim in plan.victims:
            self.room.give_back(victim.owner)
            self._homeless.append(self._still.pop(victim.owner))
            self._for[victim.owner] = owner
        self.cost_gpu_s += plan.harm_gpu_s
        self.room.take(owner, plan.placement.members)

    def place_again(self) -> str | None:
        """Find a place for everybody who had to leave; None if all have one, else who of the first had better stay."""
        while self._homeless:
            self._homeless.sort(key=lambda gang: (gang.job.gpus, gang.job.members))
            gang = self._homeless.pop()
            placement = find(self.room, gang.job, self._preferences)
            if placement is not None:
                self.room.take(gang.owner, placement.members)
            else:
                plan = _emptied(self.room, gang.job, self._still, self._preferences)
                if plan is None or self.cost_gpu_s + plan.harm_gpu_s >= self._gain_gpu_s:
                    return self._first_moved(gang.owner)
                self.give_way(gang.owner, plan)
                placement = plan.placement
            self.moves.append(Move(gang.owner, placement))
        return None

    def _first_moved(self, owner: str) -> str:
        """Who made way for the wanted gang itself, and so in the end made this one move."""
        while self._for[owner] in self._for:
            owner = self._for[owner]
        return owner
