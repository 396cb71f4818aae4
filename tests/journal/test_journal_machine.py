"""A journal against a plain twin in memory, over any sequence of calls, closings and torn processes."""

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.model.errors import JournalError
from gantree.model.events import Event
from gantree.model.facts import Fact
from gantree.model.orders import Order
from gantree.testing.journal_contract import ended, stop, tick


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
        self.epoch = self.cursor = self.turns = 0

    @rule(numbers=st.lists(st.integers(0, 12), max_size=4))
    def append(self, numbers: list[int]) -> None:
        for number in numbers:
            if all(event.id != f"t{number}" for event in self.inbox):
                self.inbox.append(tick(number))
        self.journal.append_inbox([tick(number) for number in numbers])

    @rule()
    def lead(self) -> None:
        epoch = self.journal.next_epoch()
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

    @rule(back=st.integers(1, 3))
    def commit_in_an_epoch_that_is_over(self, back: int) -> None:
        with pytest.raises(JournalError):
            self.journal.commit_turn(self.cursor, [ended(0)], [], self.epoch - back)

    @rule(choice=st.integers(0, 20))
    def set_aside(self, choice: int) -> None:
        left = [seq for seq in range(1, len(self.inbox) + 1) if seq not in self.aside]
        if left:
            seq = left[choice % len(left)]
            self.journal.set_aside(seq, f"error {seq}")
            self.aside[seq] = f"error {seq}"

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
        assert [recorded.fact for recorded in self.journal.facts()] == self.recorded
        assert [order for _, order in self.journal.orders()] == self.told
        assert (self.journal.cursor(), self.journal.turns()) == (self.cursor, self.turns)
        aside = {each.seq: each.error for each in self.journal.all_set_aside()}
        assert aside == self.aside

    def teardown(self) -> None:
        self.journal.close()
        shutil.rmtree(self.place)


TestJournalMachine = JournalMachine.TestCase
TestJournalMachine.settings = settings(max_examples=30, stateful_step_count=15, deadline=None)
