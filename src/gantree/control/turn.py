"""One turn: take a batch from the inbox, decide, commit, and only then tell the cluster.

The commit is one transaction: how far the inbox was read, the facts, the orders. If the process dies before
it, the batch is read again; if it dies after, the orders are sent again as standing orders. So every event is
decided about exactly once.

An exception out of the scheduler is our bug. The memory it has spoilt is thrown away and folded anew from the
facts; then the batch is cut in halves, each a turn of its own, down to the one event that poisons it. That
event is set aside, loudly, and the others go on.

An event that submits a policy is a turn of its own: `under` says with which scheduler it is decided about, and the
turns after it go on with that one once the commit is done.

A journal that cannot be written is the world's fault: the memory (which is ahead of the journal) is thrown
away as well, and the error goes to the caller, who may try again.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from gantree.accounting.change import NO_CHANGE, HistoryChange
from gantree.control.garbage import take_back
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.ports import ClusterPort
from gantree.control.turn_telemetry import STANDING, TimePoint, TurnTelemetry, causes_of
from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.journal.contract import InboxEntry, Journal
from gantree.model.errors import JournalError
from gantree.model.events import PolicySubmitted
from gantree.model.orders import Order

BATCH = 256
"""Events in one turn at most: bounds the memory of a turn and the work of a bisection."""

Under = Callable[[PolicySubmitted, Scheduler], Scheduler | None]
"""Who goes on under the policy of an event, given the scheduler so far; None where the policy suits no more."""

log = logging.getLogger(__name__)


class TurnRunner:
    """Drives a scheduler from a journal's inbox. fold rebuilds it from the facts; folded is its first result."""

    def __init__(
        self,
        journal: Journal,
        cluster: ClusterPort,
        epoch: int,
        fold: Callable[[], Scheduler],
        folded: Scheduler,
        watch: TurnTelemetry,
        under: Under = lambda event, before: before,
    ) -> None:
        self._journal = journal
        self._cluster = cluster
        self._fold = fold
        self._epoch = epoch
        self._cursor = journal.cursor()
        self._scheduler: Scheduler | None = folded
        self._watch = watch
        self._recorder = self._new_recorder(folded)
        self._under = under

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler, equal to the fold of the journal's facts. Raises JournalError if that cannot be read."""
        if self._scheduler is None:
            # An error may have hidden that a turn was committed.
            self._cursor = self._journal.cursor()
            take_back()
            scheduler = self._fold()
            self._recorder = self._new_recorder(scheduler)
            self._scheduler = scheduler
        return self._scheduler

    @property
    def known(self) -> Scheduler | None:
        """The scheduler, if it is in memory as the journal has it."""
        return self._scheduler

    def run(self) -> bool:
        """Take one batch, if there is any; say whether there was."""
        began = TimePoint.now()
        assert self.scheduler is not None  # what was thrown away is back, and the cursor with it
        batch = _up_to_a_policy(self._journal.read_inbox(self._cursor, BATCH))
        if batch:
            with self._watch.turning(batch, began):
                self._take(batch)
        return bool(batch)

    def send(
        self, orders: Sequence[Order], cause_of: Callable[[Order], str] = lambda order: STANDING
    ) -> None:
        """Send the orders with this epoch to the cluster. If one raises, which is a bug, the others are still sent.

        cause_of gives the id of the event that an order follows from, for the log.
        """
        taken: list[Order] = []
        for order in self._watch.each(orders, cause_of):
            try:
                self._cluster.carry_out(self._stamped(order))
                taken.append(order)
            except Exception:
                log.exception("order %s was not carried out; it will be sent again", order.id)
        self._watch.metrics.sent(taken)

    def _stamped(self, order: Order) -> Order:
        """An order in the name of this epoch."""
        return order if order.epoch == self._epoch else replace(order, epoch=self._epoch)

    def _take(self, batch: Sequence[InboxEntry]) -> None:
        decision = self._decide(batch)
        if decision is not None:
            self._commit(batch, decision)
        elif len(batch) > 1:
            self._take(batch[: len(batch) // 2])
            self._take(batch[len(batch) // 2 :])

    def _decide(self, batch: Sequence[InboxEntry]) -> Decision | None:
        """The decision, or None after a bug; a batch of one is then set aside."""
        with self._watch.deciding(batch):
            try:
                scheduler = self._ruling(batch)
                if scheduler is None:
                    return Decision((), (), self.scheduler.wake_at())
                self._scheduler = scheduler
                events = [entry.event for entry in batch]
                return settled(scheduler, events, events[-1].observed_at)
            except JournalError:  # the world's fault, and not this batch's
                self._scheduler = None
                raise
            except Exception as error:
                self._scheduler = None
                log.exception("the scheduler failed on a batch of %d events", len(batch))
                if len(batch) == 1:
                    self._set_aside(batch[0], error)
                return None

    def _ruling(self, batch: Sequence[InboxEntry]) -> Scheduler | None:
        """Who decides about a batch; None where it submits a policy that does not suit."""
        event = batch[0].event
        if isinstance(event, PolicySubmitted):
            take_back()
            return self._under(event, self.scheduler)
        return self.scheduler

    def _set_aside(self, entry: InboxEntry, error: Exception) -> None:
        kind = type(entry.event).__name__
        log.critical("set aside: event %d, %s %s", entry.seq, kind, entry.event.id)
        self._journal.set_aside(entry.seq, f"{type(error).__name__}: {error}", self._epoch)
        self._watch.metrics.set_aside.inc()
        self._cursor = entry.seq

    def _commit(self, batch: Sequence[InboxEntry], decision: Decision) -> None:
        cursor = batch[-1].seq
        orders = [self._stamped(order) for order in decision.orders]
        try:
            with self._watch.committing(batch, decision):
                history = self._history_of(decision)
                self._journal.commit_turn(cursor, decision.facts, orders, self._epoch, history)
        except BaseException:  # whatever it is, the memory is ahead of the journal now
            self._scheduler = None
            raise
        self._cursor = cursor
        self._watch.metrics.used(history.usage)
        with self._watch.sending(orders):
            self.send(orders, causes_of(batch))

    def _history_of(self, decision: Decision) -> HistoryChange:
        """What a decision adds to the history. A bug there costs what it would have added, and no turn."""
        if not decision.facts:
            return NO_CHANGE
        scheduler = self._scheduler
        assert scheduler is not None  # it has just decided
        try:
            for index, fact in enumerate(decision.facts):
                self._recorder.note(index, fact, scheduler.ledger)
            self._recorder.settle(scheduler.ledger)
            return self._recorder.taken()
        except Exception:
            log.exception("bug: a turn of %d facts is not in the history", len(decision.facts))
            self._recorder = self._new_recorder(scheduler)
            return NO_CHANGE

    def _new_recorder(self, scheduler: Scheduler) -> HistoryRecorder:
        return HistoryRecorder(scheduler.ledger, scheduler.now, self._journal.history.counted_to())


def _up_to_a_policy(batch: Sequence[InboxEntry]) -> Sequence[InboxEntry]:
    """The events before the first that submits a policy; that one alone where it comes first."""
    for place, entry in enumerate(batch):
        if isinstance(entry.event, PolicySubmitted):
            return batch[: max(1, place)]
    return batch
