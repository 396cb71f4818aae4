"""GPUs that nobody holds, and those that nothing can use."""

from dataclasses import replace

import numpy as np
import pytest

from gantree.model.cluster import Cluster, Node
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.testing.builders import machine
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.unheld import UnheldGpus

MACHINE = replace(machine(2, name="m", cpus=8), memory_GiB=64.0)
SITE = Cluster("site", ("node",), {"m": MACHINE}, (Node("n0", "m", ()), Node("n1", "m", ())))


def mig(*parts: tuple[str, int]) -> tuple[MigPart, ...]:
    return tuple(MigPart(0, profile, start) for profile, start in parts)


@pytest.mark.parametrize(
    ("held", "unheld", "stranded"),
    [
        (MemberPlacement("w", 0, "n0", (0,)), 1.0, 0.0),
        (MemberPlacement("w", 0, "n0", mig=mig(("3g.40gb", 0))), 1 + 4 / 7, 0.0),
        (MemberPlacement("w", 0, "n0", mig=mig(("3g.40gb", 0), ("3g.40gb", 4))), 1 + 1 / 7, 1 / 7),
        (MemberPlacement("w", 0, "n0", mig=mig(("7g.80gb", 0))), 1.0, 0.0),
        (MemberPlacement("w", 0, "n0", (0,), cpus=8.0), 1.0, 1.0),
        (MemberPlacement("w", 0, "n0", (0,), memory_GiB=64.0), 1.0, 1.0),
        (
            MemberPlacement("w", 0, "n0", share=SharePart(0, 0.5, 10.0, "time-slicing")),
            1.5,
            0.0,
        ),
        (
            MemberPlacement("w", 0, "n0", share=SharePart(0, 0.5, 80.0, "time-slicing")),
            1.5,
            0.5,
        ),
    ],
)
def test_what_is_left_of_a_node_is_of_use_or_stranded(
    held: MemberPlacement, unheld: float, stranded: float
) -> None:
    occupancy = Occupancy(Fabric.build(SITE))
    gpus = UnheldGpus(occupancy)
    assert gpus.follow() and not gpus.follow()
    occupancy.take("job", (held,))
    assert gpus.follow()
    assert np.allclose(gpus.unheld, [unheld, 2.0])
    assert np.allclose(gpus.stranded(), [stranded, 0.0])
    occupancy.give_back("job")
    assert gpus.follow()
    assert np.allclose(gpus.unheld, [2.0, 2.0])
    assert np.allclose(gpus.stranded(), [0.0, 0.0])
