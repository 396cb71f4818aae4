"""Priority boosts that expire: jobs get back the priority of their class."""

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.model.facts import PriorityChanged
from gantree.policy.boosts import boost_of


def end_boosts(builder: DecisionBuilder) -> None:
    """Record the priority of every job whose boost has expired."""
    policy = builder.ledger.policy
    if not policy.boosts:
        return
    for state in builder.ledger.in_arrival_order():
        if state.ended_at is not None:
            continue
        number = policy.priority_of(state.spec.priority) + boost_of(policy, state.spec, builder.now)
        if number != state.priority:
            builder.record(PriorityChanged(at=builder.now, job=state.job, priority=number))
