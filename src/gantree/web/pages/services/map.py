"""Where the replicas of a service are: nodes with a cell for each GPU, and in it which replica holds it."""

from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.replicas import holds_place, live_replicas, name_of
from gantree.topology.fabric.fabric import Fabric
from gantree.web.pages.services.replicas import replica_state

Json = dict[str, Any]
NODES_SHOWN = 128
LOOKS = {"ready": "mine", "draining": "draining"}
"""How the cell of a replica looks, by its state; all others are on their way."""


def replica_map(ledger: Ledger, service: ServiceState) -> Json:
    """The nodes that replicas are on, in the order of the topology, and how many more there are than are drawn."""
    fabric = ledger.fabric
    if fabric is None:
        return {"nodes": [], "more_nodes": 0}
    holders: dict[int, list[JobState]] = {}
    for state in live_replicas(ledger, service):
        if state.placement is not None and holds_place(state):
            for name in state.placement.nodes:
                if name in fabric.index_of_node:
                    holders.setdefault(fabric.index_of_node[name], []).append(state)
    nodes = sorted(holders)
    return {
        "nodes": [_node(fabric, node, holders[node]) for node in nodes[:NODES_SHOWN]],
        "more_nodes": max(0, len(nodes) - NODES_SHOWN),
    }


def _node(fabric: Fabric, index: int, states: list[JobState]) -> Json:
    """One node. A cell names the replicas on its GPU, of which several may have a part."""
    node = fabric.nodes[index]
    cells: list[list[Json]] = [[] for _ in range(fabric.machine_of_node(index).gpus)]
    whole = []
    for state in states:
        label = _label(state)
        gpus = _gpus_on(state, node.name)
        for gpu in gpus:
            cells[gpu].append(label)
        if not gpus:
            whole.append(label)
    return {
        "node": node.name,
        "path": "/".join(node.at),
        "machine": node.machine,
        "cells": cells,
        "without_gpus": whole,
    }


def _gpus_on(state: JobState, node: str) -> list[int]:
    """The GPUs of a node that a replica has, or has a part of."""
    assert state.placement is not None, f"{state.job} has no place"
    members = [each for each in state.placement.members if each.node == node]
    return sorted({gpu for each in members for gpu in (*each.gpus, *each.parts)})


def _label(state: JobState) -> Json:
    of, word = state.spec.service, replica_state(state)
    return {
        "job": name_of(state),
        "number": 0 if of is None else of.number,
        "state": word,
        "look": LOOKS.get(word, "coming"),
    }
