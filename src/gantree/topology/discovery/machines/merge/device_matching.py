"""Matches the GPUs and NICs of two readings of one machine.

GPUs are matched by PCI address, or else by UUID, where two readings give them. A reading that gives neither numbers
GPUs as nvidia-smi does, which is the order of PCI addresses. The numbers of the result are therefore nvidia-smi's:
those of a reading that gives addresses and UUIDs, else the order of the addresses.

NICs are matched by device name, or by GUID. A print without a legend calls them NIC0, NIC1...: where another reading
names as many, they are the same in the same order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from gantree.model.errors import BadInput
from gantree.text.words import counted
from gantree.topology.discovery.gpus import GpuTopology

_NAMELESS = re.compile(r"NIC[0-9]+")


@dataclass(frozen=True, slots=True)
class Part:
    """A reading and its devices' numbers in the result. number_of_nic is None for a NIC that is left out."""

    source: str
    topology: GpuTopology
    number_of_gpu: tuple[int, ...]
    number_of_nic: tuple[int | None, ...] = ()

    def gpu_of_number(self) -> dict[int, int]:
        """Return its GPUs by their numbers in the result."""
        return {number: gpu for gpu, number in enumerate(self.number_of_gpu)}


@dataclass(slots=True)
class Nics:
    """The NICs of the result by number: the name that the first reading gave, device name and GUID where given."""

    names: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)
    guids: list[str | None] = field(default_factory=list)

    def add(self, name: str, device: str, guid: str | None) -> int:
        """Add a NIC and return its number."""
        self.names.append(name)
        self.devices.append(device)
        self.guids.append(guid)
        return len(self.names) - 1


def numbered_gpus(readings: Sequence[tuple[str, GpuTopology]], inferred: list[str]) -> list[Part]:
    """Give the GPUs of all readings the numbers of the result; what was reordered is added to inferred.

    BadInput, with both sources, where they are not of the same GPUs.
    """
    gpus = max(topology.gpus for _, topology in readings)
    known = _known(readings)
    if known is None:
        return [
            Part(source, topology, _by_index(source, topology, gpus, readings))
            for source, topology in readings
        ]
    parts = []
    for source, topology in readings:
        numbers = _by_identity(source, topology, known)
        if numbers is None:
            numbers = _by_index(source, topology, len(known.bus_ids or known.uuids), readings)
            if topology.gpus > 1:
                inferred.append(
                    f"{source} tells no PCI addresses; GPUs are numbered as nvidia-smi numbers them"
                )
        elif numbers != tuple(range(len(numbers))):
            shown = ", ".join(map(str, numbers))
            inferred.append(f"{source} orders GPUs otherwise: its GPU0, GPU1... are {shown}")
        parts.append(Part(source, topology, numbers))
    return parts


@dataclass(frozen=True, slots=True)
class _Known:
    """The identities of the result's GPUs by number, and the source of each; an empty tuple where not given."""

    source: str
    bus_ids: tuple[str, ...]
    uuids: tuple[str, ...]


def _known(readings: Sequence[tuple[str, GpuTopology]]) -> _Known | None:
    """Return the identities of the GPUs in the order of the result, None where no reading gives any.

    The reading that names most GPUs gives them; of those that name as many, one with addresses and UUIDs, for its
    order is nvidia-smi's own.
    """
    known_devices = [
        _Known(source, _whole(topology.bus_id_of_gpu), _whole(topology.uuid_of_gpu))
        for source, topology in readings
    ]
    named = [known for known in known_devices if known.bus_ids or known.uuids]
    if not named:
        return None
    best = max(named, key=lambda k: (len(k.bus_ids or k.uuids), bool(k.bus_ids), bool(k.uuids)))
    return best if best.uuids else _Known(best.source, tuple(sorted(best.bus_ids, key=_place)), ())


def _whole(values: Sequence[str | None]) -> tuple[str, ...]:
    """Return the values if there is one for each GPU and no two are the same."""
    given = tuple(value for value in values if value is not None)
    return given if len(given) == len(values) == len(set(given)) else ()


