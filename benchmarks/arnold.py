"""How few minipods communication groups reach: Arnold's three settings (arXiv 2509.15940, section on simulation).

    python benchmarks/arnold.py [--seeds 20] [--settings i,ii,iii] [--our-ranks | --by-price] [--json FILE]

A job of DP x TP x PP GPUs, eight to a node, is placed on the free nodes of a cluster of minipods. The metric is
alpha x the minipods that the widest data-parallel group reaches + (1 - alpha) x those of the widest pipeline; less is
better. How many nodes are free is not published, so these are drawn, per draw and seed:

    even      any nodes, all equally likely
    uneven    minipods get weights from an exponential distribution; nodes by the weight of theirs
    emptied   whole minipods, one after the other in random order

with as many free as the job needs times 1.1 (tight) and times 1.45 (loose). Rivals are those of `gantree.sim.rivals`; a
unit is a pipeline, as in the paper. gantree is `placement.choice.search.place` and
`placement.ranks.rank_order.rank_map` of a job that weighs the groups by alpha (`topology.near`) and prefers whole
groups of the axis that weighs more, else halves, quarters and so on of them, in one minipod (`topology.slices`). The
bound is what no placement can be below: pipelines all whole, or replicas all whole, each in as few minipods as hold
them, or both groups in two minipods.

With --our-ranks the nodes that rivals choose get gantree's ranks too, so that only the choice of nodes differs. With
--by-price the job weighs no groups, so that gantree's ranks go by the predicted step alone.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, count
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

import numpy as np

from gantree.cli.output.printing import columns
from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Job, Near, Role, Shape, Slices, TopologySpec
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import place
from gantree.placement.counting.solve import problems
from gantree.placement.members.members import placement_of
from gantree.placement.ranks.rank_order import rank_map
from gantree.placement.request.topology_request import topology_request_of
from gantree.sim.rivals.best_fit import best_fit
from gantree.sim.rivals.bisection import bisection
from gantree.sim.rivals.gpu_packing import gpu_packing
from gantree.sim.rivals.random_fit import random_fit
from gantree.sim.rivals.units import Units
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

ALPHAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 1.0)
MACHINE = "hgx-h100"
GPUS = 8
ROOM = {"tight": 1.1, "loose": 1.45}
RIVALS = ("best-fit", "random-fit", "gpu-packing", "bisection")
OUR_RANKS, BY_PRICE, AS_THEY_ARE = "our ranks", "by price", "as they are"
SAME = 1e-9


@dataclass(frozen=True)
class Setting:
    """A cluster of minipods, and a job."""

    name: str
    minipods: int
    nodes: int
    data: int
    tensor: int
    pipeline: int

    @property
    def nodes_of_unit(self) -> int:
        """Nodes of a pipeline."""
        return self.tensor * self.pipeline // GPUS

    @property
    def nodes_of_stage(self) -> int:
        """Nodes of all replicas of a stage."""
        return self.tensor * self.data // GPUS

    @property
    def nodes_of_job(self) -> int:
        """Nodes of the job."""
        return self.data * self.nodes_of_unit

    @property
    def nodes_of_minipod(self) -> tuple[int, ...]:
        """As equal as they can be, the larger ones first."""
        each, more = divmod(self.nodes, self.minipods)
        return (each + 1,) * more + (each,) * (self.minipods - more)


SETTINGS = (
    Setting("i", 3, 18, 12, 4, 2),
    Setting("ii", 5, 438, 24, 4, 8),
    Setting("iii", 11, 1019, 46, 8, 8),
)


# ----- free nodes


def even(setting: Setting, free: int, rng: Random) -> list[int]:
    """Any nodes."""
    return _counted(setting, rng.sample(_minipod_of_node(setting), free))


def uneven(setting: Setting, free: int, rng: Random) -> list[int]:
    """Nodes by the weight of their minipod: the first of a race whose times have that rate."""
    weight = [rng.expovariate(1) for _ in range(setting.minipods)]
    race = sorted(
        (rng.expovariate(weight[minipod]), minipod) for minipod in _minipod_of_node(setting)
    )
    return _counted(setting, [minipod for _, minipod in race[:free]])


def emptied(setting: Setting, free: int, rng: Random) -> list[int]:
    """Whole minipods, the last one in part."""
    order = rng.sample(range(setting.minipods), setting.minipods)
    sizes = setting.nodes_of_minipod
    nodes = [minipod for minipod in order for _ in range(sizes[minipod])]
    return _counted(setting, nodes[:free])


DRAWS: dict[str, Callable[[Setting, int, Random], list[int]]] = {
    "even": even,
    "uneven": uneven,
    "emptied": emptied,
}


def _minipod_of_node(setting: Setting) -> list[int]:
    return [minipod for minipod, size in enumerate(setting.nodes_of_minipod) for _ in range(size)]


def _counted(setting: Setting, minipods: Sequence[int]) -> list[int]:
    counts = Counter(minipods)
    return [counts[minipod] for minipod in range(setting.minipods)]


# ----- the metric


@dataclass(frozen=True)
class Reach:
    """Minipods that the widest group of each kind reaches."""

    data: int
    pipeline: int

    def weighed(self, alpha: float) -> float:
        """The metric."""
        return alpha * self.data + (1 - alpha) * self.pipeline

    @classmethod
    def of(cls, minipod: IntArray) -> "Reach":
        """Of minipod[stage, replica, tensor rank]."""
        stages, replicas, _ = minipod.shape
        return cls(
            max(
                len({*minipod[s, :, t].tolist()})
                for s in range(stages)
                for t in range(minipod.shape[2])
            ),
            max(
                len({*minipod[:, r, t].tolist()})
                for r in range(replicas)
                for t in range(minipod.shape[2])
            ),
        )

    @classmethod
    def of_units(cls, setting: Setting, units: Units) -> "Reach":
        """Of pipelines whose stages fill their nodes in order."""
        nodes = np.array(units, dtype=np.int64)  # [replica, node]
        stages = np.repeat(nodes, GPUS // setting.tensor, axis=1)
        return cls.of(stages.T[:, :, None])


def bound(setting: Setting, free: Sequence[int], alpha: float) -> float:
    """What no placement is below."""
    pipelines = _fewest(free, setting.nodes_of_unit, setting.data)
    stages = _fewest(free, setting.nodes_of_stage, setting.pipeline)
    apart = [Reach(2, 2)]
    apart += [Reach(pipelines, 1)] if pipelines else []
    apart += [Reach(1, stages)] if stages else []
    return min(reach.weighed(alpha) for reach in apart)


def _fewest(free: Sequence[int], nodes: int, groups: int) -> int:
    """The fewest minipods that hold so many whole groups of nodes; 0 where all do not."""
    held = accumulate(sorted((minipod // nodes for minipod in free), reverse=True))
    return next((number for number, total in enumerate(held, start=1) if total >= groups), 0)


# ----- gantree


def fabric_of(setting: Setting) -> Fabric:
    """Minipods of nodes; links are as of the machines."""
    number = count()
    nodes = tuple(
        Node(f"n{next(number)}", MACHINE, (f"m{minipod}",))
        for minipod, size in enumerate(setting.nodes_of_minipod)
        for _ in range(size)
    )
    return Fabric.build(Cluster("arnold", ("minipod", "node"), {MACHINE: machine(MACHINE)}, nodes))


def held_but(fabric: Fabric, free: Sequence[int]) -> Occupancy:
    """Somebody else has all nodes but the first ones of each minipod."""
    occupancy = Occupancy(fabric)
    first = fabric.first_node_of_domain[1].tolist()
    gpus = tuple(range(GPUS))
    others = [
        node
        for minipod, nodes in enumerate(free)
        for node in range(first[minipod] + nodes, first[minipod + 1])
    ]
    members = [
        MemberPlacement("other", rank, fabric.nodes[node].name, gpus)
        for rank, node in enumerate(others)
    ]
    occupancy.take("others", tuple(members))
    return occupancy


def job_of(setting: Setting, alpha: float, *, weighs: bool) -> Job:
    """The job, as somebody with these weights writes it; weighs: with the weights themselves."""
    whole = setting.nodes_of_unit if alpha <= 0.5 else setting.nodes_of_stage
    parts = [whole >> halvings for halvings in range(whole.bit_length())]
    slices = tuple(
        Slices(part, "minipod", preferred=True) for part in parts if part > 1 and whole % part == 0
    )
    near = Near("minipod", (("data", alpha), ("pipeline", 1 - alpha))) if weighs else None
    return Job(
        name="arnold",
        roles=(Role("worker", setting.nodes_of_job, Shape(gpus=GPUS), processes=GPUS),),
        topology=TopologySpec(slices=slices, near=near),
        parallelism=(
            ("tensor", setting.tensor),
            ("data", setting.data),
            ("pipeline", setting.pipeline),
        ),
    )


def reach_of(fabric: Fabric, setting: Setting, job: Job, placement: Placement) -> Reach:
    """What the groups reach with gantree's ranks."""
    nodes = [fabric.index_of_node[placed.node] for placed in rank_map(fabric, job, placement).ranks]
    minipod = fabric.domain_of_node[1][nodes]
    return Reach.of(minipod.reshape(setting.pipeline, setting.data, setting.tensor))


