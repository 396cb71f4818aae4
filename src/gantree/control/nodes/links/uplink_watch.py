"""Derives the health of domains' up-links from what the ports of the fabric carry.

The share is what the cables that are up carry, over what the cluster file gives as the capacity of the domain's
up-links. Where it gives none it is over the most that was read of this domain, or the usual of its tier, whichever is
more: so a daemon that starts while a cable is out finds it by its peers. A domain of the source is the narrowest one of
the cluster that holds all of its hosts.

Cables that are out close nothing. A domain without any up-link left carries 0 of what leaves it; inside it is whole.
"""

from collections.abc import Iterator, Mapping
from statistics import median_high
from typing import NamedTuple

import numpy as np

from gantree.control.nodes.links.link_reports import CLEAN_S, Judgements, LinkReports
from gantree.core.ledger.ledger import Ledger
from gantree.model.cluster import LinkId
from gantree.model.events import LinkHealthObserved
from gantree.telemetry.fabric_ports import Uplinks
from gantree.telemetry.link_judgement import Judged
from gantree.topology.fabric.conditions import links_of_domain
from gantree.topology.fabric.fabric import Fabric

SOURCE = "fabric-ports"
WHOLE = 0.95
"""Up-links with this share of their rates or more are whole: rates are rounded."""
Readings = Mapping[str, Mapping[int, Uplinks]]
"""By host and tier of the source, 0 for the narrowest."""


class _Domain(NamedTuple):
    tier: int
    number: int


class UplinkWatch:
    """The most that was read of each domain, and the reports."""

    def __init__(self, clean_s: float = CLEAN_S) -> None:
        self._reports = LinkReports(SOURCE, clean_s)
        self._most_GBps: dict[LinkId, float] = {}

    def judge(self, told: Readings, fabric: Fabric, now: float) -> Judgements:
        """What the ports of the fabric say as they are."""
        return Judgements.of(self._judged(told, fabric))

    def events(
        self, judgements: Judgements, ledger: Ledger, now: float, epoch: int
    ) -> list[LinkHealthObserved]:
        """What follows from that."""
        return self._reports.events(judgements, ledger, now, epoch)

    def _judged(self, told: Readings, fabric: Fabric) -> Iterator[tuple[LinkId, Judged]]:
        GBps = _by_domain(told, fabric)
        usual = {
            tier: median_high([carried for each, carried in GBps.items() if each.tier == tier])
            for tier in {each.tier for each in GBps}
        }
        for domain, carried in sorted(GBps.items()):
            link = links_of_domain(fabric, *domain)
            most = max(self._most_GBps.get(link, 0.0), carried)
            self._most_GBps[link] = most
            stated = float(fabric.uplink_GBps_of_domain[domain.tier][domain.number])
            whole = stated if np.isfinite(stated) and most else max(most, usual[domain.tier])
            if whole:
                yield link, _health(carried, whole)


def _by_domain(told: Readings, fabric: Fabric) -> dict[_Domain, float]:
    """GB/s of the up-links of each domain of the cluster that the source has; of several in one, of all together."""
    hosts: dict[tuple[int, Uplinks], list[int]] = {}
    for host, of_tier in told.items():
        for number, uplinks in of_tier.items():
            if host in fabric.index_of_node:
                hosts.setdefault((number, uplinks), []).append(fabric.index_of_node[host])
    found: dict[_Domain, tuple[int, float]] = {}
    for (number, uplinks), nodes in sorted(hosts.items()):
        tier, domain = fabric.narrowest_domain(nodes)
        if tier == fabric.node_tier:
            tier, domain = tier - 1, int(fabric.domain_of_node[tier - 1][nodes[0]])
        narrowest, GBps = found.get(_Domain(tier, domain), (number, 0.0))
        if tier > 0 and number == narrowest:
            found[_Domain(tier, domain)] = number, GBps + uplinks.GBps
    return {domain: GBps for domain, (_, GBps) in found.items()}


def _health(carried_GBps: float, whole_GBps: float) -> Judged:
    if carried_GBps >= WHOLE * whole_GBps:
        return Judged(1.0)
    reason = f"up-links carry {carried_GBps:g} of {whole_GBps:g} GB/s"
    return Judged(round(carried_GBps / whole_GBps, 3), reason)
