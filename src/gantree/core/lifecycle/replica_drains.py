"""How a replica of a service leaves for somebody else: it drains first, within the grace of the policy.

Routers stop sending requests to it, and it is told to stop once it works on none. Whoever gets its room waits no longer
than for any gang: what the drain leaves of the grace is all that remains between SIGTERM and SIGKILL.
"""

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.phases import Phase, StopCause
from gantree.model.service_facts import ReplicaDraining
from gantree.policy.rules import Policy


def drains_first(ledger: Ledger, state: JobState, policy: Policy) -> bool:
    """Whether requests may be under way to a gang that is to leave its place, and there is time to finish them."""
    is_at_work = state.phase is Phase.RUNNING and not state.suspended and state.replica.was_ready
    return is_at_work and min(_drain_s(ledger, state), policy.grace_s) > 0


def _drain_s(ledger: Ledger, state: JobState) -> float:
    """How long a replica may drain; 0 for other gangs."""
    replica = state.spec.service
    service = None if replica is None else ledger.services.get(replica.service)
    return 0.0 if service is None else service.spec.drain_s


def drain_then_stop(
    builder: DecisionBuilder, state: JobState, cause: StopCause, policy: Policy
) -> None:
    """Let a replica drain that is to leave its place, and wait again."""
    now, replica = builder.now, state.replica
    ends_at = now + min(_drain_s(builder.ledger, state), policy.grace_s)
    if replica.drain_ends_at is not None:
        ends_at = min(ends_at, max(now, replica.drain_ends_at))
    builder.record(
        ReplicaDraining(
            at=now,
            job=state.job,
            attempt=state.attempt,
            ends_at=ends_at,
            reason=f"its place is taken: {cause}",
            cause=cause,
            gone_by=now + policy.grace_s,
        )
    )


def drains_for_another(state: JobState) -> bool:
    """Whether a replica drains since its place is taken."""
    return state.phase is Phase.SAVING and state.replica.gone_by is not None


def grace_left_s(state: JobState, grace_s: float, now: float) -> float:
    """How long an attempt may take from SIGTERM to SIGKILL, less what it has drained."""
    gone_by = state.replica.gone_by
    return grace_s if gone_by is None else min(grace_s, max(0.0, gone_by - now))
