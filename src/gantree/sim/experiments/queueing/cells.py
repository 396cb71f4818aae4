"""cells: the sharing anomaly, shown and removed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.policy.rules import PlacementRule, Policy
from gantree.sim.experiments.experiment import Bench, Outcome, Table, Verdict, at_least, at_most
from gantree.sim.experiments.week import gpus_of_queue, site, week, with_guarantees
from gantree.sim.lingjun.alone import private_cluster
from gantree.sim.lingjun.philly import known_gang_of
from gantree.sim.run import simulate


@dataclass(frozen=True, slots=True)
class Rule:
    """What queues are given: by a preset, as a quota that they cannot exceed or as a guarantee, counted or in cells.

    Each queue also runs alone under the preset, so that the order of its jobs is the same in both.
    """

    name: str
    preset: str
    quota: bool = False
    as_cells: bool = False
    placement: PlacementRule = "topology"

    @property
    def policy(self) -> Policy:
        """The policy of the shared cluster. A quota is a limit, and nobody is stopped for anybody."""
        policy = with_guarantees(self.preset, as_cells=self.as_cells)
        if self.quota:
            limited = (replace(each, guarantee={}, limit=each.guarantee) for each in policy.queues)
            policy = replace(policy, queues=tuple(limited))
        return replace(policy, placement=self.placement)


RANDOM = Rule("quota, random placement", "backfill", quota=True, placement="random")
CELLS = Rule("cells", "cells", as_cells=True)
RULES = (
    RANDOM,
    Rule("quota, gantree's placement", "backfill", quota=True),
    Rule("guarantee, lent and taken back", "gantree"),
    CELLS,
)


@dataclass(frozen=True, slots=True)
class Late:
    """One queue under one rule: jobs that start alone, those late, by how much the worst, mean waits in seconds."""

    rule: str
    queue: str
    gpus: int
    jobs: int
    late: int
    worst_s: float
    alone_s: float
    shared_s: float


def waits_alone(case: tuple[str, str]) -> dict[str, float]:
    """Waits in seconds of the jobs of a queue on its private cluster under a preset, of those that start there."""
    queue, preset = case
    rows = [row for row in week() if row.queue == queue]
    cluster = private_cluster(gpus_of_queue()[queue])
    found = simulate(cluster, rows, PRESETS[preset], jobs=known_gang_of).jobs
    return {row.job_id: row.wait_s for row in found if row.wait_s is not None}


def waits_shared(case: tuple[Rule, frozenset[str]]) -> dict[str, float | None]:
    """Waits in seconds of these jobs on the shared cluster under a rule; None of a job that never started."""
    rule, jobs = case
    rows: list[TraceJob] = [row for row in week() if row.job_id in jobs]
    found = simulate(site(), rows, rule.policy, jobs=known_gang_of).jobs
    return {row.job_id: row.wait_s for row in found}


def run(bench: Bench) -> Outcome:
    """Run each queue alone, then the jobs that start there on the shared cluster under every rule."""
    queues = [queue for queue, gpus in gpus_of_queue().items() if gpus]
    cases = [
        (queue, preset)
        for queue in queues
        for preset in dict.fromkeys(rule.preset for rule in RULES)
    ]
    alone = dict(zip(cases, bench.workers.map(waits_alone, cases), strict=True))
    jobs = frozenset(job for waits in alone.values() for job in waits)
    shared = dict(
        zip(RULES, bench.workers.map(waits_shared, [(rule, jobs) for rule in RULES]), strict=True)
    )
    rows = [
        _late(rule, queue, alone[queue, rule.preset], shared[rule])
        for rule in RULES
        for queue in queues
    ]
    return Outcome(
        verdicts=_verdicts(rows),
        tables=(_sums(rows), _table(rows)),
    )


def _late(
    rule: Rule, queue: str, alone_s: dict[str, float], shared_s: dict[str, float | None]
) -> Late:
    grace_s = rule.policy.grace_s
    late_s = [
        (float("inf") if shared_s[job] is None else shared_s[job] or 0.0) - wait_s - grace_s
        for job, wait_s in alone_s.items()
    ]
    count = max(1, len(alone_s))
    started_s = [wait_s for job in alone_s if (wait_s := shared_s[job]) is not None]
    return Late(
        rule.name, queue, gpus_of_queue()[queue], len(alone_s), sum(by_s > 0 for by_s in late_s),
        max(late_s, default=0.0), sum(alone_s.values()) / count, sum(started_s) / max(1, len(started_s)),
    )  # fmt: skip


def _verdicts(rows: Sequence[Late]) -> tuple[Verdict, ...]:
    quota, cells = ([row for row in rows if row.rule == rule.name] for rule in (RANDOM, CELLS))
    worst = max(quota, key=lambda row: row.worst_s)
    return (
        at_least("with quotas some job waits longer than alone", sum(row.late for row in quota), 1, " jobs"),
        at_least(
            "by up to 1,000 minutes", worst.worst_s / 60, 1000, " min",
            "the week is shorter and less crowded than HiveD's two months",
        ),
        at_most("with cells no job is late", sum(row.late for row in cells), 0, " jobs"),
    )  # fmt: skip


def _sums(rows: Sequence[Late]) -> Table:
    of_rule = {rule.name: [row for row in rows if row.rule == rule.name] for rule in RULES}
    return Table(
        "All queues",
        ("rule", "jobs", "late", "worst, minutes", "mean wait alone s", "mean wait shared s"),
        tuple(
            (
                rule, sum(row.jobs for row in group), sum(row.late for row in group),
                max(0.0, *(row.worst_s for row in group)) / 60,
                sum(row.alone_s * row.jobs for row in group) / sum(row.jobs for row in group),
                sum(row.shared_s * row.jobs for row in group) / sum(row.jobs for row in group),
            )
            for rule, group in of_rule.items()
        ),
    )  # fmt: skip


def _table(rows: Sequence[Late]) -> Table:
    return Table(
        "Every queue against a private cluster of its cells",
        ("rule", "queue", "GPUs", "jobs", "late", "worst, minutes", "wait alone s", "wait shared s"),
        tuple(
            (
                row.rule, row.queue[:6], row.gpus, row.jobs, row.late, max(0.0, row.worst_s) / 60,
                row.alone_s, row.shared_s,
            )
            for row in rows
        ),
    )  # fmt: skip
