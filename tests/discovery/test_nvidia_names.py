"""Names that the driver gives: products, PCI addresses, fabrics."""

import pytest

from gantree.topology.discovery.machines.devices.nvidia_names import (
    clique_name,
    model_name,
    sysfs_bus_id,
)


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
        ("NVIDIA GH200 144G HBM3e", 147_003, "GH200-144GB"),
        ("NVIDIA B300 SXM6 AC", 275_040, "B300-288GB"),
        ("NVIDIA GB300", 284_208, "GB300-288GB"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97_887, "RTXPRO6000-96GB"),
        ("NVIDIA RTX 6000 Ada Generation", 49_140, "RTX6000Ada-48GB"),
        ("NVIDIA H20", 97_871, "H20-96GB"),
        ("Tesla M60", 8_123, "M60-8GB"),
        ("NVIDIA Thor", 125_000, "Thor-123GB"),
        ("NVIDIA Graphics of Tomorrow", 500_000, "GraphicsofTomorrow-489GB"),
    ],
)
def test_product_names_become_names_of_the_catalogue(
    product: str, memory_MiB: int, name: str
) -> None:
    assert model_name(product, memory_MiB) == name


@pytest.mark.parametrize(
    ("written", "bus_id"),
    [
        ("00000000:1B:00.0", "0000:1b:00.0"),
        ("0000:3f:00.0", "0000:3f:00.0"),
        ("0009:01:00", "0009:01:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("0:1:0.7", "0000:01:00.7"),
        (" 00000002:81:00.0\n", "0002:81:00.0"),
        ("GPU-abc123", None),
        ("", None),
        ("0000:1b:00.8", None),
        ("0000:1b", None),
    ],
)
def test_a_pci_address_is_written_as_sysfs_writes_it(written: str, bus_id: str | None) -> None:
    assert sysfs_bus_id(written) == bus_id


@pytest.mark.parametrize(
    ("cluster", "clique"),
    [
        ("5CD30DC8-0000-4000-8000-000000000001", "5cd30dc8-0000-4000-8000-000000000001.7"),
        ("00000000-0000-0000-0000-000000000000", None),
        ("N/A", None),
        ("", None),
    ],
)
def test_a_cluster_of_zeros_or_none_is_no_clique(cluster: str, clique: str | None) -> None:
    assert clique_name(cluster, 7) == clique
