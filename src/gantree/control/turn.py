"""One turn: take a batch from the inbox, decide, commit, and only then tell the cluster.

The commit is one transaction: how far the inbox was read, the facts, the orders. If the process dies before
it, the batch is read again; if it dies after, the orders are sent again as standing orders. So every event is
decided about exactly once.

An exception out of the scheduler is our bug. The memory it has spoilt is thrown away and folded anew from the
facts; then the batch is cut in halves, each a turn of its own, down to the one event that poisons it. That
event is set aside, loudly, and the others go on.

A journal that cannot be written is the world's fault: the memory (which is ahead of the journal) is thrown
away as well, and the error goes to the caller, who may try again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from gantree.control.ports import ClusterPort
from gantree.core.scheduler import Decision, Scheduler
from gantree.journal.contract import InboxEntry, Journal
from gantree.model.errors import GantreeError
from gantree.model.orders import Order

BATCH = 256
"""Events in one turn at most: bounds the memory of a turn and the work of a bisection."""

log = logging.getLogger(__name__)


class Turns:
    """Drives a scheduler from a journal's inbox. fold rebuilds it from the facts; folded is its first result."""

    def __init__(
        self,
        journal: Journal,
        cluster: ClusterPort,
        epoch: int,
        fold: Callable[[], Scheduler],
        folded: Scheduler,
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._fold = fold
        self._epoch = epoch
        self._cursor = journal.cursor()
        self._scheduler: Scheduler | None = folded

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, equal to the fold of the journal's facts. Raises JournalError if that cannot be read."""
        if self._scheduler is None:
            self._scheduler = self._fold()
        return self._scheduler

    def run(self) -> bool:
        """Take one batch, if there is any; say whether there was."""
        batch = self._journal.read_inbox(self._cursor, BATCH)
        if batch:
            self._take(batch)
        return bool(batch)

    def send(self, orders: Sequence[Order]) -> None:
        """Tell the cluster, in the name of this epoch. A cluster that raises has a bug; the others are still told."""
        for order in orders:
            try:
                self._cluster.carry_out(replace(order, epoch=self._epoch))
            except Exception:
                log.exception("order %s was not carried out; it will be sent again", order.id)

    def _take(self, batch: Sequence[InboxEntry]) -> None:
        decision = self._decide(batch)
        if decision is not None:
            self._commit(batch[-1].seq, decision)
        elif len(batch) > 1:
            self._take(batch[: len(batch) // 2])
            self._take(batch[len(batch) // 2 :])

    def _decide(self, batch: Sequence[InboxEntry]) -> Decision | None:
        """The decision, or None after a bug; a batch of one is then set aside."""
        scheduler = self.scheduler
        try:
            return scheduler.handle([entry.event for entry in batch])
        except Exception as error:
            self._scheduler = None
            log.exception("the scheduler failed on a batch of %d events", len(batch))
            if len(batch) == 1:
                self._set_aside(batch[0], error)
            return None

    def _set_aside(self, entry: InboxEntry, error: Exception) -> None:
        kind = type(entry.event).__name__
        log.critical("set aside: event %d, %s %s", entry.seq, kind, entry.event.id)
        self._journal.set_aside(entry.seq, f"{type(error).__name__}: {error}")
        self._cursor = entry.seq

    def _commit(self, cursor: int, decision: Decision) -> None:
        orders = [replace(order, epoch=self._epoch) for order in decision.orders]
        try:
            self._journal.commit_turn(cursor, decision.facts, orders, self._epoch)
        except GantreeError:
            self._scheduler = None
            raise
        self._cursor = cursor
        self.send(orders)
