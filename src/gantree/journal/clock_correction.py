"""Corrects the times of a journal that a clock far ahead was written into. The daemon must be stopped.

The wrong clock shows as a gap: the longest pause between two events. All that came behind it moves back by that pause,
in events, facts and orders, as if the clock had been right; so the time between is charged to nobody. Snapshots behind
the gap go, since the facts before them tell the same; the next start makes the history again from the moved facts. A
journal whose facts behind the gap were compacted cannot be corrected.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Table, func, select

from gantree.accounting.change import REBUILT_WHOLE
from gantree.journal.sql.history_tables import (
    ended_jobs,
    history_mark,
    usage_history,
    wait_history,
)
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.journal_statements import PAGE
from gantree.journal.sql.tables import compacted, facts, inbox, orders, snapshots, turns
from gantree.journal.sql.usage_sums import make_again
from gantree.model.errors import Conflict

TIME_FIELDS = frozenset(
    {
        "at", "observed_at", "occurred_at", "deadline_at", "starts_at", "ends_at", "turn_ends_at", "not_before",
        "ended_before", "since", "until", "reclaim_at", "gone_by",
    }
)  # fmt: skip
"""Fields of events, facts and orders that are moments; all stand at the top. A test looks for others."""


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The event with this number came so many seconds after the one before it, which was at a moment."""

    event: int
    before: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Corrected:
    """Rows that moved back, by so many seconds."""

    seconds: float
    events: int
    facts: int
    orders: int


def clock_jump(journal: SqlJournal, now: float) -> ClockJump:
    """The jump to correct. Raises Conflict where the journal is not ahead of now, or no pause explains that."""
    ahead_s = journal.last_observed_at() - now
    if ahead_s <= 0:
        raise Conflict("the journal is not ahead of the clock of this machine: nothing to correct")
    with journal.database.reading() as connection:
        times = connection.execute(select(inbox.c.seq, inbox.c.observed_at).order_by(inbox.c.seq))
        before, jump = None, ClockJump(0, 0.0, 0.0)
        for row in times:
            if before is not None and row.observed_at - before > jump.seconds:
                jump = ClockJump(row.seq, before, row.observed_at - before)
            before = row.observed_at
    if jump.seconds < ahead_s:
        raise Conflict(
            f"the journal is {ahead_s:.0f} s ahead of the clock, and the longest pause between two events is"
            f" {jump.seconds:.0f} s: not one jump of the clock; restore a backup"
        )
    return jump


def correct_clock(journal: SqlJournal, jump: ClockJump) -> Corrected:
    """Move all that came behind the jump back by it, in one transaction. Raises Conflict where it was compacted."""
    with journal.database.writing() as connection:
        _drop_snapshots(connection, jump)
        first = connection.execute(
            select(func.min(turns.c.turn)).where(turns.c.cursor >= jump.event)
        ).scalar_one()
        _cut_history(connection, jump, first)
        counts = [_move_back(connection, inbox, inbox.c.seq >= jump.event, jump)]
        for table in (facts, orders):
            behind = table.c.turn >= (first if first is not None else 1 << 62)
            counts.append(_move_back(connection, table, behind, jump))
    return Corrected(jump.seconds, *counts)


def _drop_snapshots(connection: Connection, jump: ClockJump) -> None:
    gone = connection.execute(select(compacted)).one()
    connection.execute(snapshots.delete().where(snapshots.c.cursor >= jump.event))
    left = connection.execute(select(func.max(snapshots.c.seq))).scalar_one()
    if gone.event >= jump.event or (gone.fact and (left is None or left < gone.fact)):
        raise Conflict("facts from behind the jump of the clock were compacted: restore a backup")


def _cut_history(connection: Connection, jump: ClockJump, first: int | None) -> None:
    """Let the next start make the history again: whole, or from the first turn behind the jump on.

    In the second case what was counted in buckets across the jump is gone, too: nothing is charged for the jump.
    """
    newest = connection.execute(select(func.max(facts.c.seq))).scalar_one() or 0
    gone = connection.execute(select(compacted.c.fact)).scalar_one()
    kept, counted_to = 0, 0.0
    if gone or newest > REBUILT_WHOLE:
        behind = facts.c.turn >= (first if first is not None else 1 << 62)
        begins = connection.execute(select(func.min(facts.c.seq)).where(behind)).scalar_one()
        kept, counted_to = (newest if begins is None else begins - 1), jump.before
    connection.execute(ended_jobs.delete().where(ended_jobs.c.seq > kept))
    for table in (usage_history, wait_history):
        connection.execute(table.delete().where(table.c.start + table.c.width > counted_to))
    make_again(connection)
    connection.execute(history_mark.update().values(rebuild_after=kept, counted_to=counted_to))


def _move_back(connection: Connection, table: Table, behind: Any, jump: ClockJump) -> int:
    """The number of rows that were behind the jump."""
    count = 0
    for row in _rows(connection, table, behind):
        values: dict[str, Any] = {"data": moved_back(row.data, jump)}
        if table is inbox:
            values["observed_at"] = row.observed_at - jump.seconds
        connection.execute(table.update().where(table.c.seq == row.seq).values(values))
        count += 1
    return count


def _rows(connection: Connection, table: Table, behind: Any) -> Iterator[Row[*tuple[Any, ...]]]:
    """Page by page, because they are written to meanwhile."""
    after = -1
    while True:
        page = select(table).where(behind, table.c.seq > after).order_by(table.c.seq).limit(PAGE)
        rows = connection.execute(page).all()
        yield from rows
        if not rows:
            return
        after = rows[-1].seq


def moved_back(data: str, jump: ClockJump) -> str:
    """An encoded event, fact or order with every moment behind the jump moved back; "" is one that was compacted.

    Moments in the first half of the jump are deadlines that were set before it.
    """
    if not data:
        return data
    plain: dict[str, Any] = json.loads(data)
    for name in TIME_FIELDS & plain.keys():
        value = plain[name]
        if isinstance(value, int | float) and value > jump.before + jump.seconds / 2:
            plain[name] = value - jump.seconds
    return json.dumps(plain, ensure_ascii=False)
