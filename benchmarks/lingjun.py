"""Predicted steps on Alibaba's Lingjun fabric: gantree against level counting as in Kueue, and against any free nodes.

    python benchmarks/lingjun.py DIRECTORY [--seeds 10] [--json FILE]

DIRECTORY holds topo.csv.gz of the published traces (Crux, SIGCOMM'24; repository alibaba-lingjun-dataset-2023): 847
hosts below 119 ASWs (tier leaf), 3 PSW groups (spine) and one DSW layer (core), read as `gantree topo import lingjun`
does. What they do not tell is assumed. Hosts are HGX H100 with eight NICs of 50 GB/s. The network is one of

    full      no capacity of up-links holds anything back
    narrow    a leaf has 1,600 GB/s upwards, half of what eight hosts send, a spine 30,000, a quarter of 300 hosts';
              the gang has these for itself
    busy      everybody sends at once: across leaves a GPU gets half of its NIC's rate, across spines a quarter
    worn      busy, and in every tenth leaf (drawn once) half of the links are down

The cluster is half full: `whole`, each host is taken or free, half of them each; `parts`, a quarter of the hosts is
taken, half of them in part, a quarter free. On each state gangs of 8 to 512 GPUs, eight to a node, are placed alone, by
all three rules. Models and how they are cut are as published for DGX H100 and B200 (NeMo 24.07 and 25.02, performance
summary); the batch grows with the replicas. Reported is the predicted step over that of gantree: above 1 gantree is
faster; beside it the same of an all-reduce of 1 GiB over all GPUs, and the leaves and spines used. `in order`: members
and ranks in topology order for all three. `our ranks`: `placement.ranks.rank_order.rank_map` for all three.
"""

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean, geometric_mean, median
from typing import Any

import numpy as np

from gantree.cli.output.printing import columns
from gantree.model.cluster import Cluster, DomainFacts, Link
from gantree.model.jobs import Job, Role, Shape, Transformer
from gantree.model.placements import MemberPlacement, Placement
from gantree.placement.choice.search import place
from gantree.placement.counting.solve import problems
from gantree.placement.members.members import placement_of
from gantree.placement.ranks.rank_order import rank_map
from gantree.placement.request.topology_request import topology_request_of
from gantree.placement.slots.problem import Problem
from gantree.sim.rivals.level_counting import level_counting
from gantree.sim.rivals.random_fit import random_nodes
from gantree.topology.discovery.assembly import assembled
from gantree.topology.discovery.listings.lingjun import parse
from gantree.topology.discovery.machine_of_node import MachineChoice
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine
from gantree.topology.occupancy.occupancy import Occupancy

MACHINE = "hgx-h100"
GPUS = 8
SIZES = (8, 16, 32, 64, 128, 256, 512)
NARROW = {"leaf": Link(50.0, 3.3, 1600.0), "spine": Link(50.0, 3.3, 30_000.0)}
BUSY = {"leaf": Link(25.0, 3.3), "spine": Link(12.5, 3.3)}
NETWORKS: dict[str, dict[str, Link]] = {"full": {}, "narrow": NARROW, "busy": BUSY, "worn": BUSY}
WORN = 0.1
RULES = ("gantree", "level counting", "random")


@dataclass(frozen=True)
class Model:
    """A model and how it is cut: batch a replica, ways that a replica takes, expert ways among replicas."""

    name: str
    trains: Transformer
    batch_of_replica: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1


MODELS = (
    # NeMo 24.07: LLAMA2-7B, 8 GPUs, GBS 128, MBS 1, sequence 4096, TP 1, PP 1
    Model("7B dense", Transformer(6.74e9, 32, 4096, 4096, 0, sharded="optimizer"), 16),
    # NeMo 24.07: LLAMA2-70B, 64 GPUs, GBS 128, MBS 1, sequence 4096, TP 4, PP 4; 8 of 64 heads for keys and values
    Model(
        "70B dense",
        Transformer(68.98e9, 80, 8192, 4096, 0, kv_share=8 / 64, sharded="optimizer"),
        batch_of_replica=32,
        tensor=4,
        pipeline=4,
    ),
    # NeMo 25.02: Mixtral-8x7B, 64 GPUs, GBS 256, MBS 2, sequence 4096, TP 1, PP 1, EP 8; experts 3 x 4096 x 14336
    Model(
        "MoE 8x7B",
        Transformer(
            46.7e9,
            32,
            4096,
            4096,
            0,
            micro_batch=2,
            kv_share=8 / 32,
            experts=8,
            experts_per_token=2,
            expert_parameters=32 * 8 * 3 * 4096 * 14336,
            sharded="optimizer",
        ),
        batch_of_replica=4,
        expert=8,
    ),
)


