"""asynchronous: what a placement costs synchronous training, and asynchronous training with parameter servers."""

from collections.abc import Sequence
from dataclasses import dataclass

from gantree.sim.experiments.experiment import (
    Bench,
    Cell,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
    at_least,
)
from gantree.sim.experiments.inputs import cluster, figures, models
from gantree.sim.experiments.network.overhead import placed_step
from gantree.sim.experiments.network.parameter_servers import (
    async_step_s,
    expected_slowest,
    worker_GBps,
)
from gantree.topology.fabric.fabric import Fabric

SHOWN = ("resnet18", "resnet50", "gpt2", "bert", "vgg16")


@dataclass(frozen=True, slots=True)
class Site:
    """Where 16 workers may stand, as (node, workers on it), the tightest place first; and the nodes of 4 servers."""

    workers: dict[str, tuple[tuple[int, int], ...]]
    servers: dict[str, tuple[int, ...]]


def _scattered(nodes_of_leaf: int) -> tuple[tuple[int, int], ...]:
    """Four nodes of each of four leaves, in the order of the ranks."""
    return tuple((nodes_of_leaf * leaf + node, 1) for leaf in range(4) for node in range(4))


def _in_turn(nodes_of_leaf: int) -> tuple[tuple[int, int], ...]:
    """The same nodes, ranks dealt to the leaves in turn: neighbours in a ring are never in one leaf."""
    return tuple((nodes_of_leaf * leaf + node, 1) for node in range(4) for leaf in range(4))


SITES = {
    "ethernet-25g": Site(
        {
            "full nodes": tuple((node, 4) for node in range(4)),
            "one leaf": tuple((node, 2) for node in range(8)),
            "four leaves": _scattered(8),
            "four leaves, ranks in turn": _in_turn(8),
        },
        {"near": (4, 5, 6, 7), "one a leaf": (4, 12, 20, 28), "far": (28, 29, 30, 31)},
    ),
    "v100-100g": Site(
        {
            "full nodes": tuple((node, 8) for node in range(2)),
            "one leaf": tuple((node, 4) for node in range(4)),
            "four leaves": _scattered(4),
            "four leaves, ranks in turn": _in_turn(4),
        },
        {"near": (0, 1, 2, 3), "one a leaf": (3, 7, 11, 15), "far": (12, 13, 14, 15)},
    ),
}
DRAWN = ("ethernet-25g", "bert")
"""The site and the model of the plot."""

NEAREST, FARTHEST = "near", "far"
TOLERATED = 1.1


@dataclass(frozen=True, slots=True)
class Priced:
    """Seconds of a step of a model at a place of its workers: synchronous, and asynchronous by place of the servers."""

    site: str
    model: str
    place: str
    sync_s: float
    async_s: dict[str, float]


def price(fabric: Fabric, site: str, model: str, place: str) -> Priced:
    """Price a step both ways. A synchronous step waits for the slowest worker, an asynchronous one for nobody."""
    nodes = SITES[site].workers[place]
    step = placed_step(fabric, model, nodes)
    workers = [node for node, count in nodes for _ in range(count)]
    jitter = figures("asynchronous")["jitter"].value
    slowest = 1 + jitter * expected_slowest(len(workers))
    data_bytes = _gradients(model)
    found = {}
    for name, servers in SITES[site].servers.items():
        steps = [
            async_step_s(step.compute_s, data_bytes, rate)
            for rate in worker_GBps(fabric, workers, servers)
        ]
        found[name] = len(steps) / sum(1 / each for each in steps)
    return Priced(site, model, place, step.step_s + (slowest - 1) * step.compute_s, found)


def _gradients(model: str) -> float:
    """Bytes of gradients of a step."""
    traffic = models()[model].traffic
    assert traffic is not None, f"{model} tells its traffic"
    return next(axis.size_bytes for axis in traffic.axes if axis.axis == "data")


def run(bench: Bench) -> Outcome:
    """Price all models at all places; nothing here is drawn, so seeds do not matter."""
    found = [row for site in SITES for row in _of_site(site)]
    groups = [
        [each for each in found if (each.site, each.model) == (site, model)]
        for site in SITES
        for model in SHOWN
    ]
    return Outcome(
        verdicts=_verdicts(groups),
        tables=(*(_steps(site, found) for site in SITES), _ratios(groups)),
        plots=(_plot(found),),
    )


