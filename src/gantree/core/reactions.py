"""Which function answers which event: the table of all that may happen. The functions are where their noun is."""

from collections.abc import Callable
from typing import Any

from gantree.core import bars, by_hand, forgetting, found, lifecycle, nodes
from gantree.core.draft import Draft
from gantree.model.events import Event, SubmissionTaken, TimePassed
from gantree.policy.rules import Policy


def react(draft: Draft, event: Event, policy: Policy) -> None:
    """Record what follows from an event by itself."""
    _REACTIONS[type(event)](draft, event, policy)


def _time_passed(draft: Draft, event: TimePassed, policy: Policy) -> None:
    """Nothing by itself: `Scheduler.handle` looks at the timers on every call."""


def _submission_taken(draft: Draft, event: SubmissionTaken, policy: Policy) -> None:
    """Nothing: it is kept for whoever hands the same in again."""


_REACTIONS: dict[type[Event], Callable[[Draft, Any, Policy], None]] = {
    **lifecycle.REACTIONS,
    **by_hand.REACTIONS,
    **bars.REACTIONS,
    **found.REACTIONS,
    **nodes.REACTIONS,
    **forgetting.REACTIONS,
    SubmissionTaken: _submission_taken,
    TimePassed: _time_passed,
}
