"""consolidation: a fleet for training and one for inference, against one that both share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gantree.sim.experiments.experiment import (
    Bench,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
    at_least,
    at_most,
    mean,
)
from gantree.sim.experiments.sharing.replica import PARTS, WHOLE, Part, highest_load, mean_p99
from gantree.sim.experiments.sharing.two_fleets import (
    Case,
    Fared,
    fleets,
    load_before,
    run_case,
    training_share,
)

MPS, MIG = PARTS[2], PARTS[4]
SIZES: dict[Part, tuple[int, ...]] = {
    MPS: (13, 14, 16, 17, 18, 20),
    MIG: (22, 24, 26),
    WHOLE: (28, 30),
}
"""Nodes of the shared fleet by what a replica gets."""

TARGET = 0.9
"""The part of a full replica that the autoscaler keeps in use."""
TRADES = tuple((target, spare) for target in (0.7, 0.8, 0.9, 0.95, 1.0) for spare in (0, 8))
"""Targets and spare replicas that are compared on one fleet."""

ALLOWED = 1.05
"""By how much completion may grow: the claim names 5 % for training."""
ALLOWED_LATE = 0.01
"""The part of requests that may find all replicas full: p99 is as before while it is less than a hundredth."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A shared fleet beside the two: what is saved, and completion over that before."""

    case: Case
    fared: Fared
    saved: float
    jct: float

    @property
    def harmless(self) -> bool:
        """Whether neither serving nor training is slowed by more than is allowed."""
        late = self.fared.late > ALLOWED_LATE
        return not late and self.jct <= ALLOWED and not self.fared.unfinished


def run(bench: Bench) -> Outcome:
    """Run shared fleets of all sizes with one seed, the smallest that harms nobody with all, and there all targets."""
    nodes = int(fleets("training_nodes"))
    alone = bench.workers.map(run_case, [Case(nodes, seed) for seed in bench.seeds])
    p99 = mean_p99(WHOLE, load_before(), bench.seeds)
    load_of = {part: highest_load(part, p99, bench.seeds) for part in (MPS, MIG)}
    load_of[WHOLE] = load_before()
    first = bench.seeds[0]
    cases = [
        Case(nodes, first, part, load_of[part], TARGET)
        for part, sizes in SIZES.items()
        for nodes in sizes
    ]
    found = bench.workers.map(run_case, cases)
    shared = [_shared([case], [fared], alone) for case, fared in zip(cases, found, strict=True)]
    chosen = (_smallest(shared, MPS) or shared[0]).case
    again = [replace(chosen, seed=seed) for seed in bench.seeds]
    traded = [replace(chosen, target=target, spare=spare) for target, spare in TRADES]
    more = bench.workers.map(run_case, [*again[1:], *traded])
    runs = [found[cases.index(chosen)], *more[: len(again) - 1]]
    best = _shared(again, runs, alone)
    trades = [
        _shared([case], [fared], alone)
        for case, fared in zip(traded, more[len(again) - 1 :], strict=True)
    ]
    return Outcome(
        verdicts=_verdicts(alone, best, shared),
        tables=(_table(alone, shared), _trade_table(trades)),
        plots=(*_plots(shared), _trade_plot(trades)),
        notes=_notes(),
    )


def _shared(cases: Sequence[Case], runs: Sequence[Fared], alone: Sequence[Fared]) -> Shared:
    """Sum up runs of a size, the first ones of the seeds, against the fleet of training with the same seeds."""
    nodes = fleets("training_nodes") + fleets("inference_nodes")
    slowed = [one.jct_s / other.jct_s for one, other in zip(runs, alone, strict=False)]
    return Shared(cases[0], _mean(runs), 1 - cases[0].nodes / nodes, mean(slowed))


def _smallest(shared: Sequence[Shared], part: Part) -> Shared | None:
    """The smallest fleet that harms nobody with a part."""
    harmless = [each for each in shared if each.case.part == part and each.harmless]
    return min(harmless, key=lambda each: each.case.nodes, default=None)


def _mean(runs: Sequence[Fared]) -> Fared:
    return Fared(
        mean([each.busy for each in runs]),
        mean([each.jct_s for each in runs]),
        sum(each.unfinished for each in runs),
        round(mean([float(each.preemptions) for each in runs])),
        mean([each.lost_gpu_h for each in runs]),
        mean([each.late for each in runs]),
        mean([each.replicas_gpu_h for each in runs]),
    )


def _two_fleets(alone: Sequence[Fared]) -> float:
    """Utilisation of both fleets together, before."""
    training, inference = fleets("training_nodes"), fleets("inference_nodes")
    used = _mean(alone).busy * training + fleets("inference_busy") * inference
    return used / (training + inference)


def _verdicts(
    alone: Sequence[Fared], best: Shared, shared: Sequence[Shared]
) -> tuple[Verdict, ...]:
    where = f"{best.case.nodes} nodes, {_part(best)}"
    most = max(shared, key=lambda each: each.fared.busy)
    return (
        at_least("two fleets: 30 % busy", 100 * _two_fleets(alone), 29, " %"),
        at_least(
            f"shared: 68 % busy ({where}, the smallest that harms nobody)", 100 * best.fared.busy, 68, " %",
            f"{most.case.nodes} nodes are {100 * most.fared.busy:.0f} % busy, but by day training finds no GPU there, "
            f"and its jobs take {most.jct:.1f} times as long",
        ),
        at_least(f"spend down by 36 % ({where})", 100 * best.saved, 36, " %"),
        at_most(
            f"p99 of serving is as before: at most 1 % of the requests find all replicas full ({where})",
            100 * best.fared.late, 100 * ALLOWED_LATE, " %",
        ),
        at_most(f"training at most +5 % ({where}; mean completion)", best.jct, ALLOWED, "x"),
        _of_others(shared),
    )  # fmt: skip


