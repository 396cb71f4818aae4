"""Snapshots of a running daemon: when they are taken, how they are written, and how a start uses them.

A snapshot is the state after a turn. Taking one copies lists of references while turns wait; a thread encodes it, and a
later step saves it. One is taken every 25,000 facts and at a clean stop, so a start reads one snapshot and at most
about so many facts, however long the journal is.
"""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from gantree.control.garbage import set_all_apart, without_collecting
from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.contract import Journal, Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.errors import GantreeError
from gantree.model.facts import Fact
from gantree.policy.rules import Policy

EVERY_FACTS = 25_000
"""Facts between two snapshots: a start folds so many in one to two seconds."""
WORTH_A_STOP = 1_000
"""Fewer facts than these are folded faster than a snapshot is written at a stop."""
WORTH_FREEZING = 10_000
"""With so many jobs the first fold is kept out of garbage collections, each of which would take a second or more."""
BEAT_FACTS = 1000
"""So many facts are folded in tens of milliseconds."""

log = logging.getLogger(__name__)


class Snapshots:
    """The snapshots of one leadership. All methods are called from the controller's thread."""

    def __init__(
        self,
        journal: Journal,
        epoch: int,
        every_facts: int = EVERY_FACTS,
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        """beat is called every `BEAT_FACTS` while a journal is folded."""
        self._journal = journal
        self._beat = beat
        self._epoch = epoch
        self._every_facts = every_facts
        self._codec = SnapshotCodec()
        self._taken_at = 0
        self._writer: ThreadPoolExecutor | None = None
        self._written: Future[Snapshot] | None = None

    def fold(self, policy: Policy) -> Scheduler:
        """A scheduler of the journal: the newest snapshot, and the facts since then. Raises JournalError."""
        codec = SnapshotCodec()
        with without_collecting():
            scheduler, after = newest_restored(self._journal, policy, codec)
            scheduler.recover(self._facts_after(after))
        if self._taken_at == 0 and len(scheduler.ledger.jobs) >= WORTH_FREEZING:
            set_all_apart()
        if self._written is None:
            self._codec, self._taken_at = codec, after
        return scheduler

    def go_on(self) -> None:
        """What `fold` would give is there already: the next snapshot is due as it would be after that."""
        self._taken_at = self._journal.snapshot_seq()

    @property
    def is_ready(self) -> bool:
        """Whether one is written and waits to be kept."""
        return self._written is not None and self._written.done()

    def wait(self) -> None:
        """Let what is being written be kept now. Raises JournalError."""
        if self._written is not None:
            self._keep()

    def follow(self, scheduler: Scheduler) -> None:
        """Keep what was written, or begin a new one where it is time; to be called between turns."""
        if self.is_ready:
            self._keep()
        if self._written is None and self._facts_since() >= self._every_facts:
            self._begin(scheduler)

    def close(self, scheduler: Scheduler | None) -> None:
        """Take a last one, if it is worth it and the scheduler is as the journal has it. A failure is only said."""
        try:
            self.wait()
            if scheduler is not None and self._facts_since() >= min(
                WORTH_A_STOP, self._every_facts
            ):
                self._begin(scheduler)
                self._keep()
        except GantreeError as error:
            log.warning("no snapshot at the stop: %s", error)
        finally:
            if self._writer is not None:
                self._writer.shutdown(wait=True)

    def _facts_after(self, seq: int) -> Iterator[Fact]:
        for recorded in self._journal.facts(seq):
            if recorded.seq % BEAT_FACTS == 0:
                self._beat()
            yield recorded.fact

    def _facts_since(self) -> int:
        return self._journal.last_fact() - self._taken_at

    def _begin(self, scheduler: Scheduler) -> None:
        """Copy what the snapshot is of, and let the thread make text of it."""
        journal, codec = self._journal, self._codec
        seq, cursor, turns = journal.last_fact(), journal.cursor(), journal.turns()
        ledger = snapshot_of(scheduler, codec.begin(scheduler.ledger.forgotten))
        if self._writer is None:
            self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="snapshot")
        self._taken_at = seq
        self._written = self._writer.submit(
            lambda: Snapshot(seq=seq, cursor=cursor, turns=turns, text=codec.encode(ledger))
        )

    def _keep(self) -> None:
        """Wait for the text, and keep it. Raises JournalError; a text that cannot be made is a bug, and is said."""
        assert self._written is not None, "none is being written"
        written, self._written = self._written, None
        try:
            snapshot = written.result()
        except Exception:
            log.exception("no snapshot could be made; the facts are all there")
            return
        self._journal.save_snapshot(snapshot, self._epoch)
        log.info("snapshot of fact %d kept, %d characters", snapshot.seq, len(snapshot.text))


def newest_restored(
    journal: Journal, policy: Policy, codec: SnapshotCodec
) -> tuple[Scheduler, int]:
    """A scheduler of the newest snapshot under a policy, and the seq of the fact up to which it goes."""
    kept = journal.latest_snapshot()
    if kept is None:
        return Scheduler(policy), 0
    return restored(codec.decode(kept.text), policy), kept.seq
