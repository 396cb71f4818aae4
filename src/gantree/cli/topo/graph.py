"""`gantree topo graph`: a cluster as a graph of devices and switches, for Gephi, Graphviz, networkx and programs."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import StateOption
from gantree.cli.output.progress import busy
from gantree.cli.topo.chosen_site import ClusterArgument, DetectOption, chosen_site, write_output
from gantree.cli.topo.graph_formats import dot, graphml, node_link_json
from gantree.placement.machine.devices import inner_domains
from gantree.text.words import plural
from gantree.topology.fabric.conditions import Conditions
from gantree.topology.graph.graph import build_graph, vertices_of


class Format(StrEnum):
    """Languages that a graph is written in."""

    GRAPHML = "graphml"
    DOT = "dot"
    JSON = "json"


WRITERS = {Format.GRAPHML: graphml, Format.DOT: dot, Format.JSON: node_link_json}
MANY = 100_000
"""Devices and switches from which on the size of the output is printed first."""
KB_OF_VERTEX = {Format.GRAPHML: 0.74, Format.DOT: 0.55, Format.JSON: 0.52}
"""Size of a file with its edges over its vertices, measured with DGX H100 nodes."""
FORMAT_OF_SUFFIX = {".dot": Format.DOT, ".gv": Format.DOT, ".json": Format.JSON}


def graph(
    cluster: ClusterArgument = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="[default: what FILE ends with, else graphml]"),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write to this file. [default: stdout]"
        ),
    ] = None,
    detect: DetectOption = False,
    state: StateOption = None,
) -> None:
    """Export a cluster as a graph of devices and switches: GraphML, DOT or JSON."""
    site = chosen_site(cluster, detect, state)
    suffix = output.suffix.lower() if output is not None else ""
    chosen = form or FORMAT_OF_SUFFIX.get(suffix, Format.GRAPHML)
    vertices = vertices_of(site.fabric, inner_domains)
    if vertices > MANY:
        typer.echo(_warning(vertices, chosen), err=True)
    with busy(f"Drawing {vertices:,} devices and switches"):
        built = build_graph(site.fabric, site.occupancy, Conditions(site.fabric), inner_domains)
        text = WRITERS[chosen](built)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_output(text, output)
    edges = built.number_of_edges()
    shown = f"{vertices:,} devices and switches, {plural(edges, 'link')}"
    typer.echo(f"Wrote {output}: {shown}.")


def _warning(vertices: int, form: Format) -> str:
    about = f"{vertices:,} devices and switches"
    return f"gantree: {about}: the output takes about {vertices * KB_OF_VERTEX[form] / 1e6:.1f} GB; Ctrl-C stops it"
