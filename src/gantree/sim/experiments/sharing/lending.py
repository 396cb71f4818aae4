"""lending: guarantees lent by use against guarantees lent by a constant; and fair shares by what GPUs did.

`run` joins two set-ups, `nights` and `shares`, each of simulated days on a small site.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, cos, pi
from random import Random
from typing import TypeVar

from gantree.core.ledger.usage import NOTHING, Used, life_of
from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Cluster
from gantree.policy.rules import (
    BY_HELD,
    BY_USEFUL,
    LendIdle,
    Policy,
    Preemption,
    QueueRule,
    UseWeights,
)
from gantree.sim.cluster import Overheads
from gantree.sim.experiments.experiment import (
    Bench,
    Cell,
    Outcome,
    Plot,
    Table,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.inputs import cluster
from gantree.sim.run import Simulation

Found = TypeVar("Found")

HOUR_S, DAY_S = 3600.0, 86_400.0
NODE_GPUS = 8

NIGHTS, NIGHT_NODES = 3, 16
REPLICAS_DAY, REPLICAS_NIGHT = 8, 2
"""Replicas of 8 GPUs that serving runs at noon and at midnight."""
ROLL_S, GAP_S = 2 * HOUR_S, 300.0
"""A replica is replaced after so long; the next one comes so much later."""
OVERHEADS = Overheads(start_s=60.0, stop_s=10.0, save_s=20.0)

SHARE_HOURS, SHARE_NODES, HALF_LIFE_S = 24, 4, 3 * HOUR_S
SHARING = ("busy", "idle", "preempted")
"""Queues of equal weight: one computes, one leaves GPUs idle, one is preempted by urgent jobs and saves nothing."""
BUSY_OF_IDLER = 0.4
"""The part of its time in which the queue that idles computes."""


def site(nodes: int) -> Cluster:
    """Return so many nodes of 8 H100."""
    whole = cluster("dgx-h100")
    return replace(whole, nodes=whole.nodes[:nodes])


# ----- guarantees by night


def lenders() -> dict[str, QueueRule]:
    """Return the rules of serving that are compared: how it lends its half of the site."""
    own = QueueRule("serving", guarantee={"gpus": NODE_GPUS * NIGHT_NODES / 2})
    by_use = partial(LendIdle, keep={"gpus": float(NODE_GPUS)})
    return {
        "nothing": replace(own, lend={"gpus": 0.0}),
        "a quarter": replace(own, lend={"gpus": NODE_GPUS * NIGHT_NODES / 8}),
        "all at once": own,
        "unused for 15 min": replace(own, lend_idle=by_use(900.0), return_within_s=60.0),
        "unused for 1 h": replace(own, lend_idle=by_use(HOUR_S), return_within_s=60.0),
        "unused for 4 h": replace(own, lend_idle=by_use(4 * HOUR_S), return_within_s=60.0),
    }


@dataclass(frozen=True, slots=True)
class Night:
    """One run: GPU-hours that training has done and lost, seconds and part of replicas that wait, and preemptions."""

    done_gpu_h: float
    lost_gpu_h: float
    mean_wait_s: float
    longest_wait_s: float
    waited: float
    preemptions: int


def serving_rows(seed: int) -> list[TraceJob]:
    """Return replicas whose number follows the hour of the day; each is replaced again and again."""
    draws = Random(seed)  # noqa: S311 - a draw, not a secret
    rows = list[TraceJob]()
    for number in range(REPLICAS_DAY):
        at = draws.uniform(0.0, ROLL_S)
        while at < NIGHTS * DAY_S:
            lasts_s = ROLL_S * draws.uniform(0.5, 1.5)
            if number < _replicas(at):
                name = f"replica-{number}-{len(rows)}"
                rows.append(
                    TraceJob(name, at, lasts_s, 1, NODE_GPUS, queue="serving", priority="serving")
                )
            at += lasts_s + draws.uniform(0.5, 1.5) * GAP_S
    return rows


def _replicas(at_s: float) -> int:
    """Replicas that the load of a moment needs: most at noon, fewest at midnight."""
    height = (1 - cos(2 * pi * at_s / DAY_S)) / 2
    return REPLICAS_NIGHT + ceil((REPLICAS_DAY - REPLICAS_NIGHT) * height - 1e-9)


def training_rows(seed: int) -> list[TraceJob]:
    """Return a backlog of gangs of one to four nodes that fills the whole site all the time."""
    draws = Random(f"{seed}/training")  # noqa: S311 - a draw, not a secret
    rows, gpu_s = list[TraceJob](), 0.0
    while gpu_s < NIGHTS * DAY_S * NODE_GPUS * NIGHT_NODES:
        nodes, lasts_s = draws.choice([1, 1, 2, 4]), draws.uniform(1, 8) * HOUR_S
        name = f"training-{len(rows)}"
        rows.append(
            TraceJob(name, 0.0, lasts_s, nodes, NODE_GPUS, queue="training", checkpoint_s=900.0)
        )
        gpu_s += nodes * NODE_GPUS * lasts_s
    return rows


def run_night(case: tuple[str, int]) -> Night:
    """Run the days of one rule and seed."""
    rule, seed = case
    half = {"gpus": NODE_GPUS * NIGHT_NODES / 2}
    policy = replace(
        PRESETS["gantree"],
        queues=(lenders()[rule], QueueRule("training", guarantee=half)),
        grace_s=10.0,
    )
    rows = [*serving_rows(seed), *training_rows(seed)]
    there = lived(Simulation(site(NIGHT_NODES), rows, policy, OVERHEADS), NIGHTS * DAY_S)
    used = by_queue(there)["training"]
    result = there.result()
    waits = [row.wait_s for row in result.jobs if row.queue == "serving"]
    known = [wait_s - OVERHEADS.start_s for wait_s in waits if wait_s is not None]
    return Night(
        (used.held_gpu_s - used.wasted_gpu_s) / HOUR_S,
        used.wasted_gpu_s / HOUR_S,
        mean(known),
        max(known),
        sum(wait_s > 1 for wait_s in known) / len(known),
        result.summary()["preemptions"],
    )


# ----- shares by what GPUs did


SHARE_RULES = {
    "held": BY_HELD,
    "lost_to_others: 0": UseWeights(1.0, 0.0),
    "idle: 2, lost_to_others: 0": UseWeights(2.0, 0.0),
    "useful": BY_USEFUL,
}


def share_rows(seed: int) -> list[TraceJob]:
    """Return the jobs of SHARING, more than there is room for, and urgent ones every hour and a half."""
    draws = Random(f"{seed}/shares")  # noqa: S311 - a draw, not a secret
    hours = NODE_GPUS * SHARE_NODES * SHARE_HOURS / NODE_GPUS
    rows = [
        TraceJob(
            f"{queue}-{number}", 0.0, draws.uniform(0.5, 2.5) * HOUR_S, 1, NODE_GPUS // 2, queue=queue,
            priority=priority, busy=busy, checkpoint_s=checkpoint_s,
        )
        for queue, priority, busy, checkpoint_s in (
            ("busy", "batch", 1.0, 600.0), ("idle", "batch", BUSY_OF_IDLER, 600.0), ("preempted", "research", 1.0, None)
        )
        for number in range(int(hours))
    ]  # fmt: skip
    urgent = (
        TraceJob(
            f"urgent-{n}",
            n * 5400.0,
            900.0,
            1,
            NODE_GPUS,
            queue="urgent",
            priority="production",
            busy=1.0,
        )
        for n in range(1, int(SHARE_HOURS / 1.5))
    )
    return [*rows, *urgent]


def run_share(case: tuple[str, int]) -> dict[str, Used]:
    """Run a day under one rule and seed; return what each queue used."""
    rule, seed = case
    policy: Policy = replace(
        PRESETS["gantree"],
        order=("share", "priority", "arrival"),
        half_life_s=HALF_LIFE_S,
        share_by=SHARE_RULES[rule],
        preemption=Preemption(who={"batch": ()}),
        queues=(*map(QueueRule, SHARING), QueueRule("urgent", weight=100)),
    )
    there = Simulation(site(SHARE_NODES), share_rows(seed), policy, OVERHEADS)
    return by_queue(lived(there, SHARE_HOURS * HOUR_S))


# ----- both


def lived(there: Simulation, until_s: float) -> Simulation:
    """Run until a moment."""
    while there.now < until_s and there.step():
        pass
    return there


def by_queue(there: Simulation) -> dict[str, Used]:
    """Return what was used until now by queue."""
    found: dict[str, Used] = {}
    for state in there.scheduler.ledger.jobs.values():
        lives = life_of(state, there.now).values()
        found[state.spec.queue] = sum(lives, found.get(state.spec.queue, NOTHING))
    return found


def run(bench: Bench) -> Outcome:
    """Run all rules of both with every seed."""
    nights = _grouped(bench, run_night, list(lenders()))
    shares = _grouped(bench, run_share, list(SHARE_RULES))
    fixed, by_use = nights["a quarter"], nights["unused for 1 h"]
    gained = mean([n.done_gpu_h for n in by_use]) / mean([n.done_gpu_h for n in fixed]) - 1
    disturbed = _mean(by_use, "waited") / max(1e-9, _mean(nights["all at once"], "waited"))
    idler = {
        rule: mean([each["idle"].held_gpu_s for each in runs]) for rule, runs in shares.items()
    }
    more_idle = idler["useful"] / idler["held"]
    return Outcome(
        verdicts=(
            at_least("training does more than with a constant", 100 * gained, 5, " %"),
            at_most("as many replicas wait as with `all at once`, times", disturbed, 0.5),
            at_least("`useful` gives more GPUs to a queue that leaves them idle, times", more_idle, 1.1),
        ),
        tables=(_night_table(nights), _share_table(shares)),
        plots=(_plot(nights),),
    )  # fmt: skip


def _grouped(
    bench: Bench, run_case: Callable[[tuple[str, int]], Found], rules: Sequence[str]
) -> dict[str, list[Found]]:
    cases = [(rule, seed) for rule in rules for seed in bench.seeds]
    found = dict(zip(cases, bench.workers.map(run_case, cases), strict=True))
    return {rule: [found[rule, seed] for seed in bench.seeds] for rule in rules}


def _mean(nights: Sequence[Night], field: str) -> float:
    return mean([getattr(each, field) for each in nights])


def _gpu_h(gpu_s: float) -> float:
    return gpu_s / HOUR_S


def _night_table(nights: dict[str, list[Night]]) -> Table:
    rows = tuple(
        (
            rule, _mean(runs, "done_gpu_h"), _mean(runs, "lost_gpu_h"), 100 * _mean(runs, "waited"),
            round(_mean(runs, "mean_wait_s"), 3), round(_mean(runs, "longest_wait_s"), 3), _mean(runs, "preemptions"),
        )
        for rule, runs in nights.items()
    )  # fmt: skip
    head = (
        "serving lends", "training GPU-hours", "lost", "replicas that wait %", "mean wait s", "longest s", "stops",
    )  # fmt: skip
    title = f"{NIGHTS} days on {NODE_GPUS * NIGHT_NODES} GPUs, half of them guaranteed to serving: means over seeds"
    return Table(title, head, rows)


def _share_table(shares: dict[str, list[dict[str, Used]]]) -> Table:
    rows = tuple(_share_row(rule, runs) for rule, runs in shares.items())
    head = (
        "share_by", "held by `busy`", "by `idle`", "by `preempted`", "not lost of `preempted`", "useful of all three",
    )  # fmt: skip
    title = (
        f"GPU-hours of three equal queues in {SHARE_HOURS} hours on {NODE_GPUS * SHARE_NODES} GPUs"
    )
    return Table(title, head, rows)


def _share_row(rule: str, runs: Sequence[dict[str, Used]]) -> tuple[Cell, ...]:
    held = [mean([_gpu_h(each[queue].held_gpu_s) for each in runs]) for queue in SHARING]
    lost = mean([_gpu_h(each["preempted"].wasted_gpu_s) for each in runs])
    useful = [sum(_gpu_h(each[queue].useful_gpu_s) for queue in SHARING) for each in runs]
    return (rule, *held, held[-1] - lost, mean(useful))


def _plot(nights: dict[str, list[Night]]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    bars = [
        {"rule": rule, "what": "training", "hours": _mean(runs, "done_gpu_h")}
        for rule, runs in nights.items()
    ]
    chart = charts.bars(bars, "rule", "hours", "what", y_title="training, GPU-hours")
    return Plot("lending", "GPU-hours of training by how serving lends", charts.to_svg(chart))
