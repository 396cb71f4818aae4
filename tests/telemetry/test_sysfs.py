"""Reading /sys: against trees of real directories and links, laid out as Linux lays them out."""

from pathlib import Path

import pytest

from gantree.telemetry.readings import NicReading, PciPlace
from gantree.telemetry.sysfs import gpu_place, memory_GiB, nics


def add_device(sys: Path, *path: str, numa: str) -> Path:
    device = sys.joinpath("devices", *path)
    device.mkdir(parents=True, exist_ok=True)
    (device / "numa_node").write_text(f"{numa}\n")
    links = sys / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / path[-1]).symlink_to(device)
    return device


def add_nic(sys: Path, name: str, device: Path, state: str) -> None:
    add_port(sys, name, 1, {"state": state})
    (sys / "class" / "infiniband" / name / "device").symlink_to(device)


def add_port(sys: Path, nic: str, number: int, files: dict[str, str]) -> None:
    port = sys / "class" / "infiniband" / nic / "ports" / str(number)
    for file, text in files.items():
        path = port / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def test_a_gpu_is_placed_by_its_path_below_the_root_complex(tmp_path: Path) -> None:
    add_device(tmp_path, "pci0000:15", "0000:15:01.0", "0000:1b:00.0", numa="1")
    place = gpu_place("0000:1b:00.0", tmp_path)
    assert place == PciPlace(("pci0000:15", "0000:15:01.0", "0000:1b:00.0"), numa=1)


def test_a_single_numa_node_which_linux_calls_minus_one_is_none(tmp_path: Path) -> None:
    add_device(tmp_path, "pci0000:00", "0000:00:03.0", numa="-1")
    assert gpu_place("0000:00:03.0", tmp_path).numa is None


def test_a_device_that_is_not_there_has_no_place(tmp_path: Path) -> None:
    assert gpu_place("0000:ff:00.0", tmp_path) == PciPlace(())


def test_nics_with_an_active_port_are_listed_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number, state in ((10, "4: ACTIVE"), (2, "4: ACTIVE"), (3, "1: DOWN")):
        bus_id = f"0000:{number:02x}:00.0"
        device = add_device(tmp_path, "pci0000:00", bus_id, numa="0")
        add_nic(tmp_path, f"mlx5_{number}", device, state)
    found = nics(tmp_path)
    assert [nic.name for nic in found] == ["mlx5_2", "mlx5_10"]
    assert found[0].place.path == ("pci0000:00", "0000:02:00.0")


def test_a_machine_without_rdma_devices_has_no_nics(tmp_path: Path) -> None:
    assert nics(tmp_path) == ()


def test_memory_is_read_from_meminfo_and_zero_where_there_is_none(tmp_path: Path) -> None:
    assert memory_GiB(tmp_path) == 0.0
    (tmp_path / "meminfo").write_text("MemTotal:       1056760000 kB\nMemFree: 5 kB\n")
    assert memory_GiB(tmp_path) == 1007.8


GID = "fe80:0000:0000:0000:b83f:d203:0043:a1b3"


@pytest.mark.parametrize(
    ("ports", "node_guid", "GBps", "guid"),
    [
        ([{"rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}], "b83f:d203:0043:a1b2", 50.0,
         "b83fd2030043a1b2"),
        ([{"rate": "100 Gb/sec (4X EDR)", "gids/0": GID}], "0000:0000:0000:0000", 12.5, "b83fd2030043a1b3"),
        ([{"rate": "2.5 Gb/sec (1X SDR)"}], "0000:0000:0000:0000", 0.3125, None),
        ([{"rate": "100 Gb/sec (2X HDR)"}, {"rate": "100 Gb/sec (2X HDR)"}], "", 25.0, None),
        ([{"gids/0": "0000:0000:0000:0000:0000:ffff:0a00:0001"}], "", None, None),
        ([{"rate": "fast"}], "no guid", None, None),
    ],
)  # fmt: skip
def test_a_nic_tells_its_rate_and_its_guid(
    tmp_path: Path,
    ports: list[dict[str, str]],
    node_guid: str,
    GBps: float | None,
    guid: str | None,
) -> None:
    for number, files in enumerate(ports, start=1):
        add_port(tmp_path, "mlx5_0", number, {"state": "4: ACTIVE"} | files)
    (tmp_path / "class" / "infiniband" / "mlx5_0" / "node_guid").write_text(f"{node_guid}\n")
    assert nics(tmp_path) == (NicReading("mlx5_0", PciPlace(()), GBps, guid),)


def test_a_port_that_is_down_adds_nothing_to_the_rate(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx4_0", 1, {"state": "1: DOWN", "rate": "10 Gb/sec (4X SDR)"})
    add_port(tmp_path, "mlx4_0", 2, {"state": "4: ACTIVE", "rate": "56 Gb/sec (4X FDR)"})
    assert [nic.GBps for nic in nics(tmp_path)] == [7.0]


def test_a_file_that_is_no_text_is_not_told(tmp_path: Path) -> None:
    add_port(tmp_path, "mlx5_0", 1, {"state": "4: ACTIVE"})
    (tmp_path / "class" / "infiniband" / "mlx5_0" / "ports" / "1" / "rate").write_bytes(b"\xff\xfe")
    assert [nic.GBps for nic in nics(tmp_path)] == [None]