def on_nodes(occupancy: Occupancy, job: Job, units: Units) -> Placement:
    """The nodes that a rival chose, as a placement."""
    first = occupancy.fabric.first_node_of_domain[1].tolist()
    taken = Counter(minipod for unit in units for minipod in unit)
    problem = next(
        problems(
            occupancy, topology_request_of(occupancy.fabric, replace(job, topology=TopologySpec()))
        )
    )
    spread = [
        (node, (1,))
        for minipod in sorted(taken)
        for node in range(first[minipod], first[minipod] + taken[minipod])
    ]
    return placement_of(problem, spread, job)


# ----- one draw


@dataclass(frozen=True)
class Row:
    """Metrics of one draw at one alpha, by name."""

    setting: str
    draw: str
    seed: int
    free: tuple[int, ...]
    alpha: float
    metric: dict[str, float]


def rows_of(
    setting: Setting, fabric: Fabric, draw: str, room: str, seed: int, ranks: str
) -> Iterator[Row]:
    """All alphas on one draw."""
    rng = Random(f"{setting.name} {draw} {room} {seed}")
    wanted = min(setting.nodes, round(setting.nodes_of_job * ROOM[room]))
    free = DRAWS[draw](setting, wanted, rng)
    occupancy = held_but(fabric, free)
    placed: dict[tuple[Slices, ...], Placement] = {}
    for alpha in ALPHAS:
        job = job_of(setting, alpha, weighs=ranks != BY_PRICE)
        found = placed.get(job.topology.slices) or place(occupancy, job)
        assert isinstance(found, Placement), f"there is room for {job}: {found}"
        placed[job.topology.slices] = found
        metric = {"gantree": reach_of(fabric, setting, job, found).weighed(alpha)}
        for name, units in chosen_by_rivals(setting, free, alpha, seed).items():
            reach = Reach.of_units(setting, units)
            if ranks == OUR_RANKS:
                reach = reach_of(fabric, setting, job, on_nodes(occupancy, job, units))
            metric[name] = reach.weighed(alpha)
        metric["bound"] = bound(setting, free, alpha)
        yield Row(setting.name, f"{draw}, {room}", seed, tuple(free), alpha, metric)


