"""A snapshot of a cluster whose devices are claimed: files say which GPUs are had, and what those that wait ask for."""

import asyncio
from pathlib import Path

from gantree.executors.kubernetes.tools.snapshot import files_of, seen
from gantree.formats import read_cluster, read_job
from gantree.model.cluster import Cluster
from gantree.model.placements import Placement
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy
from support.devices import GPU, NIC, DeviceStage, gpu, nic, request

SAME = {"requests": ["gpu", "nic"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}


def taken(stage: DeviceStage) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files of a snapshot, and what it warns of."""
    return files_of(asyncio.run(seen(stage.connection(stage.running.token))), "fleet")


def held(cluster: Cluster) -> dict[str, tuple[int, ...]]:
    return {each.job: each.gpus for each in cluster.allocations}


def test_claims_hold_their_gpus_and_what_waits_finds_the_room_that_there_is(tmp_path: Path) -> None:
    """Of four GPUs two have a NIC beside them; p0 has one of these, and nobody may have the last GPU of n0."""
    with DeviceStage(tmp_path) as stage:
        stage.classes(gpu=GPU, nic=NIC)
        stage.nodes("n0", gpus=0)
        broken = {"taints": [{"key": "xid", "effect": "NoSchedule"}]}
        gpus = [gpu(number, f"pci0000:{number:02x}") for number in range(4)]
        stage.slice("n0", GPU, [*gpus[:3], {**gpus[3], **broken}])
        stage.slice("n0", NIC, [nic(number, f"pci0000:{number:02x}") for number in (1, 2)])
        stage.template("pair", request("gpu", "gpu"), request("nic", "nic"), constraints=[SAME])
        stage.start()
        stage.claimant("p0", "pair")
        stage.until(lambda: stage.bound("p0"))
        told = {"annotations": {"gantree.io/gang-size": "2"}, "labels": {"gantree.io/gang": "g"}}
        for number in range(2):
            stage.claimant(f"g-{number}", "pair", **told)
        stage.claimant("odd", "no-such-template")
        stage.until(lambda: len(stage.claims()) == 3)
        (device,) = (name for _, _, name in stage.devices_of("p0") if name.startswith("gpu"))
        files, warnings = taken(stage)
    assert any("odd is left out" in warning for warning in warnings)
    full, empty = (
        read_cluster(files[name], name) for name in ("cluster.yaml", "cluster-empty.yaml")
    )
    assert held(full) == {"default.p0": (int(device[-1]),), "claims": (3,)}
    assert held(empty) == {"claims": (3,)}
    (gang,) = read_job(files["waiting.yaml"], "waiting.yaml")
    assert (gang.roles[0].shape.gpus, gang.members) == (1, 2)
    assert isinstance(place(Occupancy(Fabric.build(full)), gang), Refused)
    assert isinstance(place(Occupancy(Fabric.build(empty)), gang), Placement)
    rows = files["trace.csv"].splitlines()[1:]  # in order of creation, which has seconds
    assert sorted(row.split(",")[0] for row in rows) == ["default.g", "default.p0"]
