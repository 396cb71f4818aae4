"""Plans which gangs are stopped so that another one fits: the least harm with a proof of fit.

The plan is made on a copy of the occupancy, in which gangs that are leaving anyway are gone and room held for
others is held. What harm is, and whose comes first, the caller says: `right` is compared before harm, so that nobody
with a greater right is stopped where those of lesser rights suffice. This is the door; the rooms behind it are

    preempt_prices   right and harm as one number
    preempt_nodes    who must leave one node for so many members
    preempt_counts   the question in counts, domain by domain
    preempt_choice   the cheapest sets by count
    preempt_search   from counted sets to proven ones of which nobody can be spared
    preempt_trial    the copy on which gangs leave and come back, and whether that is enough
"""

from collections.abc import Sequence
from dataclasses import dataclass
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

    right says by what right it stays, compared first, number by number: the least right goes first (such as: above its
    queue's guarantee before within it, then the lower priority). () stands for (priority,). All victims of one plan
    have rights of one length. harm_gpu_s are the GPU-seconds that stopping it throws away: the work since its last
    checkpoint, and what a new start costs. seq is its number in the order of arrival.
    """

    owner: str
    priority: int
    harm_gpu_s: float
    seq: int
    right: tuple[float, ...] = ()

    @property
    def order(self) -> tuple[tuple[float, ...], float, int]:
        """Sort key: the one to go first comes first; among equals the one that came last."""
        return (self.right or (self.priority,), self.harm_gpu_s, -self.seq)


@dataclass(frozen=True, slots=True)
class Plan:
    """A proven place, and who must leave for it."""

    placement: Placement
    victims: tuple[Victim, ...]

    @property
    def harm_gpu_s(self) -> float:
        """GPU-seconds that the plan throws away."""
        return sum(victim.harm_gpu_s for victim in self.victims)


def plan_preemption(
    occupancy: Occupancy,
    job: Job,
    victims: Sequence[Victim],
    preferences: PlacementPreferences = DEFAULT_PREFERENCES,
    admits: Admits | None = None,
) -> Plan | None:
    """The least harmful plan that was found, or None if not even all victims suffice. occupancy is left as it is.

    admits(owners): whether the quota allows the gang to start once these are gone (None: it does anyway). It is asked
    about sets of victims, and must stay true when more of them go. Raises as `search.place`.
    """
    ordered = sorted(victims, key=attrgetter("order"))
    level_of = levels([victim.right or (victim.priority,) for victim in ordered])
    prices = [price(level, each.harm_gpu_s) for level, each in zip(level_of, ordered, strict=True)]
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
    """Those who hold something on a node of the place: of a large set nobody was tried on its own."""
    index_of_node = trial.room.fabric.index_of_node
    nodes = {index_of_node[member.node] for member in placement.members}
    return [owner for owner in owners if not nodes.isdisjoint(trial.nodes_of(owner))]


@dataclass(frozen=True, slots=True)
class Forbidden:
    """A gang that policy does not let be stopped for the one that waits, and why, as people are told.

    because is one word or a few: "non-preemptible", "min_run", "budget", "priority", "guarantee".
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
    """Who stands in the way of a gang for which `plan_preemption` found no plan: gate HARM if any, else ROOM.

    As few of the forbidden, by harm, as would be enough together with those that may be stopped; () if not even all
    of them are. Raises as `search.place`.
    """
    by_owner = {each.victim.owner: each for each in forbidden}
    ranked = [Victim(v.owner, v.priority, v.harm_gpu_s, v.seq, (0.0,)) for v in allowed] + [
        Victim(f.victim.owner, f.victim.priority, f.victim.harm_gpu_s, f.victim.seq, (1.0,))
        for f in forbidden
    ]
    plan = plan_preemption(occupancy, job, ranked, preferences, admits)
    if plan is None:
        return ()
    return tuple(by_owner[v.owner] for v in plan.victims if v.owner in by_owner)
