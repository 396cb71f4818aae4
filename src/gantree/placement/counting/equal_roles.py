"""Roles of a gang with equal requests are one role to the search, and are split again afterwards.

Two roles are equal where a member uses the same of a node, the same slices bind both, and neither must be in one
domain narrower than the gang's own. Their members then are interchangeable, so a place for as many members of one role
is a place for both, in as many domains: the first role takes the first members in topology order, the second the next.
Slices stay whole, because every domain holds whole ones of both together and each role is made of whole ones. Roles
with requests inside the node stay as they are: their layout there depends on which member belongs to which role. So do
roles that must be spread: a domain may hold more of both together than of each.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

from gantree.placement.slots.problem import Counts, Problem, Spread


@dataclass(frozen=True, slots=True)
class EqualRoles:
    """A problem with its equal roles joined; group_of_role[role of the original] is a role of the joined problem."""

    joined: Problem
    members: Counts
    group_of_role: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem) -> "EqualRoles":
        """Join equal roles."""
        number_of_key: dict[Hashable, int] = {}
        groups = tuple(
            number_of_key.setdefault(_key(problem, role), len(number_of_key))
            for role in range(len(problem.members))
        )
        if len(number_of_key) == len(groups):
            return cls(problem, problem.members, groups)
        return cls(_joined(problem, groups), problem.members, groups)

    def split(self, spread: Spread) -> Spread:
        """A spread of the joined roles as one of the original roles."""
        if len(self.joined.members) == len(self.members):
            return spread
        left = list(self.members)
        return [(node, self._take(left, list(counts))) for node, counts in spread]

    def _take(self, left: list[int], here: list[int]) -> Counts:
        """Return members of each original role on a node with `here` of each joined one; subtracts them from `left`."""
        taken = []
        for role, group in enumerate(self.group_of_role):
            count = min(left[role], here[group])
            left[role] -= count
            here[group] -= count
            taken.append(count)
        assert not any(here), "more members than the roles have"
        return tuple(taken)


def _joined(problem: Problem, group_of_role: Sequence[int]) -> Problem:
    """The problem with one role for each group: the first of it, with the members of all."""
    first = [group_of_role.index(group) for group in range(max(group_of_role) + 1)]
    members = [0] * len(first)
    for group, count in zip(group_of_role, problem.members, strict=True):
        members[group] += count
    roles = tuple(
        replace(problem.request.roles[role], members=count)
        for role, count in zip(first, members, strict=True)
    )
    tables = tuple(problem.tables[role] for role in first)
    request = replace(problem.request, roles=roles)
    models = tuple(problem.models_of_role[role] for role in first)
    return Problem(problem.occupancy, request, tuple(members), tables, models, problem.among)


def _key(problem: Problem, role: int) -> Hashable:
    """Return a key that is equal for equal roles."""
    request = problem.request.roles[role]
    bound = request.layers or request.is_limited or request.whole_at > problem.request.whole_at
    alone = role if bound else None
    return alone, problem.tables[role].shape, request.multiple_in_domain
