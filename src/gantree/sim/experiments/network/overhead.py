"""overhead: what leaving a node costs, in shares of a step."""

from collections.abc import Sequence

from gantree.formats import read_cluster
from gantree.model.cluster import Cluster
from gantree.model.jobs import Job, Role, Shape
from gantree.sim.experiments.experiment import (
    Bench,
    Outcome,
    Table,
    Verdict,
    at_least,
    at_most,
)
from gantree.sim.experiments.inputs import cluster, models
from gantree.topology.cost.cost import GIB, Step, pricer_of, step_time
from gantree.topology.fabric.fabric import Fabric

SHOWN = ("resnet18", "bert", "gpt2", "vgg16", "llama-7b")
MEASURED = {
    "vgg16": (107, {2: 191, 4: 201, 8: 214, 32: 336}),
    "vgg19": (109, {2: 205, 4: 212, 8: 226, 32: 356}),
    "bert": (178, {2: 195, 4: 190, 8: 192, 32: 260}),
    "gpt2": (426, {2: 464, 4: 433, 8: 437, 32: 514}),
    "resnet18": (779, {2: 881, 4: 921, 8: 1010, 32: 1059}),
    "shufflenet": (798, {2: 850, 4: 886, 8: 957, 32: 1019}),
}
"""Milliseconds of an iteration on 1 GPU, and by GPUs, as Muri's authors profiled them (see inputs/models.yaml)."""


def placed_step(fabric: Fabric, model: str, gpus_of_node: Sequence[tuple[int, int]]) -> Step:
    """Price a step of a model on so many GPUs, the first ones, of each node: (node, GPUs)."""
    ranks = [(node, gpu) for node, gpus in gpus_of_node for gpu in range(gpus)]
    job = Job(model, (Role("worker", len(gpus_of_node), Shape(gpus=gpus_of_node[0][1])),))
    step = step_time(pricer_of(fabric), models()[model].trained_by(job), ranks)
    assert step is not None, f"{model} tells its traffic"
    return step


def overhead(step: Step) -> float:
    """Share of a step that is not arithmetic."""
    return 1 - step.compute_s / step.step_s


def _spread(fabric: Fabric, nodes: int, gpus: int) -> list[tuple[int, int]]:
    return [(node, gpus) for node in range(nodes)]


def _compared(name: str, near: tuple[int, int], far: tuple[int, int]) -> list[tuple[float, float]]:
    """(overhead near, overhead far) of SHOWN; near and far are (nodes, GPUs of each)."""
    fabric = Fabric.build(cluster(name))
    return [
        (
            overhead(placed_step(fabric, model, _spread(fabric, *near))),
            overhead(placed_step(fabric, model, _spread(fabric, *far))),
        )
        for model in SHOWN
    ]


def _table(title: str, near: str, far: str, found: Sequence[tuple[float, float]]) -> Table:
    head = ("model", f"{near}: overhead %", f"{far}: overhead %", "step far / near")
    rows = [
        (model, 100 * one, 100 * other, (1 - one) / (1 - other))
        for model, (one, other) in zip(SHOWN, found, strict=True)
    ]
    return Table(title, head, tuple(rows))


def _one_node(machine: str) -> Cluster:
    return read_cluster(
        f"name: one\ntiers: [node]\nnodes: [{{names: [n0], machine: {machine}}}]\n", machine
    )


def _links() -> list[tuple[str, float, float, float]]:
    """(model or collective, seconds over NVLink, over PCIe, ratio) on 4 A100 of one node."""
    nvlink, pcie = (
        Fabric.build(site) for site in (_one_node("hgx-a100-4"), cluster("ethernet-25g"))
    )
    gpus = [(0, tuple(range(4)))]
    one, other = (
        pricer_of(fabric).price_members("all_reduce", GIB, gpus).seconds
        for fabric in (nvlink, pcie)
    )
    rows = [("all-reduce of 1 GiB", one, other, other / one)]
    for model in SHOWN:
        one, other = (placed_step(fabric, model, [(0, 4)]).step_s for fabric in (nvlink, pcie))
        rows.append((f"step of {model}", one, other, other / one))
    return rows


def _calibration() -> list[tuple[str, int, float, float, float]]:
    """(model, GPUs, iteration over that on 1 GPU as measured, as predicted, predicted / measured)."""
    fabric = Fabric.build(cluster("v100-100g"))
    rows = []
    for model, (alone_ms, of_gpus) in MEASURED.items():
        for gpus, milliseconds in of_gpus.items():
            nodes = max(1, gpus // 8)
            step = placed_step(fabric, model, _spread(fabric, nodes, gpus // nodes))
            measured, predicted = milliseconds / alone_ms, step.step_s / step.compute_s
            rows.append((model, gpus, measured, predicted, predicted / measured))
    return rows


def run(bench: Bench) -> Outcome:
    """Price the places; nothing here is drawn, so seeds do not matter."""
    rented = _compared("ethernet-25g", (1, 4), (4, 1))
    full = _compared("v100-100g", (2, 8), (8, 2))
    links, calibration = _links(), _calibration()
    bert = SHOWN.index("bert")
    off = sorted(max(row[4], 1 / row[4]) for row in calibration)
    return Outcome(
        verdicts=(
            at_most(
                "4 GPUs of one node: 5 % of the step (BERT base)", 100 * rented[bert][0], 5, " %"
            ),
            at_least(
                "4 nodes at 25 Gbit/s: 50 % of the step (BERT base)",
                100 * rented[bert][1],
                50,
                " %",
            ),
            at_least(
                "16 GPUs on 8 nodes are slower than on 2 full ones (BERT base)",
                _slower(full[bert]),
                1.1,
                "x",
            ),
            *_of_links(links),
        ),
        tables=(
            _table("4 GPUs, A100 on PCIe, 25 Gbit/s a node", "1 node", "4 nodes", rented),
            _table("16 GPUs, V100, 100 Gbit/s a node", "2 full nodes", "8 nodes", full),
            Table("4 A100 of one node", ("what", "NVLink s", "PCIe s", "ratio"), tuple(links)),
            Table(
                "Iteration time over that on one GPU, measured by Muri's authors and predicted",
                ("model", "GPUs", "measured", "predicted", "predicted / measured"),
                tuple(calibration),
            ),
        ),
        notes=(
            f"The prediction is off by {off[len(off) // 2]:.2f}x in the median and {off[-1]:.2f}x at most.",
        ),
    )


def _slower(shares: tuple[float, float]) -> float:
    near, far = shares
    return (1 - near) / (1 - far)


def _of_links(links: Sequence[tuple[str, float, float, float]]) -> list[Verdict]:
    collective, steps = links[0][3], [row[3] for row in links[1:]]
    return [
        at_least("NVLink against PCIe: 2 to 10 times (all-reduce of 1 GiB)", collective, 2, "x"),
        at_least(
            "NVLink against PCIe: 2 to 10 times (the step that gains most)", max(steps), 2, "x",
            "the arithmetic of a step does not get faster, and most of the traffic hides behind it",
        ),
    ]  # fmt: skip
