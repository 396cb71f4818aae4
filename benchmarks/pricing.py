"""How long prices take: many candidate places at once, one new place, and one that was asked before.

    python benchmarks/pricing.py [--candidates 1000] [--gpus 64] [--nodes 2048]

Candidates are drawn with a fixed seed on a cluster of DGX H100 under spines and leaves with up-link capacities: whole
nodes in shuffled order (`nodes`), and single GPUs scattered over 32 nodes, every set of them different (`scattered`).
Times are the median of several runs on this machine, in one thread.
"""

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import numpy as np

from gantree.model.cluster import Cluster, Link, Node
from gantree.topology.catalog import machine
from gantree.topology.cost import GIB, Pricer
from gantree.topology.fabric import Fabric, IntArray

RUNS = 7
GPUS_OF_NODE = 8


def site(nodes: int) -> Fabric:
    """DGX H100 nodes, 16 a leaf and 16 leaves a spine."""
    model = machine("dgx-h100")
    places = tuple(Node(f"n{n}", model.name, (f"s{n // 256}", f"l{n // 16}")) for n in range(nodes))
    links = {"spine": Link(25.0, 8.0, 12_800.0), "leaf": Link(50.0, 5.0, 3_200.0)}
    tiers = ("spine", "leaf", "node")
    return Fabric.build(Cluster("bench", tiers, {model.name: model}, places, links))


def whole_nodes(
    generator: np.random.Generator, nodes: int, candidates: int, gpus: int
) -> tuple[IntArray, IntArray]:
    """(nodes, gpus) [candidate, rank]: all GPUs of nodes in random order."""
    each = gpus // GPUS_OF_NODE
    picked = np.stack([generator.choice(nodes, each, replace=False) for _ in range(candidates)])
    return np.repeat(picked, GPUS_OF_NODE, axis=1), np.tile(
        np.arange(GPUS_OF_NODE), (candidates, each)
    )


def scattered(
    generator: np.random.Generator, candidates: int, gpus: int
) -> tuple[IntArray, IntArray]:
    """(nodes, gpus) [candidate, rank]: single GPUs of 32 nodes in random order."""
    places = np.stack(
        [generator.choice(32 * GPUS_OF_NODE, gpus, replace=False) for _ in range(candidates)]
    )
    return places // GPUS_OF_NODE, places % GPUS_OF_NODE


def _median_s(work: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return median(times)


def run(candidates: int, gpus: int, nodes: int) -> dict[str, float]:
    """Milliseconds and microseconds by question."""
    generator = np.random.default_rng(7)
    fabric = site(nodes)
    begin = time.perf_counter()
    pricer = Pricer(fabric)
    built_s = time.perf_counter() - begin
    told = {"pricer_built_ms": built_s * 1e3}
    for name, places in (
        ("nodes", whole_nodes(generator, nodes, candidates, gpus)),
        ("scattered", scattered(generator, candidates, gpus)),
    ):
        begin = time.perf_counter()
        pricer.price_many("all_reduce", GIB, *places)
        told[f"{name}_first_ms"] = (time.perf_counter() - begin) * 1e3
        again = partial(pricer.price_many, "all_reduce", GIB, *places)
        told[f"{name}_ms"] = _median_s(again) * 1e3
    new = [_fresh(generator, nodes, gpus) for _ in range(RUNS)]
    told["one_new_us"] = _median_s(lambda: pricer.price("all_reduce", GIB, new.pop())) * 1e6
    ranks = _fresh(generator, nodes, gpus)
    pricer.price("all_reduce", GIB, ranks)
    told["one_repeated_us"] = _median_s(partial(pricer.price, "all_reduce", GIB, ranks)) * 1e6
    return {name: round(value, 2) for name, value in told.items()}


def _fresh(generator: np.random.Generator, nodes: int, gpus: int) -> list[tuple[int, int]]:
    on, which = whole_nodes(generator, nodes, 1, gpus)
    return list(zip(on[0].tolist(), which[0].tolist(), strict=True))


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--gpus", type=int, default=64, help="of the job; a multiple of 8")
    parser.add_argument("--nodes", type=int, default=2048)
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.candidates, arguments.gpus, arguments.nodes), indent=2))


if __name__ == "__main__":
    main()
