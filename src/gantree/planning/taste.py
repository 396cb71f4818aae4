"""What a search reads of a policy: `policy` says it, `placement` understands it, and neither knows the other."""

from gantree.placement.request.preferences import Taste, Usual
from gantree.policy.rules import Policy


def taste_of(policy: Policy) -> Taste:
    """The taste of a policy. Make it once and keep it: what a search works out of a demand is kept by it."""
    usual = tuple(Usual(shape, weight) for shape, weight in policy.demand)
    return Taste(policy.fragmentation_weight, usual, policy.exact_s)
