"""tpu: slices of a pod of 8,960 chips, with fixed links and with optical switches."""

from dataclasses import dataclass
from random import Random
from time import perf_counter

from gantree.formats import read_cluster
from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.model.placements import Placement
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import place
from gantree.sim.experiments.experiment import Bench, Outcome, Table, at_least, at_most
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

WHOLE = (16, 20, 28)
SHAPES = ((2, 2, 4), (4, 4, 4), (4, 4, 8), (4, 8, 8), (8, 8, 8), (8, 8, 16), (8, 16, 16))
"""Shapes of the mix, each as many chips as it likes: drawn with a chance of 1 over its chips."""

CHURN = 150
"""Slices that come after the pod was full for the first time; each time a drawn one leaves."""


@dataclass(frozen=True, slots=True)
class Case:
    """A pod whose links are fixed, or whose cubes are joined by optical switches, and a seed."""

    cubes: bool
    seed: int


@dataclass(frozen=True, slots=True)
class Filled:
    """Whether the whole pod fits one slice, seconds for that, mean share of chips used, and refusals by contiguity."""

    whole: bool
    whole_s: float
    used: float
    refused: int
    asked: int
    slowest_s: float


def pod(*, cubes: bool) -> Fabric:
    """A pod of 16 x 20 x 28 chips on hosts of 2 x 2 x 1."""
    cube = ", cube: [4, 4, 4]" if cubes else ""
    text = f"""
name: v5p
tiers: [pod, node]
nodes: [{{names: "h[0-2239]", machine: tpu-v5p-host, at: {{pod: p}}}}]
tori: [{{name: p, dims: [16, 20, 28], host: [2, 2, 1], nodes: "h[0-2239]", slices: [{_shapes()}]{cube}}}]
"""
    return Fabric.build(read_cluster(text, "tpu"))


def _shapes() -> str:
    return ", ".join(str(list(shape)) for shape in (*SHAPES, WHOLE))


def slice_of(name: str, shape: tuple[int, ...]) -> Job:
    """A gang that is one box of chips, four a host."""
    chips = shape[0] * shape[1] * shape[2]
    role = Role("worker", chips // 4, Shape(gpus=4))
    return Job(name, (role,), topology=TopologySpec(box=shape))


def fill(case: Case) -> Filled:
    """Place the whole pod as one slice; then fill an empty one with a mix and let slices come and go."""
    occupancy = Occupancy(pod(cubes=case.cubes))
    start_s = perf_counter()
    whole = place(occupancy, slice_of("whole", WHOLE))
    whole_s = perf_counter() - start_s
    return _churned(occupancy, case.seed, isinstance(whole, Placement), whole_s)


def _churned(occupancy: Occupancy, seed: int, whole: bool, whole_s: float) -> Filled:
    random = Random(seed)  # noqa: S311 - a draw of a simulation, not a secret
    chips = WHOLE[0] * WHOLE[1] * WHOLE[2]
    weights = [1 / (a * b * c) for a, b, c in SHAPES]
    held: dict[str, int] = {}
    used: list[float] = []
    refused, slowest_s, full, number = 0, 0.0, False, 0
    while len(used) < CHURN:
        number += 1
        shape = random.choices(SHAPES, weights)[0]
        name = f"s{number}"
        start_s = perf_counter()
        verdict = place(occupancy, slice_of(name, shape))
        slowest_s = max(slowest_s, perf_counter() - start_s)
        if isinstance(verdict, Placement):
            occupancy.take(name, verdict.members)
            held[name] = shape[0] * shape[1] * shape[2]
        else:
            full = True
            refused += verdict.gate is Gate.CONTIGUITY
            gone = random.choice(sorted(held))
            occupancy.give_back(gone)
            del held[gone]
        if full:
            used.append(sum(held.values()) / chips)
    return Filled(whole, whole_s, sum(used) / len(used), refused, len(used), slowest_s)


def run(bench: Bench) -> Outcome:
    """Fill pods of both kinds."""
    cases = [Case(cubes, seed) for cubes in (False, True) for seed in bench.seeds]
    found = dict(zip(cases, bench.workers.map(fill, cases), strict=True))
    rows = [
        (
            "joined cubes" if cubes else "fixed links",
            100 * sum(each.used for each in of_kind) / len(of_kind),
            sum(each.refused for each in of_kind),
            sum(each.asked for each in of_kind),
            1000 * max(each.whole_s for each in of_kind),
            1000 * max(each.slowest_s for each in of_kind),
        )
        for cubes in (False, True)
        for of_kind in [[found[Case(cubes, seed)] for seed in bench.seeds]]
    ]
    return Outcome(
        verdicts=(
            at_least("a slice of all 8,960 chips is placed", min(each.whole for each in found.values()), 1),
            at_most("in less than a second", max(each.whole_s for each in found.values()), 1, " s"),
            at_least("a mix of slices keeps 90 % of the chips in use, joined cubes", rows[1][1], 90, " %"),
            at_least("a mix of slices keeps 90 % of the chips in use, fixed links", rows[0][1], 90, " %"),
        ),
        tables=(
            Table(
                "A pod of 16 x 20 x 28 chips that is always asked for more",
                ("links", "chips used %", "refused for contiguity", "of", "whole pod ms", "slowest decision ms"),
                tuple(rows),
            ),
        ),
    )  # fmt: skip
