"""Decides which nodes are repaired now, and by which steps; `api.server.repair_watch` runs them.

A node is repaired once a fault has taken it out and no gang holds anything there: a reset ends what runs. Neither may
foreign pods hold a GPU, a NIC or another device; those without, as of DaemonSets, are on every node and stay. At most
a fifth of the nodes are in repair at once. A repair that did not succeed is not begun again by itself: the node
stays out until its sources find it healthy and then report a new fault, or until an operator asks for another repair.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from gantree.control.nodes.blast_radius import most_nodes
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.site import Repair
from gantree.model.placements import MemberPlacement
from gantree.model.repairs import RepairChain, RepairState, RepairStep
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import OWNER_PREFIX

_GPU = re.compile(r"\bGPU (\d{1,4})\b")


@dataclass(frozen=True, slots=True)
class Due:
    """A repair to begin, or to go on with, at a step; reason is why that is run again, "" where it is not."""

    node: str
    sign: str
    steps: tuple[RepairStep, ...]
    first: int = 0
    reason: str = ""


def due_repairs(
    ledger: Ledger,
    chains: Sequence[RepairChain],
    asked: Collection[str] = (),
    busy: Collection[str] = (),
) -> Iterator[Due]:
    """The repairs to begin now, the oldest fault first.

    asked are nodes for which an operator wants another one, busy those for which one runs, on record or not.
    """
    room = most_nodes(ledger) - len({*running_repairs(ledger), *busy})
    for node in sorted(ledger.site.unwell, key=lambda each: (fault_since(ledger, each), each)):
        sign = fault_of(ledger, node)
        chain = next((each for each in chains if re.search(each.sign, sign)), None)
        if room <= 0:
            return
        if sign and chain is not None and node not in busy and _may_begin(ledger, node, asked):
            room -= 1
            yield Due(node, sign, chain.steps)


def _may_begin(ledger: Ledger, node: str, asked: Collection[str]) -> bool:
    fabric, before = ledger.fabric, ledger.site.repairs.get(node)
    if fabric is None or node not in fabric.index_of_node:
        return False
    if before is not None and before.state is RepairState.RUNNING:
        return False
    is_new = before is None or fault_since(ledger, node) > before.since
    return (is_new or node in asked) and not _is_held(ledger.rooms(), node)


def _is_held(rooms: Occupancy, node: str) -> bool:
    """Whether a gang holds anything on a node, or somebody else devices of it."""
    return any(
        not owner.startswith(OWNER_PREFIX) or _has_devices(rooms.owners[owner], node)
        for owner in rooms.holders(node)
    )


def _has_devices(members: Iterable[MemberPlacement], node: str) -> bool:
    """Whether these hold GPUs, NICs or extended resources of a node, whose names have a domain: rdma/hca, not pods."""
    return any(
        each.gpus or each.parts or each.nics or any("/" in name for name, _ in each.devices)
        for each in members
        if each.node == node
    )


def interrupted(ledger: Ledger, chains: Sequence[RepairChain]) -> Iterator[tuple[str, Due | None]]:
    """The repairs that the last daemon left running: how to go on with each, None where a step must not run twice."""
    for node, repair in running_repairs(ledger).items():
        yield node, _goes_on(node, repair, chains)


def _goes_on(node: str, repair: Repair, chains: Sequence[RepairChain]) -> Due | None:
    for chain in chains:
        names = tuple(step.name for step in chain.steps)
        if names == repair.steps and chain.steps[repair.step].repeatable:
            again = f"again, as the daemon ended while {names[repair.step]} ran"
            return Due(node, repair.sign, chain.steps, repair.step, again)
    return None


def running_repairs(ledger: Ledger) -> dict[str, Repair]:
    """The repairs on record that have not ended, by node."""
    repairs = ledger.site.repairs.items()
    return {node: repair for node, repair in repairs if repair.state is RepairState.RUNNING}


def fault_of(ledger: Ledger, node: str) -> str:
    """The faults that have taken a node out; "" for none."""
    cordon = ledger.site.cordoned.get(node)
    return "" if cordon is None else cordon.unwell


def fault_since(ledger: Ledger, node: str) -> float:
    """Since when the first of them is known; 0 for none."""
    faults = [one.since for one in ledger.site.unwell.get(node, {}).values() if one.takes_out]
    return min(faults, default=0.0)


def command_of(step: RepairStep, node: str, sign: str) -> list[str]:
    """The words of a step's command."""
    words = {"node": node, "gpu": gpus_in(sign), "sign": sign}
    return [
        re.sub(r"\{(node|gpu|sign)\}", lambda found: words[found[1]], part) for part in step.run
    ]


def gpus_in(sign: str) -> str:
    """The indices of the GPUs that a fault names, with commas between them."""
    return ",".join(dict.fromkeys(_GPU.findall(sign)))


def in_words(repair: Repair) -> str:
    """How far a repair has come: "reboot, 2 of 4"."""
    return f"{repair.steps[repair.step]}, {repair.step + 1} of {len(repair.steps)}"
