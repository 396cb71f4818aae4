"""Which function answers which event: the table of all that may happen. The functions are where their noun is."""

from collections.abc import Callable
from typing import Any

from gantree.core.events import node_restrictions as bars
from gantree.core.events import nodes
from gantree.core.events import operator_requests as by_hand
from gantree.core.ledger.decision_builder import DecisionBuilder
from gantree.core.lifecycle import adopted_gangs as found
from gantree.core.lifecycle import lifecycle
from gantree.core.lifecycle import retention as forgetting
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
    **by_hand.REACTIONS,
    **bars.REACTIONS,
    **found.REACTIONS,
    **nodes.REACTIONS,
    **forgetting.REACTIONS,
    SubmissionTaken: _submission_taken,
    TimePassed: _time_passed,
}
