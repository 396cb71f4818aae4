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
from itertools import chain

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import BOOKING, CLAIM, JobState
from gantree.core.preemption.candidates import giving_way
from gantree.model.placements import Placement
from gantree.topology.fabric.fabric import Fabric

MOST_KEPT = 32
"""Sets of those who stay that are remembered; the newest."""
MANY = 10_000
"""Places that are numbered before all is forgotten, beside four for each gang that holds one."""


@dataclass(slots=True)
class Beside:
    """Some who stay, as bits, and which signatures of gangs fit beside them or not, as far as is known."""

    stay: int
    fitting: set[int]
    refused: set[int]


class Stayers:
    """The sets of those who stayed for somebody, as long as all of them stay for anybody.

    A set is a number with a bit for each who stays at a place: where thousands do, two sets are compared in one step.
    """

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._site_version = 0
        self._unusable: frozenset[str] = frozenset()
        self._kept: list[Beside] = []
        self._bit_of: dict[str, tuple[Placement, int]] = {}
        self._bits_given = 0
        self._staying = 0

    def look(self, ledger: Ledger) -> None:
        """See who stays from now on, and forget what was refused beside others, or on fewer nodes."""
        fabric, unusable = ledger.rooms().fabric, frozenset(ledger.unusable)
        same_site = self._fabric is fabric and self._site_version == ledger.site.version
        if not same_site or not self._unusable <= unusable or not _is_plain(ledger):
            self._kept.clear()
        elif self._unusable != unusable:
            for each in self._kept:
                each.fitting.clear()
        self._fabric, self._site_version, self._unusable = fabric, ledger.site.version, unusable
        if self._bits_given > MANY + 4 * len(ledger.holding):
            self._kept.clear()
            self._bit_of.clear()
            self._bits_given = 0
        self._staying = _set_of(
            self._bit(state.job, state.placement)
            for state in ledger.holding.values()
            if not state.leaving and state.placement is not None
        )
        if self._kept:
            everybody = self._staying | self._held(ledger, (), ())
            self._kept = [each for each in self._kept if not each.stay & ~everybody]

    def beside(self, ledger: Ledger, state: JobState, leavers: Iterable[str]) -> Beside:
        """Who stays where these might leave for a waiting job, beside what else gives way to it."""
        gone = _set_of(self._bit_of[job][1] for job in leavers if job in self._bit_of)
        stay = (self._staying & ~gone) | self._held(ledger, *giving_way(ledger, state))
        found = Beside(stay, set(), set())
        for each in self._kept:
            if not each.stay & ~stay:
                found.refused |= each.refused
            if not stay & ~each.stay:
                found.fitting |= each.fitting
        if _is_plain(ledger):
            others = [each for each in self._kept if each.stay != stay]
            self._kept = [*others[1 - MOST_KEPT :], found]
        return found

    def _held(self, ledger: Ledger, passed: tuple[str, ...], overruled: tuple[str, ...]) -> int:
        """The room that is held for gangs that are not placed, but for these reserved starts and claims.

        A claim counts as its gang does once it is there: whose room is taken at last frees nothing by that.
        """
        without, before = frozenset(overruled), frozenset(passed)
        claims = (
            self._bit(CLAIM + job if job in ledger.holding else job, claim.placement)
            for job, claim in ledger.claims.items()
            if job not in without
        )
        bookings = (
            self._bit(BOOKING + job, booking.placement)
            for job, booking in ledger.bookings.items()
            if job not in before
        )
        return _set_of(chain(claims, bookings))

    def _bit(self, who: str, place: Placement) -> int:
        """The bit of somebody at a place; at another one he has another."""
        known = self._bit_of.get(who)
        if known is None or (known[0] is not place and known[0] != place):
            known = self._bit_of[who] = (place, self._bits_given)
            self._bits_given += 1
        return known[1]


def _set_of(bits: Iterable[int]) -> int:
    """The number that has these bits."""
    found = list(bits)
    octets = bytearray((max(found, default=0) >> 3) + 1)
    for bit in found:
        octets[bit >> 3] |= 1 << (bit & 7)
    return int.from_bytes(octets, "little")


def _is_plain(ledger: Ledger) -> bool:
    """Whether less room is left beside more gangs, whatever the order in which they came."""
    rooms = ledger.rooms()
    return not (rooms.parts_of_node or rooms.keeps_spares or ledger.site.others)
