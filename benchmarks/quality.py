"""How good places are: the search against CP-SAT's optimum on random half-full clusters, one gang on each.

    python benchmarks/quality.py [--clusters 500] [--seed 1] [--seconds 10] [--weight 0.2] [--json FILE]

Clusters have up to 64 nodes under one to three tiers, uneven trees, machines of four and eight GPUs or trays of NVLink
domains; some links are slower than others, some domains sick, some up-links narrow. Gangs are those of `gantree bench
decisions`; half of them tell a model and how it is cut, the others are judged by the yardstick all-reduce. A gang is
drawn again until one fits. `--seconds` is CP-SAT's work for each question, in its own deterministic seconds.

Compared are the predicted step (or all-reduce), as `placement.choice.search.place` finds it, with the optimum, and the
nodes and domains spanned with the fewest possible. Best-fit fills node by node, tightest first; gangs on which it loses
5 % or more are those on which a search can win anything, and are printed apart. Needs OR-Tools (`pip install
gantree[optimum]`).
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from gantree.cli.output.printing import columns
from gantree.model.cluster import Allocation, Cluster, DomainFacts, Link, Node
from gantree.model.jobs import Job, Transformer
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.placement.counting.solve import solve
from gantree.placement.members.members import placement_of
from gantree.placement.optimum.gang_constraints import domains_spanned
from gantree.placement.optimum.optimum import fewest_domains, optimum
from gantree.placement.optimum.step_search import seconds_of
from gantree.placement.request.placement_preferences import (
    DEFAULT_FRAGMENTATION_WEIGHT,
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem, Spread
from gantree.sim.bench.mix import gang
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

MOST_NODES = 64
TREES = (
    ("leaf",),
    ("spine", "leaf"),
    ("pod", "spine", "leaf"),
    ("leaf", "nvlink"),
    ("spine", "leaf", "nvlink"),
)
PAIRS = (
    ("dgx-h100",),
    ("dgx-a100",),
    ("dgx-h100", "hgx-a100-4"),
    ("dgx-a100", "hgx-a100-4"),
    ("dgx-1-v100",),
)
TRAY = "gb200-nvl72-tray"
HARD = 1.05
"""Best-fit loses 5 % or more against the optimum."""


@dataclass(frozen=True)
class Result:
    """One gang on one cluster. Ratios are over the optimum; best_fit is None where it finds no place."""

    seed: int
    tiers: str
    nodes: int
    members: int
    gpus: int
    tells_model: bool
    seconds: float
    ratio: float
    proven: bool
    ratio_to_bound: float
    spanned: tuple[int, ...]
    fewest: tuple[int, ...]
    spanned_at_optimum: tuple[int, ...]
    best_fit: float | None

    @property
    def hard(self) -> bool:
        """Whether best-fit loses 5 % or more."""
        return self.best_fit is None or self.best_fit >= HARD


def random_cluster(rng: Random) -> Cluster:
    """A half-full cluster."""
    outer = rng.choice(TREES)
    names = (TRAY,) if "nvlink" in outer else rng.choice(PAIRS)
    nodes = tuple(_nodes(rng, outer, names))
    tiers = (*outer, "node")
    cluster = Cluster(
        name="random",
        tiers=tiers,
        machines={name: machine(name) for name in names},
        nodes=nodes,
        links=_links(rng, outer),
        allocations=tuple(_held(rng, nodes)),
    )
    return replace(cluster, domains=tuple(_sick(rng, cluster)))


def _nodes(rng: Random, outer: Sequence[str], names: Sequence[str]) -> Iterator[Node]:
    """Nodes under an uneven tree: each is put into the current narrowest domain, or begins a new one."""
    count, place = rng.randint(8, MOST_NODES), [0] * len(outer)
    stay = {"nvlink": 0.93, "leaf": 0.85, "spine": 0.92, "pod": 0.96}
    name = rng.choice(names)
    for number in range(count):
        yield Node(
            f"n{number}", name, tuple(f"{t[0]}{d}" for t, d in zip(outer, place, strict=True))
        )
        opened = [tier for tier in range(len(outer)) if rng.random() > stay[outer[tier]]]
        if opened:
            place[opened[0] :] = [d + 1 for d in place[opened[0] :]]
            name = rng.choice(names)


def _links(rng: Random, outer: Sequence[str]) -> dict[str, Link]:
    """Wider tiers are slower and later, some of them oversubscribed; a third of the tiers says nothing."""
    links, GPU_GBps, latency_us = {}, 50.0, 3.0
    for tier in reversed(outer):
        latency_us += rng.choice([1.0, 3.0, 6.0])
        if tier == "nvlink" or rng.random() < 1 / 3:
            continue
        GPU_GBps *= rng.choice([1.0, 1.0, 0.5])
        links[tier] = Link(GPU_GBps, latency_us, rng.choice([None, None, 200.0, 400.0, 800.0]))
    return links


def _held(rng: Random, nodes: Sequence[Node]) -> Iterator[Allocation]:
    """A quarter of the nodes is taken, half of them in part, a quarter empty."""
    for node in nodes:
        gpus, lot = machine(node.machine).gpus, rng.random()
        taken = gpus if lot < 0.25 else rng.randrange(1, gpus) if lot < 0.75 else 0
        if taken:
            held = tuple(sorted(rng.sample(range(gpus), taken)))
            yield Allocation(f"old-{node.name}", node.name, held)


def _sick(rng: Random, cluster: Cluster) -> Iterator[DomainFacts]:
    """In half of the clusters every tenth domain has worn or busy links."""
    if rng.random() < 0.5:
        return
    fabric = Fabric.build(cluster)
    for tier in range(1, fabric.node_tier + 1):
        for name in fabric.names_of_domain[tier]:
            if rng.random() < 0.1:
                path = name.rpartition("/")[2] if tier == fabric.node_tier else name
                health, load = rng.choice([(0.25, 0.0), (0.5, 0.0), (1.0, 0.5), (0.75, 0.0)])
                yield DomainFacts(fabric.tiers[tier], path, health=health, load=load)


def random_gang(rng: Random, number: int) -> Job:
    """A gang of the mix; every second one tells its model and how it is cut."""
    job = gang(f"g{number}", rng)
    if rng.random() < 0.5 or job.gpus < 2:
        return job
    tensor = job.roles[0].shape.gpus
    replicas = job.gpus // tensor
    pipeline = rng.choice([p for p in (1, 1, 2, 4) if replicas % p == 0])
    data = replicas // pipeline
    trains = Transformer(7e9, 32, 4096, 4096, batch=data * 4 * pipeline, micro_batch=1)
    ways = (("tensor", tensor), ("data", data), ("pipeline", pipeline))
    return replace(job, parallelism=ways, trains=trains)


def best_fit(problem: Problem) -> Spread | None:
    """Node by node, the tightest that holds a member first; slices one after the other in the tightest leaf.

    Where one domain must hold all, the tightest such domain is filled.
    """
    fabric, request = problem.fabric, problem.request
    tier = max(request.whole_at, request.roles[0].whole_at)
    free = problem.occupancy.free_gpus_in_domain(tier)
    for domain in sorted(range(fabric.domains(tier)), key=lambda d: (int(free[d]), d)):
        first, stop = (int(n) for n in fabric.first_node_of_domain[tier][domain : domain + 2])
        filled = _filled(problem, range(first, stop))
        if filled is not None:
            return filled
    return None


def _filled(problem: Problem, nodes: Sequence[int]) -> Spread | None:
    left = {node: int(problem.tables[0].of_node[node]) for node in nodes}
    held: dict[int, int] = {}
    tier, run = _run(problem)
    for _ in range(problem.members[0] // run):
        domain = _tightest_domain(problem, left, tier, run)
        if domain is None:
            return None
        for _ in range(run):
            inside = (n for n in left if left[n] and _domain(problem, tier, n) == domain)
            node = min(inside, key=lambda n: (_free_on(problem, n, held), n))
            left[node] -= 1
            held[node] = held.get(node, 0) + 1
    return [(node, (held[node],)) for node in sorted(held)]


def _run(problem: Problem) -> tuple[int, int]:
    """(tier, members) of the slices; runs of one in the fabric where there are none."""
    multiple = problem.request.roles[0].multiple_in_domain
    tier = max((t for t, m in enumerate(multiple) if m > 1), default=0)
    return tier, multiple[tier]


def _domain(problem: Problem, tier: int, node: int) -> int:
    return int(problem.fabric.domain_of_node[tier][node])


def _free_on(problem: Problem, node: int, held: dict[int, int]) -> int:
    taken = held.get(node, 0) * problem.tables[0].shape.gpus
    return int(problem.occupancy.free_gpus_of_node[node]) - taken


def _tightest_domain(problem: Problem, left: dict[int, int], tier: int, run: int) -> int | None:
    room: dict[int, int] = {}
    for node, slots in left.items():
        domain = _domain(problem, tier, node)
        room[domain] = room.get(domain, 0) + slots
    return min((d for d in room if room[d] >= run), key=lambda d: (room[d], d), default=None)


def question(
    seed: int, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> tuple[Occupancy, Job, Placement]:
    """The cluster and the gang of a seed, and where the search puts it."""
    rng = Random(seed)
    while True:
        occupancy = Occupancy(Fabric.build(random_cluster(rng)))
        for number in range(8):
            job = random_gang(rng, number)
            found = place(occupancy, job, preferences)
            if isinstance(found, Placement):
                return occupancy, job, found


def judged(
    seed: int, work_s: float, preferences: PlacementPreferences = DEFAULT_PREFERENCES
) -> Result:
    """One gang: the search, the optimum, the fewest domains, best-fit."""
    occupancy, job, found = question(seed, preferences)
    solution = solve(occupancy, topology_request_of(occupancy.fabric, job))
    assert solution is not None, "the search found a place"
    problem = solution[0]
    spread = spread_of(occupancy, found)
    best = optimum(problem, job, work_s, spread)
    fewest = fewest_domains(problem, job, work_s, spread)
    assert best.placement is not None and fewest.placement is not None, "a known place is none"
    tight = best_fit(problem)
    return Result(
        seed=seed,
        tiers=">".join(occupancy.fabric.tiers[1:]),
        nodes=len(occupancy.fabric.nodes),
        members=job.members,
        gpus=job.gpus,
        tells_model=job.trains is not None,
        seconds=seconds_of(found),
        ratio=_over(seconds_of(found), best.objective),
        proven=best.proven,
        ratio_to_bound=_over(seconds_of(found), best.bound),
        spanned=_spanned(occupancy, found),
        fewest=_spanned(occupancy, fewest.placement),
        spanned_at_optimum=_spanned(occupancy, best.placement),
        best_fit=None
        if tight is None
        else _over(seconds_of(placement_of(problem, tight, job)), best.objective),
    )


def spread_of(occupancy: Occupancy, placement: Placement) -> Spread:
    """Members on each node; of gangs of one role."""
    held: dict[int, int] = {}
    for member in placement.members:
        node = occupancy.fabric.index_of_node[member.node]
        held[node] = held.get(node, 0) + 1
    return [(node, (held[node],)) for node in sorted(held)]


def _over(seconds: float, least_s: float) -> float:
    return seconds / least_s if least_s > 0 else 1.0


def _spanned(occupancy: Occupancy, placement: Placement) -> tuple[int, ...]:
    nodes = [occupancy.fabric.index_of_node[member.node] for member in placement.members]
    return domains_spanned(occupancy.fabric, nodes)


def row(name: str, results: Sequence[Result]) -> list[str]:
    """Figures of some gangs."""
    if not results:
        return [name, "0", *["-"] * 8]
    open_ones = [each.ratio_to_bound for each in results if not each.proven]
    fits = [each.best_fit for each in results if each.best_fit is not None]
    return [
        name,
        str(len(results)),
        f"{fmean(each.ratio for each in results):.4f}",
        f"{max(each.ratio for each in results):.4f}",
        f"{100 * fmean(each.proven for each in results):.1f} %",
        f"{fmean(open_ones):.4f}" if open_ones else "-",
        f"{fmean(sum(each.spanned) / sum(each.fewest) for each in results):.4f}",
        f"{100 * fmean(each.spanned == each.fewest for each in results):.1f} %",
        f"{fmean(fits):.4f}" if fits else "-",
        f"{max(fits):.4f}" if fits else "-",
    ]


HEADER = (
    "GANGS",
    "COUNT",
    "MEAN",
    "WORST",
    "PROVEN",
    "TO BOUND",
    "DOMAINS",
    "AS FEW",
    "BEST-FIT",
    "WORST",
)
CLASSES: tuple[tuple[str, Callable[[Result], bool]], ...] = (
    ("all", lambda each: True),
    ("best-fit loses 5 %", lambda each: each.hard),
    ("one member", lambda each: each.members == 1),
    ("2 to 8 members", lambda each: 2 <= each.members <= 8),
    ("9 members or more", lambda each: each.members >= 9),
    ("tell their model", lambda each: each.tells_model),
    ("by the all-reduce", lambda each: not each.tells_model),
)


def document(results: Sequence[Result]) -> dict[str, Any]:
    """What --json writes: figures by class, and every gang."""
    by_class = {
        name: row(name, [each for each in results if among(each)]) for name, among in CLASSES
    }
    return {
        "figures": {
            name: dict(zip(HEADER[1:], each[1:], strict=True)) for name, each in by_class.items()
        },
        "gangs": [asdict(each) for each in results],
    }


def main() -> None:
    """Print the table, then the gangs on which the search is furthest from the optimum."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--clusters", type=int, default=500)
    parser.add_argument(
        "--seed", type=int, default=1, help="of the first cluster; the next has the next"
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="of CP-SAT's work a question")
    parser.add_argument(
        "--weight", type=float, default=DEFAULT_FRAGMENTATION_WEIGHT, help="of fragmentation"
    )
    parser.add_argument("--json", type=Path, help="where to write every gang")
    parser.add_argument("--worst", type=int, default=10, help="gangs to print")
    wanted = parser.parse_args()
    results = []
    for seed in range(wanted.seed, wanted.seed + wanted.clusters):
        results.append(judged(seed, wanted.seconds, PlacementPreferences(wanted.weight)))
        print(f"\r{len(results)} of {wanted.clusters}", end="", file=sys.stderr)
    print(file=sys.stderr)
    rows = [row(name, [each for each in results if among(each)]) for name, among in CLASSES]
    print(columns(HEADER, rows))
    for each in sorted(results, key=lambda each: -each.ratio)[: wanted.worst]:
        print(each)
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(document(results), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
