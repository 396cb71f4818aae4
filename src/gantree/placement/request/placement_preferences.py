"""Placement preferences of a site: the fields of its policy that decide between several possible places.

Preferences never decide whether a gang fits, only where it goes.
"""

from dataclasses import dataclass
from typing import Literal

from gantree.model.jobs import Shape

DEFAULT_FRAGMENTATION_WEIGHT = 0.2


@dataclass(frozen=True, slots=True)
class TypicalMember:
    """A member that is typical of the site: what it requests on its node, and how often it comes.

    The weight is in any unit: only ratios of weights count.
    """

    shape: Shape
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class PlacementPreferences:
    """The preferences of a site.

    fragmentation_weight: what GPUs that are left behind in a broken-up domain cost against speed. Of the domains that
    hold a gang in equally few parts, the search takes the one of the least sum of two terms: the gang's step time over
    that of the fastest domain, and this weight times the share of the domain's GPUs that stay free. 0: step time alone.
    demand: the typical members for which single-node members are packed (`placement.scoring.packing`); empty if the
    site names none.
    exact_s: seconds that the search of the optimum may run (`placement.optimum.optimum`); 0: only the quick search.
    placement: "topology", or a rule that is blind to the topology (`placement.choice.blind`), for which none of the
    above counts; seed is that of "random".
    """

    fragmentation_weight: float = DEFAULT_FRAGMENTATION_WEIGHT
    demand: tuple[TypicalMember, ...] = ()
    exact_s: float = 0.0
    placement: Literal["topology", "first-fit", "best-fit", "random"] = "topology"
    seed: int = 0

    @property
    def blind(self) -> bool:
        """Whether gangs are placed without regard to the topology."""
        return self.placement != "topology"


DEFAULT_PREFERENCES = PlacementPreferences()
