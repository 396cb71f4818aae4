"""The rail of each NIC of a machine model, as its nodes show it in a fabric.

A machine's own print numbers the NICs that are near to GPUs in order; only the fabric knows which of them hang on the
same leaves. A model has many nodes, and a few of these are always odd: a swapped cable, a dead port, a manager
or a storage server that was given the same model. So a value counts if MOST nodes have it, and the others
are named in a warning:
- a node counts for a model if all names of its NICs on rails are names of the model's NICs;
- a NIC is on the rail on which most nodes have it that show it, and on none where most nodes do not show it;
- where most do not agree on some NIC, or are not of the model's names, the model keeps its own order. That is noted.

Names. Drivers name devices from 0 ("mlx5_0"); scripts that write node descriptions count the devices of a host from
1 in the order of their names ("HCA-1"). These are the same order only up to ten devices ("mlx5_10" sorts before
"mlx5_2"). So "HCA-1" is taken as "mlx5_0" where the model's devices are one driver's, all from 0 on and at most ten,
all numbers of all its nodes are among them, and no device gets mostly another rail by that than by its own name.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantree.model.cluster import Machine, Nic
from gantree.text.words import counted, plural
from gantree.topology.discovery.fabrics import SeenNic, SeenNode
from gantree.topology.discovery.merging import some

MOST = 0.9
"""The share of nodes that decides."""
MOST_HCAS = 10
"""With more devices, the order of their names is not that of their numbers."""
_DEVICE = re.compile(r"([a-z][a-z0-9]*_?)([0-9]{1,4})", re.ASCII)

Device = str
Told = Mapping[Device, SeenNic]
"""What one node gives: its NICs on rails, by the model's names."""


class Railed(NamedTuple):
    """The machine of each node with its rails, what was concluded, and which nodes are odd."""

    machine_of_node: dict[str, Machine]
    inferred: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Votes:
    """What the nodes of a model state: given by node, and the nodes that have other names."""

    given: Mapping[str, Told]
    strangers: tuple[str, ...]


def with_rails(nodes: Sequence[SeenNode], machine_of_node: Mapping[str, Machine]) -> Railed:
    """Put the fabric's rails and rates into the machine models. Models that differ have different names."""
    of_machine: dict[str, list[SeenNode]] = {}
    for node in nodes:
        of_machine.setdefault(machine_of_node[node.name].name, []).append(node)
    machines = {machine.name: machine for machine in machine_of_node.values()}
    inferred: list[str] = []
    warnings: list[str] = []
    for name, own in of_machine.items():
        on_rails = [node for node in own if any(nic.rail is not None for nic in node.nics)]
        if on_rails:
            machines[name], said, odd = _railed(machines[name], on_rails)
            inferred += said
            warnings += odd
        warnings += _other_counts(machines[name], own)
    by_node = {node: machines[machine.name] for node, machine in machine_of_node.items()}
    return Railed(by_node, tuple(inferred), tuple(warnings))


def _railed(machine: Machine, nodes: Sequence[SeenNode]) -> tuple[Machine, list[str], list[str]]:
    device_of_hca = _certain_devices(machine, nodes)
    votes = _votes(machine, nodes, device_of_hca)
    kept = "rails are in the order of the machine's own NICs"
    if len(votes.given) < MOST * len(nodes):
        names = some(_names_of_strangers(nodes, votes.strangers))
        said = f"machine {machine.name}: the fabric calls NICs otherwise ({names}); {kept}"
        return machine, [said], []
    usual = _usual_rails(votes.given.values())
    torn = sorted(device for device, rail in usual.items() if rail == _TORN)
    if torn:
        said = f"machine {machine.name}: {some(torn)} hang on different rails on different nodes; {kept}"
        return machine, [said], []
    nics = tuple(_railed_nic(nic, usual, votes.given.values()) for nic in machine.nics)
    railed = replace(machine, nics=nics)
    return railed, [_said(railed, device_of_hca)], _odd_nodes(machine, nodes, votes, usual)


def _said(machine: Machine, device_of_hca: Mapping[str, Device]) -> str:
    said = f"machine {machine.name}: rails are as the fabric's leaves tell"
    if device_of_hca:
        said += (
            f"; HCA-1 is taken as {device_of_hca['HCA-1']} and so on, for all numbers fit and nothing "
            f"contradicts it"
        )
    hidden = [nic.name for nic in machine.nics if nic.near and nic.rail is None]
    if hidden:
        said += f"; {some(hidden)} hang on none of them, and have no rail"
    return said


def _certain_devices(machine: Machine, nodes: Sequence[SeenNode]) -> dict[str, Device]:
    """Return the device of each numbered HCA, or nothing where that is not certain, or not needed."""
    device_of_hca = _devices_in_order(machine)
    names = {nic.name for node in nodes for nic in node.nics}
    numbered = {name for name in names if name.startswith("HCA-")}
    if not numbered or not numbered <= device_of_hca.keys():
        return {}
    by_number = _rail_counts(_votes(machine, nodes, device_of_hca, own_names=False).given.values())
    by_name = _rail_counts(_votes(machine, nodes, {}).given.values())
    fits = all(
        by_number[device].most_common(1)[0][0] == count.most_common(1)[0][0]
        for device, count in by_name.items()
        if device in by_number
    )
    return device_of_hca if fits else {}


