"""`gantree topo`: look at topologies.

`gantree topo CLUSTER` draws a cluster file, `gantree topo` the daemon's cluster, `gantree topo --detect` this
machine; all three are the subcommand `show`, which is put in where no other is named. `page` and `graph` take the
same clusters, for a browser and for other tools; `import` reads what a machine or a fabric printed.
"""

from typing import Any, ClassVar

from gantree.cli.lazy import LazyGroup, Listed
from gantree.cli.options import new_app

SHOW = "show"


class TopoCommands(LazyGroup):
    """A group whose first word may also be a cluster file."""

    LISTED: ClassVar = {
        SHOW: Listed(
            "gantree.cli.topo.show:show",
            "Draw a cluster and its allocated GPUs (the default command).",
        ),
        "page": Listed(
            "gantree.cli.topo.page:page", "Write a cluster as an HTML page or an SVG picture."
        ),
        "graph": Listed(
            "gantree.cli.topo.graph:graph",
            "Export a cluster as a graph of devices and switches: GraphML, DOT or JSON.",
        ),
        "import": Listed(
            "gantree.cli.topo.importing.command:app",
            "Import machines and fabrics from the output of other tools.",
        ),
        "catalog": Listed(
            "gantree.cli.topo.catalog:topo_catalog",
            "List machine and GPU models with links, MIG profiles and prices.",
        ),
        "measure": Listed(
            "gantree.cli.topo.measure:topo_measure",
            "Measure link bandwidth and latency with collectives.",
        ),
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put `show` before everything that is neither a subcommand nor a call for help."""
        named = bool(args) and (args[0] in self.LISTED or args[0] == "--help")
        return super().parse_args(ctx, args if named else [SHOW, *args])


app = new_app(cls=TopoCommands)


@app.callback()
def topo() -> None:
    """Draw, export, import and measure topologies.

    gantree topo CLUSTER draws a cluster file, gantree topo the cluster of the daemon, gantree topo --detect
    this machine. All three run the command show.
    """
