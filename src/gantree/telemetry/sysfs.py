"""What Linux tells of devices in /sys and /proc. Roots are arguments; a file that is not there is not an error.

Only reading belongs here; what the readings mean is `readings`.
"""

from pathlib import Path

from gantree.telemetry.readings import NicReading, PciPlace

SYS = Path("/sys")
PROC = Path("/proc")
_ACTIVE = "4:"
"""An RDMA port's state file begins with the number of the state; 4 is ACTIVE."""


def bus_id_of(nvml_bus_id: str) -> str:
    """Return a PCI address as sysfs writes it: NVML's "00000000:1B:00.0" is "0000:1b:00.0"."""
    domain, _, rest = nvml_bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def pci_place(device: Path) -> PciPlace:
    """Return the place of the device behind a sysfs link; an empty path if there is none."""
    if not device.exists():
        return PciPlace(())
    parts = device.resolve().parts
    root = next((i for i, part in enumerate(parts) if part.startswith("pci")), len(parts))
    return PciPlace(parts[root:], _numa(device))


def gpu_place(bus_id: str, sys: Path = SYS) -> PciPlace:
    """Return the place of a PCI device by its address as sysfs writes it."""
    return pci_place(sys / "bus" / "pci" / "devices" / bus_id)


def nics(sys: Path = SYS) -> tuple[NicReading, ...]:
    """Return the RDMA devices that have an active port, in the order of their numbers."""
    devices = sys / "class" / "infiniband"
    if not devices.is_dir():
        return ()
    found = sorted(devices.iterdir(), key=lambda path: _natural(path.name))
    return tuple(
        NicReading(path.name, pci_place(path / "device")) for path in found if _is_up(path)
    )


def memory_GiB(proc: Path = PROC) -> float:
    """Return the memory of the machine, or 0 where /proc/meminfo does not tell."""
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 1024**2, 1)
    return 0.0


def _is_up(nic: Path) -> bool:
    return any(_text(state).startswith(_ACTIVE) for state in nic.glob("ports/*/state"))


def _numa(device: Path) -> int | None:
    """Return the device's NUMA node; None for -1, which Linux writes where there is only one."""
    node = _text(device / "numa_node").strip()
    return int(node) if node.isdigit() else None


def _natural(name: str) -> tuple[object, ...]:
    """Order mlx5_2 before mlx5_10."""
    digits = "".join(char if char.isdigit() else " " for char in name).split()
    return (name.rstrip("0123456789"), [int(number) for number in digits], name)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
