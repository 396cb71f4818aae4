"""What the roll-ups of a journal must come to: a plain recount of all facts, and the sums of its own rows."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from itertools import product
from math import isclose
from operator import attrgetter
from typing import Any

import numpy as np

from gantree.accounting.buckets import DAY_S, HOUR_S, MINUTE_S
from gantree.accounting.meter import uncounted
from gantree.accounting.steps import WEEK_S
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.accounting.waits import bin_of
from gantree.control.history.levels import levels_of
from gantree.control.history.rebuild import HistoryRebuild
from gantree.core.ledger.usage import NO_MODEL
from gantree.journal.sql.history_tables import (
    ended_jobs,
    history_mark,
    usage_history,
    usage_sums,
    wait_history,
)
from gantree.journal.sql.journal import SqlJournal
from gantree.journal.sql.usage_sums import USAGE
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
from support.history_lives import HistoryLives
from support.purposes import Entry, Purposes
from support.random_lives import Lives

FIGURES = tuple(each.name for each in fields(UsageAmounts) if each.type is float)
_amounts_of = attrgetter(*USAGE)
SITE = ("down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s")
Sums = dict[tuple[int, UsageKey, str], float]


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


def check_rebuilt(lives: HistoryLives) -> None:
    """The same of what is made from the facts again."""
    journal = lives.journal
    with journal.database.writing() as connection:
        for table in (ended_jobs, usage_history, usage_sums, wait_history):
            connection.execute(table.delete())
        connection.execute(history_mark.update().values(rebuild_after=0, counted_to=0.0))
    HistoryRebuild(journal, lives.epoch, lives.policy, lambda: None).run()
    check_equal(lives)


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


def check_sums(journal: SqlJournal) -> None:
    """Sums that are made beforehand are those of the rows: of each step and dimension, as wide as they are."""
    recounted: dict[tuple[Any, ...], Any] = defaultdict(float)
    found: dict[tuple[Any, ...], Any] = {}
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            amounts = np.array(_amounts_of(row))
            for step, dimension, name in _sums_of(key_of(row)):
                width = max(step, row.width)
                recounted[step, width, _begin(row.start, width), dimension, name] += amounts
        for row in connection.execute(usage_sums.select()):
            place = row.step, row.width, row.start, row.dimension, row.name
            found[place] = _amounts_of(row)
    assert found.keys() == recounted.keys()
    for place, amounts in found.items():
        assert np.allclose(amounts, recounted[place], rtol=1e-6, atol=1e-3), place


def _begin(start: int, width: int) -> int:
    """Of the day, the hour or the minute; of a week Monday."""
    if width == WEEK_S:
        return start // DAY_S * DAY_S - DAY_S * datetime.fromtimestamp(start, UTC).weekday()
    return start // width * width


def _sums_of(key: UsageKey) -> Iterator[tuple[int, str, str]]:
    """(step, dimension, name) of each sum that the amounts of a key are in."""
    steps = (MINUTE_S, HOUR_S, DAY_S, WEEK_S)
    if (key.queue, key.user) == ("", ""):
        yield from ((step, "capacity", key.model) for step in steps)
        return
    for step, each in product(steps, ("queue", "model", "project", "device")):
        yield step, each, getattr(key, each)
    for each in ("queue", "user", "model", "project", "device"):
        name = f"{getattr(key, each)}\x1f{key.model}\x1f{key.device}"
        yield DAY_S, f"{each} by model and device", name
