"""Which replicas a service has, after each decision that changed something about it."""

from collections.abc import Iterable

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.services.replicas import add_replica, is_ending, live_replicas
from gantree.model.facts import Fact
from gantree.model.service_facts import ServiceEnded
from gantree.policy.rules import Policy


def reconcile(builder: DecisionBuilder, policy: Policy) -> None:
    """Add and end replicas of the services that the facts of this decision are about."""
    if not builder.ledger.services:
        return
    for service in changed_services(builder.ledger, builder.facts):
        _reconcile(builder, service, policy)


def changed_services(ledger: Ledger, facts: Iterable[Fact]) -> list[ServiceState]:
    """The live services that facts are about, in the order of their names."""
    names = dict.fromkeys(getattr(fact, "service", None) for fact in facts)
    for fact in facts:
        state = ledger.jobs.get(getattr(fact, "job", ""))
        if state is not None and state.spec.service is not None:
            names[state.spec.service.service] = None
    found = (ledger.services.get(name) for name in names if name is not None)
    return [service for service in found if service is not None and service.is_live]


def _reconcile(builder: DecisionBuilder, service: ServiceState, policy: Policy) -> None:
    if service.is_ending:
        if not service.replicas:
            builder.record(
                ServiceEnded(at=builder.now, service=service.service, reason=service.reason)
            )
        return
    there = [s for s in live_replicas(builder.ledger, service) if not is_ending(s)]
    for _ in range(service.wanted - len(there)):
        add_replica(builder, service, policy)
