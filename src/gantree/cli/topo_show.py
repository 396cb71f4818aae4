"""`gantree topo show`: a cluster as a picture in the terminal, or as JSON."""

from typing import Annotated, Any

import typer
from rich.console import Console

from gantree.cli.clusters import this_machine_text
from gantree.cli.daemon import client
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.printing import print_json
from gantree.cli.reading import read_text, source_of
from gantree.cli.sites import Site, answered_site, described_site
from gantree.cli.topo_picture import picture
from gantree.formats import read_cluster
from gantree.model.errors import BadInput

app = new_app()


@app.command()
def show(
    cluster: Annotated[
        str | None, typer.Argument(metavar="CLUSTER", help="Cluster file. [default: the daemon's]")
    ] = None,
    detect: Annotated[
        bool, typer.Option("--detect", help="This machine, as its driver describes it.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a cluster and who holds its GPUs (the default)."""
    if detect and cluster is not None:
        raise BadInput("--detect and a cluster file exclude each other")
    if detect:
        site = described_site(read_cluster(this_machine_text(), "this machine"))
    elif cluster is not None:
        site = described_site(read_cluster(read_text(cluster), source_of(cluster)))
    else:
        site = answered_site(client(state).cluster())
    if as_json:
        print_json(_answer(site))
    else:
        _draw(site)


def _answer(site: Site) -> dict[str, Any]:
    """Tiers and nodes in topology order; gpus names the holder of each GPU, null where it is free."""
    fabric, outer_tiers = site.fabric, site.fabric.cluster.tiers[:-1]
    holders = site.holder_of_gpu_on_node()
    return {
        "cluster": fabric.cluster.name,
        "tiers": list(fabric.cluster.tiers),
        "nodes": [
            {
                "node": node.name,
                "machine": node.machine,
                "at": dict(zip(outer_tiers, node.at, strict=True)),
                "labels": dict(node.labels),
                "usable": site.occupancy.usable(node.name),
                "gpus": holders[node.name],
            }
            for node in fabric.nodes
        ],
    }


def _draw(site: Site) -> None:
    Console(soft_wrap=True).print(picture(site.fabric, site.occupancy))
