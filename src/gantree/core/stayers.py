"""What does not fit even where all have left who might: kept from one moment to the next, with who stays.

What does not fit beside some gangs does not fit beside these and more, and what fits, fits beside fewer, whoever has
come or gone meanwhile. So a no stands until one of those ends beside whom it was given, leaves, or might be told to:
most of what happens frees room of gangs that might have left anyhow, or that were leaving already, and changes nobody's
answer.

    who stays    gangs that hold a place, but for those that leave, and those that might for who asks
                 claims that do not give way to him, and reserved starts: all of their places, free by then or not

Nothing is kept where room is not simply there or not: of GPUs in parts, beside nodes kept as spares, and where others
hold what gantree did not give them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gantree.core.ledger import Ledger
from gantree.core.state import BOOKING, CLAIM, JobState
from gantree.core.wanted import giving_way
from gantree.model.placements import Placement
from gantree.topology.fabric import Fabric

MOST_KEPT = 32
"""Sets of those who stay that are remembered; the newest."""


@dataclass(slots=True)
class Beside:
    """Some who stay, with their places, and which signatures of gangs fit beside them or not, as far as is known."""

    stay: dict[str, Placement]
    fitting: set[int]
    refused: set[int]


class Stayers:
    """The sets of those who stayed for somebody, as long as all of them stay for anybody."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._site_version = 0
        self._unusable: frozenset[str] = frozenset()
        self._kept: list[Beside] = []
        self._staying: dict[str, Placement] = {}

    def look(self, ledger: Ledger) -> None:
        """See who stays from now on, and forget what was refused beside others, or on fewer nodes."""
        self._staying = {
            state.job: state.placement
            for state in ledger.holding.values()
            if not state.leaving and state.placement is not None
        }
        fabric, unusable = ledger.rooms().fabric, frozenset(ledger.unusable)
        same_site = self._fabric is fabric and self._site_version == ledger.site.version
        if not same_site or not self._unusable <= unusable or not _is_plain(ledger):
            self._kept.clear()
        elif self._unusable != unusable:
            for each in self._kept:
                each.fitting.clear()
        self._fabric, self._site_version, self._unusable = fabric, ledger.site.version, unusable
        if self._kept:
            everybody = self._with_held(ledger, self._staying.copy(), (), ())
            self._kept = [each for each in self._kept if each.stay.items() <= everybody.items()]

    def beside(self, ledger: Ledger, state: JobState, leavers: Iterable[str]) -> Beside:
        """Who stays where these might leave for a waiting job, beside what else gives way to it."""
        stay = self._staying.copy()
        for job in leavers:
            stay.pop(job, None)
        stay = self._with_held(ledger, stay, *giving_way(ledger, state))
        found = Beside(stay, set(), set())
        for each in self._kept:
            if each.stay.items() <= stay.items():
                found.refused |= each.refused
            if stay.items() <= each.stay.items():
                found.fitting |= each.fitting
        if _is_plain(ledger):
            others = [each for each in self._kept if each.stay != stay]
            self._kept = [*others[1 - MOST_KEPT :], found]
        return found

    @staticmethod
    def _with_held(
        ledger: Ledger,
        stay: dict[str, Placement],
        passed: tuple[str, ...],
        overruled: tuple[str, ...],
    ) -> dict[str, Placement]:
        """The same with room that is held for gangs that are not placed, but for these reserved starts and claims.

        A claim counts as its gang does once it is there: whose room is taken at last frees nothing by that.
        """
        for job, claim in ledger.claims.items():
            if job not in overruled:
                stay[CLAIM + job if job in ledger.holding else job] = claim.placement
        for job, booking in ledger.bookings.items():
            if job not in passed:
                stay[BOOKING + job] = booking.placement
        return stay


def _is_plain(ledger: Ledger) -> bool:
    """Whether less room is left beside more gangs, whatever the order in which they came."""
    rooms = ledger.rooms()
    return not (rooms.parts_of_node or rooms.keeps_spares or ledger.site.others)