def job_of(model: Model, gpus: int) -> Job | None:
    """The model on so many GPUs; None where they hold no whole replicas."""
    replicas, rest = divmod(gpus, model.tensor * model.pipeline)
    if rest or replicas % model.expert or not replicas:
        return None
    ways = (
        ("tensor", model.tensor),
        ("expert", model.expert),
        ("data", replicas),
        ("pipeline", model.pipeline),
    )
    return Job(
        name=f"{model.name}-{gpus}",
        roles=(Role("worker", gpus // GPUS, Shape(gpus=GPUS), processes=GPUS),),
        parallelism=ways,
        trains=replace(model.trains, batch=replicas * model.batch_of_replica),
    )


# ----- the fabric and what is free


def cluster_of(directory: Path, network: str) -> Cluster:
    """The published hosts and switches, with the assumed machines and links."""
    source = directory / "topo.csv.gz"
    text = gzip.decompress(source.read_bytes()).decode()
    choice = MachineChoice({}, {}, default=machine(MACHINE))
    cluster = assembled("lingjun", parse(text, str(source)), choice, str(source)).cluster
    leaves = sorted({"/".join(node.at) for node in cluster.nodes})
    worn = Random("worn").sample(leaves, round(len(leaves) * WORN)) if network == "worn" else []
    facts = tuple(DomainFacts("leaf", leaf, health=0.5) for leaf in worn)
    return replace(cluster, links=NETWORKS[network], domains=facts)


def whole(rng: Random) -> int:
    """GPUs taken of a host: all or none."""
    return GPUS if rng.random() < 0.5 else 0


def parts(rng: Random) -> int:
    """GPUs taken of a host: all, some or none."""
    lot = rng.random()
    return GPUS if lot < 0.25 else rng.randrange(1, GPUS) if lot < 0.75 else 0


STATES: dict[str, Callable[[Random], int]] = {"whole": whole, "parts": parts}


def half_full(fabric: Fabric, state: str, seed: int) -> Occupancy:
    """A drawn state."""
    rng, occupancy = Random(f"{state} {seed}"), Occupancy(fabric)
    members: list[MemberPlacement] = []
    for node in fabric.nodes:
        taken = STATES[state](rng)
        if taken:
            gpus = tuple(sorted(rng.sample(range(GPUS), taken)))
            members.append(MemberPlacement("other", len(members), node.name, gpus))
    occupancy.take("others", tuple(members))
    return occupancy


# ----- one gang


@dataclass(frozen=True)
class Result:
    """One gang under one rule: predicted seconds of a step in topology order and with gantree's ranks.

    all_reduce_s is of 1 GiB over all its GPUs.
    """

    network: str
    state: str
    seed: int
    model: str
    gpus: int
    rule: str
    in_order_s: float
    our_ranks_s: float
    all_reduce_s: float
    leaves: int
    spines: int


def judged(occupancy: Occupancy, job: Job, seed: int) -> Iterator[tuple[str, Placement]]:
    """Where each rule puts a gang."""
    found = place(occupancy, job)
    assert isinstance(found, Placement), f"there is room for {job.name}: {found}"
    yield "gantree", found
    problem = next(problems(occupancy, topology_request_of(occupancy.fabric, job)))
    slots = problem.tables[0].of_node.tolist()
    counted = level_counting(occupancy.fabric, slots, job.members, "leaf")
    yield "level counting", _placed(problem, counted, job)
    yield "random", _placed(problem, random_nodes(slots, job.members, Random(seed)), job)


def _placed(problem: Problem, nodes: Sequence[tuple[int, int]], job: Job) -> Placement:
    return placement_of(problem, [(node, (members,)) for node, members in sorted(nodes)], job)


def results_of(fabric: Fabric, network: str, state: str, seed: int) -> Iterator[Result]:
    """All models and sizes under all rules, on one state."""
    occupancy = half_full(fabric, state, seed)
    for model in MODELS:
        for gpus in SIZES:
            job = job_of(model, gpus)
            if job is None:
                continue
            for rule, placement in judged(occupancy, job, seed):
                ranks = rank_map(fabric, job, placement)
                assert ranks.step_s is not None, ranks.assumed
                assert ranks.plain_step_s is not None, ranks.assumed
                nodes = [fabric.index_of_node[member.node] for member in placement.members]
                leaves, spines = (
                    len(np.unique(fabric.domain_of_node[fabric.tiers.index(tier)][nodes]))
                    for tier in ("leaf", "spine")
                )
                yield Result(
                    network,
                    state,
                    seed,
                    model.name,
                    gpus,
                    rule,
                    ranks.plain_step_s,
                    ranks.step_s,
                    placement.predicted.comm_s,
                    leaves,
                    spines,
                )


# ----- tables


@dataclass(frozen=True)
class Ratios:
    """A rule's predicted steps over gantree's, of the same gangs."""

    network: str
    model: str
    rule: str
    ranks: str
    ratios: tuple[float, ...]
    all_reduce: float
    leaves: float
    spines: float

    def document(self) -> dict[str, Any]:
        """What --json writes of it."""
        return {
            "network": self.network,
            "model": self.model,
            "rule": self.rule,
            "ranks": self.ranks,
            "gangs": len(self.ratios),
            "geometric_mean": geometric_mean(self.ratios),
            "median": median(self.ratios),
            "least": min(self.ratios),
            "most": max(self.ratios),
            "faster": sum(ratio < 1 - 1e-9 for ratio in self.ratios),
            "slower": sum(ratio > 1 + 1e-9 for ratio in self.ratios),
            "all_reduce": self.all_reduce,
            "leaves": self.leaves,
            "spines": self.spines,
        }


def ratios_of(results: Sequence[Result]) -> Iterator[Ratios]:
    """By network, model, rule and ranks."""
    by_gang = {(r.network, r.state, r.seed, r.model, r.gpus, r.rule): r for r in results}
    for network in dict.fromkeys(r.network for r in results):
        for model in (model.name for model in MODELS):
            for rule in RULES[1:]:
                theirs = [
                    r for r in results if (r.network, r.model, r.rule) == (network, model, rule)
                ]
                pairs = [
                    (r, by_gang[r.network, r.state, r.seed, r.model, r.gpus, "gantree"])
                    for r in theirs
                ]
                leaves = fmean(their.leaves / our.leaves for their, our in pairs)
                spines = fmean(their.spines / our.spines for their, our in pairs)
                in_order = tuple(their.in_order_s / our.in_order_s for their, our in pairs)
                our_ranks = tuple(their.our_ranks_s / our.our_ranks_s for their, our in pairs)
                by_all = geometric_mean(
                    their.all_reduce_s / our.all_reduce_s for their, our in pairs
                )
                told = by_all, leaves, spines
                yield Ratios(network, model, rule, "in order", in_order, *told)
                yield Ratios(network, model, rule, "our ranks", our_ranks, *told)


HEADER = (
    *("NETWORK", "MODEL", "RULE", "RANKS", "GANGS", "GEO. MEAN", "MEDIAN", "LEAST", "MOST"),
    *("RULE FASTER", "GANTREE FASTER", "ALL-REDUCE", "LEAVES", "SPINES"),
)


def line(figures: dict[str, Any]) -> list[str]:
    """A row of the table."""
    return [
        *(str(figures[name]) for name in ("network", "model", "rule", "ranks", "gangs")),
        *(f"{figures[name]:.4f}" for name in ("geometric_mean", "median", "least", "most")),
        *(str(figures[name]) for name in ("faster", "slower")),
        *(f"{figures[name]:.2f}" for name in ("all_reduce", "leaves", "spines")),
    ]


def main() -> None:
    """Print the table, and what was left out."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=Path, nargs="?", help="where topo.csv.gz is")
    parser.add_argument("--seeds", type=int, default=10, help="states of each kind")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    wanted = parser.parse_args()
    if wanted.directory is None:
        print("not measured: name the directory of the Lingjun topology", file=sys.stderr)
        return
    results: list[Result] = []
    for network in NETWORKS:
        fabric = Fabric.build(cluster_of(wanted.directory, network))
        for state in STATES:
            for seed in range(wanted.seeds):
                results += results_of(fabric, network, state, seed)
                print(f"\r{network}, {state}, seed {seed}    ", end="", file=sys.stderr)
    print(file=sys.stderr)
    figures = [ratios.document() for ratios in ratios_of(results)]
    print(columns(HEADER, map(line, figures)))
    left_out = [f"{m.name} on {gpus}" for m in MODELS for gpus in SIZES if job_of(m, gpus) is None]
    print(f"left out, for the GPUs hold no whole replica: {', '.join(left_out) or 'nothing'}")
    if wanted.json is not None:
        document = {"seeds": wanted.seeds, "left_out": left_out, "ratios": figures}
        wanted.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