def _of_site(site: str) -> list[Priced]:
    fabric = Fabric.build(cluster(site))
    return [price(fabric, site, model, place) for model in SHOWN for place in SITES[site].workers]


def _steps(site: str, found: Sequence[Priced]) -> Table:
    head = (
        "model",
        "workers on",
        "synchronous",
        *(f"servers {name}" for name in SITES[site].servers),
    )
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (each.model, each.place, 1e3 * each.sync_s, *(1e3 * s for s in each.async_s.values()))
        for each in found
        if each.site == site
    )
    return Table(f"Milliseconds of a step on {site}, 16 workers and 4 servers", head, rows)


Group = Sequence[Priced]
"""A model on a site, at all places of its workers."""


def _slowed(group: Group) -> tuple[float, float]:
    """The step at the worst place over that at the best: synchronous, asynchronous with the nearest servers."""
    sync, alone = [each.sync_s for each in group], [each.async_s[NEAREST] for each in group]
    return max(sync) / min(sync), max(alone) / min(alone)


def _break_even(group: Group) -> tuple[float, float]:
    """Synchronous over asynchronous step, at the best and the worst place of synchronous training."""
    best, *_, worst = sorted(group, key=lambda each: each.sync_s)
    return best.sync_s / best.async_s[NEAREST], worst.sync_s / worst.async_s[NEAREST]


def _ratios(groups: Sequence[Group]) -> Table:
    head = (
        "site",
        "model",
        "synchronous x",
        "asynchronous x",
        "steps at the best place x",
        "at the worst x",
    )
    return Table(
        "The worst place of the workers over the best, and how many steps asynchronous training may need for one",
        head,
        tuple((group[0].site, group[0].model, *_slowed(group), *_break_even(group)) for group in groups),
    )  # fmt: skip


def _verdicts(groups: Sequence[Group]) -> tuple[Verdict, ...]:
    hurt = [group for group in groups if _slowed(group)[0] > TOLERATED]
    tolerant = [group for group in hurt if _slowed(group)[1] <= TOLERATED]
    faster = [group for group in groups if _break_even(group)[0] > 1]
    far = [
        max(each.async_s[FARTHEST] / each.async_s[NEAREST] for each in group) for group in groups
    ]
    return (
        Verdict(
            "asynchronous training tolerates places that slow synchronous training by more than 10 %",
            f"{len(tolerant)} of {len(hurt)} (model, site)",
            _judged(len(tolerant), len(hurt)),
            _why(len(tolerant), len(hurt)),
        ),
        at_least("servers near the workers are faster (the model that gains most, far / near)", max(far), 1.1, "x"),
        Verdict(
            "an asynchronous step is faster than a synchronous one at its best place",
            f"{len(faster)} of {len(groups)} (model, site)",
            _judged(len(faster), len(groups)),
            "" if len(faster) == len(groups) else
            "the gradients of all workers pass the NICs of the servers; an all-reduce adds them up inside nodes first",
        ),
    )  # fmt: skip


def _why(count: int, of: int) -> str:
    if not of:
        return "no place here slows synchronous training by so much: a ring crosses each NIC and up-link once"
    return (
        ""
        if count == of
        else "where gradients take longer than the computing, links decide here, too"
    )


def _judged(count: int, of: int) -> Judgement:
    if count == of and of:
        return Judgement.HOLDS
    return Judgement.PARTLY if count else Judgement.MISSED


def _plot(found: Sequence[Priced]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    rows = [
        {"place": each.place, "how": how, "ms": 1e3 * seconds}
        for each in found
        if (each.site, each.model) == DRAWN
        for how, seconds in (
            ("synchronous", each.sync_s),
            ("asynchronous, servers near", each.async_s[NEAREST]),
            ("asynchronous, servers far", each.async_s[FARTHEST]),
        )
    ]
    chart = charts.bars(rows, "place", "ms", "how", y_title="ms a step")
    caption = "A step of BERT at 25 Gbit/s a node, by place of workers and servers"
    return Plot("asynchronous", caption, charts.to_svg(chart))