def chosen_by_rivals(
    setting: Setting, free: Sequence[int], alpha: float, seed: int
) -> dict[str, Units]:
    """Where each rival puts the pipelines."""
    asked = free, setting.data, setting.nodes_of_unit
    return {
        "best-fit": best_fit(*asked),
        "random-fit": random_fit(*asked, Random(seed)),
        "gpu-packing": gpu_packing(*asked),
        "bisection": bisection(*asked, within=1 - alpha, across=alpha),
    }


# ----- tables


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Means, and how often gantree is better than, as good as and worse than the best rival of each draw."""
    best = [min(row.metric[name] for name in RIVALS) for row in rows]
    ours = [row.metric["gantree"] for row in rows]
    return {
        "setting": rows[0].setting,
        "draw": rows[0].draw,
        "alpha": rows[0].alpha,
        "draws": len(rows),
        "mean": {name: fmean(row.metric[name] for row in rows) for name in rows[0].metric},
        "won": sum(o < b - SAME for o, b in zip(ours, best, strict=True)),
        "tied": sum(abs(o - b) <= SAME for o, b in zip(ours, best, strict=True)),
        "lost": sum(o > b + SAME for o, b in zip(ours, best, strict=True)),
    }


def summaries(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One for each setting, draw and alpha; then one for each setting and alpha over all draws."""
    groups: dict[tuple[str, str, float], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.setting, row.draw, row.alpha), []).append(row)
    for row in rows:
        groups.setdefault((row.setting, "all", row.alpha), []).append(replace(row, draw="all"))
    return [summary(group) for _, group in groups.items()]


HEADER = (
    *("SETTING", "FREE NODES", "ALPHA", "DRAWS", "GANTREE"),
    *map(str.upper, RIVALS),
    *("BOUND", "WON", "TIED", "LOST"),
)


def line(figures: dict[str, Any]) -> list[str]:
    """A row of the table."""
    names = ("gantree", *RIVALS, "bound")
    return [
        figures["setting"],
        figures["draw"],
        f"{figures['alpha']:g}",
        str(figures["draws"]),
        *(f"{figures['mean'][name]:.3f}" for name in names),
        *(str(figures[name]) for name in ("won", "tied", "lost")),
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="draws of each kind")
    parser.add_argument("--settings", default="i,ii,iii")
    ranks = parser.add_mutually_exclusive_group()
    ranks.add_argument(
        "--our-ranks",
        dest="ranks",
        action="store_const",
        const=OUR_RANKS,
        default=AS_THEY_ARE,
        help="gantree's ranks for rivals too",
    )
    ranks.add_argument(
        "--by-price",
        dest="ranks",
        action="store_const",
        const=BY_PRICE,
        help="a job that weighs no groups",
    )
    parser.add_argument("--json", type=Path, help="where to write means and draws")
    wanted = parser.parse_args()
    rows: list[Row] = []
    for setting in (s for s in SETTINGS if s.name in wanted.settings.split(",")):
        fabric = fabric_of(setting)
        for draw in DRAWS:
            for room in ROOM:
                for seed in range(wanted.seeds):
                    rows += rows_of(setting, fabric, draw, room, seed, wanted.ranks)
                print(f"\r{setting.name}: {draw}, {room}    ", end="", file=sys.stderr)
    print(file=sys.stderr)
    figures = summaries(rows)
    print(columns(HEADER, map(line, figures)))
    if wanted.json is not None:
        draws = {f"{r.setting}, {r.draw}, seed {r.seed}": r.free for r in rows}
        document = {
            "ranks": wanted.ranks,
            "summaries": figures,
            "free_nodes": draws,
        }
        wanted.json.write_text(json.dumps(document) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
