"""Muri's simulated experiment (SIGCOMM 2022): its rigid baselines and our presets under both rules of overheads."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import get_args

from gantree.formats.policy.reader import PRESETS
from gantree.sim.experiments.experiment import Bench, Judgement, Table, Verdict
from gantree.sim.experiments.inputs import INPUTS
from gantree.sim.experiments.published.rows import Row, against, named
from gantree.sim.muri.orders import ORDERS, LeastAttained, Order
from gantree.sim.muri.ours import cluster_of_muri, known_job_of, overheads_of, trace_of
from gantree.sim.muri.published import PUBLISHED
from gantree.sim.muri.replay import Rule, replay
from gantree.sim.muri.trace import read_muri
from gantree.sim.run import simulate

TRACE = "trace3"
OURS = ("srsf", "least-stretch", "least-attained-service", "gantree")

TOLD_APART = 1e-4
"""A replay is the published run if no figure is further off than this share."""

BY_ARRIVAL = "Tiresias-L, by arrival"
"""Their Tiresias-L with one change: inside a queue who came first goes first, as in the preset."""

RUNNING_FIRST = (
    "inside a queue their simulator lets those who run go before those who wait, so large jobs wait until enough GPUs "
    "happen to be free; the preset goes by arrival and stops later jobs, which brings the longest ones to their end "
    f"and delays the others: their own replay with that one change is the row {BY_ARRIVAL}"
)
STOPS_NOBODY = "the default preset stops no job for another of its class, so short jobs wait for long ones to end"

CHARGED: Mapping[Rule, str] = {
    "every event": "at every event (theirs)",
    "start": "at every start (ours)",
}
THEIRS: Mapping[str, Callable[[], Order]] = {
    **ORDERS,
    BY_ARRIVAL: partial(LeastAttained, by_arrival=True),
}

Case = tuple[Rule, str]
RowsOfRule = Mapping[Rule, Sequence[Row]]


def run_case(case: Case) -> Row:
    """One policy, theirs or ours, under one rule."""
    rule, policy = case
    jobs = read_muri(INPUTS / "muri", TRACE)
    if policy in THEIRS:
        theirs = replay(jobs, THEIRS[policy](), rule)
        return Row(
            policy, False, theirs.mean_jct_s, theirs.p99_jct_s, theirs.makespan_s, theirs.preemptions
        )  # fmt: skip
    result = simulate(
        cluster_of_muri(),
        trace_of(jobs),
        PRESETS[policy],
        overheads=overheads_of(jobs, rule),
        jobs=known_job_of,
    )
    found = result.summary()
    jct_s = found["jct_s"]
    return Row(policy, True, jct_s["mean"], jct_s["p99"], found["makespan_s"], found["preemptions"])


def rows_of_rules(bench: Bench) -> dict[Rule, list[Row]]:
    """All policies under each rule; nothing is drawn, so seeds do not matter."""
    rules: tuple[Rule, ...] = get_args(Rule)
    cases = [(rule, policy) for rule in rules for policy in (*OURS, *THEIRS)]
    rows = bench.workers.map(run_case, cases)
    return {
        rule: [row for (of, _), row in zip(cases, rows, strict=True) if of == rule]
        for rule in rules
    }


def tables(rows_of_rule: RowsOfRule) -> tuple[Table, ...]:
    """A table for each rule."""
    return tuple(_table(rule, rows) for rule, rows in rows_of_rule.items())


def _table(rule: Rule, rows: Sequence[Row]) -> Table:
    lines = []
    for row in sorted(rows, key=lambda row: row.mean_jct_s):
        told = PUBLISHED[row.policy, TRACE].mean_jct_s if row.policy in ORDERS else None
        whose = "gantree" if row.ours else "Muri's" if row.policy in ORDERS else "Muri's, changed"
        figures = (row.mean_jct_s, row.p99_jct_s, row.makespan_s, row.preemptions)
        lines.append((row.policy, whose, *figures, told if rule == "every event" else None))
    head = (
        "policy",
        "whose",
        "mean JCT s",
        "p99 JCT s",
        "makespan s",
        "preemptions",
        "published mean",
    )
    return Table(f"Muri, {TRACE}: start overheads charged {CHARGED[rule]}", head, tuple(lines))


def verdicts(rows_of_rule: RowsOfRule) -> tuple[Verdict, ...]:
    """Whether the published rows come out again, and ours against theirs under each rule."""
    found = [_reproduced(rows_of_rule["every event"])]
    for rule, rows in rows_of_rule.items():
        for ours, theirs, why in (
            ("srsf", "SRSF", ""),
            ("least-stretch", "SRSF", ""),
            ("least-attained-service", "Tiresias-L", RUNNING_FIRST),
            ("gantree", "Tiresias-L", STOPS_NOBODY),
        ):
            claim = f"Muri, overheads charged {CHARGED[rule]}: {ours} no worse than {theirs}"
            found.append(against(claim, named(rows, ours), named(rows, theirs), why))
    return tuple(found)


def _reproduced(rows: Sequence[Row]) -> Verdict:
    worst = 0.0
    for row in rows:
        if row.policy in ORDERS:
            told = PUBLISHED[row.policy, TRACE]
            worst = max(
                worst,
                abs(row.mean_jct_s / told.mean_jct_s - 1),
                abs(row.p99_jct_s / told.p99_jct_s - 1),
                abs(row.makespan_s / told.makespan_s - 1),
            )
    return Verdict(
        "Muri: SRTF, SRSF and Tiresias-L come out as published (mean, p99, makespan)",
        f"largest deviation {100 * worst:.4f} %",
        Judgement.HOLDS if worst < TOLD_APART else Judgement.MISSED,
    )
