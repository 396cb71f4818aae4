"""`gantree topo show`: a cluster as a picture in the terminal, or as JSON."""

from math import prod
from typing import Any

import typer
from rich.console import Console

from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import json_text
from gantree.cli.output.progress import busy
from gantree.cli.topo.chosen_site import ClusterArgument, DetectOption, chosen_site
from gantree.cli.topo.gpu_parts import holders_by_node, parts_json
from gantree.cli.topo.picture import picture
from gantree.cli.topo.site import Site
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.fabric.tori import TorusIndex, tori_of

WIDER_THAN_ANY_LINE = 1 << 24
"""Characters. A line has a character per GPU of a node, names, and a few words."""


def show(
    cluster: ClusterArgument = None,
    detect: DetectOption = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a cluster and its allocated GPUs (the default command)."""
    site = chosen_site(cluster, detect, state)
    if as_json:
        with busy("Telling"):
            answer = json_text(_answer(site))
        typer.echo(answer)
    else:
        _draw(site)


def _answer(site: Site) -> dict[str, Any]:
    """Tiers, domains and nodes in topology order; gpus names the holder of each whole GPU."""
    fabric, conditions = site.fabric, Conditions(site.fabric)
    return {
        "cluster": fabric.cluster.name,
        "tiers": list(fabric.cluster.tiers),
        "domains": [
            {"tier": fabric.tiers[tier], "name": name, **_condition(conditions, tier, number)}
            for tier in range(1, fabric.node_tier)
            for number, name in enumerate(fabric.names_of_domain[tier])
        ],
        "nodes": _nodes(site, conditions),
        "nics": [
            {"node": facts.node, "nic": facts.nic, "health": facts.health, "load": facts.load}
            for facts in fabric.cluster.nics
        ],
        "tori": [
            {"torus": torus.name, "dims": list(torus.dims), "host": list(torus.host)}
            | {"wrap": list(torus.wrap), "nodes": list(torus.nodes)}
            for torus in fabric.cluster.tori
        ],
    }


def _nodes(site: Site, conditions: Conditions) -> list[dict[str, Any]]:
    fabric, whole = site.fabric, site.holder_of_gpu_on_node()
    holders_of_node = holders_by_node(site.occupancy)
    torus_of_node = {node: torus for torus in tori_of(fabric) for node in torus.position_of_node}
    return [
        {
            "node": node.name,
            "machine": node.machine,
            "at": dict(zip(fabric.cluster.tiers[:-1], node.at, strict=True)),
            "labels": dict(node.labels),
            "usable": site.occupancy.usable(node.name),
            **_condition(conditions, fabric.node_tier, index),
            "partitions": dict(node.partitions),
            "torus": _place(torus_of_node.get(index), index, int(fabric.gpus_of_node[index])),
            "gpus": whole[node.name],
            "free_gpus": list(site.occupancy.free_gpus(node.name)),
            **parts_json(site.occupancy, index, holders_of_node.get(node.name, ())),
        }
        for index, node in enumerate(fabric.nodes)
    ]


def _condition(conditions: Conditions, tier: int, domain: int) -> dict[str, float]:
    return {
        "health": float(conditions.health_of_domain[tier][domain]),
        "load": float(conditions.load_of_domain[tier][domain]),
    }


def _place(torus: TorusIndex | None, node: int, gpus: int) -> dict[str, Any] | None:
    """Where a node's GPUs stand in a torus; those for which its host has no place are left out."""
    if torus is None:
        return None
    placed = gpus if prod(torus.torus.host) == 1 else min(gpus, prod(torus.torus.host))
    points = [list(torus.gpu_point(node, gpu)) for gpu in range(placed)]
    return {"name": torus.torus.name, "coordinates": points}


def _draw(site: Site) -> None:
    """On a terminal long lines wrap; elsewhere they are whole, for Rich cuts off what is wider than its console."""
    with busy("Drawing"):
        drawn = picture(site.fabric, site.occupancy, Conditions(site.fabric))
    console = Console()
    if not console.is_terminal:
        console.width = WIDER_THAN_ANY_LINE
    console.print(drawn)
