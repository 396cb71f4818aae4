"""Reads a recording from a journal, while a daemon may write on: what comes after the newest turn is left out.

A journal that was compacted begins with a snapshot: jobs in it are replayed, too, with the work that it tells. What
users and operators asked before is gone, and the site begins as the snapshot has it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlalchemy import select

from gantree.core.ledger.ledger import Ledger
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import EVENT_CODEC, Encoded
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.tables import inbox, set_aside, turns
from gantree.journal.verify import rows_of
from gantree.model.arrays import element_of, index_at
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.events import ClusterObserved, Event, GangEnded, JobSubmitted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy
from gantree.sim.replay.fold import Fold
from gantree.sim.replay.outcomes import REJECTED, JobOutcome, outcome_of
from gantree.sim.replay.recording import JobRecord, Recording
from gantree.sim.replay.requests import REPLAYED
from gantree.sim.replay.site import site_events


def read_recording(
    journal: SqlJournal, books: Policy, since: float | None = None, until: float | None = None
) -> Recording:
    """What a journal has recorded; books is a policy to account by. Raises BadInput where there are no jobs.

    since and until (seconds since 1970) bound the submissions; jobs that had not ended at since are carried over: they
    are submitted at that moment, with the work that was left.
    Raises JournalError for a journal that is damaged or cannot be read.
    """
    cursor, last_fact = _end(journal)
    if not last_fact:
        raise BadInput(f"{journal.database.name}: the journal is empty: no daemon has decided yet")
    everything = list(_events(journal, cursor))
    fold, after = _beginning(journal, books)
    fold.since = since
    fold.ends = {
        (each.job, each.attempt): each for each in everything if isinstance(each, GangEnded)
    }
    at_start = site_events(fold.ledger)
    compacted_at = fold.read_to if after else None
    fold.apply(each.fact for each in journal.facts(after) if each.seq <= last_fact)
    events = [each for each in everything if until is None or each.observed_at <= until]
    jobs = _records(fold, events, until)
    if not jobs:
        raise BadInput(
            f"{journal.database.name}: no job was submitted in that time; nothing to replay"
        )
    requests = [*at_start, *(event for event in events if isinstance(event, REPLAYED))]
    first_at = min(record.outcome.submitted_at for record in jobs)
    return Recording(
        jobs=jobs,
        site=_first_site(fold.ledger, requests),
        requests=tuple(requests),
        policies=tuple(fold.ledger.policies),
        measured=fold.measured(),
        began_at=first_at if since is None else since,
        read_to=fold.read_to,
        forgotten=fold.ledger.forgotten - (len(fold.ended) - len(fold.ledger.ended)),
        compacted_at=compacted_at,
    )


def _end(journal: SqlJournal) -> tuple[int, int]:
    """The cursor and the last fact of the newest turn, as of one moment."""
    with journal.database.reading() as connection:
        newest = select(turns).order_by(turns.c.turn.desc()).limit(1)
        row = connection.execute(newest).one_or_none()
    return (0, 0) if row is None else (row.cursor, row.last_fact)


def _beginning(journal: SqlJournal, policy: Policy) -> tuple[Fold, int]:
    """What to fold facts into, and after which fact: nothing, or where facts were compacted, a snapshot."""
    snapshot = journal.latest_snapshot() if journal.compacted_to() else None
    if snapshot is None:
        return Fold(Ledger(policy)), 0
    scheduler = restored(SnapshotCodec().decode(snapshot.text), policy)
    fold = Fold(scheduler.ledger)
    fold.read_to = scheduler.now
    return fold, snapshot.seq


def _events(journal: SqlJournal, cursor: int) -> Iterator[Event]:
    """All events up to a place that still have their content and were not set aside."""
    aside = {row.seq for row in rows_of(journal, set_aside)}
    for row in rows_of(journal, inbox, cursor):
        if row.data and row.seq not in aside:
            yield EVENT_CODEC.decode(Encoded(row.kind, row.version, row.data))


def batches(journal: SqlJournal) -> Iterator[Sequence[Event]]:
    """The events of each turn, in order. Raises JournalError where some were compacted."""
    before = 0
    for turn in rows_of(journal, turns):
        entries = journal.read_inbox(before, turn.cursor - before)
        events = [entry.event for entry in entries if entry.seq <= turn.cursor]
        before = turn.cursor
        if events:
            yield events


def _records(fold: Fold, events: Sequence[Event], until: float | None) -> tuple[JobRecord, ...]:
    """All jobs in the order of their submissions: those that have ended, others, unsplit elements, rejected ones."""
    found = dict(fold.ended)
    for state in fold.ledger.jobs.values():
        found.setdefault(state.job, fold.record_of(state, fold.read_to))
    for event in events:
        if isinstance(event, JobSubmitted) and event.job in fold.ledger.rejected:
            found[event.job] = _rejected(event)
    for array in fold.ledger.arrays:
        found |= {each.outcome.job: each for each in _unsplit(fold, array)}
    wanted = (_since(fold, each) for each in found.values())
    kept = [
        each
        for each in wanted
        if each is not None and (until is None or each.outcome.submitted_at <= until)
    ]
    return tuple(sorted(kept, key=lambda each: (each.outcome.submitted_at, each.seq)))


def _since(fold: Fold, record: JobRecord) -> JobRecord | None:
    """A job as the part that is wanted has it; None for one that is not in it."""
    outcome, since = record.outcome, fold.since
    if since is None or outcome.submitted_at >= since:
        return record
    if outcome.ended_at is not None and outcome.ended_at < since:
        return None
    if outcome.outcome == REJECTED:
        return None
    before = fold.done.get(outcome.job)
    if before is None:  # an element of an array that was split later: it waited
        return replace(record, done_before_s=0.0)
    held_gpu_s = outcome.held_gpu_s - before.outcome.held_gpu_s
    lost_gpu_s = outcome.lost_gpu_s - before.outcome.lost_gpu_s
    carried = replace(outcome, held_gpu_s=held_gpu_s, lost_gpu_s=lost_gpu_s)
    return replace(record, outcome=carried, done_before_s=before.work_s)


def _unsplit(fold: Fold, array: str) -> Iterator[JobRecord]:
    """Elements of an array that have no record of their own."""
    state, spec = fold.ledger.arrays[array], fold.specs[array]
    for offset in range(state.size):
        if state.job(offset) not in fold.ended and state.job(offset) not in fold.ledger.jobs:
            element = state.unsplit_element(offset, 0)
            own = element_of(spec, index_at(spec.array, offset))
            seq = state.seq + offset
            yield JobRecord(own, outcome_of(element, fold.read_to), array=array, seq=seq)


def _rejected(event: JobSubmitted) -> JobRecord:
    spec: Job = event.spec
    outcome = JobOutcome(
        job=event.job, name=spec.name, queue=spec.queue, user=spec.user, gpus=spec.gpus,
        submitted_at=event.observed_at,
    )  # fmt: skip
    return JobRecord(spec, outcome)


def _first_site(ledger: Ledger, requests: Sequence[Event]) -> Cluster:
    """The cluster as first described."""
    for event in requests:
        if isinstance(event, ClusterObserved):
            return event.cluster
    assert ledger.site.described is not None, "a daemon decides nothing before it has a cluster"
    return ledger.site.described
