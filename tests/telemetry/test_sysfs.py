"""Reading /sys: against trees of real directories and links, laid out as Linux lays them out."""

from pathlib import Path

from gantree.telemetry.readings import PciPlace
from gantree.telemetry.sysfs import bus_id_of, gpu_place, memory_GiB, nics


def add_device(sys: Path, *path: str, numa: str) -> Path:
    device = sys.joinpath("devices", *path)
    device.mkdir(parents=True, exist_ok=True)
    (device / "numa_node").write_text(f"{numa}\n")
    links = sys / "bus" / "pci" / "devices"
    links.mkdir(parents=True, exist_ok=True)
    (links / path[-1]).symlink_to(device)
    return device


def add_nic(sys: Path, name: str, device: Path, state: str) -> None:
    port = sys / "class" / "infiniband" / name / "ports" / "1"
    port.mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port.parents[1] / "device").symlink_to(device)


def test_a_gpu_is_placed_by_its_path_below_the_root_complex(tmp_path: Path) -> None:
    add_device(tmp_path, "pci0000:15", "0000:15:01.0", "0000:1b:00.0", numa="1")
    place = gpu_place(bus_id_of("00000000:1B:00.0"), tmp_path)
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
