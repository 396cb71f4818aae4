"""How long prices take: many candidate places at once, one new place, one that was asked before, and predictions.

    python benchmarks/pricing.py [--candidates 1000] [--gpus 64] [--nodes 2048]

Candidates are drawn with a fixed seed on a cluster of DGX H100 under spines and leaves with up-link capacities: whole
nodes in shuffled order (`nodes`), and single GPUs scattered over 32 nodes, every set of them different (`scattered`).
A repeated prediction (what each decision of the scheduler asks for) is of a place that looks like an earlier one, for 4
members of 2 GPUs and for 64 of 8, the latter also with the step of a job that tells its model.
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
from gantree.model.jobs import Job, Role, Shape, Transformer
from gantree.model.placements import MemberPlacement
from gantree.topology.cost.cost import GIB, Pricer, predict
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.hardware.catalog import machine

RUNS = 7
REPEATS = 200
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
    told |= predictions(fabric)
    return {name: round(value, 2) for name, value in told.items()}


def predictions(fabric: Fabric) -> dict[str, float]:
    """Microseconds of predictions that were made before."""
    role = Role("w", 64, Shape(gpus=GPUS_OF_NODE))
    trains = Transformer(7e10, 80, 8192, 4096, 1024)
    job = Job("j", (role,), parallelism=(("tensor", 8), ("pipeline", 4)), trains=trains)
    small = _members(fabric, 4, 2, on_a_node=4)
    large = _members(fabric, 64, GPUS_OF_NODE, on_a_node=1)
    told = {}
    for name, members, asked in (
        ("predict_4x2_us", small, None),
        ("predict_64x8_us", large, None),
        ("predict_64x8_step_us", large, job),
    ):
        predict(fabric, members, asked)
        again = partial(predict, fabric, members, asked)
        told[name] = _median_s(lambda: [again() for _ in range(REPEATS)]) / REPEATS * 1e6  # noqa: B023 - run at once
    return told


def _members(
    fabric: Fabric, members: int, gpus: int, on_a_node: int
) -> tuple[MemberPlacement, ...]:
    """Members beside each other, so many on each node."""
    return tuple(
        MemberPlacement(
            "w",
            rank,
            fabric.nodes[rank // on_a_node].name,
            tuple(range(rank % on_a_node * gpus, rank % on_a_node * gpus + gpus)),
        )
        for rank in range(members)
    )


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