def _of_others(shared: Sequence[Shared]) -> Verdict:
    found = [(part, _smallest(shared, part)) for part in (MIG, WHOLE)]
    told = (
        f"{part.name}: {100 * size.fared.busy:.0f} % on {size.case.nodes} nodes" if size else f"{part.name}: no size"
        for part, size in found
    )  # fmt: skip
    holds = all(size is not None and size.fared.busy >= fleets("shared_busy") for _, size in found)
    return Verdict(
        "MIG, or whole GPUs with preemption alone, reach 68 % too, harming nobody",
        ", ".join(told),
        Judgement.HOLDS if holds else Judgement.MISSED,
        ""
        if holds
        else "an instance or a GPU is held by one replica, whether it has a request or not",
    )


def _table(alone: Sequence[Fared], shared: Sequence[Shared]) -> Table:
    before, nodes = _mean(alone), int(fleets("training_nodes") + fleets("inference_nodes"))
    first = (
        "two fleets",
        nodes,
        100 * _two_fleets(alone),
        0.0,
        0.0,
        1.0,
        before.preemptions,
        before.lost_gpu_h,
    )
    rows = [
        (
            _part(each), each.case.nodes, 100 * each.fared.busy, 100 * each.saved, 100 * each.fared.late, each.jct,
            each.fared.preemptions, each.fared.lost_gpu_h,
        )
        for each in shared
    ]  # fmt: skip
    head = (
        "a replica gets", "nodes", "busy %", "saved %", "requests late %", "training x", "preempted", "GPU-h lost",
    )  # fmt: skip
    return Table(f"Shared fleets by size, target {TARGET}", head, (first, *rows))


def _trade_table(trades: Sequence[Shared]) -> Table:
    rows = tuple(
        (
            each.case.target, each.case.spare, each.fared.replicas_gpu_h, 100 * each.fared.late, each.jct,
            each.fared.preemptions, each.fared.lost_gpu_h,
        )
        for each in trades
    )  # fmt: skip
    head = (
        "target", "spare", "GPU-h of replicas", "requests late %", "training x", "preempted", "GPU-h lost",
    )  # fmt: skip
    of = trades[0].case
    return Table(f"Target and spare replicas on {of.nodes} nodes, {_part(trades[0])}", head, rows)


def _part(shared: Shared) -> str:
    assert shared.case.part is not None, "there are replicas"
    return shared.case.part.name


def _plots(shared: Sequence[Shared]) -> tuple[Plot, Plot]:
    """How busy a fleet is, and what its size costs training: the two ends of the trade."""
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {
            "part": _part(each),
            "nodes": each.case.nodes,
            "busy": 100 * each.fared.busy,
            "jct": each.jct,
        }
        for each in shared
    ]
    size = "nodes of the shared fleet (two fleets: 28)"
    busy = charts.lines(rows, "nodes", "busy", "part", x_title=size, y_title="busy, %", points=True)
    slowed = charts.lines(
        rows, "nodes", "jct", "part", x_title=size, y_title="mean completion of training, two fleets = 1",
        points=True,
    )  # fmt: skip
    of = "by the size of the shared fleet and what a replica gets"
    return (
        Plot("consolidation", f"How busy the GPUs are, {of}", charts.to_svg(busy)),
        Plot("consolidation-training", f"How long training takes, {of}", charts.to_svg(slowed)),
    )


def _trade_plot(trades: Sequence[Shared]) -> Plot:
    """What a target costs in GPU-hours, and how many requests it makes late."""
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {
            "spare": f"{each.case.spare} spare",
            "hours": each.fared.replicas_gpu_h,
            "late": 100 * each.fared.late,
        }
        for each in trades
    ]
    chart = charts.lines(
        rows, "hours", "late", "spare", x_title="GPU-hours of replicas", y_title="requests late, %", points=True,
    )  # fmt: skip
    caption = "What replicas hold, and how many requests are late, by target and spare replicas"
    return Plot("consolidation-trade", caption, charts.to_svg(chart))


def _notes() -> tuple[str, ...]:
    share = training_share()
    waste, saved = fleets("wasted_MUSD"), fleets("saved_MUSD")
    spent = waste / (1 - fleets("overall_busy"))
    equal = 1 - fleets("overall_busy") / fleets("shared_busy")
    return (
        f"60 % and 25 % busy make 30 % only if training has {share:.3f} of the GPUs, a seventh. So the fleets here "
        f"have {fleets('training_nodes'):.0f} and {fleets('inference_nodes'):.0f} nodes.",
        f"{waste} M USD wasted at 30 % is {spent:.2f} M USD in all, of which {saved} M USD is "
        f"{100 * saved / spent:.0f} %. The same work at 68 % instead of 30 % saves {100 * equal:.0f} %. The claim's "
        "36 % is less than its own utilisation gives: a fleet that saves 36 % is 47 % busy.",
    )
