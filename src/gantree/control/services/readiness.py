"""Probes the replicas of services again and again, and makes events of those that become ready or cease to be.

One task for each attempt of a replica that runs and does not drain; at most AT_ONCE probes at a time, and
OF_ONE_SERVICE of one service: one whose replicas do not answer delays no other service's. One good answer
makes a replica ready, `failures` bad ones in a row make it not ready; nothing is said of answers in between. What is on
record when a daemon begins to lead is where its task begins, and the first probe comes at once.

A probe that says nothing new leaves no trace: only transitions reach the inbox.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop, wait_until_set
from gantree.control.services.probe import probe
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.services.replicas import live_replicas
from gantree.model.events import ReplicaReadinessChanged
from gantree.model.phases import AttemptKey, Phase
from gantree.model.replicas import Endpoint, Readiness

AT_ONCE = 128
OF_ONE_SERVICE = 16
LOOK_EVERY_S = 0.1
"""How soon a replica that starts is seen, and how long at least lies between two looks at the ledger."""
LONGEST_WAIT_S = 2.0
LONGEST_REASON = 200

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """An attempt of a replica that is probed. was_ready: as it is on record."""

    service: str
    job: str
    attempt: int
    endpoint: Endpoint
    readiness: Readiness
    was_ready: bool


@dataclass(slots=True)
class Verdict:
    """Whether a replica is ready by the answers so far."""

    readiness: Readiness
    ready: bool
    failed: int = 0

    def add(self, reason: str) -> bool:
        """Take an answer ("" is a good one); return whether it changed the verdict."""
        self.failed = self.failed + 1 if reason else 0
        before = self.ready
        if not reason:
            self.ready = True
        elif self.failed >= self.readiness.failures:
            self.ready = False
        return self.ready is not before


def targets(ledger: Ledger) -> dict[AttemptKey, Target]:
    """The attempts that are to be probed, by job and attempt."""
    found = (_target(state) for state in replicas(ledger))
    return {(each.job, each.attempt): each for each in found if each is not None}


def replicas(ledger: Ledger) -> Iterator[JobState]:
    """The replicas that have not ended, of all services."""
    for service in ledger.services.values():
        yield from live_replicas(ledger, service)


def _target(state: JobState) -> Target | None:
    replica, of = state.replica, state.spec.service
    if of is None or not replica.endpoints or replica.draining or state.phase is not Phase.RUNNING:
        return None
    return Target(
        of.service, state.job, state.attempt, replica.endpoints[0], of.ready, replica.ready
    )


@dataclass(slots=True)
class ReadinessProber:
    """The tasks that probe. Built and used inside an event loop.

    answers has the last answer to each probe: why the replica does not answer as it should, or "".
    """

    loop: Loop
    controller: Controller
    answers: dict[AttemptKey, str] = field(default_factory=dict)
    _tasks: dict[AttemptKey, asyncio.Task[None]] = field(default_factory=dict)
    _at_once: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    _of_service: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    _count: int = 0

    def follow(self, wanted: dict[AttemptKey, Target]) -> None:
        """Probe these attempts from now on, and no others."""
        for gone in self._tasks.keys() - wanted.keys():
            self._tasks.pop(gone).cancel()
            self.answers.pop(gone, None)
        self._of_service = {
            each.service: self._of_service.get(each.service) or asyncio.Semaphore(OF_ONE_SERVICE)
            for each in wanted.values()
        }
        for key, target in wanted.items():
            task = self._tasks.get(key)
            if task is None or task.done():
                self._tasks[key] = asyncio.create_task(self._watch(target))

    async def close(self) -> None:
        """End all tasks."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await _end(tasks)

    async def _watch(self, target: Target) -> None:
        verdict = Verdict(target.readiness, target.was_ready)
        of_service = self._of_service[target.service]
        while True:
            async with of_service, self._at_once:
                reason = await probe(
                    target.endpoint, target.readiness.http_path, target.readiness.timeout_s
                )
            self.answers[target.job, target.attempt] = reason
            if verdict.add(reason):
                await self._tell(target, verdict.ready, reason)
            await asyncio.sleep(target.readiness.every_s)

    async def _tell(self, target: Target, ready: bool, reason: str) -> None:
        """Record a transition. The id is new, as the same attempt may become ready again and again."""
        self._count += 1
        name = f"{target.job}/{target.attempt}/readiness/{self.controller.epoch}.{self._count}"

        def record() -> None:
            self.controller.inbox.enqueue(
                ReplicaReadinessChanged(
                    id=name,
                    observed_at=self.controller.clock(),
                    job=target.job,
                    attempt=target.attempt,
                    ready=ready,
                    reason=reason[:LONGEST_REASON],
                )
            )

        await self.loop.call(record)


async def watch_readiness(
    loop: Loop, controller: Controller, answers: dict[AttemptKey, str]
) -> None:
    """Probe replicas until cancelled; answers is kept up to date."""
    prober = ReadinessProber(loop, controller, answers)
    try:
        while True:
            ticket = loop.changes.ticket()
            try:
                prober.follow(await loop.call(lambda: targets(controller.ledger)))
            except Exception:  # an observation ends no daemon
                log.exception("which replicas are to be probed is not known")
            await asyncio.sleep(LOOK_EVERY_S)
            await wait_until_set(ticket, LONGEST_WAIT_S)
    finally:
        await prober.close()


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
