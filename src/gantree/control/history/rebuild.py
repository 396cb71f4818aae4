"""Makes the history again from facts: of a journal from before there was one, or whose times were corrected.

The facts are folded from the beginning, or from the newest snapshot where they were compacted or are very many; then
the history begins with the ended jobs that the snapshot knows.
"""

import logging
from collections.abc import Callable

from gantree.accounting.change import NO_CHANGE, REBUILT_WHOLE, HistoryChange
from gantree.control.history.ended_jobs import ended_job
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.snapshots import newest_restored
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.journal.contract import Journal
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.policy.rules import Policy

PIECE = 2_000
"""Facts whose history is recorded in one transaction."""

log = logging.getLogger(__name__)


class HistoryRebuild:
    """Completes the history of a journal, in transactions of a turn's length. beat is called before each."""

    def __init__(
        self, journal: Journal, epoch: int, policy: Policy, beat: Callable[[], None]
    ) -> None:
        self._journal, self._epoch, self._policy, self._beat = journal, epoch, policy, beat

    def run(self) -> None:
        """Complete it, if it is not. Raises JournalError."""
        after = self._journal.history.rebuild_after()
        if after is None:
            return
        last = self._journal.last_fact()
        log.info("making the history of facts %d to %d", after + 1, last)
        scheduler, seq = self._base(last)
        if seq > after:
            self._record(_known(scheduler, seq), seq)
            log.warning("the history begins with the ended jobs that fact %d still knew", seq)
        self._fold(scheduler, seq, max(after, seq))

    def _base(self, last: int) -> tuple[Scheduler, int]:
        if self._journal.compacted_to() == 0 and last <= REBUILT_WHOLE:
            return Scheduler(self._policy), 0
        return newest_restored(self._journal, self._policy, SnapshotCodec())

    def _fold(self, scheduler: Scheduler, seq: int, recorded_to: int) -> None:
        """Fold on from seq, and record what comes behind another."""
        recorder, ledger, at = None, scheduler.ledger, scheduler.now
        turn_ends = self._journal.turn_ends(seq)
        turn_end = 0
        for recorded in self._journal.facts(seq):
            while turn_end < recorded.seq:
                turn_end = next(turn_ends, recorded.seq)
            if recorder is None and recorded.seq > recorded_to:
                recorder = self._recorder(ledger, at)
            ledger.apply(recorded.fact)
            at = max(at, recorded.fact.at)
            if recorder is not None:
                recorder.note(recorded.seq - 1, recorded.fact, ledger)
                if recorded.seq == turn_end:
                    recorder.settle(ledger)
                if recorded.seq % PIECE == 0:
                    self._record(recorder.taken(all_of_it=True), recorded.seq)
        self._record(NO_CHANGE if recorder is None else recorder.taken(all_of_it=True), None)

    def _recorder(self, ledger: Ledger, at: float) -> HistoryRecorder:
        counted = self._journal.history.counted_to()
        return HistoryRecorder(ledger, at, counted, self._journal.last_observed_at())

    def _record(self, change: HistoryChange, rebuild_after: int | None) -> None:
        self._beat()
        self._journal.rebuild_history(change, rebuild_after, self._epoch)


def _known(scheduler: Scheduler, seq: int) -> HistoryChange:
    """The ended jobs of a snapshot, in order of their ends, at the last places up to its seq: those facts are theirs
    or of other kinds.
    """
    ended = scheduler.ledger.ended
    first = seq - len(ended)
    return HistoryChange(
        tuple((first + place, ended_job(state)) for place, state in enumerate(ended))
    )
