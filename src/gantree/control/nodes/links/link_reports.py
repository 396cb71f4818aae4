"""Makes events of what a source judges of links: a lower share at once, a higher one after a while.

This is the hysteresis of all sources of link health, and of load. A link is better again only after clean_s without a
break, and by no more than the least it showed in that time, so that one that comes and goes stays degraded. What is on
record is compared, so a restart repeats nothing.

A large site has tens of thousands of links. They are judged on whatever thread reads them (`Judgements`); the thread
that decides looks only at those that are not whole, or were not.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.events import LinkHealthObserved
from gantree.telemetry.link_judgement import Judged

CLEAN_S = 300.0
MOST_A_ROUND = 200
"""So many reports are handed in at once; the others follow in the next rounds, if they still hold."""


class Judgements(NamedTuple):
    """What was read of links: all of them, and those that are not whole and idle, in the order of the source."""

    of_link: Mapping[LinkId, Judged]
    worn: Sequence[LinkId]

    @classmethod
    def of(cls, judged: Iterable[tuple[LinkId, Judged]]) -> "Judgements":
        """Sort them. Of a link that comes twice the last one counts."""
        of_link = dict(judged)
        return cls(of_link, [link for link, found in of_link.items() if found.left < 1.0])


class LinkReports:
    """Since when links on record of one source are better again, and the worst that they showed since."""

    def __init__(self, source: str, clean_s: float = CLEAN_S) -> None:
        self._source = source
        self._clean_s = clean_s
        self._better: dict[LinkId, tuple[float, Judged]] = {}
        self._told = 0

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> list[LinkHealthObserved]:
        """What follows from these judgements; now is in seconds."""
        known = {link: None for link, signs in ledger.site.links.items() if self._source in signs}
        for link in [link for link in self._better if link not in known]:
            del self._better[link]
        links = {**dict.fromkeys(judgements.worn), **known}
        changed = self._changed(links, judgements.of_link, ledger, now)
        return [self._event(*each, now, epoch) for each in islice(changed, MOST_A_ROUND)]

    def on_record(self, ledger: Ledger, link: LinkId) -> Judged:
        """What is on record of a link from this source, be it overruled or not."""
        sign = ledger.site.links.get(link, {}).get(self._source)
        return Judged(1.0) if sign is None else Judged(sign.health, sign.reason, sign.load)

    def settled(self, link: LinkId, judged: Judged, was: Judged, now: float) -> Judged:
        """What is to be on record of a link where this was before."""
        if judged.left < was.left or judged == was:
            self._better.pop(link, None)
            return judged
        since, worst = self._better.get(link, (now, judged))
        worst = min(worst, judged, key=lambda one: one.left)
        self._better[link] = since, worst
        if now - since < self._clean_s:
            return was
        del self._better[link]
        return worst

    def _changed(
        self,
        links: Iterable[LinkId],
        judged: Mapping[LinkId, Judged],
        ledger: Ledger,
        now: float,
    ) -> Iterator[tuple[LinkId, Judged]]:
        for link in links:
            found = judged.get(link)
            if found is None:
                continue
            was = self.on_record(ledger, link)
            settled = self.settled(link, found, was, now)
            if settled != was:
                yield link, settled

    def _event(self, link: LinkId, judged: Judged, now: float, epoch: int) -> LinkHealthObserved:
        self._told += 1
        return LinkHealthObserved(
            id=f"link/{self._source}/{link}/{epoch}.{self._told}",
            observed_at=now,
            link=link,
            source=self._source,
            health=judged.health,
            reason=judged.reason,
            load=judged.load,
        )
