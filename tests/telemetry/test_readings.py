"""From readings to a machine: readings of known machines, written by hand, and product names that drivers report."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Machine
from gantree.telemetry.readings import (
    GpuReading,
    NicReading,
    PciPlace,
    Readings,
    fabric_clique,
    guid_of,
    machine_of,
    nic_link,
    port_GBps,
    topology_of,
)
from gantree.topology.hardware.catalog import machine


def switch_port(root: str, switch: int, port: int) -> PciPlace:
    """The place of a device on a port of a switch: root complex, root port, switch, its port, device."""
    path = (
        f"pci{root}",
        f"{root}:01.0",
        f"up{switch}",
        f"down{switch}.{port}",
        f"dev{switch}.{port}",
    )
    return PciPlace(path, numa=int(root[-1]))


def gpu(
    index: int, count: int, place: PciPlace, product: tuple[str, int], level: int
) -> GpuReading:
    levels = tuple(None if other == index else level for other in range(count))
    return GpuReading(f"GPU-{index}", *product, place, levels, (0,) * count)


H100 = ("NVIDIA H100 80GB HBM3", 81559)


def readings(gpus: list[GpuReading], nics: list[NicReading], cpus: int = 224) -> Readings:
    return Readings("host", tuple(gpus), tuple(nics), cpus, 2048.0)


def dgx_h100() -> Readings:
    """Eight GPUs with 18 links each to switches, a NIC behind the PCIe switch of each, four on a socket."""
    places = [(f"000{i // 4}", i) for i in range(8)]
    gpus = [
        replace(gpu(i, 8, switch_port(root, switch, 0), H100, 50), links_to_switch=18)
        for i, (root, switch) in enumerate(places)
    ]
    nics = [NicReading(f"mlx5_{i}", switch_port(*place, 1)) for i, place in enumerate(places)]
    return readings(gpus, nics)


def test_a_gpu_without_memory_of_its_own_has_no_model() -> None:
    one = replace(gpu(0, 1, switch_port("0000", 0, 0), H100, 0), memory_MiB=None)
    machine = machine_of(readings([one], []), "m")
    assert (machine.gpus, machine.gpu) == (1, None)


def test_the_readings_of_a_dgx_h100_are_the_dgx_h100_of_the_catalogue() -> None:
    found, known = machine_of(dgx_h100(), "dgx-h100"), machine("dgx-h100")
    assert replace(found, nics=()) == replace(known, nics=())
    assert [(nic.name, nic.near, nic.rail) for nic in found.nics] == [
        (nic.name, nic.near, nic.rail) for nic in known.nics
    ]
    assert {nic.path for nic in found.nics} == {"PIX"}


def test_rates_and_guids_of_nics_and_identities_of_gpus_are_told() -> None:
    host = dgx_h100()
    gpus = tuple(
        replace(gpu, bus_id=f"0000:{at:02x}:00.0", clique="u.2") for at, gpu in enumerate(host.gpus)
    )
    nics = tuple(replace(nic, GBps=50.0, guid=f"{at:016x}") for at, nic in enumerate(host.nics))
    told = topology_of(replace(host, gpus=gpus, nics=nics))
    assert told.hostname == "host"
    assert told.uuid_of_gpu[7] == "GPU-7"
    assert told.bus_id_of_gpu[1] == "0000:01:00.0"
    assert told.clique_of_gpu == ("u.2",) * 8
    assert told.guid_of_nic[1] == "0000000000000001"
    assert {nic.bandwidth_GBps for nic in machine_of(replace(host, nics=nics), "m").nics} == {50.0}


@pytest.mark.parametrize(
    ("p2p", "told"),
    [
        ([(None, 0), (0, None)], True),
        ([(None, 1), (1, None)], False),
        ([(None, 0), (3, None)], False),
        ([(None, 6), (6, None)], None),
        ([(None, 6), (0, None)], True),
        ([(None, None), (None, None)], None),
        ([(), ()], None),
    ],
)
def test_gpus_are_peers_where_both_ways_are_fine_and_nothing_else_is_known(
    p2p: list[tuple[int | None, ...]], told: bool | None
) -> None:
    gpus = [replace(gpu(i, 2, PciPlace(()), H100, 10), p2p=p2p[i]) for i in range(2)]
    found = topology_of(readings(gpus, []))
    assert found.peer == ((True, told), (told, True))
    assert machine_of(readings(gpus, []), "m").peer == (
        ((True, False), (False, True)) if told is False else ()
    )


CLUSTER = bytes.fromhex("5cd30dc8000040008000000000000001")


@pytest.mark.parametrize(
    ("cluster", "state", "status", "clique"),
    [
        (CLUSTER, 3, 0, "5cd30dc8-0000-4000-8000-000000000001.388"),
        (CLUSTER, 2, 0, None),
        (CLUSTER, 3, 999, None),
        (bytes(16), 3, 0, None),
    ],
)
def test_a_fabric_that_is_set_up_and_leaves_the_node_is_a_clique(
    cluster: bytes, state: int, status: int, clique: str | None
) -> None:
    assert fabric_clique(cluster, 388, state, status) == clique


@pytest.mark.parametrize(
    ("rate", "GBps"),
    [
        ("400 Gb/sec (4X NDR)\n", 50.0),
        ("2.5 Gb/sec (1X SDR)", 0.3125),
        ("0 Gb/sec", None),
        ("", None),
    ],
)
def test_a_rate_is_read_as_linux_writes_it(rate: str, GBps: float | None) -> None:
    assert port_GBps(rate) == GBps


@pytest.mark.parametrize(
    ("node", "gid", "guid"),
    [
        ("B83F:D203:0043:A1B2\n", "", "b83fd2030043a1b2"),
        ("0xb83fd2030043a1b2", "", "b83fd2030043a1b2"),
        ("0000:0000:0000:0000", "fe80:0000:0000:0000:0000:0000:0000:0000", None),
        ("", "fe80:0000:0000:0000:0a00:0001:0002:0003", "0a00000100020003"),
        ("", "2001:0db8:0000:0000:0a00:0001:0002:0003", None),
    ],
)
def test_a_nic_without_a_guid_has_its_ports(node: str, gid: str, guid: str | None) -> None:
    assert guid_of(node, gid) == guid


def test_bridged_gpus_have_nvlinks_to_each_other_and_the_pci_class_to_the_rest() -> None:
    product = ("NVIDIA RTX A6000", 49140)
    gpus = [gpu(i, 4, switch_port("0000", i, 0), product, 40) for i in range(4)]
    bridged = [
        replace(one, links_to_gpu=tuple(4 * (other == index ^ 1) for other in range(4)))
        for index, one in enumerate(gpus)
    ]
    found = machine_of(readings(bridged, []), "m")
    assert found.links[0] == ("X", "NV4", "NODE", "NODE")
    assert found.links[3] == ("NODE", "NODE", "NV4", "X")
    assert found.gpu == "A6000-48GB"


@pytest.mark.parametrize(
    ("level", "link"),
    [(0, "PIX"), (10, "PIX"), (20, "PXB"), (30, "PHB"), (40, "NODE"), (50, "SYS")],
)
def test_each_common_ancestor_is_a_link_class(level: int, link: str) -> None:
    gpus = [gpu(i, 2, PciPlace(()), H100, level) for i in range(2)]
    assert machine_of(readings(gpus, []), "m").links == (("X", link), (link, "X"))


def test_an_ancestor_that_the_driver_does_not_tell_stays_unknown() -> None:
    gpus = [replace(gpu(i, 2, PciPlace(()), H100, 0), levels=(None, None)) for i in range(2)]
    assert machine_of(readings(gpus, []), "m") == Machine(
        "m", 2, "H100-80GB", numa=(0, 0), cpus=224.0, memory_GiB=2048.0
    )


def test_gpus_of_different_models_leave_the_model_open() -> None:
    gpus = [gpu(0, 2, PciPlace(()), H100, 50), gpu(1, 2, PciPlace(()), ("Tesla T4", 15360), 50)]
    assert machine_of(readings(gpus, []), "m").gpu is None


GPU_PLACE = PciPlace(("pci0000:00", "port", "up", "down0", "gpu"), numa=0)


@pytest.mark.parametrize(
    ("path", "numa", "link"),
    [
        (("pci0000:00", "port", "up", "down1", "nic"), 0, "PIX"),
        (("pci0000:00", "port", "up", "down1", "up2", "down2", "nic"), 0, "PXB"),
        (("pci0000:00", "port2", "nic"), 0, "PHB"),
        (("pci0000:40", "port", "nic"), 0, "NODE"),
        (("pci0000:80", "port", "nic"), 1, "SYS"),
        (("pci0000:80", "port", "nic"), None, "SYS"),
        ((), 0, None),
    ],
)
def test_the_path_to_a_nic_is_told_from_both_places(
    path: tuple[str, ...], numa: int | None, link: str | None
) -> None:
    assert nic_link(GPU_PLACE, PciPlace(path, numa)) == link
    assert nic_link(PciPlace(path, numa), GPU_PLACE) == link
