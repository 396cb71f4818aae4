"""What a growing job pays for its network, in one piece and scattered: steps priced on a fabric that grows with it."""

from random import Random

from gantree.model.cluster import Cluster, Link, Node
from gantree.model.jobs import Job, Role, Shape
from gantree.sim.experiments.experiment import Cell, Table
from gantree.sim.experiments.inputs import models
from gantree.topology.cost.cost import pricer_of, step_time
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.catalog import machine

MACHINE, GPUS_OF_NODE = "dgx-h100", 8
NODES = (1, 2, 8, 32, 128, 512, 1024)
MODELS = ("gpt-22b", "llama-7b", "bert")
SPARE = 2
"""The fabric has so many times the nodes of the job: a scattered job sits on every second one, drawn."""


def fabric_of(nodes: int) -> Fabric:
    """Nodes below leaves of 8 and spines of 16 leaves; up-links of a spine carry half of what its leaves do."""
    links = {
        "core": Link(50, 12),
        "spine": Link(50, 9, 50 * 8 * 8 * 16 / 2),
        "leaf": Link(50, 6, 50 * 8 * 8),
    }
    places = [
        Node(f"n{number}", MACHINE, ("c0", f"s{number // 128}", f"l{number // 8}"))
        for number in range(nodes)
    ]
    site = Cluster(
        name="scaling", tiers=("core", "spine", "leaf", "node"), machines={MACHINE: machine(MACHINE)},
        nodes=tuple(places), links=links,
    )  # fmt: skip
    return Fabric.build(site)


def step_s(fabric: Fabric, model: str, nodes: list[int]) -> tuple[float, float]:
    """Return (step, arithmetic of it) in seconds of a model on all GPUs of nodes, ranks in the order of the nodes."""
    ranks = [(node, gpu) for node in nodes for gpu in range(GPUS_OF_NODE)]
    job = Job(model, (Role("worker", len(nodes), Shape(gpus=GPUS_OF_NODE)),))
    step = step_time(pricer_of(fabric), models()[model].trained_by(job), ranks)
    assert step is not None, f"{model} tells its traffic"
    return step.step_s, step.compute_s


def scaling_table() -> Table:
    """Return the share of a step that is not arithmetic, by size: in one piece, and scattered."""
    rows: list[tuple[Cell, ...]] = []
    for nodes in NODES:
        fabric = fabric_of(nodes * SPARE)
        drawn = Random(nodes).sample(range(nodes * SPARE), nodes)  # noqa: S311 - a draw, not a secret
        for model in MODELS:
            near, compute = step_s(fabric, model, list(range(nodes)))
            far, _ = step_s(fabric, model, drawn)
            rows.append(
                (
                    model,
                    nodes,
                    nodes * GPUS_OF_NODE,
                    100 * (1 - compute / near),
                    100 * (1 - compute / far),
                    far / near,
                )
            )
    return Table(
        "The tax of scale: share of a step that is not arithmetic, DGX H100 below leaves of 8 and spines of 128 nodes",
        ("model", "nodes", "GPUs", "in one piece %", "scattered %", "scattered / in one piece"),
        tuple(rows),
    )  # fmt: skip
