"""When a gang that is idle is warned, and when it is due to be reclaimed.

The clock of a gang starts at the last sample at which it computed, and not before it has run for the grace of its
queue. The warning is a timer. The rest waits for a sample that still finds the gang idle (`core.events.idle_gangs`),
so that nothing is taken from a gang that is not measured. It comes no sooner after the warning than the policy lets
pass between the two, whatever has changed meanwhile, and not before the lease of the job is over; before the end of a
lease the gang is warned, too. A gang that is suspended in turns, that misses members or that saves has no clock.
"""

from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.ledger.state import JobState
from gantree.model.idle_facts import GangIdleWarned, GangReclaimed
from gantree.model.orders import WriteToLog
from gantree.model.phases import Phase
from gantree.policy.idle import IdleTerms, terms_of
from gantree.policy.rules import Policy
from gantree.text.words import plural, span

OUTCOMES = {
    "requeue": "stopped, and queued again",
    "shrink": "shrunk to its fewest members",
    "smaller": "moved to a smaller GPU",
    "stop": "stopped for good",
}
"""What an action does to a gang, in words."""


def can_be_idle(state: JobState) -> bool:
    """Whether an attempt is one whose GPUs ought to compute now."""
    return state.phase is Phase.RUNNING and not state.suspended and not state.missing


def terms_now(state: JobState, policy: Policy) -> IdleTerms | None:
    """What holds for a job that may be idle; None for one that is not to be reclaimed."""
    if state.idle.exempt or not can_be_idle(state):
        return None
    return terms_of(policy.idle_of(state.spec.queue), state.spec)


def warned_at(state: JobState, policy: Policy) -> float | None:
    """When an idle gang is to be warned, in seconds; None for one that is not idle, or was warned."""
    if state.idle.since is None or state.idle.warned_at is not None:
        return None
    terms = terms_now(state, policy)
    if terms is None:
        return None
    return max(_clock(state, terms) + terms.warn_s, lease_end(state, terms) - terms.notice_s)


def reclaimed_at(state: JobState, policy: Policy) -> float | None:
    """From when on a warned gang is reclaimed, in seconds; None for one that is not warned, or only that."""
    if state.idle.since is None or state.idle.warned_at is None:
        return None
    terms = terms_now(state, policy)
    if terms is None or terms.action == "warn":
        return None
    return _reclaimed_at(state, terms, state.idle.warned_at)


def _reclaimed_at(state: JobState, terms: IdleTerms, warned_at: float) -> float:
    return max(
        _clock(state, terms) + terms.reclaim_s,
        lease_end(state, terms),
        warned_at + terms.notice_s,
    )


def _clock(state: JobState, terms: IdleTerms) -> float:
    """The moment from which a gang counts as idle."""
    assert state.idle.since is not None and state.running_at is not None
    return max(state.idle.since, state.running_at + terms.grace_s)


def lease_end(state: JobState, terms: IdleTerms) -> float:
    """When the lease of a running job is over, in seconds; 0 without one."""
    own = 0.0 if state.running_at is None or not terms.lease_s else state.running_at + terms.lease_s
    return max(own, state.idle.extended_until or 0.0)


def warn_idle(builder: DecisionBuilder, state: JobState, policy: Policy) -> None:
    """Warn a gang that has been idle for long enough: by a fact, and in its own log."""
    terms = terms_now(state, policy)
    assert terms is not None
    reclaim_at = None if terms.action == "warn" else _reclaimed_at(state, terms, builder.now)
    builder.record(
        GangIdleWarned(
            at=builder.now,
            job=state.job,
            attempt=state.attempt,
            action=terms.action,
            reclaim_at=reclaim_at,
        )
    )
    builder.order(warning_order(state))


def warning_order(state: JobState) -> WriteToLog:
    """The order that writes the last warning of an attempt into its log."""
    return WriteToLog(
        id=f"{state.job}/{state.attempt}/idle-warning-{state.idle.warnings}",
        job=state.job,
        attempt=state.attempt,
        text=_warning(state),
    )


def _warning(state: JobState) -> str:
    idle = state.idle
    assert idle.since is not None and idle.warned_at is not None
    whose = (
        f"{plural(state.gpus, 'GPU')} of this job have" if state.gpus > 1 else "GPU of this job has"
    )
    has = f"the {whose} not computed for {span(idle.warned_at - idle.since)}"
    if idle.reclaim_at is None:
        return f"{has}."
    left = span(idle.reclaim_at - idle.warned_at)
    return (
        f"{has}. In {left} it is {OUTCOMES[idle.action]}, unless it computes. To keep it: gantree"
        f" extend {state.job} 2h"
    )


def noted_in_words(fact: GangIdleWarned | GangReclaimed) -> str:
    """A sentence for the log of a daemon."""
    gang = f"job {fact.job} attempt {fact.attempt}"
    if isinstance(fact, GangReclaimed):
        return f"{gang} is reclaimed after {span(fact.at - fact.since)} without computing: {fact.action}"
    if fact.reclaim_at is None:
        return f"{gang} does not compute"
    return f"{gang} does not compute: {fact.action} in {span(fact.reclaim_at - fact.at)}"


def idle_in_words(state: JobState, policy: Policy, now: float) -> str:
    """A further sentence for a gang that is idle, on what comes and how to prevent it; "" for others."""
    idle = state.idle
    if idle.since is None or state.phase is not Phase.RUNNING:
        return ""
    has = f" Idle: its GPUs have not computed for {span(now - idle.since)}"
    if idle.exempt:
        return f"{has}; an operator has exempted it."
    terms, warn_at = terms_now(state, policy), warned_at(state, policy)
    if terms is None:
        return f"{has}."
    if warn_at is not None:
        return f"{has}; it is warned {_in(warn_at - now)}.{_to_keep(state)}"
    ago = span(max(0.0, now - (idle.warned_at or now)))
    reclaim_at = reclaimed_at(state, policy)
    if reclaim_at is None:
        return f"{has}; warned {ago} ago."
    comes = f"it is {OUTCOMES[terms.action]} {_in(reclaim_at - now)} unless it computes"
    return f"{has}; warned {ago} ago, and {comes}.{_to_keep(state)}"


def _in(seconds: float) -> str:
    return f"in {span(seconds)}" if seconds > 0 else "with the next sample"


def _to_keep(state: JobState) -> str:
    return f" `gantree extend {state.job} 2h` keeps it."
