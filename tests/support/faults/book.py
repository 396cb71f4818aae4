"""The book of a life: what the roll-ups say is held against a recount of the facts that knows nothing of them.

However often a daemon died or another took over, each GPU-second is counted once, and no rest is less than nothing.
"""

from collections import defaultdict
from dataclasses import fields
from math import isclose

from gantree.accounting.meter import uncounted
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.control.history.levels import levels_of
from gantree.core.scheduler import Scheduler
from gantree.journal.sql.history_tables import usage_history
from gantree.journal.sql.journal import SqlJournal
from gantree.model.facts import FabricDefined, Fact
from support.purposes import Purposes

COLUMNS = tuple(each.name for each in fields(UsageAmounts) if each.type is float)
OF_THE_SITE = (
    "down_gpu_s", "held_gpu_s", "reserved_gpu_s", "stranded_gpu_s", "capacity_cpu_s", "capacity_memory_GiB_s",
)  # fmt: skip
"""What follows from more than facts about gangs: only that it adds up to the capacity is checked."""
Totals = dict[tuple[UsageKey, str], float]


class BookAudit:
    """Reads the facts of a life in their order."""

    def __init__(self) -> None:
        self._purposes = Purposes(lambda node: self._model_of_node[node])
        self._model_of_node: dict[str, str | None] = {}
        self._capacity: dict[str, tuple[float, float]] = {}
        self._capacity_gpu_s: dict[str, float] = defaultdict(float)

    def see(self, fact: Fact) -> None:
        """Read one fact."""
        self._purposes.see(fact)
        if isinstance(fact, FabricDefined):
            machines = {
                node.name: fact.cluster.machines[node.machine] for node in fact.cluster.nodes
            }
            self._model_of_node = {name: machine.gpu for name, machine in machines.items()}
            self._count_capacity(fact.at)
            gpus: dict[str, float] = defaultdict(float)
            for machine in machines.values():
                gpus[machine.gpu or ""] += machine.gpus
            self._capacity = {model: (fact.at, count) for model, count in gpus.items()}

    def compare(self, journal: SqlJournal, scheduler: Scheduler) -> list[str]:
        """What the roll-ups and the recount do not agree on, up to the last decision."""
        self._purposes.close(scheduler.now)
        self._count_capacity(scheduler.now)
        told = self._purposes.totals()
        for model, amount in self._capacity_gpu_s.items():
            told[UsageKey("", "", model), "capacity_gpu_s"] = amount
        found = recorded(journal, scheduler)
        wrong = list(self._purposes.wrong)
        for place in sorted({*found, *told}):
            ours, theirs = found.get(place, 0.0), told.get(place, 0.0)
            is_same = isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-3)
            if place[1] not in OF_THE_SITE and not is_same:
                wrong.append(f"{place} is {ours} in the roll-ups, and {theirs} by the facts")
        return [*wrong, *_less_than_nothing(found)]

    def _count_capacity(self, at: float) -> None:
        for model, (since, gpus) in self._capacity.items():
            self._capacity_gpu_s[model] += gpus * (at - since)
            self._capacity[model] = (at, gpus)


def recorded(journal: SqlJournal, scheduler: Scheduler) -> Totals:
    """All rows, and what is not counted yet."""
    found: Totals = defaultdict(float)
    with journal.database.reading() as connection:
        for row in connection.execute(usage_history.select()):
            key = UsageKey(row.queue, row.user_name, row.gpu_model, row.project, row.device)
            for column in COLUMNS:
                found[key, column] += getattr(row, column)
    levels = levels_of(scheduler.ledger, journal.history.counted_to(), scheduler.now)
    for _, key, amounts in uncounted(levels, scheduler.now):
        for column in COLUMNS:
            found[key, column] += getattr(amounts, column)
    return found


def _less_than_nothing(found: Totals) -> list[str]:
    """Amounts and rests that are less than nothing, of each key and, where there is capacity, of each model."""
    of_key: dict[UsageKey, UsageAmounts] = defaultdict(UsageAmounts)
    of_model: dict[str, UsageAmounts] = defaultdict(UsageAmounts)
    for (key, column), amount in found.items():
        for sums in (of_key[key], of_model[key.model]):
            setattr(sums, column, getattr(sums, column) + amount)
    wrong = [
        f"{key}: {column} is {getattr(sums, column)}"
        for key, sums in of_key.items()
        for column in (*COLUMNS, "unmeasured_gpu_s")
        if getattr(sums, column) < -1e-3
    ]
    left = {model: sums.free_gpu_s for model, sums in of_model.items()}
    return wrong + [f"{model}: free is {gpu_s}" for model, gpu_s in left.items() if gpu_s < -1e-3]
