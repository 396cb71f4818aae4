"""The site of a snapshot as events, so that a simulation that begins with nothing comes to know it."""

from collections.abc import Iterator

from gantree.core.ledger.ledger import Ledger
from gantree.model.events import (
    ClusterObserved,
    CordonRequested,
    Event,
    HealthObserved,
    LabelRequested,
    LinkHealthObserved,
    NodeLost,
    OthersHold,
)


def site_events(ledger: Ledger) -> tuple[Event, ...]:
    """What makes an empty ledger know the site as this one does, at moment 0; empty for one that knows of none."""
    described = ledger.site.described
    if described is None:
        return ()
    observed = ClusterObserved(id="snapshot/site", observed_at=0.0, cluster=described)
    said = (*_labels(ledger), *_cordons(ledger), *_faults(ledger), *_links(ledger))
    return (observed, *said, *_holders(ledger))


def _labels(ledger: Ledger) -> Iterator[Event]:
    for node, labels in ledger.site.labels.items():
        event_id = f"snapshot/labels/{node}"
        yield LabelRequested(id=event_id, observed_at=0.0, node=node, labels=tuple(labels.items()))


def _cordons(ledger: Ledger) -> Iterator[Event]:
    for node, cordon in ledger.site.asked.items():
        yield CordonRequested(
            id=f"snapshot/cordon/{node}",
            observed_at=0.0,
            node=node,
            reason=cordon.reason,
            drain=cordon.drain,
            deadline_at=cordon.deadline_at,
        )


def _faults(ledger: Ledger) -> Iterator[Event]:
    for node, reason in ledger.unusable.items():
        yield NodeLost(id=f"snapshot/lost/{node}", observed_at=0.0, node=node, reason=reason)
    for node, illnesses in ledger.site.unwell.items():
        for source, illness in illnesses.items():
            if not illness.forgiven:
                event_id = f"snapshot/health/{node}/{source}"
                yield HealthObserved(
                    id=event_id,
                    observed_at=0.0,
                    node=node,
                    source=source,
                    reason=illness.reason,
                    kept=illness.kept,
                )


def _links(ledger: Ledger) -> Iterator[Event]:
    for link, signs in ledger.site.links.items():
        for source, sign in signs.items():
            if not sign.forgiven:
                yield LinkHealthObserved(
                    id=f"snapshot/link/{link}/{source}",
                    observed_at=0.0,
                    link=link,
                    source=source,
                    health=sign.health,
                    reason=sign.reason,
                    load=sign.load,
                )


def _holders(ledger: Ledger) -> Iterator[Event]:
    for holder, members in ledger.site.others.items():
        event_id = f"snapshot/holder/{holder}"
        yield OthersHold(id=event_id, observed_at=0.0, holder=holder, members=members)
