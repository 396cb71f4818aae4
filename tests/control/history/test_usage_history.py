"""Roll-ups equal what a plain walk over all facts says, whatever the lives, restarts and gaps between."""

from collections import defaultdict
from copy import copy
from pathlib import Path

import pytest

from gantree.accounting.billing.bill import BookRow, bill
from gantree.accounting.billing.tariff import Tariff
from gantree.accounting.buckets import DAY_S, HOUR_S, HOURS_KEPT_S, MINUTE_S, MINUTES_KEPT_S
from gantree.accounting.ended_jobs import Scope
from gantree.accounting.meter import uncounted
from gantree.accounting.usage import CountedTo, UsageKey, UsageQuery
from gantree.control.history.levels import levels_of
from gantree.control.history.rebuild import HistoryRebuild
from gantree.control.snapshots import Snapshots
from gantree.core.ledger.usage import NO_MODEL
from gantree.journal.clock_correction import clock_jump, correct_clock
from gantree.journal.postgres import PostgresJournal
from gantree.journal.sql.history_tables import (
    usage_history,
)
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sqlite import SqliteJournal
from gantree.testing.journal_contract import led
from gantree.topology.hardware.prices import PriceList, Quote
from support.examples import seeds
from support.history_lives import BEGAN, HistoryLives
from support.history_recount import Walk, check_equal, check_rebuilt, check_sums, recorded


@pytest.mark.parametrize("policy", ["shares", "turns", "moves"])
@pytest.mark.parametrize("seed", seeds(10, 1))
def test_roll_ups_are_what_a_plain_walk_over_the_facts_says(
    tmp_path: Path, policy: str, seed: int
) -> None:
    journal = SqliteJournal(tmp_path)
    lives = HistoryLives(journal, policy, seed)
    lives.live(80)
    check_equal(lives)
    check_rebuilt(lives)
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
    check_rebuilt(lives)
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
