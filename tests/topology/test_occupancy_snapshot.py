"""An occupancy made again from its snapshot is the same occupancy."""

from dataclasses import replace

from gantree.model.cluster import Cluster, Node
from gantree.model.placements import MemberPlacement
from gantree.testing.builders import machine
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.occupancy_snapshot import occupancy_snapshot_of, restored_occupancy


def test_devices_of_a_restored_member_are_counted_once() -> None:
    m4 = replace(machine(4, name="m4"), devices=(("rdma", 8),))
    fabric = Fabric.build(
        Cluster("site", ("leaf", "node"), {"m4": m4}, (Node("n0", "m4", ("l0",)),))
    )
    occupancy = Occupancy(fabric)
    occupancy.take("a", [MemberPlacement("w", 0, "n0", (0,), devices=(("rdma", 2),))])
    again = restored_occupancy(fabric, occupancy_snapshot_of(occupancy, {}), {})
    again.check()
    assert again.devices.free("rdma").tolist() == [6]
