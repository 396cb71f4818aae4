"""What the book of a journal must come to: recounted from the journal's facts, without the code that keeps the book.

Gangs are recounted span by span (`support.purposes`); GPUs that no gang holds GPU by GPU, from who holds what after
each turn, where each GPU has one purpose. `usage_figures`, `job_figures` and `statement_figures` put what a
daemon answers beside it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import fsum
from pathlib import Path
from typing import Any, TypeVar

from gantree.accounting.usage import UsageKey
from gantree.api.client.client import Client
from gantree.core.scheduler import Scheduler
from gantree.journal.sqlite import SqliteJournal
from gantree.model.facts import FabricDefined, Fact
from gantree.policy.rules import Policy
from support.purposes import Entry, Purposes, site_gpus

HOUR_S, DAY_S = 3600.0, 86_400.0
EXACT_GPU_S = 1e-6
"""A figure may differ from the recount by so many GPU-seconds: what floats lose in a sum."""
DIMENSIONS = ("queue", "user", "model", "project", "device")
OF_HELD = ("starting", "restart", "checkpoint", "useful", "idle", "lost", "unmeasured")
UNHELD = {
    "down": "down", "claimed": "held", "reserved": "reserved", "stranded": "stranded", "free": "free",
}  # fmt: skip
"""Purposes of GPU-seconds that no gang held, as `gantree usage` names them and as the recount does."""
SITE = ("capacity_gpu_s", "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s")
Answer = Mapping[str, Any]
Asked = TypeVar("Asked")
Sums = dict[str, float]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure as a daemon tells it and as the recount says, in GPU-seconds, or seconds that jobs waited."""

    what: str
    told: float
    recounted: float

    @property
    def is_amiss(self) -> bool:
        """Whether the two are not the same."""
        return abs(self.told - self.recounted) > EXACT_GPU_S


def amiss(figures: Iterable[Figure]) -> list[Figure]:
    """Those that are not what the recount says."""
    return [each for each in figures if each.is_amiss]


@dataclass(slots=True)
class Recount:
    """All facts of a journal up to one of them. site_now: what GPUs are for since the last turn, site_since."""

    purposes: Purposes
    site: list[Entry] = field(default_factory=list)
    site_now: dict[tuple[UsageKey, str], float] = field(default_factory=dict)
    site_since: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    def amounts(self, now: float) -> dict[UsageKey, Sums]:
        """GPU-seconds by key and purpose up to a moment; no fact lies between the last one and that."""
        terms = defaultdict[tuple[UsageKey, str], list[float]](list)
        for entry in (*self.until(now).entries, *self.site, *self._site_until(now)):
            seconds = 1.0 if entry.since == entry.until else entry.until - entry.since
            terms[entry.key, entry.column.removesuffix("_gpu_s")].append(entry.amount * seconds)
        found: dict[UsageKey, Sums] = defaultdict(dict)
        for (key, purpose), amounts in terms.items():
            found[key][purpose] = fsum(amounts)
        return found

    def until(self, now: float) -> Purposes:
        """What gangs had up to a moment."""
        whole = deepcopy(self.purposes)
        whole.close(now)
        return whole

    def turn_ended(self, at: float, levels: Mapping[tuple[UsageKey, str], float]) -> None:
        """Since a moment GPUs are for this, as `site_gpus` has counted them."""
        self.site += self._site_until(at)
        self.site_now, self.site_since = dict(levels), at
        gpus = sum(amount for (_, column), amount in levels.items() if column == "allocated_gpu_s")
        if abs(gpus - self.purposes.held_gpus()) > EXACT_GPU_S:
            self.purposes.wrong.append(f"{gpus} GPUs are allocated at {at}, not what gangs hold")

    def _site_until(self, at: float) -> list[Entry]:
        return [
            Entry("", key, column, self.site_since, at, gpus)
            for (key, column), gpus in self.site_now.items()
            if column in SITE and at > self.site_since
        ]


def asked(client: Client, ask: Callable[[], Asked]) -> tuple[Asked, int]:
    """What a question is answered while nothing is decided, and the seq of the last fact before it."""
    newest = 0
    while True:
        newest = max((fact["seq"] for fact in client.facts(after=newest)), default=newest)
        answer = ask()
        if not any(client.facts(after=newest)):
            return answer, newest


