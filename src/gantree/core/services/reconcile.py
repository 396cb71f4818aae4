"""Which replicas a service has, after each decision that changed something about it.

`services.rollout` says how many replicas to add and which to end; here its answer becomes jobs that are accepted, drain
and end. A service is looked at where a fact of the decision is about it or its replicas, or about nodes. So nothing is
remembered between decisions: carried out once, the rule has nothing more to say until something changes.

Replicas on a node that is drained count as old ones: others are started elsewhere first, as in an update. At the
deadline of the drain they drain in any case.
"""

from collections.abc import Iterable, Iterator
from math import inf

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.replicas import (
    add_replica,
    end_replica,
    is_current,
    is_ending,
    live_replicas,
    runs_description,
    service_of,
    takes_requests,
)
from gantree.model.facts import FabricDefined, Fact, PolicyAdopted
from gantree.model.phases import HOLDING
from gantree.model.service_facts import ServiceEnded
from gantree.model.site_facts import NodeCordoned, NodeHealthNoted, NodeUncordoned
from gantree.policy.rules import Policy
from gantree.services.rollout import ReplicaStatus, RolloutPlan, plan

ABOUT_ALL = (FabricDefined, PolicyAdopted, NodeCordoned, NodeUncordoned, NodeHealthNoted)
"""Facts that may be about the replicas of any service."""


def reconcile(builder: DecisionBuilder, policy: Policy) -> None:
    """Add and end replicas of the services that the facts of this decision are about."""
    if not builder.ledger.services:
        return
    for service, state, node in list(_overdue(builder)):
        end_replica(builder, service, state, f"node {node} is drained", policy)
    for service in changed_services(builder.ledger, builder.facts):
        _reconcile(builder, service, policy)


def changed_services(ledger: Ledger, facts: Iterable[Fact]) -> list[ServiceState]:
    """The live services that facts are about, in the order of the facts."""
    names: dict[str, None] = {}
    for fact in facts:
        if isinstance(fact, ABOUT_ALL):
            names |= dict.fromkeys(ledger.services)
        state = ledger.jobs.get(getattr(fact, "job", ""))
        if state is not None and state.spec.service is not None:
            names[state.spec.service.service] = None
        elif (name := getattr(fact, "service", "")) in ledger.services:
            names[name] = None
    found = (ledger.services.get(name) for name in names)
    return [service for service in found if service is not None and service.is_live]


def next_plan(ledger: Ledger, service: ServiceState) -> RolloutPlan:
    """How many replicas of a service to add now, and which to end."""
    statuses = [_status(ledger, service, state) for state in live_replicas(ledger, service)]
    return plan(statuses, service.wanted, service.spec.update)


def _status(ledger: Ledger, service: ServiceState, state: JobState) -> ReplicaStatus:
    assert state.spec.service is not None
    return ReplicaStatus(
        state.spec.service.number,
        is_current(ledger, service, state),
        takes_requests(state),
        is_ending(state),
        state.phase in HOLDING,
    )


def _reconcile(builder: DecisionBuilder, service: ServiceState, policy: Policy) -> None:
    if service.is_ending:
        if not service.replicas:
            builder.record(
                ServiceEnded(at=builder.now, service=service.service, reason=service.reason)
            )
        return
    step, ending = next_plan(builder.ledger, service), []
    if step.end:
        there = {_number(state): state for state in live_replicas(builder.ledger, service)}
        ending = [there[number] for number in step.end]
    for state in ending:
        reason = _why_ending(builder.ledger, service, state)
        end_replica(builder, service, state, reason, policy)
    for _ in range(step.add):
        if not add_replica(builder, service, policy):
            break


def _why_ending(ledger: Ledger, service: ServiceState, state: JobState) -> str:
    if not runs_description(service, state):
        return f"replaced by revision {service.revision}"
    if not is_current(ledger, service, state):
        return "another replica is ready, and its node is to be left"
    return f"scaled down to {service.wanted}"


def _number(state: JobState) -> int:
    assert state.spec.service is not None
    return state.spec.service.number


def _overdue(builder: DecisionBuilder) -> Iterator[tuple[ServiceState, JobState, str]]:
    """The replicas on drained nodes whose deadline has come, and that do not end yet."""
    ledger = builder.ledger
    for node, cordon in ledger.site.cordoned.items():
        deadline_at = -inf if cordon.deadline_at is None else cordon.deadline_at
        if not cordon.drain or deadline_at > builder.now or ledger.occupancy is None:
            continue
        known = node in ledger.occupancy.fabric.index_of_node
        for job in sorted(ledger.occupancy.holders(node)) if known else ():
            state = ledger.holding.get(job)
            service = None if state is None else service_of(ledger, state)
            if state is not None and service is not None and not is_ending(state):
                yield service, state, node
