"""`gantree topo page`: a cluster as a page for a browser, one file that stands alone, or as an SVG picture."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.options import StateOption
from gantree.cli.output.progress import busy
from gantree.cli.topo.chosen_site import ClusterArgument, DetectOption, chosen_site, write_output
from gantree.topology.fabric.conditions import Conditions
from gantree.web.fabric.page import page as html_page
from gantree.web.fabric.page import svg


class Format(StrEnum):
    """What a browser shows."""

    HTML = "html"
    SVG = "svg"


def page(
    cluster: ClusterArgument = None,
    form: Annotated[
        Format | None, typer.Option("--format", help="[default: what FILE ends with, else html]")
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
    """Write a cluster as an HTML page or an SVG picture."""
    site = chosen_site(cluster, detect, state)
    named_svg = output is not None and output.suffix.lower() == ".svg"
    chosen = form or (Format.SVG if named_svg else Format.HTML)
    with busy("Drawing"):
        text = {Format.HTML: html_page, Format.SVG: svg}[chosen](
            site.fabric, site.occupancy, Conditions(site.fabric)
        )
    if output is None:
        typer.echo(text, nl=False)
        return
    write_output(text, output)
    typer.echo(f"Wrote {output}: {len(text.encode()) / 1e3:,.0f} kB; open it in a browser.")
