"""The placement of a gang for a page: nodes by domain, each GPU with its rank. Plain values."""

from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.core.lifecycle.launch import start_order
from gantree.model.phases import HOLDING
from gantree.model.placements import MemberPlacement
from gantree.topology.fabric.fabric import Fabric

Json = dict[str, Any]
NODES_SHOWN = 128
"""So many nodes of a gang are drawn; the table of ranks has them all."""


def gang_placement(ledger: Ledger, state: JobState) -> Json | None:
    """The place that a gang has, or had last; None before the first."""
    if state.placement is None or ledger.fabric is None:
        return None
    fabric, members = ledger.fabric, state.placement.members
    ranks = _ranks(state)
    by_node: dict[str, list[MemberPlacement]] = {}
    for member in members:
        by_node.setdefault(member.node, []).append(member)
    known = [name for name in by_node if name in fabric.index_of_node]
    return {
        "holds": state.phase in HOLDING,
        "domain": f"{state.placement.domain.tier} {state.placement.domain.name}".strip(),
        "predicted": state.placement.predicted,
        "members": [_member(each, ranks.get((each.role, each.rank), ())) for each in members],
        "nodes": [_node(fabric, name, by_node[name], ranks) for name in known[:NODES_SHOWN]],
        "more_nodes": max(0, len(known) - NODES_SHOWN),
    }


def _ranks(state: JobState) -> dict[tuple[str, int], tuple[int, ...]]:
    """Global ranks of each member, by role and number, of an attempt that is there."""
    if state.phase not in HOLDING:
        return {}
    return {(each.role, each.rank): each.rank_of_process for each in start_order(state).members}


def _member(member: MemberPlacement, ranks: tuple[int, ...]) -> Json:
    parts = [f"{part.gpu} ({part.profile})" for part in member.mig]
    if member.share is not None:
        parts.append(f"{member.share.gpu} ({member.share.compute:g} of it)")
    return {
        "role": member.role,
        "member": member.rank,
        "ranks": _runs(ranks),
        "node": member.node,
        "gpus": ", ".join([*map(str, member.gpus), *parts]),
        "nics": ", ".join(member.nics),
        "cpus": member.cpus,
        "memory_GiB": member.memory_GiB,
    }


def _node(
    fabric: Fabric,
    name: str,
    members: list[MemberPlacement],
    ranks: dict[tuple[str, int], tuple[int, ...]],
) -> Json:
    """One node: the path to it, and for each of its GPUs what of the gang is on it (None: nothing)."""
    index = fabric.index_of_node[name]
    cells: list[str | None] = [None] * fabric.machine_of_node(index).gpus
    for member in members:
        of_member = ranks.get((member.role, member.rank), ())
        each_has_one = len(of_member) == len(member.gpus)
        for place, gpu in enumerate(member.gpus):
            cells[gpu] = str(of_member[place]) if each_has_one else _runs(of_member)
        for gpu in member.parts:
            cells[gpu] = _runs(of_member)
    return {
        "node": name,
        "path": "/".join(fabric.nodes[index].at),
        "machine": fabric.nodes[index].machine,
        "cells": cells,
    }


def _runs(numbers: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) is "0-2, 5"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
