"""Engines that hang: a scheduler that never comes back from a turn about a job of a certain name. For tests.

Nothing in the daemon knows of it: a process of a test is made so before it begins (`support.daemon.live`).
"""

import threading
from collections.abc import Sequence

from gantree.core.scheduler import Decision, Scheduler
from gantree.model.events import Event, JobSubmitted

NAME = "hangs"
"""The name of the job."""


def hang() -> None:
    """From now on, in this process, a turn that takes in that job does not end."""
    handle = Scheduler.handle

    def hanging(scheduler: Scheduler, events: Sequence[Event]) -> Decision:
        if any(isinstance(event, JobSubmitted) and event.spec.name == NAME for event in events):
            threading.Event().wait()
        return handle(scheduler, events)

    Scheduler.handle = hanging  # type: ignore[method-assign, assignment]  # in this process alone, as said above
