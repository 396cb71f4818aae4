"""Plans moves of running gangs so that a pending gang fits; each moved gang gets a new placement.

All moved gangs stop before any of them starts, so a gang may move onto room that another one leaves. A plan is carried
out as a whole or not at all.

The heuristic empties the cheapest placement (`planning.preemption.plan`, with the cost of moving as harm), puts the
pending gang there, and looks for a placement for every gang that had to leave, the largest first. A gang that finds
none may make others move in turn, at their cost. If gangs are left over, they stay where they are and another placement
is emptied. A plan is proven, since it is carried out on a copy; but not every possible plan is found.

With OR-Tools, and time for it, a solver searches too (`placement.optimum.moves`), and the cheaper plan is used.
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

PENDING = "pending:"
"""The prefix of the owner under which the pending gang holds its placement on the copy."""


@dataclass(frozen=True, slots=True)
class MovePlan:
    """The placement of the pending gang, and the moves for it.

    cost_gpu_s: what the moves lose. gain_gpu_s: what the start gains, always more. proven: no plan costs less.
    """

    placement: Placement
    moves: tuple[Move, ...]
    cost_gpu_s: float
    gain_gpu_s: float
    proven: bool = False


def plan_defragment(
    occupancy: Occupancy,
    pending: Job,
    movable: Sequence[Movable],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    *,
    gain_gpu_s: float,
    exact_s: float = 0.0,
) -> MovePlan | None:
    """The cheapest plan that was found; None where there is none, or none that costs less than it gains.

    Each movable gang is an owner in the occupancy, with its job at its present size; cost_gpu_s is the work that it
    loses by moving, and its restart. gain_gpu_s: the gain if the pending gang starts now. exact_s: seconds for which
    OR-Tools, if installed, may search for a cheaper plan; not where gangs are placed blindly. occupancy does not
    change. Raises as `search.place`.
    """
    quick = _quick(occupancy, pending, movable, preferences, gain_gpu_s)
    if exact_s > 0 and not preferences.blind and (quick is None or quick.moves):
        exact = _exact(occupancy, pending, movable, gain_gpu_s, exact_s)
        if exact is not None and (quick is None or exact.cost_gpu_s <= quick.cost_gpu_s):
            return exact
    return quick


def _exact(
    occupancy: Occupancy, pending: Job, movable: Sequence[Movable], gain_gpu_s: float, work_s: float
) -> MovePlan | None:
    """The solver's plan; None without OR-Tools, and for gangs that it cannot place."""
    try:
        found = defragmented(occupancy, movable, pending, work_s)
    except Unsupported:
        return None
    if found is None or found.cost_gpu_s >= gain_gpu_s:
        return None
    return MovePlan(found.placement, found.moves, found.cost_gpu_s, gain_gpu_s, found.proven)


# ----- the heuristic


def _quick(
    occupancy: Occupancy,
    pending: Job,
    movable: Sequence[Movable],
    preferences: PlacementPreferences,
    gain_gpu_s: float,
) -> MovePlan | None:
    """Empty the cheapest placement, then the next one, until every gang that leaves has a placement."""
    stays: dict[str, None] = {}
    gang_of = {gang.owner: gang for gang in movable}
    for _ in range(MOST_TRIES):
        may_move = {owner: gang for owner, gang in gang_of.items() if owner not in stays}
        plan = _emptied(occupancy, pending, may_move, preferences)
        if plan is None or plan.harm_gpu_s >= gain_gpu_s:
            return None
        moving = _Moving(occupancy.copy(), may_move, preferences, gain_gpu_s)
        moving.give_way(PENDING + pending.name, plan)
        left_over = moving.place_again()
        if left_over is None:
            return MovePlan(plan.placement, tuple(moving.moves), moving.cost_gpu_s, gain_gpu_s)
        stays[left_over] = None
    return None


def _emptied(
    room: Occupancy, job: Job, may_move: Mapping[str, Movable], preferences: PlacementPreferences
) -> Plan | None:
    """The cheapest placement for a gang, and the gangs that leave it."""
    victims = [
        Victim(gang.owner, 0, gang.cost_gpu_s, seq) for seq, gang in enumerate(may_move.values())
    ]
    return plan_preemption(room, job, victims, preferences)


class _Moving:
    """A plan under construction, on a copy of the occupancy: gangs that have left, new placements, the cost so far."""

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
        """Place every gang that had to leave; None if all have a placement, else one of the first that should stay."""
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
        """The gang that left for the pending gang itself, and so in the end made this one move."""
        while self._for[owner] in self._for:
            owner = self._for[owner]
        return owner
