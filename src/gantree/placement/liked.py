"""Which of places that are as good a gang takes: one on the nodes that its members like (`TopologyWish.likes`).

Likes break ties and nothing else. The place is found as if there were none; then it is looked for among the nodes that
are as liked, first with all likes, then with those that weigh most of what is left, and so on. The first place is taken
that is as good: no more domains of any tier, no GPU models but those of the first where they are chosen among, no
slower step, no longer fetching. So who likes nodes never waits for them, and no gang is pulled apart for their sake.

A like counts where all members of its role go by it, or not at all.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

from gantree.model.bars import barred, bars_of
from gantree.model.jobs import Job
from gantree.model.node_rules import read_rule, rule_text
from gantree.model.placements import Placement
from gantree.topology.fabric import Fabric

MOST_COMBINED = 5
"""Likes of which every combination is tried; of more than these the lightest go one after the other."""

Find = Callable[[Job], Placement | None]
_Liked = tuple[int, str, str]
"""(weight, role, rule)."""


def most_liked(fabric: Fabric, job: Job, found: Placement, find: Find) -> Placement:
    """The place found, or one as good on nodes that are liked more; `find` finds the best one of a job like this."""
    likes = sorted(_likes(job), key=lambda like: -like[0])
    for chosen in _choices(likes):
        other = find(_going_by(job, chosen))
        if other is not None and _is_as_good(fabric, job, other, found):
            return other
    return found


def has_likes(job: Job) -> bool:
    """Whether any nodes are liked: cheap, for most jobs have no such wish."""
    return bool(job.topology.likes) or any(role.topology.likes for role in job.roles)


def _likes(job: Job) -> Iterator[_Liked]:
    """The likes of each role; those of the gang are every role's."""
    for role in job.roles:
        for like in dict.fromkeys((*job.topology.likes, *role.topology.likes)):
            yield like.weight, role.name, like.rule


def _choices(likes: list[_Liked]) -> Iterator[tuple[_Liked, ...]]:
    """The likes to go by, the most weight first; never none of them."""
    for count in range(len(likes), MOST_COMBINED, -1):
        yield tuple(likes[:count])
    few = likes[:MOST_COMBINED]
    sets = [each for size in range(1, len(few) + 1) for each in combinations(few, size)]
    yield from sorted(sets, key=lambda each: -sum(like[0] for like in each))


def _going_by(job: Job, chosen: tuple[_Liked, ...]) -> Job:
    """The job with likes as bars, beside those that it has."""
    bars = bars_of(job)
    for _, role, rule in chosen:
        bars[role] = _both(bars.get(role, ""), rule)
    return barred(job, bars)


def _both(one: str, other: str) -> str:
    """The rule of nodes that are as both rules ask."""
    if not one:
        return other
    terms = ((*here, *there) for here in read_rule(one) for there in read_rule(other))
    return rule_text(tuple(tuple(dict.fromkeys(term)) for term in terms))


def _is_as_good(fabric: Fabric, job: Job, other: Placement, found: Placement) -> bool:
    is_choice = any(role.shape.models for role in job.roles)
    if is_choice and _models(fabric, other) != _models(fabric, found):
        return False
    costs = zip(_costs(fabric, other), _costs(fabric, found), strict=True)
    return all(this <= least for this, least in costs)


def _models(fabric: Fabric, place: Placement) -> list[str | None]:
    return sorted(
        (fabric.machine_of_node(fabric.index_of_node[m.node]).gpu for m in place.members), key=str
    )


def _costs(fabric: Fabric, place: Placement) -> tuple[float, ...]:
    """How many domains of each tier a place uses, and seconds of a step and of fetching."""
    nodes = [fabric.index_of_node[name] for name in place.nodes]
    domains = (len(set(numbers[nodes].tolist())) for numbers in fabric.domain_of_node)
    told = place.predicted
    return (*domains, told.comm_s if told.step_s is None else told.step_s, place.fetch_s)
