"""An account of the facts of a journal, written from the words: what may follow what, whoever decided it.

It reads each fact once, keeps its text, and compares both with the simulated cluster: an attempt that has ended has no
process left. After a restart the facts on record must be those that were seen before.
"""

from collections.abc import Iterator

from gantree.journal.encoding.codec import FACT_CODEC, Encoded
from gantree.journal.sql.journal import SqlJournal
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRecorded,
    CheckpointRequested,
    Fact,
    GangPlaced,
    GangRunning,
    JobAccepted,
    JobEnded,
    JobRejected,
    JobRequeued,
    MemberBack,
    MemberMissed,
    MemberReplaced,
    StopDecided,
)
from gantree.model.jobs import Job
from support.faults.book import BookAudit
from support.faults.cluster import SimulatedCluster

OF_AN_OPEN_ATTEMPT = (
    GangRunning, StopDecided, CheckpointRequested, CheckpointRecorded, MemberMissed, MemberReplaced, MemberBack,
)  # fmt: skip
ALL_ROWS = "SELECT seq, kind, version, data FROM facts WHERE seq > ? ORDER BY seq"


class FactAudit:
    """Reads facts as they come. `accepted` and `ended` are job ids, `newest` the seq of the last fact read."""

    def __init__(self, site: SimulatedCluster) -> None:
        self._site = site
        self.newest = 0
        self.accepted: dict[str, Job] = {}
        self.rejected: set[str] = set()
        self.ended: set[str] = set()
        self.broken: list[str] = []
        self.book = BookAudit()
        self._text_of_fact: dict[int, str] = {}
        self._attempt_of_job: dict[str, int] = {}
        self._open: dict[str, int] = {}

    def read(self, journal: SqlJournal) -> None:
        """Read the facts that are new."""
        for seq, fact, text in _rows(journal, self.newest):
            if seq != self.newest + 1:
                self.broken.append(f"fact {self.newest + 1} is missing")
            self.newest = seq
            self._text_of_fact[seq] = text
            self._see(fact)

    def compare(self, journal: SqlJournal) -> None:
        """Whether all facts that were read before are on record still, letter for letter, or were compacted."""
        compacted = journal.compacted_to()
        found = {seq: text for seq, _, text in _rows(journal, compacted, decode=False)}
        for seq in range(compacted + 1, self.newest + 1):
            if found.get(seq) != self._text_of_fact[seq]:
                self.broken.append(
                    f"fact {seq} was {self._text_of_fact[seq]} and is {found.get(seq)} after a start"
                )
                return

    def _see(self, fact: Fact) -> None:
        self.book.see(fact)
        if isinstance(fact, JobAccepted):
            self._once(fact.job in self.accepted, f"{fact.job} is accepted twice")
            self.accepted[fact.job] = fact.spec
        elif isinstance(fact, JobRejected):
            self.rejected.add(fact.job)
        elif isinstance(fact, GangPlaced):
            self._placed(fact)
        elif isinstance(fact, OF_AN_OPEN_ATTEMPT):
            if self._open.get(fact.job) != fact.attempt:
                self.broken.append(f"{fact} is about an attempt that does not hold its place")
            if isinstance(fact, CheckpointRecorded) and fact.step // 1000 != fact.attempt:
                self.broken.append(f"{fact} has the step of another attempt")
        elif isinstance(fact, AttemptEnded):
            self._attempt_ended(fact)
        elif isinstance(fact, JobRequeued | JobEnded):
            self._once(
                fact.job in self._open, f"{fact} while attempt {self._open.get(fact.job)} is on"
            )
            if isinstance(fact, JobEnded):
                self._once(fact.job in self.ended, f"{fact.job} has ended twice")
                self.ended.add(fact.job)

    def _once(self, is_broken: bool, what: str) -> None:
        if is_broken:
            self.broken.append(what)

    def _placed(self, fact: GangPlaced) -> None:
        before = self._attempt_of_job.get(fact.job, 0)
        self._once(
            fact.attempt != before + 1, f"attempt {fact.attempt} of {fact.job} after {before}"
        )
        self._once(fact.job in self._open, f"{fact.job} is placed twice")
        self._once(fact.job in self.ended, f"{fact.job} is placed after its end")
        self._attempt_of_job[fact.job] = self._open[fact.job] = fact.attempt

    def _attempt_ended(self, fact: AttemptEnded) -> None:
        self._once(
            self._open.pop(fact.job, None) != fact.attempt,
            f"{fact} is about an attempt that was not on",
        )
        attempt = self._site.attempts.get((fact.job, fact.attempt))
        if attempt is not None and not attempt.is_over:
            self.broken.append(
                f"the place of {attempt.prefix} is free, and it is {attempt.status()}"
            )
        elif attempt is not None and attempt.exit_code not in (None, fact.exit_code):
            self.broken.append(f"{fact} of an attempt that ended with {attempt.exit_code}")


def _rows(
    journal: SqlJournal, after: int, *, decode: bool = True
) -> Iterator[tuple[int, Fact, str]]:
    """Facts after a seq with their texts; without decoding the fact is what it is not."""
    with journal.database.reading() as connection:
        rows = connection.exec_driver_sql(ALL_ROWS, (after,)).all()
    for seq, kind, version, data in rows:
        fact = FACT_CODEC.decode(Encoded(kind, version, data)) if decode else Fact(at=0.0)
        yield seq, fact, f"{kind} {data}"
