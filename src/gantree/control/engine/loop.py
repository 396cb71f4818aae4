"""The asyncio loop around the controller: the controller's thread, and the task that steps it.

Everything that touches the controller, reading included, runs on that one thread in the order in which it was
asked for, so there are no locks, and whoever asks after a step sees all of it. The event loop itself never
waits for a disk.

What is the world's fault (a full disk, no file descriptors left) is tried again every second; what the cluster
tells is kept until then. Any other error is a bug that retrying would only repeat: it ends the loop, and with
it the daemon, whoever asked for the step that met it.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from gantree.control.engine.controller import Controller
from gantree.control.engine.watchdog import Pulse
from gantree.model.errors import GantreeError

POLL_S = 0.05
"""How often the cluster is looked at."""
RETRY_S = 1.0

log = logging.getLogger(__name__)
T = TypeVar("T")


def _nothing() -> None:
    """What most steps begin with."""


class Changes:
    """Lets any number of tasks wait for the next change. Take a ticket, look, and only then wait."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def ticket(self) -> asyncio.Event:
        """Something that is set by the first change after now."""
        return self._next

    def tick(self) -> None:
        """Say that something has changed."""
        self._next.set()
        self._next = asyncio.Event()


class Loop:
    """Runs a controller. Built inside a running event loop."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.stopping = False
        self.pulse = Pulse()
        self._engine = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine")
        self._events = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._bug: Exception | None = None
        self.failure: Exception | None = None
        """What the last step failed for, where it did: something outside, that is tried again."""

    async def call(self, work: Callable[[], T]) -> T:
        """Run a function on the controller's thread, in the context (span, log fields) of the caller."""
        context = copy_context()

        def at_work() -> T:
            with self.pulse.at_work():
                return context.run(work)

        return await self._events.run_in_executor(self._engine, at_work)

    def wake(self) -> None:
        """Let the next step begin now; safe from any thread."""
        self._events.call_soon_threadsafe(self._woken.set)

    def post(self, work: Callable[[], None]) -> None:
        """Run something on the event loop, soon; safe from any thread."""
        self._events.call_soon_threadsafe(work)

    async def advance(self, controller: Controller, first: Callable[[], None] = _nothing) -> float:
        """One step, and right before it first, with nothing between; give the seconds that may pass until the next.

        Raises what is a bug, and then `run` raises it too.
        """

        def step() -> tuple[bool, float | None]:
            first()
            return controller.step(), controller.seconds_to_wake()

        try:
            progressed, alarm_s = await self.call(step)
        except (GantreeError, OSError) as error:
            self.failure = error
            controller.metrics.failed_steps.inc()
            log.error("no step was made, trying again: %s", error)
            return RETRY_S
        except Exception as error:
            self._bug = error
            self._woken.set()
            raise
        self.failure = None
        if progressed:
            self.changes.tick()
            return 0.0  # what was decided may let the cluster hand in the next at once
        return POLL_S if alarm_s is None else min(POLL_S, alarm_s)

    async def run(self, controller: Controller) -> None:
        """Step until `stop`. Raises the AssertionError of a failed step."""
        while not self.stopping:
            self._woken.clear()
            if self._bug is not None:
                raise self._bug
            pause_s = await self.advance(controller)
            await wait_until_set(self._woken, pause_s)

    def stop(self) -> None:
        """End `run` and all waits."""
        self.stopping = True
        self.pulse.is_stepping = False
        self.wake()
        self.changes.tick()

    def close(self) -> None:
        """End the controller's thread."""
        self._engine.shutdown(wait=True)


async def wait_until_set(event: asyncio.Event, timeout_s: float) -> bool:
    """Wait for an event at most so long; say whether it came."""
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