def _devices_in_order(machine: Machine) -> dict[str, Device]:
    """Return "HCA-1" and so on with the model's devices, where these are one driver's from 0 to 9 at most."""
    matches = [_DEVICE.fullmatch(nic.name) for nic in machine.nics]
    found = {int(match[2]): match[0] for match in matches if match}
    drivers = {match[1] for match in matches if match}
    whole = len(found) == len(machine.nics) <= MOST_HCAS and len(drivers) == 1
    if not whole or sorted(found) != list(range(len(found))):
        return {}
    return {f"HCA-{number + 1}": device for number, device in found.items()}


def _votes(
    machine: Machine,
    nodes: Iterable[SeenNode],
    device_of_hca: Mapping[str, Device],
    *,
    own_names: bool = True,
) -> _Votes:
    """Sort nodes by whether the model has all NICs that they show on rails. own_names: by the model's names too."""
    device_of = {nic.name: nic.name for nic in machine.nics if own_names} | dict(device_of_hca)
    given: dict[str, Told] = {}
    strangers = []
    for node in nodes:
        on_rails = [nic for nic in node.nics if nic.rail is not None]
        if all(nic.name in device_of for nic in on_rails):
            given[node.name] = {device_of[nic.name]: nic for nic in on_rails}
        else:
            strangers.append(node.name)
    return _Votes(given, tuple(strangers))


_TORN = -1
"""In the place of a rail: nodes do not agree on it."""


def _usual_rails(given: Iterable[Told]) -> dict[Device, int]:
    """Return the rail on which most nodes have each NIC that is not hidden on most of them."""
    every = list(given)
    found = {}
    for device, count in sorted(_rail_counts(every).items()):
        rail, times = count.most_common(1)[0]
        if count.total() > round((1 - MOST) * len(every), 9):
            found[device] = rail if times >= MOST * count.total() else _TORN
    return found


def _rail_counts(given: Iterable[Told]) -> dict[Device, Counter[int]]:
    """Count for each NIC on how many nodes it hangs on which rail."""
    counts: dict[Device, Counter[int]] = defaultdict(Counter)
    for of_node in given:
        for device, nic in of_node.items():
            counts[device][_TORN if nic.rail is None else nic.rail] += 1
    return counts


def _railed_nic(nic: Nic, usual: Mapping[Device, int], given: Iterable[Told]) -> Nic:
    """A NIC that this fabric does not show hangs on another one: it has no rail here."""
    rates = Counter(of_node[nic.name].bandwidth_GBps for of_node in given if nic.name in of_node)
    rate = nic.bandwidth_GBps
    if rate is None and rates and max(rates.values()) >= MOST * rates.total():
        rate = rates.most_common(1)[0][0]
    return replace(nic, rail=usual.get(nic.name), bandwidth_GBps=rate)


def _odd_nodes(
    machine: Machine, nodes: Sequence[SeenNode], votes: _Votes, usual: Mapping[Device, int]
) -> list[str]:
    odd = [
        node
        for node, given in votes.given.items()
        if any(nic.rail != usual.get(device) for device, nic in given.items())
    ]
    in_order = {node.name: number for number, node in enumerate(nodes)}
    odd = sorted([*odd, *votes.strangers], key=in_order.__getitem__)
    if not odd:
        return []
    return [
        f"machine {machine.name}: the NICs of {len(odd)} of {len(nodes)} nodes hang on other rails or have other names "
        f"than those of most ({some(odd)}): a swapped cable, or another machine; most count"
    ]


def _names_of_strangers(nodes: Iterable[SeenNode], strangers: Iterable[str]) -> list[str]:
    listed = frozenset(strangers)
    on_rails = (
        nic.name
        for node in nodes
        if node.name in listed
        for nic in node.nics
        if nic.rail is not None
    )
    return list(dict.fromkeys(name or "no name" for name in on_rails))


def _other_counts(machine: Machine, nodes: Sequence[SeenNode]) -> list[str]:
    """Return where a fabric shows another number of NICs than the model has near to its GPUs, and than most nodes."""
    near = sum(bool(nic.near) for nic in machine.nics)
    shown = {node.name: len(node.nics) for node in nodes if node.nics}
    if not shown or not machine.nics_counted:
        return []
    counts = Counter(shown.values())
    usual = max(counts, key=lambda count: (counts[count], count == near, count))
    others = [name for name, count in shown.items() if count != usual]
    warnings = []
    if usual != near:
        warnings.append(
            f"machine {machine.name}: {counted(near, 'NIC is', 'NICs are')} near to its GPUs, but the fabric shows "
            f"{usual} on {counts[usual]} of {plural(len(shown), 'node')}: the others are on another fabric, "
            "or it is another machine"
        )
    if others:
        kinds = " or ".join(str(count) for count in sorted(counts) if count != usual)
        warnings.append(
            f"machine {machine.name}: the fabric shows {kinds} NIC{'s' * (kinds != '1')}, not {usual}, on "
            f"{len(others)} of {plural(len(shown), 'node')} ({some(others)}); leave out those that are no compute "
            "nodes (--leave-out)"
        )
    return warnings
