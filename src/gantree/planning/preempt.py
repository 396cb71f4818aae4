"""Which gangs to stop so that another one fits: the least harm that a proof of fit allows.

The plan is made on a copy of the occupancy, in which gangs that are leaving anyway are gone and room held for
others is held. Victims are tried in the order of least harm: lowest priority first, then fewest GPU-seconds lost
since their last checkpoint. Freeing more never makes a gang fit worse, so the shortest sufficient run of victims
is found by bisection; then only those victims stay whose room the place found really uses.

A gang that must sit in one domain of a tier is planned domain by domain, with the victims of that domain alone,
and the plan with the least harm wins: an emptied domain, not scattered GPUs.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.search import find, fits
from gantree.placement.taste import DEFAULT, Taste
from gantree.topology.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that may be stopped. harm is in GPU-seconds."""

    owner: str
    priority: int
    harm_gpu_s: float
    seq: int

    @property
    def order(self) -> tuple[int, float, int]:
        """Sort key: the least harmful first; among equals the one that came last."""
        return (self.priority, self.harm_gpu_s, -self.seq)


@dataclass(frozen=True, slots=True)
class Plan:
    """A proven place, and who must leave for it."""

    placement: Placement
    victims: tuple[Victim, ...]

    @property
    def harm(self) -> tuple[int, float, int]:
        """Sort key: highest priority hurt, GPU-seconds lost, number of victims."""
        priorities = [victim.priority for victim in self.victims]
        lost_gpu_s = sum(victim.harm_gpu_s for victim in self.victims)
        return (max(priorities, default=-(10**9)), lost_gpu_s, len(self.victims))


def plan_preemption(
    occupancy: Occupancy, job: Job, victims: Sequence[Victim], taste: Taste = DEFAULT
) -> Plan | None:
    """The least harmful plan, or None if none suffices. occupancy is left as it is."""
    if fits(occupancy, job):
        return _pruned(occupancy, job, (), taste)
    ordered = sorted(victims, key=attrgetter("order"))
    plans = [
        plan
        for group in _groups(occupancy, job, ordered)
        if (plan := _least_prefix(occupancy, job, group, taste)) is not None
    ]
    return min(plans, key=attrgetter("harm"), default=None)


def _groups(
    occupancy: Occupancy, job: Job, victims: Sequence[Victim]
) -> Iterator[Sequence[Victim]]:
    """The sets of victims to try: all of them, or those of each domain of the required tier."""
    tier = job.topology.required
    fabric = occupancy.fabric
    if tier is None or tier not in fabric.tiers:
        yield victims
        return
    domain_of_node = fabric.domain_of_node[fabric.tiers.index(tier)]
    victims_of_domain: dict[int, list[Victim]] = {}
    for victim in victims:
        nodes = {member.node for member in occupancy.owners[victim.owner]}
        for domain in sorted({int(domain_of_node[fabric.index_of_node[node]]) for node in nodes}):
            victims_of_domain.setdefault(domain, []).append(victim)
    for domain in sorted(victims_of_domain):
        yield victims_of_domain[domain]


def _least_prefix(
    occupancy: Occupancy, job: Job, victims: Sequence[Victim], taste: Taste
) -> Plan | None:
    """The shortest run of victims that makes the gang fit, less those that it does not need."""
    if not fits(_without(occupancy, victims), job):
        return None
    too_few, enough = 0, len(victims)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if fits(_without(occupancy, victims[:middle]), job):
            enough = middle
        else:
            too_few = middle
    return _pruned(occupancy, job, victims[:enough], taste)


def _pruned(occupancy: Occupancy, job: Job, victims: Sequence[Victim], taste: Taste) -> Plan:
    """Keep only the victims whose room is used; all of them together are known to suffice."""
    placement = find(_without(occupancy, victims), job, taste)
    assert placement is not None, "a gang that fits has no place"
    used = _in_the_way(occupancy, placement.members, victims)
    if len(used) < len(victims) and fits(_without(occupancy, used), job):
        return _pruned(occupancy, job, used, taste)
    return Plan(placement, tuple(victims))


def _in_the_way(
    occupancy: Occupancy, members: Sequence[MemberPlacement], victims: Sequence[Victim]
) -> list[Victim]:
    """The victims that hold something of a GPU of the place, or anything on a node where it uses no GPU."""
    gpus = {(member.node, gpu) for member in members for gpu in member.gpus or member.parts}
    bare_nodes = {member.node for member in members if not (member.gpus or member.parts)}
    return [
        victim
        for victim in victims
        if any(
            member.node in bare_nodes
            or any((member.node, gpu) in gpus for gpu in member.gpus or member.parts)
            for member in occupancy.owners[victim.owner]
        )
    ]


def _without(occupancy: Occupancy, victims: Iterable[Victim]) -> Occupancy:
    emptier = occupancy.copy()
    for victim in victims:
        emptier.give_back(victim.owner)
    return emptier
