"""What a site prefers where several places would do: the policy's knobs that a search reads.

Nothing here decides whether a gang fits, only where.
"""

from dataclasses import dataclass

from gantree.model.jobs import Shape

DEFAULT_FRAGMENTATION_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Usual:
    """Members that usually come: what one asks for on a node, and how often, in any unit (only ratios count)."""

    shape: Shape
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Taste:
    """Preferences of a site.

    fragmentation_weight: what leaving GPUs behind in a broken-up domain is worth against speed. Of the domains that
    hold a gang in equally few parts, that one is taken whose sum is least: its step time over that of the fastest, plus
    this weight times the share of the domain's GPUs that stay free. 0 looks at the step time alone. demand: the members
    that usually come, by which single-node members are packed (`placement.scoring.packing`); empty where the site does
    not say. exact_s: seconds for which the optimum may be searched (`placement.optimum.optimum`); 0 for the quick
    search alone.
    """

    fragmentation_weight: float = DEFAULT_FRAGMENTATION_WEIGHT
    demand: tuple[Usual, ...] = ()
    exact_s: float = 0.0


DEFAULT = Taste()
