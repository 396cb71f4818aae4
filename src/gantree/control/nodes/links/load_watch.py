"""Derives the load of links from what a site's Prometheus says of them, with hysteresis. Load is no health.

A link counts as busy from BUSY on, in steps of a tenth, rounded down: prices of new gangs count with what is left. More
load counts at once, less after CLEAN_S, and then as the most that was seen meanwhile, so that gangs do not follow each
other to and fro. What is not read changes nothing.

Running gangs leave no link for its load: a part of it is their own traffic.
"""

from collections.abc import Iterator, Mapping
from math import floor

from gantree.control.nodes.links.link_reports import CLEAN_S, Judgements, LinkReports
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.events import LinkHealthObserved
from gantree.telemetry.link_judgement import Judged
from gantree.telemetry.link_load import LOAD
from gantree.topology.fabric.conditions import has_link
from gantree.topology.fabric.fabric import Fabric

SOURCE = "link-load"
BUSY = 0.5
STEPS = 10


class LoadWatch:
    """The reports of load."""

    def __init__(self, clean_s: float = CLEAN_S) -> None:
        self._reports = LinkReports(SOURCE, clean_s)

    def judge(
        self, told: Mapping[str, Mapping[str, float]], fabric: Fabric, now: float
    ) -> Judgements:
        """What these loads, by link, say."""
        return Judgements.of(_judged(told, fabric))

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> list[LinkHealthObserved]:
        """What follows from that."""
        return self._reports.events(judgements, ledger, now, epoch)


def _judged(
    told: Mapping[str, Mapping[str, float]], fabric: Fabric
) -> Iterator[tuple[LinkId, Judged]]:
    for text, figures in sorted(told.items()):
        tier, _, path = text.partition(":")
        link = LinkId(tier, path)
        if link.gpu is None and has_link(fabric, link):
            load = min(floor(figures[LOAD] * STEPS), STEPS - 1) / STEPS
            busy = load if load >= BUSY else 0.0
            yield link, Judged(1.0, f"{busy:.0%} of its rate is taken" if busy else "", busy)
