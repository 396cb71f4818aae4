"""Roll-ups equal what a plain walk over all facts says, whatever the lives, restarts and gaps between."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from copy import copy
from dataclasses import fields, replace
from itertools import product
from math import isclose
from pathlib import Path
from typing import Any

import pytest

from gantree.accounting.billing.bill import BookRow, bill
from gantree.accounting.billing.tariff import Tariff
from gantree.accounting.buckets import (
    DAY_S,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    pieces,
)
from gantree.accounting.ended_jobs import EVERYTHING, Scope
from gantree.accounting.meter import uncounted
from gantree.accounting.usage import CountedTo, UsageAmounts, UsageKey, UsageQuery
from gantree.accounting.waits import bin_of, middle_of, quantile
from gantree.control.history.levels import levels_of
from gantree.control.history.rebuild import HistoryRebuild
from gantree.control.history.recorder import HistoryRecorder
from gantree.control.snapshots import Snapshots
from gantree.core.ledger.usage import NO_MODEL
from gantree.core.scheduler import Decision
from gantree.journal.clock_correction import clock_jump, correct_clock
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql import usage_history as usage_history_rows
from gantree.journal.sql.history_tables import (
    ended_jobs,
    history_mark,
    usage_history,
    usage_sums,
    wait_history,
)
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.usage_history import HELD
from gantree.journal.sql.usage_sums import USAGE
from gantree.journal.sqlite import SqliteJournal
from gantree.model.events import Event
from gantree.model.facts import (
    FabricDefined,
    Fact,
    GangPlaced,
    GangPreempted,
    JobAccepted,
    JobEnded,
    JobHeld,
    JobReleased,
)
from gantree.model.jobs import Job
from gantree.testing.journal_contract import led
from gantree.topology.hardware.prices import PriceList, Quote
from support.examples import seeds
from support.measured_lives import MeasuredLives
from support.purposes import Entry, Purposes, site_gpus
from support.random_lives import POLICIES, Lives

BEGAN = 20_000 * DAY_S + 1234.5
"""A moment of today; time 0 is none that anything was counted to."""
FIGURES = tuple(each.name for each in fields(UsageAmounts) if each.name.endswith("_s"))
SITE = ("down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s")
Sums = dict[tuple[int, UsageKey, str], float]


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


class Walk:
    """The plain twin: what each key had in every second, and what happened, counted from all facts."""

    def __init__(self, lives: Lives, facts: Sequence[Fact]) -> None:
        self.model_of_node: dict[str, str | None] = {}
        self.purposes = Purposes(lambda node: self.model_of_node[node])
        self.counts: Counter[tuple[UsageKey, str]] = Counter()
        self.waits: Counter[int] = Counter()
        self.job: dict[str, dict[str, Any]] = {}
        self.capacity: dict[tuple[str, str], tuple[float, float]] = {}
        for fact in facts:
            self.see(fact)
        self.purposes.close(lives.now)
        for model, column in list(self.capacity):
            self.has(model, column, lives.now, 0.0)

    def see(self, fact: Fact) -> None:
        self.purposes.see(fact)
        if isinstance(fact, FabricDefined):
            self.fabric(fact)
        elif isinstance(fact, JobAccepted):
            spec = fact.spec
            key = UsageKey(spec.queue, spec.user, NO_MODEL, spec.project)
            self.job[fact.job] = {
                "key": key,
                "submitted": fact.at,
                "held": fact.at if spec.held else None,
                "held_s": 0.0,
            }
            self.counts[key, "submitted"] += 1
        elif getattr(fact, "job", None) in self.job:
            self.about(fact, self.job[fact.job])  # type: ignore[attr-defined]  # has one

    def has(self, model: str, column: str, at: float, amount: float) -> None:
        since, before = self.capacity.get((model, column), (at, 0.0))
        key = UsageKey("", "", model)
        self.purposes.entries.append(
            Entry("", key, column, since, at, before if at > since else 0.0)
        )
        self.capacity[model, column] = (at, amount)

    def fabric(self, fact: FabricDefined) -> None:
        machines = {each.name: fact.cluster.machines[each.machine] for each in fact.cluster.nodes}
        self.model_of_node = {name: machine.gpu for name, machine in machines.items()}
        there: dict[tuple[str, str], float] = defaultdict(float)
        for machine in machines.values():
            model = machine.gpu or NO_MODEL
            there[model, "capacity_gpu_s"] += machine.gpus
            there[model, "capacity_cpu_s"] += machine.cpus or 0.0
            there[model, "capacity_memory_GiB_s"] += machine.memory_GiB or 0.0
        for model, column in {**self.capacity, **there}:
            self.has(model, column, fact.at, there[model, column])

    def about(self, fact: Fact, job: dict[str, Any]) -> None:
        match fact:
            case JobHeld() if job["held"] is None:
                job["held"] = fact.at
            case JobReleased() if job["held"] is not None:
                job["held_s"] += fact.at - job["held"]
                job["held"] = None
            case GangPlaced():
                self.placed(fact, job)
            case GangPreempted():
                self.counts[job["key"], "preempted"] += 1
            case JobEnded():
                self.counts[job["key"], fact.outcome.value.replace("-", "_")] += 1
            case _:
                pass

    def placed(self, fact: GangPlaced, job: dict[str, Any]) -> None:
        first = fact.placement.members[0]
        device = first.mig[0].profile if first.mig else "share" if first.share else ""
        model = self.model_of_node[first.node] if first.gpus or first.parts else NO_MODEL
        job["key"] = job["key"]._replace(model=model, device=device)
        self.counts[job["key"], "started"] += 1
        if fact.attempt == 1 and not fact.found:
            self.waits[bin_of(max(0.0, fact.at - job["submitted"] - job["held_s"]))] += 1


def recorded(lives: HistoryLives) -> Sums:
    """All rows of the database, and what is not counted yet, by their days."""
    journal = lives.journal
    levels = levels_of(lives.scheduler.ledger, journal.history.counted_to(), lives.now)
    found: Sums = defaultdict(float)
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            key = key_of(row)
            start = row.start // DAY_S * DAY_S
            for figure in FIGURES:
                found[start, key, figure] += getattr(row, figure)
    for bucket, key, amounts in uncounted(levels, lives.now):
        for figure in FIGURES:
            found[bucket.start // DAY_S * DAY_S, key, figure] += getattr(amounts, figure)
    return {place: amount for place, amount in found.items() if abs(amount) > 1e-6}


def key_of(row: Any) -> UsageKey:
    return UsageKey(row.queue, row.user_name, row.gpu_model, row.project, row.device)


def counts(journal: SqlJournal) -> Counter[tuple[UsageKey, str]]:
    names = ("submitted", "started", "succeeded", "failed", "cancelled", "timed_out", "preempted")
    found: Counter[tuple[UsageKey, str]] = Counter()
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            for name in names:
                found[key_of(row), name] += getattr(row, name)
    return +found


def waits(journal: SqlJournal) -> Counter[int]:
    found: Counter[int] = Counter()
    with journal.database.reading() as connection:
        for row in connection.execute(wait_history.select()):
            found[row.bin] += row.jobs
    return found


def check_sums(journal: SqlJournal) -> None:
    """Sums that are made beforehand are those of the rows: of each step and dimension, as wide as they are."""
    walked: dict[tuple[Any, ...], float] = defaultdict(float)
    told: dict[tuple[Any, ...], float] = defaultdict(float)
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            key = key_of(row)
            names = {"capacity": key.model}
            if (key.queue, key.user) != ("", ""):
                names = {
                    name: getattr(key, name) for name in ("queue", "model", "project", "device")
                }
            places = list(product((MINUTE_S, HOUR_S, DAY_S), names))
            if (key.queue, key.user) != ("", ""):
                of_device = f"\x1f{key.model}\x1f{key.device}"
                totals = {
                    f"{name} by model and device": f"{getattr(key, name)}{of_device}"
                    for name in ("queue", "user", "model", "project", "device")
                }
                places += [(DAY_S, total) for total in totals]
                names |= totals
            for (step, dimension), figure in product(places, USAGE):
                width = max(step, row.width)
                place = step, width, row.start // width * width, dimension, names[dimension], figure
                walked[place] += getattr(row, figure)
        for row in connection.execute(usage_sums.select()):
            for figure in USAGE:
                told[row.step, row.width, row.start, row.dimension, row.name, figure] = getattr(
                    row, figure
                )
    assert told.keys() == walked.keys()
    assert all(isclose(told[at], walked[at], rel_tol=1e-6, abs_tol=1e-3) for at in told)


def check_equal(lives: HistoryLives) -> None:
    walk, journal = Walk(lives, lives.facts), lives.journal
    check_sums(journal)
    assert walk.purposes.wrong == []
    lives.see_site()
    walk.purposes.entries += [each for each in lives.site if each.column in SITE]
    found, told = recorded(lives), walk.purposes.sums(DAY_S)
    for place in {*found, *told}:
        if lives.knows_site or place[2] not in SITE:
            assert isclose(
                found.get(place, 0.0), told.get(place, 0.0), rel_tol=1e-6, abs_tol=1e-3
            ), place
    assert counts(journal) == +walk.counts
    assert waits(journal) == walk.waits
    no_rest_is_negative(found)
    if lives.knows_site:
        all_adds_up(lives, found)


def all_adds_up(lives: HistoryLives, found: Sums) -> None:
    """Every GPU is for one purpose in every second: what is left is what is free, and what rests."""
    amounts: dict[str, UsageAmounts] = defaultdict(UsageAmounts)
    for (_, key, figure), amount in found.items():
        of_model = amounts[key.model]
        setattr(of_model, figure, getattr(of_model, figure) + amount)
    left: dict[str, float] = defaultdict(float)
    for each in lives.site:
        if each.column in ("free_gpu_s", "rests"):
            left[each.key.model] += each.amount * (each.until - each.since)
    for model, of_model in amounts.items():
        if model != NO_MODEL:
            assert isclose(of_model.free_gpu_s, left[model], rel_tol=1e-6, abs_tol=1e-3), model
            assert of_model.free_gpu_s >= -1e-3, model


def no_rest_is_negative(found: Sums) -> None:
    """Of each key over all its days; corrections are counted on the day on which they are known."""
    amounts: dict[UsageKey, UsageAmounts] = defaultdict(UsageAmounts)
    for (_, key, figure), amount in found.items():
        setattr(amounts[key], figure, getattr(amounts[key], figure) + amount)
    for key, of_key in amounts.items():
        for name in (*FIGURES, "unmeasured_gpu_s"):
            assert getattr(of_key, name) >= -1e-3, (key, name, of_key)


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


def test_the_bill_of_a_life_is_what_a_recount_of_its_facts_costs(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 11)
    lives.live(60)
    since, until = int(BEGAN // DAY_S) * DAY_S, int(lives.now // DAY_S + 1) * DAY_S
    walk = Walk(lives, lives.facts)
    told: dict[tuple[str, str], float] = defaultdict(float)
    for (_, key, column), amount in walk.purposes.sums(DAY_S).items():
        told[key.model, column if key.queue == "" else f"{key.queue} {column}"] += amount / HOUR_S
    models = sorted({model for model, _ in told} - {NO_MODEL})
    price = {model: 1.0 + place for place, model in enumerate(models)}
    prices = PriceList(Quote(model, "on_demand", USD, "", "") for model, USD in price.items())
    levels = levels_of(lives.scheduler.ledger, journal.history.counted_to(), lives.now)
    rows = [*journal.history.book(since, until, DAY_S), *uncounted(levels, lives.now)]
    made = bill((BookRow(*row) for row in rows), Tariff(prices, rule="none"), {}, since, until)
    assert made.micros == made.capacity_micros
    there = sum(told[model, "capacity_gpu_s"] * USD for model, USD in price.items())
    assert there > 0
    assert made.micros / 1e6 == pytest.approx(there, rel=1e-6)
    for queue in {line.owner.queue for line in made.lines} - {""}:
        held = sum(told[model, f"{queue} allocated_gpu_s"] * USD for model, USD in price.items())
        paid = [
            line.micros for line in made.lines if (line.owner.queue, line.charge) == (queue, "gpu")
        ]
        assert paid and sum(paid) / 1e6 == pytest.approx(held, rel=1e-6, abs=1e-3)
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
    whole = UsageQuery(began, int(lives.now // DAY_S + 1) * DAY_S, DAY_S)
    for step in (HOUR_S, DAY_S):
        rows = journal.history.book(whole.since, whole.until, step)
        used = sum(amounts.used_gpu_s for _, _, amounts in rows)
        assert used == pytest.approx(sum(row[2].used_gpu_s for row in journal.history.usage(whole)))
        assert {bucket.width for bucket, _, _ in rows} <= {step, DAY_S}
    journal.close()


def rebuilt_is_equal(lives: HistoryLives) -> None:
    """The same of what is made again from the facts."""
    journal = lives.journal
    with journal.database.writing() as connection:
        for table in (ended_jobs, usage_history, usage_sums, wait_history):
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


@pytest.mark.parametrize("step", [MINUTE_S, HOUR_S, DAY_S])
def test_sums_are_the_same_from_the_rows_and_from_what_is_summed_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, "shares", 4)
    for gap_s in (40 * DAY_S, 2 * DAY_S, HOUR_S):
        lives.live(20)
        lives.now += gap_s
    lives.live(10)
    end = int(lives.now // DAY_S + 1) * DAY_S
    scopes = (EVERYTHING, (Scope("a"),), (Scope("a/c"), Scope("b")), ())
    queries = [
        UsageQuery(since, end, step, by, queue, scopes=some)
        for since in (int(BEGAN // DAY_S) * DAY_S, int(lives.now // HOUR_S - 3) * HOUR_S)
        if since % step == 0
        for by in ("all", "queue", "model", "project", "device")
        for queue, some in product((None, "a"), scopes)
    ]
    told = [usage_by_step(journal, query) for query in queries]
    days = [
        UsageQuery(int(BEGAN // DAY_S) * DAY_S, end, DAY_S, by)
        for by in ("queue", "user", "model", "project", "device")
    ]
    totals = [totals_of(journal, query) for query in days]
    monkeypatch.setattr(usage_history_rows, "can_tell", lambda query: False)
    monkeypatch.setattr(usage_history_rows, "can_total", lambda query: False)
    for query, each in zip(days, totals, strict=True):
        walked = totals_of(journal, query)
        assert any(walked.values())
        for at in {*each, *walked}:
            assert isclose(each.get(at, 0.0), walked.get(at, 0.0), rel_tol=1e-6, abs_tol=1e-3), at
    for query, each in zip(queries, told, strict=True):
        walked = usage_by_step(journal, query)
        assert each.keys() == walked.keys(), query
        assert all(isclose(each[at], walked[at], rel_tol=1e-6, abs_tol=1e-3) for at in each), query
    journal.close()


def totals_of(journal: SqlJournal, query: UsageQuery) -> dict[tuple[Any, ...], float]:
    """What is held in whole days, by name, model, device and purpose."""
    return {
        (*name, figure): getattr(amounts, figure)
        for *name, amounts in journal.history.totals(query)
        for figure in HELD
        if getattr(amounts, figure)
    }


def usage_by_step(journal: SqlJournal, query: UsageQuery) -> dict[tuple[Any, ...], float]:
    """What a query finds."""
    found: dict[tuple[Any, ...], float] = defaultdict(float)
    for bucket, name, amounts in journal.history.usage(query):
        for figure in USAGE:
            found[bucket, name, figure] += getattr(amounts, figure)
    return found


def test_nothing_was_ever_counted_at_first(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path)
    assert journal.history.counted_to() == CountedTo(0.0, {})
    assert UsageKey("", "", "") == ("", "", "", "", "")
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
    lives.is_measured = False  # a watch counts no time in which it did not look
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
    check_sums(journal)
    charged = sum(amount for (_, _, figure), amount in found.items() if figure == "capacity_gpu_s")
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
    again.knows_site = False  # what was seen of it was before times were corrected
    again.scheduler = Snapshots(lives.journal, lives.epoch).fold(lives.policy)
    again.now = again.scheduler.now
    return again
