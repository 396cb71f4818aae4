"""Random lives of a scheduler whose turns are in a journal, with their history."""

from dataclasses import replace
from typing import Any

from gantree.accounting.buckets import DAY_S
from gantree.accounting.usage import UsageKey
from gantree.control.history.recorder import HistoryRecorder
from gantree.core.scheduler import Decision
from gantree.journal.sql.journal import SqlJournal
from gantree.model.events import Event
from gantree.model.jobs import Job
from support.measured_lives import MeasuredLives
from support.purposes import Entry, site_gpus
from support.random_lives import POLICIES

BEGAN = 20_000 * DAY_S + 1234.5
"""A moment of today; time 0 is none that anything was counted to."""


class HistoryLives(MeasuredLives):
    """Random lives whose turns are in a journal, with their history. Now and then nothing happens for long."""

    knows_site = True

    def __init__(self, journal: SqlJournal, policy: str, seed: int) -> None:
        epoch = journal.lead("test", 60.0)
        assert epoch is not None
        self.journal, self.epoch = journal, epoch
        self.recorder: HistoryRecorder | None = None
        self.site: list[Entry] = []
        self.site_now: dict[tuple[UsageKey, str], float] = {}
        self.site_since = 0.0
        super().__init__(seed, POLICIES[policy])

    def a_job(self, name: str, jobs: list[str]) -> Job:
        one = replace(super().a_job(name, jobs), project=self.lots.choice(["", "llm", "vision"]))
        return replace(one, array=((0, 9),), after=()) if self.lots.random() < 0.1 else one

    def tell(self, kind: type[Event], **more: Any) -> None:
        if self.told == 0:
            self.now = BEGAN
        super().tell(kind, **more)

    def decided(self, events: list[Event], decision: Decision) -> None:
        if self.recorder is None:
            self.restart(first=True)
        assert self.recorder is not None
        for index, fact in enumerate(decision.facts):
            self.recorder.note(index, fact, self.scheduler.ledger)
        self.recorder.settle(self.scheduler.ledger)
        self.see_site()
        self.journal.append_inbox(events, self.epoch)
        cursor = self.journal.cursor() + len(events)
        self.journal.commit_turn(
            cursor, decision.facts, decision.orders, self.epoch, self.recorder.taken()
        )

    def see_site(self) -> None:
        """Count what the GPUs were for since the last decision, and what they are for now."""
        for (key, column), gpus in self.site_now.items() if self.now > self.site_since else ():
            self.site.append(Entry("", key, column, self.site_since, self.now, gpus))
        self.site_now, self.site_since = site_gpus(self.scheduler.ledger), self.now

    def restart(self, *, first: bool = False) -> None:
        """As after kill -9: what was in memory is made anew from the ledger and the database."""
        ledger = type(self.scheduler)(self.policy).ledger if first else self.scheduler.ledger
        counted = self.journal.history.counted_to()
        self.recorder = HistoryRecorder(ledger, self.now, counted)

    def live(self, steps: int) -> None:
        for _ in range(steps):
            if self.lots.random() < 0.06:
                self.now += self.lots.choice([70.0, 3000.0, 9000.0, 90_000.0, 900_000.0])
            if self.lots.random() < 0.2:
                self.restart()
            self.step()
