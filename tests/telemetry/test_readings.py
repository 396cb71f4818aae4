"""From readings to a machine: readings of known machines, written by hand, and product names that drivers report."""

from dataclasses import replace

import pytest

from gantree.model.cluster import Machine
from gantree.telemetry.readings import (
    GpuReading,
    NicReading,
    PciPlace,
    Readings,
    machine_of,
    model_name,
    nic_link,
)
from gantree.topology.catalog import machine


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


def test_the_readings_of_a_dgx_h100_are_the_dgx_h100_of_the_catalogue() -> None:
    assert machine_of(dgx_h100(), "dgx-h100") == machine("dgx-h100")


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


@pytest.mark.parametrize(
    ("product", "memory_MiB", "name"),
    [
        ("NVIDIA H100 80GB HBM3", 81559, "H100-80GB"),
        ("NVIDIA H100 NVL", 95830, "H100-94GB"),
        ("NVIDIA A100-SXM4-40GB", 40960, "A100-40GB"),
        ("NVIDIA A100 80GB PCIe", 81920, "A100-80GB"),
        ("NVIDIA H200", 143771, "H200-141GB"),
        ("NVIDIA B200", 183359, "B200-180GB"),
        ("NVIDIA GB200", 189471, "GB200-186GB"),
        ("NVIDIA GH200 480GB", 97871, "GH200-96GB"),
        ("NVIDIA L40S", 46068, "L40S-48GB"),
        ("Tesla T4", 15360, "T4-16GB"),
        ("Tesla V100-SXM2-32GB", 32510, "V100-32GB"),
        ("Tesla K80", 11441, "K80-12GB"),
        ("NVIDIA RTX A6000", 49140, "A6000-48GB"),
        ("NVIDIA GeForce RTX 4090", 24564, "RTX4090-24GB"),
        ("TITAN X (Pascal)", 12196, "TITANX-12GB"),
        ("NVIDIA Graphics of Tomorrow", 500_000, "GraphicsofTomorrow-489GB"),
    ],
)
def test_product_names_become_names_of_the_catalogue(
    product: str, memory_MiB: int, name: str
) -> None:
    assert model_name(product, memory_MiB) == name
