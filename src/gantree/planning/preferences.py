"""The placement preferences of a policy, as a search reads them (`policy` and `placement` do not import each other)."""

from gantree.placement.request.preferences import PlacementPreferences, TypicalMember
from gantree.policy.rules import Policy


def preferences_of(policy: Policy) -> PlacementPreferences:
    """The preferences of a policy. Make them once and keep them: a search caches what it derives from their demand."""
    typical = tuple(TypicalMember(shape, weight) for shape, weight in policy.demand)
    return PlacementPreferences(policy.fragmentation_weight, typical, policy.exact_s)
