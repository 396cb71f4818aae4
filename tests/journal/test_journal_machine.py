"""A journal against a plain twin in memory, over any sequence of calls, closings and torn processes."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.journal.contract import Snapshot
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.journal.verify import verify
from gantree.model.errors import JournalError
from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order
from gantree.policy.rules import Policy
from gantree.testing.journal_contract import ended, led, stop, tick
from support.examples import examples

NOTHING = SnapshotCodec().encode(snapshot_of(Scheduler(Policy())))
"""A snapshot of a ledger in which there is nothing; white space at its end tells one turn's from another's."""


class JournalMachine(RuleBasedStateMachine):
    """The twin: a list per table."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.journal = SqliteJournal(self.place)
        self.inbox: list[Event] = []
        self.aside: dict[int, str] = {}
        self.recorded: list[Fact] = []
        self.told: list[Order] = []
        self.cursor = self.turns = self.compacted = 0
        self.ends: list[tuple[int, int]] = [(0, 0)]
        self.snapshot: Snapshot | None = None
        self.first_turn = 0
        self.epoch = led(self.journal)

    @rule(numbers=st.lists(st.integers(0, 12), max_size=4))
    def append(self, numbers: list[int]) -> None:
        for number in numbers:
            if all(event.id != f"t{number}" for event in self.inbox):
                self.inbox.append(tick(number))
        self.journal.append_inbox([tick(number) for number in numbers], self.epoch)

    @rule()
    def lead(self) -> None:
        epoch = led(self.journal)
        assert epoch > self.epoch
        self.epoch = epoch

    @rule(step=st.integers(0, 3), facts=st.integers(0, 3), orders=st.integers(0, 2))
    def commit(self, step: int, facts: int, orders: int) -> None:
        cursor = min(self.cursor + step, len(self.inbox))
        new_facts = [ended(len(self.recorded) + each) for each in range(facts)]
        new_orders = [stop(len(self.told) + each, self.epoch) for each in range(orders)]
        self.journal.commit_turn(cursor, new_facts, new_orders, self.epoch)
        self.cursor, self.turns = cursor, self.turns + 1
        self.recorded += new_facts
        self.told += new_orders
        self.ends.append((len(self.recorded), cursor))

    @rule(back=st.integers(1, 3))
    def commit_in_an_epoch_that_is_over(self, back: int) -> None:
        with pytest.raises(JournalError):
            self.journal.commit_turn(self.cursor, [ended(0)], [], self.epoch - back)

    @rule(choice=st.integers(0, 20))
    def set_aside(self, choice: int) -> None:
        left = [seq for seq in range(1, len(self.inbox) + 1) if seq not in self.aside]
        if left:
            seq = left[choice % len(left)]
            self.journal.set_aside(seq, f"error {seq}", self.epoch)
            self.aside[seq] = f"error {seq}"

    @rule(back=st.integers(0, 2))
    def save_snapshot(self, back: int) -> None:
        turn = self.turns - back
        if turn > 0 and self.ends[turn][0] >= self.compacted:
            seq, cursor = self.ends[turn]
            saved = Snapshot(seq=seq, cursor=cursor, turns=turn, text=NOTHING + turn * " ")
            if self.kept(turn):
                self.journal.save_snapshot(saved, self.epoch)
                if self.snapshot is None or self.snapshot.turns <= turn:
                    self.snapshot = saved

    def kept(self, turn: int) -> bool:
        """Whether the journal still has the turn: the last one that was compacted, and those after it."""
        return turn >= self.first_turn

    @rule(keep=st.integers(0, 30))
    def compact(self, keep: int) -> None:
        self.journal.compact(keep, self.epoch)
        covered = self.snapshot.turns if self.snapshot else 0
        last = max(turn for turn in range(covered + 1) if self.ends[turn][0] <= keep)
        self.first_turn = max(self.first_turn, last)
        self.compacted = max(self.compacted, self.ends[self.first_turn][0])

    @rule()
    def reopen(self) -> None:
        self.journal.close()
        self.journal = SqliteJournal(self.place)

    @rule()
    def go_on_from_a_copy_of_the_files_as_after_a_kill(self) -> None:
        """What a killed process leaves: database and write-ahead log, the log not yet folded in."""
        copy = Path(tempfile.mkdtemp())
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copy(self.place / f"{FILE}{suffix}", copy)
        self.journal.close()
        shutil.rmtree(self.place)
        self.place, self.journal = copy, SqliteJournal(copy)

    @invariant()
    def equals_its_twin(self) -> None:
        unread = [
            (seq, event)
            for seq, event in enumerate(self.inbox, 1)
            if seq > self.cursor and seq not in self.aside
        ]
        entries = self.journal.read_inbox(self.cursor, 100)
        assert [(entry.seq, entry.event) for entry in entries] == unread
        assert self.journal.compacted_to() == self.compacted
        facts = list(self.journal.facts(after=self.compacted))
        assert [recorded.fact for recorded in facts] == self.recorded[self.compacted :]
        orders = list(self.journal.orders())
        assert [order for _, order in orders] == self.told[len(self.told) - len(orders) :]
        assert self.journal.latest_snapshot() == self.snapshot
        assert verify(self.journal).faults == []
        assert (self.journal.cursor(), self.journal.turns()) == (self.cursor, self.turns)
        aside = {each.seq: each.error for each in self.journal.all_set_aside()}
        assert aside == self.aside

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.place)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(
    max_examples=examples(20), stateful_step_count=15, deadline=None
)
