"""Plans which gangs to stop so that another one fits: with the least harm, and with a proof of fit.

The plan is made on a copy of the occupancy, without stopping gangs and with all held room. The caller defines harm and
rank: `right` is compared before harm, so that no gang of higher right is stopped if gangs of lower right suffice. This
module is the entry; the others are

    prices   right and harm as one number
    nodes    the victims that free room for so many members on one node, at the least price
    counts   the problem in counts, by domain and node
    choice   the cheapest sets of victims by count
    search   from counted sets to proven ones without an unneeded victim
    trial    the copy from which gangs are removed, and the proof of fit
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.planning.preemption.prices import levels, price
from gantree.planning.preemption.search import chosen_owners
from gantree.planning.preemption.trial import Admits, Trial
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that may be stopped.

    right is compared first, number by number: the gang with the lowest is stopped first (for example: borrowing before
    within the guarantee, then lower priority). () means (priority,). All victims of a plan have rights of one length.
    harm_gpu_s: the GPU-seconds that stopping it loses, work since its last checkpoint and a restart. seq: its number in
    the order of arrival. age_s: the seconds since it was placed, where the youngest are stopped first: then they stand
    in place of the harm.
    """

    owner: str
    priority: int
    harm_gpu_s: float
    seq: int
    right: tuple[float, ...] = ()
    age_s: float | None = None

    @property
    def cost(self) -> float:
        """What is compared after rights: its harm, or its age."""
        return self.harm_gpu_s if self.age_s is None else self.age_s

    @property
    def order(self) -> tuple[tuple[float, ...], float, int]:
        """The sort key: gangs to stop first come first; among equals the latest arrival."""
        return (self.right or (self.priority,), self.cost, -self.seq)


@dataclass(frozen=True, slots=True)
class Plan:
    """A proven placement, and the gangs to stop for it."""

    placement: Placement
    victims: tuple[Victim, ...]

    @property
    def harm_gpu_s(self) -> float:
        """The GPU-seconds that the plan loses."""
        return sum(victim.harm_gpu_s for victim in self.victims)


def plan_preemption(
    occupancy: Occupancy,
    job: Job,
    victims: Sequence[Victim],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    admits: Admits | None = None,
) -> Plan | None:
    """The least harmful plan that was found; None if not even all victims suffice. occupancy does not change.

    admits(owners): whether the quota allows the gang to start without these owners (None: it always does). If it is
    true for a set of owners, it must be true for every larger one. Raises as `search.place`.
    """
    ordered = sorted(victims, key=attrgetter("order"))
    level_of = levels([victim.right or (victim.priority,) for victim in ordered])
    prices = [price(level, each.cost) for level, each in zip(level_of, ordered, strict=True)]
    trial = Trial(occupancy, job, admits)
    owners = chosen_owners(trial, [victim.owner for victim in ordered], prices, level_of)
    if owners is None:
        return None
    placement = _placed(trial, owners, preferences)
    used = _in_use(trial, placement, owners)
    if len(used) < len(owners) and trial.enough(used):
        owners, placement = used, _placed(trial, used, preferences)
    chosen = dict.fromkeys(owners)
    return Plan(placement, tuple(victim for victim in ordered if victim.owner in chosen))


def _placed(trial: Trial, owners: Sequence[str], preferences: PlacementPreferences) -> Placement:
    trial.only(owners)
    placement = trial.place(preferences)
    assert placement is not None, "a gang that fits has no place"
    return placement


def _in_use(trial: Trial, placement: Placement, owners: Sequence[str]) -> list[str]:
    """The owners on nodes of the placement: in a large set, victims were not tried one by one."""
    index_of_node = trial.room.fabric.index_of_node
    nodes = {index_of_node[member.node] for member in placement.members}
    return [owner for owner in owners if not nodes.isdisjoint(trial.nodes_of(owner))]


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A gang that the policy protects from the pending one, and the reason for people.

    because is a word or a few: "non-preemptible", "min_run", "budget", "priority", "guarantee".
    """

    victim: Victim
    because: str


def why_not(
    occupancy: Occupancy,
    job: Job,
    allowed: Sequence[Victim],
    forbidden: Sequence[Forbidden],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    admits: Admits | None = None,
) -> tuple[Forbidden, ...]:
    """The protected gangs in the way of a gang for which `plan_preemption` found no plan. Gate HARM if any, else ROOM.

    These are the fewest, by harm, that would suffice together with the gangs that may be stopped; () if not even all
    suffice. Raises as `search.place`.
    """
    by_owner = {each.victim.owner: each for each in forbidden}
    ranked = [replace(victim, right=(0.0,)) for victim in allowed]
    ranked += [replace(each.victim, right=(1.0,)) for each in forbidden]
    plan = plan_preemption(occupancy, job, ranked, preferences, admits)
    if plan is None:
        return ()
    return tuple(by_owner[v.owner] for v in plan.victims if v.owner in by_owner)