def _place(bus_id: str) -> tuple[int, str]:
    """Order addresses by domain, which may have more than four digits, then by the rest."""
    domain, _, rest = bus_id.partition(":")
    return len(domain), f"{domain}:{rest}"


def _by_identity(source: str, topology: GpuTopology, known: _Known) -> tuple[int, ...] | None:
    """Return the numbers of a reading's GPUs; None where it and the known ones give nothing in common."""
    for what, mine, theirs in (
        ("PCI address", _whole(topology.bus_id_of_gpu), known.bus_ids),
        ("UUID", _whole(topology.uuid_of_gpu), known.uuids),
    ):
        if not mine or not theirs:
            continue
        number_of = {value: number for number, value in enumerate(theirs)}
        stranger = next((value for value in mine if value not in number_of), None)
        if stranger is not None:
            gpu = mine.index(stranger)
            raise BadInput(
                f"{source} and {known.source} contradict each other: GPU{gpu} of {source} has the {what} {stranger}, "
                f"which {known.source} does not have; give readings of one machine"
            )
        return tuple(number_of[value] for value in mine)
    return None


def _by_index(
    source: str, topology: GpuTopology, gpus: int, readings: Sequence[tuple[str, GpuTopology]]
) -> tuple[int, ...]:
    """Number GPUs in their order: all of them, or none for a reading without GPUs."""
    if topology.gpus not in (0, gpus):
        other = next((name for name, seen in readings if seen.gpus == gpus), source)
        raise BadInput(
            f"{source} and {other} contradict each other: gpus: {topology.gpus} and {gpus}; "
            "give readings of one machine, or for some of its GPUs one with PCI addresses"
        )
    return tuple(range(topology.gpus))


def numbered_nics(
    parts: Sequence[Part], inferred: list[str], warnings: list[str]
) -> tuple[list[Part], Nics]:
    """Give the NICs of all readings the numbers of the result."""
    nics = Nics()
    numbered = []
    for part in parts:
        numbers = _nic_numbers(part, nics, inferred, warnings)
        numbered.append(Part(part.source, part.topology, part.number_of_gpu, numbers))
    return numbered, nics


def _nic_numbers(
    part: Part, nics: Nics, inferred: list[str], warnings: list[str]
) -> tuple[int | None, ...]:
    topology = part.topology
    devices = [topology.device_of_nic.get(name, name) for name in topology.nics]
    guids = topology.guid_of_nic or (None,) * len(devices)
    if devices and nics.devices and _are_nameless(devices) != _are_nameless(nics.devices):
        return _same_order(part, devices, nics, inferred, warnings)
    found = []
    for name, device, guid in zip(topology.nics, devices, guids, strict=True):
        number = _number(device, guid, nics)
        found.append(nics.add(name, device, guid) if number is None else number)
    return tuple(found)


def _same_order(
    part: Part, devices: Sequence[str], nics: Nics, inferred: list[str], warnings: list[str]
) -> tuple[int | None, ...]:
    """Match nameless NICs with named ones by their order, if there are as many."""
    if len(devices) != len(nics.devices):
        warnings.append(
            f"{part.source}: its {counted(len(devices), 'NIC is', 'NICs are')} left out: no match by name "
            f"with the {len(nics.devices)} of the readings before"
        )
        return (None,) * len(devices)
    if _are_nameless(nics.devices):
        nics.devices[:] = devices
    inferred.append(f"{part.source}: its NICs are those of the readings before, in the same order")
    return tuple(range(len(devices)))


def _are_nameless(devices: Sequence[str]) -> bool:
    return all(map(_NAMELESS.fullmatch, devices))


def _number(device: str, guid: str | None, nics: Nics) -> int | None:
    """Return the number of a NIC that is known already, by name or by a GUID that only one has."""
    if device in nics.devices:
        return nics.devices.index(device)
    same = [number for number, known in enumerate(nics.guids) if guid and known == guid]
    return same[0] if len(same) == 1 else None