def months_of(since: float, until: float) -> list[str]:
    """The months of UTC that a span of time touches, as `--month` takes them."""
    days = range(int(since // DAY_S), int(until // DAY_S) + 1)
    return sorted({f"{datetime.fromtimestamp(day * DAY_S, UTC):%Y-%m}" for day in days})


def recount(state_dir: Path, policy: Policy, to_seq: int) -> Recount:
    """Recount the facts of a journal up to a place in it. Raises ValueError if older facts are gone."""
    journal = SqliteJournal(state_dir)
    try:
        if journal.compacted_to():
            raise ValueError("facts of this journal were compacted")
        ledger = Scheduler(policy).ledger
        model_of_node: dict[str, str | None] = {}
        found = Recount(Purposes(model_of_node.get))
        ends = frozenset(journal.turn_ends())
        for recorded in journal.facts():
            if recorded.seq > to_seq:
                break
            fact = recorded.fact
            ledger.apply(fact)
            found.kinds[type(fact).__name__] += 1
            _note_models(model_of_node, fact)
            found.purposes.see(fact)
            if recorded.seq in ends and ledger.fabric is not None:
                found.turn_ended(fact.at, site_gpus(ledger))
        return found
    finally:
        journal.close()


def _note_models(model_of_node: dict[str, str | None], fact: Fact) -> None:
    if isinstance(fact, FabricDefined):
        machines = fact.cluster.machines
        model_of_node |= {node.name: machines[node.machine].gpu for node in fact.cluster.nodes}


def by_name(amounts: Mapping[UsageKey, Sums], by: str) -> dict[str, Sums]:
    """What gangs had, by the names of a dimension, with what was not measured."""
    found: dict[str, Sums] = defaultdict(lambda: defaultdict(float))
    for key, sums in amounts.items():
        if (key.queue, key.user) != ("", ""):
            for purpose, amount in sums.items():
                found[getattr(key, by)][purpose] += amount
    for sums in found.values():
        told = sum(sums[purpose] for purpose in OF_HELD if purpose != "unmeasured")
        sums["unmeasured"] = sums["allocated"] - told
    return found


def site_sums(amounts: Mapping[UsageKey, Sums]) -> Sums:
    """Of all GPUs: capacity, allocated, and what the others were for; free are those that are left."""
    found: Sums = defaultdict(float)
    for sums in amounts.values():
        for purpose in ("capacity", "allocated", "down", "held", "reserved", "stranded"):
            found[purpose] += sums.get(purpose, 0.0)
    found["free"] = 2 * found["capacity"] - sum(found.values())
    return found


def usage_figures(answer: Answer, amounts: Mapping[UsageKey, Sums]) -> list[Figure]:
    """All of an answer of `gantree usage --json` by a dimension."""
    names = by_name(amounts, answer["by"])
    rows = {row["name"]: row for row in answer["rows"]}
    found = list(_of_rows(f"usage by {answer['by']}", rows, names))
    for name, sums in names.items():
        waited = rows[name]["waited_hours"] * HOUR_S if name in rows else 0.0
        what = f"usage by {answer['by']}, {name}: waited"
        found.append(Figure(what, waited, sums["waited_s"]))
    capacity, site = answer["capacity"], site_sums(amounts)
    for told, purpose in {"capacity": "capacity", "allocated": "allocated", **UNHELD}.items():
        seconds = capacity[f"{told}_gpu_hours"] * HOUR_S
        what = f"capacity of usage by {answer['by']}: {told}"
        found.append(Figure(what, seconds, site[purpose]))
    parts = sum(capacity[f"{name}_gpu_hours"] for name in ("allocated", *UNHELD)) * HOUR_S
    found.append(Figure("the sum of all purposes", parts, site["capacity"]))
    return found


def job_figures(answer: Answer, found: Recount) -> list[Figure]:
    """All of an answer of `gantree usage --by job --json`."""
    whole = found.until(answer["until"])
    told = {
        "held": "allocated_gpu_s",
        "useful": "useful_gpu_s",
        "idle": "idle_gpu_s",
        "lost": "lost_gpu_s",
    }
    return [
        Figure(
            f"job {row['name']}: {name}", row[f"{name}_gpu_hours"] * HOUR_S, of_job.get(column, 0.0)
        )
        for row in answer["rows"]
        for of_job in [whole.of_job(row["name"])]
        for name, column in told.items()
    ]


def statement_figures(
    statements: Sequence[Answer], amounts: Mapping[UsageKey, Sums]
) -> list[Figure]:
    """The same of statements of months, which together are the whole journal; no gang may hold anything any more."""
    by = statements[0]["by"]
    rows: dict[str, Sums] = defaultdict(lambda: defaultdict(float))
    fleet: Sums = defaultdict(float)
    for each in statements:
        for row in each["rows"]:
            for purpose in (*OF_HELD, "held"):
                rows[row["name"]][f"{purpose}_gpu_hours"] += row[f"{purpose}_gpu_hours"]
        for purpose, hours in each["fleet_gpu_hours"].items():
            fleet[purpose] += hours * HOUR_S
    found = list(_of_rows(f"statement by {by}", rows, by_name(amounts, by)))
    site = site_sums(amounts)
    found += [
        Figure(f"statement, fleet: {purpose}", fleet[purpose], site[purpose])
        for purpose in ("down", "held", "reserved", "stranded")
    ]
    held = sum(fleet[purpose] for purpose in OF_HELD)
    found.append(Figure("statement, fleet: allocated", held, site["allocated"]))
    return found


def _of_rows(
    what: str, rows: Mapping[str, Mapping[str, float]], names: Mapping[str, Sums]
) -> Iterator[Figure]:
    for name in sorted({*rows, *names}):
        row, sums = rows.get(name, {}), names.get(name, {})
        for told, purpose in {"held": "allocated", **{each: each for each in OF_HELD}}.items():
            seconds = row.get(f"{told}_gpu_hours", 0.0) * HOUR_S
            yield Figure(f"{what}, {name or '-'}: {told}", seconds, sums.get(purpose, 0.0))
