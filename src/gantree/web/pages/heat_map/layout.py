"""Coordinates of domains, nodes and GPUs on the heat map: the layout of `gantree topo page`, as lists for a browser.

The layout changes only with the cluster, so a browser fetches it once. Lengths are in pixels at zoom 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.fabric import Fabric
from gantree.web.fabric.layout import (
    Box,
    Scale,
    head_height,
    lay_out,
    node_size,
    place_of_gpu,
    scale_for,
    width_for,
)
from gantree.web.fabric.scene import (
    DomainView,
    NodeView,
    gpu_link_notes,
    nic_notes,
    nics_to_tell,
)
from gantree.web.pages.heat_map.scene import map_id_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DomainBox:
    """A domain above the node: its box, and its nodes: `count` of them from index `first` on."""

    tier: str
    name: str
    depth: int
    x: float
    y: float
    width: float
    height: float
    first: int
    count: int
    health: float
    load: float


@dataclass(frozen=True, slots=True)
class NodeBox:
    """A node and its box. notes say, for people, which links are degraded or loaded."""

    name: str
    machine: str
    gpus: int
    x: float
    y: float
    health: float
    load: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """All boxes: domains from the widest to the narrowest, nodes in topology order."""

    map_id: str
    name: str
    tiers: tuple[str, ...]
    width: float
    height: float
    scale: Scale
    domains: tuple[DomainBox, ...]
    nodes: tuple[NodeBox, ...]

    def places_of_gpus(self, gpus: int) -> list[tuple[float, float]]:
        """Return the upper left corners of the GPU cells of a node, relative to its box."""
        return [place_of_gpu(gpu, gpus, self.scale) for gpu in range(gpus)]


def heat_map(fabric: Fabric) -> HeatMap:
    """Return the map of a cluster."""
    conditions = Conditions(fabric)
    gpus = fabric.gpus_of_node.tolist()
    scale = scale_for(sum(gpus), len(gpus))
    box = lay_out(_view(fabric, conditions, gpus, 0, 0), scale, width_for(gpus, scale))
    nics, notes_on_gpus = nics_to_tell(conditions), gpu_link_notes(fabric)
    health, load = conditions.health_of_domain[-1].tolist(), conditions.load_of_domain[-1].tolist()
    domains: list[DomainBox] = []
    corners: list[tuple[float, float]] = []
    _flatten(box, (0.0, 0.0), 0, domains, corners)
    nodes = tuple(
        NodeBox(
            node.name,
            node.machine,
            gpus[index],
            *corners[index],
            health[index],
            load[index],
            (*nic_notes(nics.get(index, ())), *notes_on_gpus.get(index, ())),
        )
        for index, node in enumerate(fabric.nodes)
    )
    tiers = fabric.tiers
    name = fabric.cluster.name
    return HeatMap(
        map_id_of(fabric), name, tiers, box.width, box.height, scale, tuple(domains), nodes
    )


def _view(
    fabric: Fabric, conditions: Conditions, gpus: list[int], tier: int, number: int
) -> DomainView:
    """Return a domain and its contents as input of the layout, without holders."""
    children = fabric.first_child_of_domain[tier]
    inside = range(int(children[number]), int(children[number + 1]))
    views: tuple[DomainView, ...] | tuple[NodeView, ...]
    if tier + 1 == fabric.node_tier:
        views = tuple(_node_view(fabric, node, gpus[node]) for node in inside)
    else:
        views = tuple(_view(fabric, conditions, gpus, tier + 1, each) for each in inside)
    health = float(conditions.health_of_domain[tier][number])
    load = float(conditions.load_of_domain[tier][number])
    name = fabric.names_of_domain[tier][number]
    return DomainView(fabric.tiers[tier], name, health, load, 0, 0, views)


def _node_view(fabric: Fabric, node: int, gpus: int) -> NodeView:
    return NodeView(fabric.nodes[node].name, "", (0,) * gpus, (), True, 1.0, 0.0, (), ())


def _flatten(
    box: Box,
    corner: tuple[float, float],
    depth: int,
    domains: list[DomainBox],
    corners: list[tuple[float, float]],
) -> None:
    """Add a box and all boxes inside it, in coordinates of the map; nodes in topology order."""
    x, y = corner[0] + box.x, corner[1] + box.y
    view = box.view
    if isinstance(view, NodeView):
        corners.append((x, y))
        return
    at, first = len(domains), len(corners)
    own = DomainBox(
        view.tier, view.name, depth, x, y, box.width, box.height, first, 0, view.health, view.load
    )
    domains.append(own)
    for each in box.inside:
        _flatten(each, (x, y), depth + 1, domains, corners)
    domains[at] = DomainBox(
        view.tier,
        view.name,
        depth,
        x,
        y,
        box.width,
        box.height,
        first,
        len(corners) - first,
        view.health,
        view.load,
    )


def heat_map_json(drawn: HeatMap) -> Json:
    """Return the map as JSON values; rare attributes of nodes are listed by node index."""
    scale = drawn.scale
    sizes = sorted({node.gpus for node in drawn.nodes})
    machines = list(dict.fromkeys(node.machine for node in drawn.nodes))
    number_of_machine = {name: number for number, name in enumerate(machines)}
    return {
        "map_id": drawn.map_id,
        "name": drawn.name,
        "tiers": drawn.tiers,
        "width": _short(drawn.width),
        "height": _short(drawn.height),
        "scale": {
            "cell": scale.cell,
            "padding": scale.padding,
            "node_font": scale.node_font,
            "domain_font": scale.domain_font,
            "head": _short(head_height(scale)),
        },
        "domains": list(_domains_json(drawn)),
        "node_names": [node.name for node in drawn.nodes],
        "node_at": [_short(each) for node in drawn.nodes for each in (node.x, node.y)],
        "node_gpus": _runs([node.gpus for node in drawn.nodes]),
        "node_machine": _runs([number_of_machine[node.machine] for node in drawn.nodes]),
        "machines": machines,
        "conditions": {
            index: [node.health, node.load, list(node.notes)]
            for index, node in enumerate(drawn.nodes)
            if node.health < 1 or node.load > 0 or node.notes
        },
        "shapes": {
            gpus: {
                "size": [_short(each) for each in node_size(gpus, scale)],
                "cells": [_short(each) for place in drawn.places_of_gpus(gpus) for each in place],
            }
            for gpus in sizes
        },
    }


def _domains_json(drawn: HeatMap) -> Iterator[list[object]]:
    for each in drawn.domains:
        place = [_short(at) for at in (each.x, each.y, each.width, each.height)]
        tier = drawn.tiers.index(each.tier)
        yield [tier, each.name, *place, each.first, each.count, each.health, each.load]


def _runs(numbers: list[int]) -> list[int]:
    """Return the run-length encoding of numbers: number, count, number, count."""
    runs: list[int] = []
    for number in numbers:
        if runs and runs[-2] == number:
            runs[-1] += 1
        else:
            runs += [number, 1]
    return runs


def _short(length: float) -> float:
    """A length with at most one decimal; whole ones without a point."""
    rounded = round(float(length), 1)
    return int(rounded) if rounded.is_integer() else rounded
