"""The table from events to handlers. Handlers are in the module of their noun."""

from collections.abc import Callable
from typing import Any

from gantree.core.events import idle_gangs, node_restrictions, nodes, operator_requests, slow_ranks
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.lifecycle import (
    adopted_gangs,
    attempt_end,
    burn_ins,
    lifecycle,
    measured_use,
    retention,
)
from gantree.core.services import requests as service_requests
from gantree.model.events import Event, SubmissionTaken, TimePassed
from gantree.policy.rules import Policy


def react(builder: DecisionBuilder, event: Event, policy: Policy) -> None:
    """Record what follows from an event by itself."""
    _REACTIONS[type(event)](builder, event, policy)


def _time_passed(builder: DecisionBuilder, event: TimePassed, policy: Policy) -> None:
    """Nothing by itself: `Scheduler.handle` looks at the timers on every call."""


def _submission_taken(builder: DecisionBuilder, event: SubmissionTaken, policy: Policy) -> None:
    """Nothing: it is kept for whoever hands the same in again."""


_REACTIONS: dict[type[Event], Callable[[DecisionBuilder, Any, Policy], None]] = {
    **lifecycle.REACTIONS,
    **attempt_end.REACTIONS,
    **operator_requests.REACTIONS,
    **node_restrictions.REACTIONS,
    **adopted_gangs.REACTIONS,
    **burn_ins.REACTIONS,
    **nodes.REACTIONS,
    **slow_ranks.REACTIONS,
    **retention.REACTIONS,
    **measured_use.REACTIONS,
    **idle_gangs.REACTIONS,
    **service_requests.REACTIONS,
    SubmissionTaken: _submission_taken,
    TimePassed: _time_passed,
}
