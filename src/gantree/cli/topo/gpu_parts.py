"""Shareable resources of a node: MIG instances, compute partitions, GPU shares, other devices; as text and as JSON.

GPUs that a member holds whole are drawn by `topo_picture`; here stands what a GPU's one character cannot tell.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from gantree.model.cluster import CUT_NOT_PERMITTED, Node
from gantree.model.placements import MemberPlacement, SharePart
from gantree.text.words import plural
from gantree.topology.hardware.mig import mig_table
from gantree.topology.occupancy.gpus.gpu_state import REMAINDER, GpuState
from gantree.topology.occupancy.occupancy import Occupancy

KEPT = "kept"
"""The rest of a shared GPU, held for a job whose share is to grow; nothing runs there."""
USUAL = Node("", "")
"""What a cluster file says of a node by saying nothing."""
Holders = tuple[tuple[str, MemberPlacement], ...]
"""(owner, member) of those on one node, in the order in which they came."""


def holders_by_node(occupancy: Occupancy) -> dict[str, Holders]:
    """The holders of each node that has any."""
    found: dict[str, list[tuple[str, MemberPlacement]]] = {}
    for owner, members in occupancy.owners.items():
        for member in members:
            found.setdefault(member.node, []).append((owner, member))
    return {node: tuple(holders) for node, holders in found.items()}


def part_notes(
    occupancy: Occupancy, index: int, holders: Holders, letter_of_holder: Mapping[str, str]
) -> Iterator[str]:
    """Tell the instances and shares of each GPU, the other devices that are held, and what is unusual of the node."""
    for gpu, state in enumerate(occupancy.parts_of_node.get(index, ())):
        words = _words_of_gpu(gpu, state, holders, letter_of_holder)
        if words:
            yield f"GPU {gpu}: {' + '.join(words)}"
    machine = occupancy.fabric.machine_of_node(index)
    for name, count in machine.devices:
        free = int(occupancy.devices.free(name)[index])
        if free < count:
            yield f"{count - free} of {count} {name} held"
    if machine.gpus:
        table = mig_table(machine.gpu)
        how = "divided" if table is not None and table.uniform else "MIG"
        yield from _unusual(occupancy.fabric.nodes[index], how)


def _words_of_gpu(
    gpu: int, state: GpuState, holders: Holders, letter_of_holder: Mapping[str, str]
) -> list[str]:
    owner_at = {
        part.start: owner for owner, member in holders for part in member.mig if part.gpu == gpu
    }
    words = [
        f"{one.profile} {letter_of_holder[owner_at[one.start]] if one.held else 'idle'}"
        for one in state.instances
    ]
    words += [
        f"{member.share.compute:g} {_how(member.share)} {letter_of_holder[owner]}"
        for owner, member in holders
        if member.share is not None and member.share.gpu == gpu
    ]
    return words or (["MIG mode, no instances"] if state.mig else [])


def _how(share: SharePart) -> str:
    return KEPT if share.isolation == REMAINDER else share.isolation


def _unusual(node: Node, how: str) -> Iterator[str]:
    if node.mig_by not in (USUAL.mig_by, CUT_NOT_PERMITTED):
        yield f"{how} by {node.mig_by}"
    if node.shares != USUAL.shares:
        yield f"shared by {', '.join(node.shares)}" if node.shares else "not shared"
    if node.shares and node.tenants != USUAL.tenants:
        yield f"at most {node.tenants} on a GPU"


def parts_held(members: tuple[MemberPlacement, ...]) -> Iterator[str]:
    """Count the instances, shares and other devices that a holder has, for the legend."""
    instances = Counter(part.kind for member in members for part in member.mig)
    kept = sum(
        member.share is not None and member.share.isolation == REMAINDER for member in members
    )
    shares = sum(member.share is not None for member in members) - kept
    devices: dict[str, int] = {}
    for member in members:
        for name, count in member.devices:
            devices[name] = devices.get(name, 0) + count
    yield from (plural(count, kind) for kind, count in instances.items())
    if shares:
        yield plural(shares, "share")
    if kept:
        yield f"what is left of {plural(kept, 'GPU')}"
    yield from (f"{count} {name}" for name, count in devices.items())


def parts_json(occupancy: Occupancy, index: int, holders: Holders) -> dict[str, Any]:
    """MIG instances, shares and other devices of a node, for programs."""
    node = occupancy.fabric.nodes[index]
    states = occupancy.parts_of_node.get(index, ())
    owner_of = {(p.gpu, p.start): owner for owner, member in holders for p in member.mig}
    return {
        "mig": {
            "by": node.mig_by,
            "mode": [gpu for gpu, state in enumerate(states) if state.mig],
            "instances": [
                {"gpu": gpu, "profile": one.profile, "start": one.start}
                | {"holder": owner_of.get((gpu, one.start))}
                for gpu, state in enumerate(states)
                for one in state.instances
            ],
        },
        "shares": {
            "modes": list(node.shares),
            "tenants": node.tenants,
            "held": [
                _share_json(owner, member) for owner, member in holders if member.share is not None
            ],
        },
        "devices": [
            {"device": name, "count": count, "free": int(occupancy.devices.free(name)[index])}
            for name, count in occupancy.fabric.machine_of_node(index).devices
        ],
    }


def _share_json(owner: str, member: MemberPlacement) -> dict[str, Any]:
    share = member.share
    assert share is not None
    return {
        "gpu": share.gpu,
        "compute": share.compute,
        "memory_GiB": share.memory_GiB,
        "isolation": None if share.isolation == REMAINDER else share.isolation,
        "alone": share.alone,
        "holder": owner,
    }
