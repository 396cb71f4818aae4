"""How long one gang decision takes on a large cluster that is half full.

The cluster is spine > leaf > node with 8 GPUs a node, 16 nodes a leaf and 16 leaves a spine. Half of it is taken by
gangs of the mix itself, of which every second one was replaced, so the holes are as on a running site. The mix: 1
member (50 %), 2-8 (30 %), 9-64 (20 %) of 1, 2, 4 or 8 GPUs each; 30 % require a leaf, 40 % prefer one, 10 % have
slices of two in one node or leaf. One in twelve asks for more than any leaf has, so that about 10 % are refused; a
refusal counts as a decision, with its explanation and the patches searched for it.

Run: python benchmarks/decisions.py [GPUS] [DECISIONS] [SEED]
"""

import json
import random
import sys
from time import perf_counter
from typing import Any

from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Job, Role, Shape, Slices, TopologyWish
from gantree.model.placements import Placement
from gantree.placement.search import place
from gantree.topology.catalog import machine
from gantree.topology.fabric import Fabric
from gantree.topology.occupancy import Occupancy

NODES_IN_LEAF = 16
LEAVES_IN_SPINE = 16
GPUS_IN_NODE = 8
TOO_LARGE = 1 / 12


def cluster_of(gpus: int) -> Cluster:
    """A tree of DGX H100 nodes with at least so many GPUs."""
    nodes = -(-gpus // GPUS_IN_NODE)
    model = machine("dgx-h100")
    return Cluster(
        name=f"{gpus}-gpus",
        tiers=("spine", "leaf", "node"),
        machines={model.name: model},
        nodes=tuple(
            Node(
                f"n{number}",
                model.name,
                (f"s{number // (NODES_IN_LEAF * LEAVES_IN_SPINE)}", f"l{number // NODES_IN_LEAF}"),
            )
            for number in range(nodes)
        ),
    )


def draw_job(rng: random.Random, name: str) -> Job:
    """One job of the mix."""
    if rng.random() < TOO_LARGE:
        return Job(
            name=name,
            roles=(Role("worker", rng.randint(17, 64), Shape(gpus=GPUS_IN_NODE)),),
            topology=TopologyWish(required="leaf"),
        )
    low, high = rng.choices([(1, 1), (2, 8), (9, 64)], [5, 3, 2])[0]
    members, gpus = rng.randint(low, high), rng.choice([1, 2, 4, 8])
    slices: tuple[Slices, ...] = ()
    if members > 1 and rng.random() < 0.1:
        members -= members % 2
        slices = (Slices(2, "leaf" if gpus == 8 else rng.choice(["node", "leaf"])),)
    wish = rng.random()
    return Job(
        name=name,
        roles=(Role("worker", members, Shape(gpus=gpus)),),
        topology=TopologyWish(
            required="leaf" if wish < 0.3 else None,
            preferred="leaf" if 0.3 <= wish < 0.7 else None,
            slices=slices,
        ),
    )


def half_full(fabric: Fabric, rng: random.Random) -> tuple[Occupancy, list[str]]:
    """A fabric filled to half by the mix, with every second gang replaced once; and who holds it."""
    occupancy, running = Occupancy(fabric), list[str]()
    half = int(fabric.gpus_of_node.sum()) // 2
    for turn in range(2):
        for number in range(1 << 20):
            if int(occupancy.free_gpus_of_node.sum()) <= half:
                break
            job = draw_job(rng, f"old-{turn}-{number}")
            found = place(occupancy, job)
            if isinstance(found, Placement):
                occupancy.take(job.name, found.members)
                running.append(job.name)
        if turn == 0:
            rng.shuffle(running)
            for name in running[::2]:
                occupancy.give_back(name)
            del running[::2]
    return occupancy, running


def run(gpus: int, decisions: int, seed: int) -> dict[str, Any]:
    """Time so many decisions; jobs come and go between them, so the cluster stays half full."""
    rng = random.Random(seed)
    occupancy, running = half_full(Fabric.build(cluster_of(gpus)), rng)
    half = int(occupancy.free_gpus_of_node.sum())
    taken_s, refused = [], 0
    for number in range(decisions):
        job = draw_job(rng, f"new-{number}")
        start = perf_counter()
        found = place(occupancy, job)
        taken_s.append(perf_counter() - start)
        if isinstance(found, Placement):
            occupancy.take(job.name, found.members)
            running.append(job.name)
        else:
            refused += 1
        while int(occupancy.free_gpus_of_node.sum()) < half:
            occupancy.give_back(running.pop(rng.randrange(len(running))))
    taken_s.sort()
    return {
        "gpus": gpus,
        "decisions": decisions,
        "median_us": round(taken_s[decisions // 2] * 1e6, 1),
        "p99_us": round(taken_s[min(decisions - 1, decisions * 99 // 100)] * 1e6, 1),
        "mean_us": round(sum(taken_s) / decisions * 1e6, 1),
        "refused": refused,
    }


def main() -> None:
    """Print the figures as JSON."""
    numbers = [int(word) for word in sys.argv[1:]]
    gpus, decisions, seed = (*numbers, *(16_384, 1000, 1)[len(numbers) :])
    print(json.dumps(run(gpus, decisions, seed)))


if __name__ == "__main__":
    main()
