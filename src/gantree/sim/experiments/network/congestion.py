"""congestion: two gangs on one spine, the second placed with and without a look at what the first one sends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gantree.formats.policy.reader import PRESETS
from gantree.formats.traces import TraceJob
from gantree.model.cluster import Allocation, Cluster, DomainFacts
from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import Placement
from gantree.placement.choice.search import place
from gantree.sim.experiments.experiment import Bench, Outcome, Table, at_least, at_most
from gantree.sim.experiments.inputs import cluster, models
from gantree.sim.run import simulate
from gantree.sim.running.model import RunningModel
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

SITE = "v100-100g"
MEMBERS, GPUS = 4, 8
FIRST = ("a0", "a1", "b0", "b1")
"""Nodes of the first gang: two in each of the first two leaves."""

TAKEN = ("c0", "c1", "d0", "d1")
"""Nodes of others that send nothing: the second gang finds two free nodes in every leaf."""

MODELS = ("vgg16", "llama-7b", "bert")
OVERSUBSCRIBED = (1, 2, 4, 8)
"""A leaf's NICs over its up-links."""

NICS_OF_LEAF_GBps = 50.0
LOAD = 0.9
"""What a site's telemetry would say of an up-link that a gang's collectives keep busy."""

WORK_S = 3600.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model that both gangs train, and how narrow up-links are."""

    model: str
    ratio: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Hours that the two gangs need for one hour of work, placed without a look at the load, and with it."""

    case: Case
    without: tuple[float, float]
    with_load: tuple[float, float]
    nodes: tuple[tuple[str, ...], tuple[str, ...]]


def site(ratio: int) -> Cluster:
    """The cluster, its leaves' up-links so many times narrower than their NICs."""
    whole = cluster(SITE)
    leaf = replace(whole.links["leaf"], uplink_GBps=NICS_OF_LEAF_GBps / ratio)
    return replace(whole, links={**whole.links, "leaf": leaf})


def gang(name: str, model: str, label: tuple[tuple[str, str], ...] = ()) -> Job:
    """Four members of eight GPUs that train a model."""
    job = Job(name, (Role("worker", MEMBERS, Shape(gpus=GPUS, labels=label)),))
    return models()[model].trained_by(job)


def second_place(case: Case, load: float) -> tuple[str, ...]:
    """Nodes of the second gang, where the up-links of the first one's leaves are said to be so busy."""
    held = tuple(Allocation("others", node, tuple(range(GPUS))) for node in (*FIRST, *TAKEN))
    busy = tuple(DomainFacts("leaf", f"s0/{leaf}", load=load) for leaf in ("l0", "l1") if load)
    known = replace(site(case.ratio), allocations=held, domains=busy)
    placed = place(Occupancy(Fabric.build(known)), gang("second", case.model))
    assert isinstance(placed, Placement), "eight nodes are free"
    return tuple(member.node for member in placed.members)


def together(case: Case, nodes: Sequence[str]) -> tuple[float, float]:
    """Hours that both gangs need for an hour of work, the second on these nodes; up-links are shared fairly."""
    label_of_node = dict.fromkeys(FIRST, "first") | dict.fromkeys(nodes, "second")
    whole = site(case.ratio)
    places = tuple(
        replace(node, labels=(("gang", label_of_node.get(node.name, "none")),))
        for node in whole.nodes
    )
    rows = [TraceJob(name, 0.0, WORK_S, MEMBERS, GPUS) for name in ("first", "second")]
    result = simulate(
        replace(whole, nodes=places), rows, PRESETS["gantree"],
        running=RunningModel(step_time=True, contention=True),
        jobs=lambda row: gang(f"t{row.job_id}", case.model, (("gang", row.job_id),)),
    )  # fmt: skip
    first, second = (row.stretch or 1.0 for row in result.jobs)
    return first, second


def measure(case: Case) -> Pair:
    """Place the second gang both ways, and run both gangs."""
    blind, seeing = second_place(case, 0.0), second_place(case, LOAD)
    return Pair(case, together(case, blind), together(case, seeing), (blind, seeing))


def run(bench: Bench) -> Outcome:
    """Run every case."""
    pairs = bench.workers.map(
        measure, [Case(model, ratio) for ratio in OVERSUBSCRIBED for model in MODELS]
    )
    worst = max(pairs, key=lambda pair: max(pair.without) / max(pair.with_load))
    usual = max(
        (pair for pair in pairs if pair.case.ratio <= 2), key=lambda pair: max(pair.without)
    )
    return Outcome(
        verdicts=(
            at_least(
                f"without it both slow down by 1.5 times ({worst.case.model}, 1:{worst.case.ratio})",
                max(worst.without), 1.5, "x",
            ),
            at_most("with it neither does", max(max(pair.with_load) for pair in pairs), 1.05, "x"),
            at_least(
                "already with up-links of half the NICs (1:2)", max(usual.without), 1.1, "x",
                "a ring leaves a leaf once, so two gangs fit beside each other",
            ),
        ),
        tables=(
            Table(
                "Hours for an hour of work, two gangs of 32 V100 over two leaves each",
                (
                    "model", "up-links 1:", "without: first", "second", "with: first", "second", "nodes without",
                    "nodes with",
                ),
                tuple(
                    (pair.case.model, pair.case.ratio, *pair.without, *pair.with_load, *map(" ".join, pair.nodes))
                    for pair in pairs
                ),
            ),
        ),
    )  # fmt: skip
