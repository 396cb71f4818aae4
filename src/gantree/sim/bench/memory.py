"""Benchmark of memory: the tree and occupancy of a cluster, and the indexes of ten shapes of members."""

from gc import collect
from pathlib import Path
from resource import getpagesize
from typing import Any

from gantree.model.jobs import Job, Role, Shape, TopologySpec
from gantree.placement.choice.search import place
from gantree.sim.bench.mix import GPUS_OF_NODE, empty_cluster
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

MB = 1_000_000
SHAPES = tuple(Shape(gpus=gpus, cpus=cpus) for gpus in (1, 2, 4, 6, 8) for cpus in (0.0, 4.0))
"""Ten shapes; each is asked for on a node, in a leaf, and across leaves."""


def memory(gpus: int) -> dict[str, Any]:
    """Build a cluster and ask for ten shapes at three widths.

    Gives {"gpus", "shapes", "after_import_MB", "MB" (resident memory above that)}.
    """
    collect()
    before = _resident_bytes()
    site = empty_cluster(gpus)
    occupancy = Occupancy(Fabric.build(site))
    for number, shape in enumerate(SHAPES):
        for members, tier in ((1, "node"), (4, "leaf"), (40, "pod")):
            role = Role("worker", members, shape)
            topology = TopologySpec(required=tier)
            place(occupancy, Job(f"g{number}-{members}", (role,), topology=topology))
    after = _resident_bytes()
    return {
        "gpus": len(site.nodes) * GPUS_OF_NODE,
        "shapes": len(SHAPES),
        "after_import_MB": round(before / MB, 1),
        "MB": round((after - before) / MB, 1),
    }


def _resident_bytes() -> int:
    """Resident memory of this process, as Linux counts it."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * getpagesize()
