"""Readiness of the daemon: it has recovered, its last step was made, its journal is writable, and it is not stopping.

The journal is asked to write on the controller's thread. A long turn holds that up; the last answer counts as long as
it is young, so that a turn of seconds takes no daemon out of service.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from gantree.api.backend import Backend
from gantree.control.engine.controller import Controller
from gantree.model.errors import NotLeading, Unreachable

ANSWER_WITHIN_S = 1.0
YOUNG_S = 30.0
"""So long an answer stands while the next one is waited for."""

Json = dict[str, Any]


@dataclass(slots=True)
class _Probe:
    """One question to the journal, asked or answered."""

    answer: asyncio.Task[Json]
    asked_at: float


class Readiness:
    """Asks the journal, at most one question at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._probe: _Probe | None = None
        self._last: tuple[float, Json] | None = None

    async def answer(self) -> Json:
        """What the daemon is. Raises JournalError for a journal that cannot be written, Unreachable for all else."""
        if self._backend.loop.stopping:
            raise Unreachable("the daemon is stopping")
        if (failure := self._backend.loop.failure) is not None:
            raise Unreachable(f"no step is made: {failure}")
        if self._probe is not None and self._probe.answer.done():
            self._probe = None  # nobody was there any more when it was answered
        probe = self._probe = self._probe or _Probe(
            asyncio.create_task(self._ask()), time.monotonic()
        )
        done, _ = await asyncio.wait({probe.answer}, timeout=ANSWER_WITHIN_S)
        if done:
            self._probe = None
            return probe.answer.result()
        if self._last is not None and time.monotonic() - self._last[0] < YOUNG_S:
            return self._last[1]
        waited_s = time.monotonic() - probe.asked_at
        raise Unreachable(f"the control loop has not answered for {waited_s:.0f} s")

    async def _ask(self) -> Json:
        state = await self._backend.call_controller(_fitness)
        self._last = (time.monotonic(), state)
        return state


def _fitness(controller: Controller) -> Json:
    """A leader must be able to write. Raises JournalError, and NotLeading once another epoch has begun."""
    epoch, holder = controller.journal.leader()
    if epoch != controller.epoch:
        leads = "nobody" if holder is None else holder
        raise NotLeading(f"epoch {controller.epoch} is over: {leads} leads", holder)
    controller.journal.check_writable()
    return {"ready": True, "recovered": True, "role": "leader", "leader": holder, "epoch": epoch}
