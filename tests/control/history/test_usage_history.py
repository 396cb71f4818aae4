"""Roll-ups equal what a plain walk over all facts says, whatever the lives, restarts and gaps between."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.buckets import (
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    pieces,
)
from gantree.accounting.ended_jobs import Scope
from gantree.accounting.meter import uncounted
from gantree.accounting.usage import CountedTo, UsageKey, UsageQuery
from gantree.accounting.waits import bin_of, middle_of, quantile
from gantree.control.history.levels import levels_of
from gantree.control.history.rebuild import HistoryRebuild
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.snapshots import Snapshots
from gantree.core.ledger.usage import NO_MODEL
from gantree.core.scheduler import Decision
from gantree.journal.clock_correction import clock_jump, correct_clock
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.history_tables import ended_jobs, history_mark, usage_history, wait_history
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import Event
from gantree.model.facts import (
    AttemptEnded,
    FabricDefined,
    Fact,
    GangPlaced,
    GangPreempted,
    GangResumed,
    GangRunning,
    GangSuspended,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
)
from gantree.policy.amounts import MODEL, held
from gantree.testing.journal_contract import led
from support.examples import seeds
from support.random_lives import POLICIES, Lives

Key = tuple[str, str, str]
BEGAN = 20_000 * DAY_S + 1234.5
"""A moment of today; time 0 is none that anything was counted to."""
FIGURES = ("capacity", "allocated", "used", "lost")


class HistoryLives(Lives):
    """Random lives whose turns are in a journal, with their history. Now and then nothing happens for long."""

    def __init__(self, journal: SqlJournal, policy: str, seed: int) -> None:
        epoch = journal.lead("test", 60.0)
        assert epoch is not None
        self.journal, self.epoch = journal, epoch
        self.recorder: HistoryRecorder | None = None
        super().__init__(seed, POLICIES[policy])

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
        self.journal.append_inbox(events, self.epoch)
        cursor = self.journal.cursor() + len(events)
        self.journal.commit_turn(
            cursor, decision.facts, decision.orders, self.epoch, self.recorder.taken()
        )

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


class Walk:
    """The plain twin: for each key, what it had in every second, counted from all facts."""

    def __init__(self, lives: Lives, facts: Sequence[Fact]) -> None:
        self.spans: list[tuple[Key, str, float, float, float]] = []
        self.counts: Counter[tuple[Key, str]] = Counter()
        self.waits: Counter[int] = Counter()
        self.lost: dict[Key, float] = defaultdict(float)
        self.job: dict[str, dict[str, Any]] = {}
        self.capacity: dict[str, tuple[float, float]] = {}
        self.model_of_node: dict[str, str | None] = {}
        for fact in facts:
            self.see(fact)
        for job in self.job.values():
            self.over(job, lives.now)
        for model, (since, gpus) in self.capacity.items():
            self.spans.append((("", "", model), "capacity", since, lives.now, gpus))

    def over(self, job: dict[str, Any], at: float) -> None:
        """Close the spans of a job."""
        if job["place"] and not job["rests"]:
            for model, gpus in job["place"].items():
                key = (job["queue"], job["user"], model)
                self.spans.append((key, "allocated", job["since"], at, gpus))
                if job["runs"]:
                    self.spans.append((key, "used", job["since"], at, gpus))
        if job["runs"] and not job["rests"]:
            job["ran"] += at - job["since"]
        job["since"] = at

    def see(self, fact: Fact) -> None:
        if isinstance(fact, FabricDefined):
            self.fabric(fact)
        elif isinstance(fact, JobAccepted):
            spec = fact.spec
            self.job[fact.job] = {"queue": spec.queue, "user": spec.user, "place": {}, "runs": False, "rests": False,
                                  "since": fact.at, "ran": 0.0, "submitted": fact.at, "model": NO_MODEL,
                                  "held": fact.at if spec.held else None, "held_s": 0.0, "placed": False}  # fmt: skip
            self.counts[(spec.queue, spec.user, NO_MODEL), "submitted"] += 1
        elif getattr(fact, "job", None) in self.job:
            self.about(fact, self.job[fact.job])  # type: ignore[attr-defined]  # has one

    def fabric(self, fact: FabricDefined) -> None:
        cluster = fact.cluster
        self.model_of_node = {
            each.name: cluster.machines[each.machine].gpu for each in cluster.nodes
        }
        gpus: Counter[str] = Counter()
        for each in cluster.nodes:
            gpus[cluster.machines[each.machine].gpu or NO_MODEL] += cluster.machines[
                each.machine
            ].gpus
        for model, (since, before) in self.capacity.items():
            self.spans.append((("", "", model), "capacity", since, fact.at, before))
        self.capacity = {model: (fact.at, float(count)) for model, count in gpus.items()}

    def about(self, fact: Fact, job: dict[str, Any]) -> None:
        key = (job["queue"], job["user"], job["model"])
        match fact:
            case JobHeld() if job["held"] is None:
                job["held"] = fact.at
            case JobReleased() if job["held"] is not None:
                job["held_s"] += fact.at - job["held"]
                job["held"] = None
            case GangPlaced():
                self.placed(fact, job)
            case GangRunning():
                self.over(job, fact.at)
                job["runs"] = True
            case GangSuspended() | GangResumed():
                self.over(job, fact.at)
                job["rests"] = isinstance(fact, GangSuspended)
            case GangPreempted():
                self.counts[key, "preempted"] += 1
            case AttemptEnded():
                self.over(job, fact.at)
                for model, gpus in job["place"].items():
                    self.lost[job["queue"], job["user"], model] += gpus * min(
                        fact.lost_s, job["ran"]
                    )
                job.update(place={}, runs=False, rests=False)
            case JobEnded():
                self.counts[key, fact.outcome.value.replace("-", "_")] += 1
            case _:
                pass

    def placed(self, fact: GangPlaced, job: dict[str, Any]) -> None:
        amounts = held(fact.placement.members, self.model_of_node.get)
        place = {
            name.removeprefix(MODEL): gpus
            for name, gpus in amounts.items()
            if name.startswith(MODEL)
        }
        job.update(
            place=place,
            rests=False,
            runs=False,
            ran=0.0,
            since=fact.at,
            model=next(iter(place), NO_MODEL),
        )
        self.counts[(job["queue"], job["user"], job["model"]), "started"] += 1
        if fact.attempt == 1 and not fact.found:
            self.waits[bin_of(max(0.0, fact.at - job["submitted"] - job["held_s"]))] += 1

    def sums(self, step: int) -> dict[tuple[int, Key, str], float]:
        found: dict[tuple[int, Key, str], float] = defaultdict(float)
        for key, figure, since, until, gpus in self.spans:
            start = int(since // step) * step
            while start < until:
                seconds = min(until, start + step) - max(since, start)
                found[start, key, figure] += gpus * seconds
                start += step
        return {place: amount for place, amount in found.items() if amount > 1e-6}


def recorded(lives: HistoryLives) -> dict[tuple[int, Key, str], float]:
    """All rows of the database, and what is not counted yet, by their hours."""
    journal = lives.journal
    levels = levels_of(lives.scheduler.ledger, journal.history.counted_to(), lives.now)
    found: dict[tuple[int, Key, str], float] = defaultdict(float)
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            key = (row.queue, row.user_name, row.gpu_model)
            start = row.start // DAY_S * DAY_S
            for figure in FIGURES:
                found[start, key, figure] += getattr(row, f"{figure}_gpu_s")
    for bucket, key, amounts in uncounted(levels, lives.now):
        for figure in FIGURES:
            found[bucket.start // DAY_S * DAY_S, key, figure] += getattr(amounts, f"{figure}_gpu_s")
    return {place: amount for place, amount in found.items() if amount > 1e-6}


def counts(journal: SqlJournal) -> Counter[tuple[Key, str]]:
    names = ("submitted", "started", "succeeded", "failed", "cancelled", "timed_out", "preempted")
    found: Counter[tuple[Key, str]] = Counter()
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            for name in names:
                found[(row.queue, row.user_name, row.gpu_model), name] += getattr(row, name)
    return +found


def waits(journal: SqlJournal) -> Counter[int]:
    found: Counter[int] = Counter()
    with journal.database.reading() as connection:
        for row in connection.execute(wait_history.select()):
            found[row.bin] += row.jobs
    return found


def check_equal(lives: HistoryLives) -> None:
    walk, journal = Walk(lives, lives.facts), lives.journal
    found = recorded(lives)
    lost = {key: amount for (_, key, figure), amount in found.items() if figure == "lost"}
    for place, amount in walk.sums(DAY_S).items():
        assert isclose(found.pop(place), amount, rel_tol=1e-6, abs_tol=1e-3), place
    assert {place for place in found if place[2] != "lost"} == set()
    by_key: dict[Key, float] = defaultdict(float)
    for (_, key, figure), amount in found.items():
        if figure == "lost":
            by_key[key] += amount
    assert lost.keys() == by_key.keys()
    for key, amount in walk.lost.items():
        assert isclose(by_key[key], amount, rel_tol=1e-6, abs_tol=1e-3)
    assert counts(journal) == +walk.counts
    assert waits(journal) == walk.waits


@pytest.mark.parametrize("policy", ["shares", "turns", "moves"])
@pytest.mark.parametrize("seed", seeds(10, 1))
def test_roll_ups_are_what_a_plain_walk_over_the_facts_says(
    tmp_path: Path, policy: str, seed: int
) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, policy, seed)
    lives.live(80)
    check_equal(lives)
    rebuilt_is_equal(lives)
    journal.close()


def test_postgresql_says_the_same_after_another_daemon_has_taken_over(database_url: str) -> None:
    journal: SqlJournal = PostgresJournal(database_url)
    lives = HistoryLives(journal, "shares", 5)
    for _ in range(3):
        lives.live(15)
        lives.now += 2 * DAY_S
        journal.resign(lives.epoch)
        journal.close()
        journal = lives.journal = PostgresJournal(database_url)
        lives.epoch = led(journal)
        lives.restart()
    lives.live(15)
    check_equal(lives)
    rebuilt_is_equal(lives)
    began, scopes = int(BEGAN // DAY_S) * DAY_S, (Scope("a", "ann"),)
    query = UsageQuery(began, int(lives.now), HOUR_S, "queue", scopes=scopes)
    assert {name for _, name, _ in journal.history.usage(query)} <= {"a/c", "a/d"}
    assert isinstance(journal.history.waits(query), list)
    journal.close()


def rebuilt_is_equal(lives: HistoryLives) -> None:
    """The same of what is made again from the facts."""
    journal = lives.journal
    with journal.database.writing() as connection:
        for table in (ended_jobs, usage_history, wait_history):
            connection.execute(table.delete())
        connection.execute(history_mark.update().values(rebuild_after=0, counted_to=0.0))
    HistoryRebuild(journal, lives.epoch, lives.policy, lambda: None).run()
    check_equal(lives)


def test_older_rows_are_coarser_and_none_is_finer_than_it_may_be(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 1)
    for gap_s in (40 * DAY_S, 2 * DAY_S, HOUR_S):
        lives.live(20)
        lives.now += gap_s
    lives.live(10)
    counted = journal.history.counted_to().all_to
    with journal.database.reading() as connection:
        rows = connection.execute(usage_history.select()).all()
    assert {row.width for row in rows} == {MINUTE_S, HOUR_S, DAY_S}
    assert all(row.start >= counted - MINUTES_KEPT_S - 1 for row in rows if row.width == MINUTE_S)
    assert all(row.start >= counted - HOURS_KEPT_S - HOUR_S for row in rows if row.width == HOUR_S)
    assert all(row.start % row.width == 0 for row in rows)
    journal.close()


def test_a_span_is_cut_at_the_ends_of_its_buckets() -> None:
    assert list(pieces(90.0, 130.0, 130.0)) == [((60, 60), 30.0), ((60, 120), 10.0)]
    long_ago = list(pieces(1800.0, 4 * HOUR_S + 90.0, 4 * HOUR_S + 90.0))
    assert [bucket.width for bucket, _ in long_ago] == [HOUR_S] * 4 + [MINUTE_S] * 2
    assert sum(seconds for _, seconds in long_ago) == 4 * HOUR_S + 90.0 - 1800.0
    old = list(pieces(0.0, 3 * DAY_S, 400 * DAY_S))
    assert [bucket for bucket, _ in old] == [(DAY_S, day * DAY_S) for day in range(3)]


def test_a_quantile_is_within_nine_per_cent() -> None:
    for wait in (1.0, 7.3, 90.0, 5000.0, 1e6):
        assert middle_of(bin_of(wait)) == pytest.approx(wait, rel=0.1)
    jobs = {bin_of(10.0): 98, bin_of(1000.0): 2}
    assert quantile(jobs, 0.5) == pytest.approx(10, rel=0.1)
    assert quantile(jobs, 0.99) == pytest.approx(1000, rel=0.1)
    assert quantile({}, 0.5) is None
    assert bin_of(0.2) == 0


def test_sums_are_asked_by_queue_user_and_model(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 2)
    lives.live(100)
    end = int(lives.now // DAY_S + 1) * DAY_S
    whole = journal.history.usage(UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S))
    for by in ("queue", "user", "model"):
        parts = journal.history.usage(UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, by))
        for name in ("allocated_gpu_s", "used_gpu_s", "submitted", "started"):
            total = sum(getattr(amounts, name) for _, _, amounts in whole)
            assert sum(getattr(each, name) for _, _, each in parts) == pytest.approx(total)
    below = journal.history.usage(
        UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, "queue", queue="a")
    )
    assert {name for _, name, _ in below} <= {"a", "a/c", "a/d"}
    assert below
    journal.close()


def test_nothing_was_ever_counted_at_first(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    assert journal.history.counted_to() == CountedTo(0.0, {})
    assert UsageKey("", "", "") == ("", "", "")
    journal.close()


@pytest.mark.parametrize("keep_facts", [True, False], ids=["whole", "compacted"])
def test_nothing_is_charged_for_a_jump_of_the_clock(tmp_path: Path, keep_facts: bool) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 3)
    for _ in range(60):
        lives.step()
    if not keep_facts:
        saved_and_compacted(lives)
    right, before = lives.now, journal.last_observed_at()
    lives.now += 2000 * DAY_S
    for _ in range(20):
        lives.step()
    assert max(start for start, _, _ in recorded(lives)) > right + 1999 * DAY_S
    jump = clock_jump(journal, lives.now - 2000 * DAY_S + 1)
    assert jump.before == before
    correct_clock(journal, jump)
    again = started_again(lives)
    HistoryRebuild(journal, lives.epoch, lives.policy, lambda: None).run()
    found = recorded(again)
    assert max(start for start, _, _ in found) <= lives.now - jump.seconds
    charged = sum(amount for (_, _, figure), amount in found.items() if figure == "capacity")
    assert charged <= 24 * (lives.now - jump.seconds - BEGAN) + 1
    if keep_facts:
        again.facts = [each.fact for each in journal.facts()]
        check_equal(again)
    journal.close()


def saved_and_compacted(lives: HistoryLives) -> None:
    """Leave the facts of a snapshot alone."""
    snapshots = Snapshots(lives.journal, lives.epoch)
    snapshots._begin(lives.scheduler)
    snapshots._keep()
    assert lives.journal.compact(lives.journal.last_fact(), lives.epoch).facts


def started_again(lives: HistoryLives) -> HistoryLives:
    """The same lives, with what the journal says by now."""
    again = copy(lives)
    again.scheduler = Snapshots(lives.journal, lives.epoch).fold(lives.policy)
    again.now = again.scheduler.now
    return again
