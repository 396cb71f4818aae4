"""What is announced of which fact, as rows for the journal. Pure: sending is in `delivery`.

The body is one JSON object, the same for webhooks and, in lines, for mail. Its id is made of the fact, so that whoever
gets a message twice knows it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from gantree.control.notifications.settings import target_of
from gantree.core.ledger.ledger import Ledger
from gantree.journal.contract import RecordedFact
from gantree.journal.notification_store import Notification
from gantree.model.budget_facts import BudgetNoted
from gantree.model.facts import ArrayEnded, Fact, GangPreempted, GangRunning, JobEnded, JobRequeued
from gantree.model.idle_facts import GangIdleWarned, GangReclaimed
from gantree.model.jobs import BUDGET_EVENT, Job, Notify
from gantree.model.phases import FAILURES, Phase
from gantree.model.service_facts import ServiceEnded
from gantree.text.words import span

ANNOUNCED = (
    GangRunning, GangPreempted, GangIdleWarned, GangReclaimed, JobRequeued, JobEnded, ArrayEnded, ServiceEnded,
    BudgetNoted,
)  # fmt: skip
"""Kinds of facts of which anything is announced."""
WEBHOOK, MAIL = "webhook", "mail"
FAILED = frozenset({Phase.FAILED, Phase.TIMED_OUT})


@dataclass(frozen=True, slots=True)
class Announced:
    """What a fact says of a job. attempt None: that of the job's last, which the fact does not name."""

    job: str
    event: str
    phase: Phase
    attempt: int | None = None
    exit_code: int | None = None
    reason: str = ""


def announced(fact: Fact) -> Announced:
    """What one of ANNOUNCED says about a job; for an array whose waiting elements ended together, about the array."""
    match fact:
        case GangRunning():
            return Announced(fact.job, "start", Phase.RUNNING, fact.attempt)
        case GangPreempted():
            return Announced(
                fact.job, "preemption", Phase.STOPPING, fact.attempt, reason=fact.cause
            )
        case GangIdleWarned():
            return Announced(
                fact.job, "idle", Phase.RUNNING, fact.attempt, reason=_what_comes(fact)
            )
        case GangReclaimed():
            what = f"reclaimed after {span(fact.at - fact.since)}: {fact.action}"
            return Announced(fact.job, "idle", Phase.RUNNING, fact.attempt, reason=what)
        case JobRequeued():
            return Announced(fact.job, "failure", Phase.PENDING, reason=f"it failed: {fact.cause}")
        case _:
            return _end_announced(fact)


def _end_announced(fact: Fact) -> Announced:
    """What is said of the end of a job, an array or a service."""
    match fact:
        case JobEnded():
            event, code = _event_of(fact.outcome), fact.exit_code
            return Announced(fact.job, event, fact.outcome, exit_code=code, reason=fact.reason)
        case ArrayEnded():
            return Announced(
                fact.array, _event_of(fact.outcome), fact.outcome, 0, reason=fact.reason
            )
        case ServiceEnded():
            return Announced(fact.service, "end", Phase.CANCELLED, 0, reason=fact.reason)
    raise AssertionError(f"nothing is announced of {type(fact).__name__}")


def _event_of(outcome: Phase) -> str:
    return "failure" if outcome in FAILED else "end"


def concerns(fact: Fact, spec: Job) -> bool:
    """Whether a fact is announced of a job of this kind.

    A replica fails as often as it likes: the first failure after it ran well is told. Its end is none of its service.
    """
    if isinstance(fact, JobRequeued):
        return spec.service is not None and fact.cause in FAILURES and fact.failures == 1
    return spec.service is None or isinstance(fact, GangPreempted)


def spec_of(ledger: Ledger, job: str) -> Job | None:
    """The job of an id, or that of each replica of a service of that name."""
    state, service = ledger.jobs.get(job), ledger.services.get(job)
    if state is not None:
        return state.spec
    return None if service is None else service.spec.replica


def _what_comes(fact: GangIdleWarned) -> str:
    if fact.reclaim_at is None:
        return "its GPUs do not compute"
    left = span(fact.reclaim_at - fact.at)
    return f"its GPUs do not compute; {fact.action} in {left} (gantree extend {fact.job} 2h)"


def notifications_of(
    recorded: RecordedFact, said: Announced, spec: Job, attempt: int
) -> Iterator[Notification]:
    """The rows for a job that has its events announced: none, one, or one for each channel."""
    notify = spec.notify
    if notify is None or said.event not in notify.on:
        return
    body = json.dumps(
        {
            "id": f"{recorded.seq}.{int(recorded.fact.at * 1000)}.{said.job}",
            "job": said.job,
            "name": spec.name,
            "queue": spec.queue,
            "user": spec.user,
            "event": said.event,
            "at": recorded.fact.at,
            "phase": str(said.phase),
            "exit_code": said.exit_code,
            "reason": said.reason,
            "attempt": attempt,
        }
    )
    yield from _on_each_channel(recorded, notify, body)


def budget_notifications(
    recorded: RecordedFact, fact: BudgetNoted, notify: Notify | None
) -> Iterator[Notification]:
    """The rows for a level that the budget of a queue has reached; none where it only has more again."""
    if notify is None or not (fact.level or fact.closed):
        return
    body = json.dumps(
        {
            "id": f"{recorded.seq}.{int(fact.at * 1000)}.{fact.queue}.{fact.period}",
            "queue": fact.queue,
            "event": BUDGET_EVENT,
            "at": fact.at,
            "period": fact.period,
            "unit": fact.unit,
            "amount": fact.amount,
            "used": round(fact.used, 6),
            "level": fact.level,
            "closed": fact.closed,
            "ends_at": fact.ends_at,
        }
    )
    yield from _on_each_channel(recorded, notify, body)


def _on_each_channel(recorded: RecordedFact, notify: Notify, body: str) -> Iterator[Notification]:
    at = recorded.fact.at
    if notify.webhook is not None:
        target = target_of(notify.webhook)
        yield Notification(recorded.seq, WEBHOOK, target, notify.webhook, body, at, 0, at)
    if notify.mail is not None:
        yield Notification(recorded.seq, MAIL, MAIL, notify.mail, body, at, 0, at)
