"""Copies of an occupancy share who is on which node until one of them changes it."""

from gantree.model.placements import MemberPlacement
from gantree.testing.builders import cluster
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy


def holders(occupancy: Occupancy) -> list[str | None]:
    return [occupancy.holder_of_gpu("n0", gpu) for gpu in range(4)]


def test_whoever_comes_or_goes_after_a_copy_does_so_in_one_of_them_alone() -> None:
    first = Occupancy(Fabric.build(cluster(leaves=1, nodes=1, gpus=4)))
    for gpu in (0, 1):
        first.take(f"j{gpu}", (MemberPlacement("worker", 0, "n0", (gpu,)),))
    second = first.copy()
    first.give_back("j0")
    first.take("j2", (MemberPlacement("worker", 0, "n0", (2,)),))
    third = first.copy()
    first.give_back("j1")
    third.give_back("j2")
    assert holders(first) == [None, None, "j2", None]
    assert holders(second) == ["j0", "j1", None, None]
    assert holders(third) == [None, "j1", None, None]
    for each in (first, second, third):
        each.check()
