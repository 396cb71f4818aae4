"""The judge judged: placements that are wrong in one way each, and what it says of them."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Allocation, Cluster, Node
from gantree.model.jobs import Apart, Job, Role, Shape, Slices, Spread, TopologySpec
from gantree.model.placements import (
    Domain,
    MemberPlacement,
    MigPart,
    Placement,
    Predicted,
    SharePart,
)
from gantree.testing import builders
from gantree.testing.placement_checker import problems_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

HALF = SharePart(0, 0.5, 40, "time-slicing", alone=True)
GPUS, MIG, SHARE = Shape(gpus=1), Shape(mig="3g.40gb"), Shape(gpu_share=0.5)


def occupancy(spares: int = 0) -> Occupancy:
    """Two leaves of two nodes of 4 GPUs; chat holds GPU 0 of n0."""
    nodes = tuple(Node(f"n{i}", "m", (f"l{i // 2}",)) for i in range(4))
    held = (Allocation("chat", "n0", (0,)),)
    site = Cluster("c", ("leaf", "node"), {"m": builders.machine(4)}, nodes, allocations=held)
    return Occupancy(Fabric.build(replace(site, spares={"leaf": spares} if spares else {})))


def member(rank: int, node: str, *gpus: int, **fields: object) -> MemberPlacement:
    return replace(MemberPlacement("w", rank, node, gpus), **fields)  # type: ignore[arg-type]  # fields by name, as the table has them


def job(shape: Shape, communicates: bool = True, **topology: object) -> Job:
    request = TopologySpec(**topology)  # type: ignore[arg-type]  # fields by name, as the table has them
    return Job("x", (Role("w", 2, shape),), topology=request, communicates=communicates)


def two(node_0: str, node_1: str) -> tuple[MemberPlacement, ...]:
    """Two members of one GPU each."""
    return member(0, node_0, 1), member(1, node_1, 2)


WRONG = {
    "two members in one leaf": (job(GPUS, spread=Spread("leaf", 1)), two("n0", "n1"), "at most 1 may be in one leaf"),
    "two members on one node, for a socket": (job(GPUS, spread=Spread("socket", 1)), two("n1", "n1"), "in one node"),
    "beside chat": (job(GPUS, apart=(Apart("node", ("ch*",)),)), two("n0", "n1"), "is in one node with site:chat"),
    "half a slice": (job(GPUS, slices=(Slices(2, "leaf"),)), two("n1", "n2"), "slice 0 spans 2 leaf"),
    "not in one leaf": (job(GPUS, required="leaf"), two("n1", "n2"), "are not in one leaf"),
    "a spare": (job(Shape(gpus=1)), two("n2", "n3"), "1 are held back"),
    "another profile": (
        job(MIG),
        (member(0, "n1", mig=(MigPart(0, "1g.10gb", 6),)), member(1, "n2", mig=(MigPart(0, "3g.40gb", 0),))),
        "other MIG instances",
    ),
    "two ranks on one GPU": (
        job(MIG),
        (member(0, "n1", mig=(MigPart(0, "3g.40gb", 0),)), member(1, "n1", mig=(MigPart(0, "3g.40gb", 4),))),
        "is on one GPU with",
    ),
    "instances on each other": (
        job(MIG, communicates=False),
        (member(0, "n1", mig=(MigPart(0, "3g.40gb", 0),)), member(1, "n1", mig=(MigPart(0, "3g.40gb", 0),))),
        "overlap",
    ),
    "a cut GPU that is whole": (
        job(MIG),
        (member(0, "n0", mig=(MigPart(0, "3g.40gb", 0),)), member(1, "n2", mig=(MigPart(0, "3g.40gb", 0),))),
        "is cut and whole or shared",
    ),
    "too small a share": (
        job(SHARE),
        (member(0, "n1", share=replace(HALF, compute=0.4)), member(1, "n2", share=HALF)),
        "less of the compute",
    ),
    "a rank that is not alone": (
        job(SHARE),
        (member(0, "n1", share=replace(HALF, alone=False)), member(1, "n2", share=HALF)),
        "has neighbours",
    ),
    "a GPU shared two ways": (
        job(SHARE, communicates=False),
        (member(0, "n1", share=replace(HALF, alone=False)), member(1, "n1", share=replace(HALF, isolation="mps"))),
        "is shared in ways",
    ),
    "devices that were not asked": (
        job(GPUS), (member(0, "n1", 1, devices=(("fpga", 1),)), member(1, "n1", 2)), "has other devices",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_each_wrong_is_found(name: str) -> None:
    asked, members, told = WRONG[name]
    placement = Placement(members, Domain("fabric", ""), Predicted(0.0, ()))
    problems = problems_of(occupancy(spares=int(name == "a spare")), asked, placement)
    assert any(told in problem for problem in problems), problems


def test_a_right_placement_has_no_problem() -> None:
    request = TopologySpec(
        "leaf",
        slices=(Slices(2, "leaf"),),
        spread=Spread("node", 1),
        apart=(Apart("leaf", ("chat",)),),
    )
    asked = Job("x", (Role("w", 2, GPUS),), topology=request)
    placement = Placement(two("n2", "n3"), Domain("leaf", "l1"), Predicted(0.0, ()))
    assert problems_of(occupancy(), asked, placement) == []
