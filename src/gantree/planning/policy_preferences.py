"""The placement preferences of a policy, as a search reads them (`policy` and `placement` do not import each other)."""

from gantree.placement.request.placement_preferences import PlacementPreferences, TypicalMember
from gantree.policy.rules import Policy


def placement_preferences_of(policy: Policy) -> PlacementPreferences:
    """Return the placement preferences of a policy. Call it once: searches cache what they derive from the result."""
    typical = tuple(TypicalMember(shape, weight) for shape, weight in policy.demand)
    return PlacementPreferences(
        policy.fragmentation_weight,
        typical,
        policy.exact_s,
        policy.placement,
        policy.placement_seed,
    )
