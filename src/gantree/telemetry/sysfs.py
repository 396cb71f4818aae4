"""Devices in /sys and /proc of Linux. Roots are arguments; a missing file is not an error.

Only reading belongs here; what the readings mean is `readings`.
"""

from pathlib import Path

from gantree.telemetry.readings import NicReading, PciPlace, guid_of, port_GBps

SYS = Path("/sys")
PROC = Path("/proc")
_ACTIVE = "4:"
"""An RDMA port's state file begins with the number of the state; 4 is ACTIVE."""


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
    return tuple(_nic(path) for path in found if _active_ports(path))


def memory_GiB(proc: Path = PROC) -> float:
    """Return the memory of the machine, or 0 where /proc/meminfo does not tell."""
    for line in _text(proc / "meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return round(int(line.split()[1]) / 1024**2, 1)
    return 0.0


def _nic(device: Path) -> NicReading:
    """Read one RDMA device: the rates of its active ports together, and its own GUID or that of its first port."""
    ports = _active_ports(device)
    rates = [rate for port in ports if (rate := port_GBps(_text(port / "rate"))) is not None]
    return NicReading(
        name=device.name,
        place=pci_place(device / "device"),
        GBps=sum(rates) if len(rates) == len(ports) else None,
        guid=guid_of(_text(device / "node_guid"), _text(ports[0] / "gids" / "0")),
    )


def _active_ports(device: Path) -> list[Path]:
    return [
        port
        for port in sorted(device.glob("ports/*"), key=lambda path: _natural(path.name))
        if _text(port / "state").startswith(_ACTIVE)
    ]


def _numa(device: Path) -> int | None:
    """Return the device's NUMA node; None for -1, which Linux writes where there is only one."""
    node = _text(device / "numa_node").strip()
    return int(node) if node.isdigit() else None


def _natural(name: str) -> tuple[object, ...]:
    """Order mlx5_2 before mlx5_10."""
    digits = "".join(char if char.isdigit() else " " for char in name).split()
    return (name.rstrip("0123456789"), [int(number) for number in digits], name)


def _text(path: Path) -> str:
    """Return what a file says; "" where it is not there, or refuses to be read (a port without a link may)."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
