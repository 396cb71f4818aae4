"""Samples services while a daemon leads: asks replicas and Prometheus, decides, and requests what was decided.

What services needed by hour of the week is read once and written every few minutes (`journal.service_week_store`), so a
daemon that takes over predicts as the one before did.
"""

import asyncio
import logging

from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.services.autoscaling import Answer, Question, ServiceScaling, answered
from gantree.control.services.of_cluster import services_ledger
from gantree.journal.service_week_store import ServiceWeekStore
from gantree.model.errors import JournalError
from gantree.model.events import ServiceScaleRequested

LOOK_EVERY_S = 0.5
"""How soon a request that waits for a service without replicas is seen, after a router told of it."""
KEEP_EVERY_S = 300.0
AGAIN_AFTER_S = 5.0
"""After an error of the journal."""

log = logging.getLogger(__name__)


async def autoscale(
    loop: Loop,
    controller: Controller,
    scaling: ServiceScaling,
    server: str | None,
    store: ServiceWeekStore,
) -> None:
    """Sample services until cancelled. server is that of Prometheus, for queries. Raises AssertionError for bugs."""
    await read_weeks(loop, scaling, store)
    asking: list[asyncio.Task[None]] = []
    keeping = asyncio.create_task(_keep_weeks(loop, controller, scaling, store))
    try:
        while True:
            for question in await loop.call(
                lambda: scaling.due(services_ledger(controller), controller.clock())
            ):
                sample = _sample(loop, controller, scaling, question, server)
                asking.append(asyncio.create_task(sample))
            await asyncio.sleep(LOOK_EVERY_S)
            for task in [each for each in asking if each.done()]:
                asking.remove(task)
                task.result()
    finally:
        for task in (keeping, *asking):
            task.cancel()
        await asyncio.gather(keeping, *asking, return_exceptions=True)


async def read_weeks(loop: Loop, scaling: ServiceScaling, store: ServiceWeekStore) -> None:
    """Begin with what is on record: without it, what is there would be written over."""
    while True:
        try:
            weeks = await asyncio.to_thread(store.read)
            break
        except JournalError as error:
            log.warning("what services needed in earlier weeks is not known yet: %s", error)
            await asyncio.sleep(AGAIN_AFTER_S)

    def begin() -> None:
        scaling.weeks = weeks

    await loop.call(begin)


async def _keep_weeks(
    loop: Loop, controller: Controller, scaling: ServiceScaling, store: ServiceWeekStore
) -> None:
    while True:
        await asyncio.sleep(KEEP_EVERY_S)
        try:
            await keep_weeks(loop, controller, scaling, store)
        except JournalError as error:
            log.warning("what services need by hour of the week is not on record: %s", error)


async def keep_weeks(
    loop: Loop, controller: Controller, scaling: ServiceScaling, store: ServiceWeekStore
) -> None:
    """Write what has changed. Raises JournalError."""

    def live() -> list[str]:
        services = services_ledger(controller).services.values()
        return [each.service for each in services if each.is_live]

    names = await loop.call(live)
    changed = await loop.call(scaling.changed_weeks)
    if not changed:
        return
    await asyncio.to_thread(store.write, changed, names)

    def kept() -> None:
        scaling.weeks = {**scaling.weeks, **changed}

    await loop.call(kept)


async def _sample(
    loop: Loop,
    controller: Controller,
    scaling: ServiceScaling,
    question: Question,
    server: str | None,
) -> None:
    answer = Answer()
    if question.endpoints or question.queries:
        answer = await asyncio.to_thread(answered, question, server)

    def decide() -> None:
        now, own = controller.clock(), controller.cluster_services
        found = scaling.decide(question, answer, services_ledger(controller), now)
        if found is not None and own is not None:
            own.scale(question.service, found.replicas, found.reason, automatic=True)
        elif found is not None:
            controller.inbox.enqueue(
                ServiceScaleRequested(
                    id=f"{question.service}/autoscaled/{controller.epoch}/{now!r}",
                    observed_at=now,
                    service=question.service,
                    replicas=found.replicas,
                    reason=found.reason,
                    automatic=True,
                )
            )

    await loop.call(decide)
