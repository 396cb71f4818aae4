"""The notifier of a leading daemon: makes notifications of facts, and delivers them, beside the control loop.

Facts become rows in the journal's database soon after they were decided (`scan`), and rows are sent until they are
delivered or given up (`deliver`), so what a killed daemon left is sent by the next. Each message is sent at least once.

Targets (hosts) are independent: each has its messages sent one by one, the oldest first. What a target refuses is tried
again later, beside the others; a target that does not answer is left alone for a while that doubles, up to
LONGEST_WAIT_S. A round lasts no longer than ROUND_S and one message, so a slow target delays the others by that much.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from gantree.control.metrics.metrics import Metrics
from gantree.control.notifications.delivery import Outcome, Sender
from gantree.control.notifications.messages import (
    ANNOUNCED,
    announced,
    budget_notifications,
    concerns,
    notifications_of,
)
from gantree.journal.contract import Journal, RecordedFact
from gantree.journal.notification_store import Notification, NotificationStore
from gantree.model.arrays import element_of, parse_element
from gantree.model.budget_facts import BudgetNoted
from gantree.model.errors import JournalError
from gantree.model.events import JobSubmitted
from gantree.model.jobs import Job, Notify

LOOK_EVERY_S = 0.5
AGAIN_AFTER_S = 5.0
"""After an error of the journal."""
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 600.0
GIVE_UP_AFTER_S = 86_400.0
"""After the event."""
MOST_REFUSALS = 10
"""So often a message that its target refuses is tried: over about nine minutes."""
PAGE = 2000
BATCH = 50
ROUND_S = 5.0
MOST_AT_ONCE = 8

T = TypeVar("T")
LiveSpec = Callable[[str], Awaitable[Job | None]]
BudgetNotify = Callable[[str, str], Awaitable[Notify | None]]
log = logging.getLogger(__name__)


class Notifier:
    """live_spec gives the job of an id from the ledger (`spec_of`), where no submission is kept.

    budget_notify gives who is told of the budget of a queue (its path, the period) by the policy in force.
    """

    def __init__(
        self,
        journal: Journal,
        store: NotificationStore,
        sender: Sender,
        metrics: Metrics,
        live_spec: LiveSpec,
        budget_notify: BudgetNotify,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._journal, self._store, self._sender = journal, store, sender
        self._metrics, self._live_spec, self._clock = metrics, live_spec, clock
        self._budget_notify = budget_notify
        self._cursor: int | None = None
        self._scanned = 0
        self._silences: Counter[str] = Counter()
        self._paused_until: dict[str, float] = {}
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)

    async def run(self) -> None:
        """Run until cancelled."""
        try:
            await self._rounds()
        finally:
            await self._sender.close()

    async def _rounds(self) -> None:
        while True:
            wait_s = LOOK_EVERY_S
            try:
                while await self.scan():
                    pass
                await self.deliver()
            except JournalError as error:
                log.warning("notifications wait: %s", error)
                self._cursor, wait_s = None, AGAIN_AFTER_S
            except Exception:  # a bug here must not end the daemon, which has other work
                log.exception("notifications wait")
                self._cursor, wait_s = None, AGAIN_AFTER_S
            await asyncio.sleep(wait_s)

    async def scan(self) -> bool:
        """Make the notifications of the next facts; say whether there were as many as a page may have."""
        if self._cursor is None:
            self._cursor = self._scanned = await _finished(self._store.cursor)
        cursor, after = self._cursor, self._scanned
        page = await _finished(lambda: self._store.facts(ANNOUNCED, after, PAGE))
        made = [row for recorded in page.facts for row in await self._made(recorded)]
        if made or page.to - cursor >= PAGE:
            await _finished(lambda: self._store.add(made, cursor, page.to))
            self._cursor = page.to
        self._scanned = page.to
        return page.to - page.after == PAGE

    async def _made(self, recorded: RecordedFact) -> list[Notification]:
        fact = recorded.fact
        if isinstance(fact, BudgetNoted):
            notify = await self._budget_notify(fact.queue, fact.period)
            return list(budget_notifications(recorded, fact, notify))
        said = announced(fact)
        spec = await _finished(lambda: self._submitted(said.job))
        spec = spec or await self._live_spec(said.job)
        if spec is None or spec.notify is None or said.event not in spec.notify.on:
            return []
        if not concerns(fact, spec):
            return []
        attempt = said.attempt
        if attempt is None:
            ended = await _finished(lambda: self._journal.history.ended_job(said.job))
            attempt = 0 if ended is None else ended.ended.attempts
        return list(notifications_of(recorded, said, spec, attempt))

    def _submitted(self, job: str) -> Job | None:
        """The job as it was submitted, alone or as an element of an array; None where that was compacted."""
        event = self._journal.event(f"{job}/submitted")
        if isinstance(event, JobSubmitted):
            return event.spec
        parsed = parse_element(job)
        if parsed is None:
            return None
        event = self._journal.event(f"{parsed[0]}/submitted")
        return element_of(event.spec, parsed[1]) if isinstance(event, JobSubmitted) else None

    async def deliver(self) -> None:
        """Send what is due, to all targets beside each other."""
        await self._give_up_old()
        now = self._clock()
        targets = await _finished(lambda: self._store.targets(now, LONGEST_WAIT_S))
        ready = [each for each in targets if self._paused_until.get(each, 0.0) <= now]
        ends = await asyncio.gather(*map(self._deliver_to, ready), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end

    async def _deliver_to(self, target: str) -> None:
        """Send a batch to one target, until it does not answer."""
        done: list[Notification] = []
        postponed: list[Notification] = []
        now = self._clock()
        async with self._slots:
            rows = await _finished(lambda: self._store.due(target, now, LONGEST_WAIT_S, BATCH))
            end = time.monotonic() + ROUND_S
            try:
                for row in rows:
                    is_heard = await self._try(row, done, postponed)
                    if not is_heard or time.monotonic() > end:
                        break
            finally:
                await _finished(lambda: self._store.settle(done, postponed))

    async def _try(
        self, row: Notification, done: list[Notification], postponed: list[Notification]
    ) -> bool:
        """Send one; say whether its target may be asked for more."""
        sent = await self._sender.send(row)
        tries = row.tries + 1
        gives_up = sent.outcome is Outcome.REFUSED and tries >= MOST_REFUSALS
        if sent.outcome is Outcome.UNREACHABLE:
            self._silences[row.target] += 1
            pause_s = _wait_s(self._silences[row.target])
            self._paused_until[row.target] = self._clock() + pause_s
        else:
            self._silences.pop(row.target, None)
        if sent.outcome is Outcome.DELIVERED:
            self._count(row, "delivered")
            done.append(row)
        elif gives_up or sent.outcome is Outcome.FORBIDDEN:
            self._count(row, "given-up")
            log.error("notification to %s given up: %s", row.target, sent.why)
            done.append(row)
        else:
            self._count(row, "failed")
            wait_s = _wait_s(tries)
            log.warning("notification to %s: %s; again in %g s", row.target, sent.why, wait_s)
            postponed.append(replace(row, tries=tries, next_at=self._clock() + wait_s))
        return sent.outcome is not Outcome.UNREACHABLE

    async def _give_up_old(self) -> None:
        before = self._clock() - GIVE_UP_AFTER_S
        old = await _finished(lambda: self._store.older_than(before, 10 * BATCH))
        if not old:
            return
        await _finished(lambda: self._store.settle(old, ()))
        for row in old:
            self._count(row, "given-up")
        for target, count in Counter(row.target for row in old).items():
            log.error("%d notifications to %s given up: a day old", count, target)

    def _count(self, row: Notification, outcome: str) -> None:
        self._metrics.notifications.labels(row.channel, outcome).inc()


def _wait_s(tries: int) -> float:
    return min(FIRST_WAIT_S * 2.0 ** min(tries - 1, 20), LONGEST_WAIT_S)


async def _finished(work: Callable[[], T]) -> T:
    """Run what waits for the database on another thread; who is cancelled waits for its end."""
    working = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait({working})
        raise
