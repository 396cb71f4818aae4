"""The cluster of a `gantree topo` command: that of a file, this machine, or the daemon's."""

from pathlib import Path
from typing import Annotated

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.clusters import this_machine_text
from gantree.cli.input.files import read_text, source_of
from gantree.cli.output.progress import busy
from gantree.cli.topo.site import Site, answered_site, described_site
from gantree.formats import read_cluster
from gantree.model.errors import BadInput

ClusterArgument = Annotated[
    str | None, typer.Argument(metavar="CLUSTER", help="Cluster file. [default: the daemon's]")
]
DetectOption = Annotated[
    bool, typer.Option("--detect", help="Use this machine, as its NVIDIA driver reports it.")
]


def chosen_site(cluster: str | None, detect: bool, state: Path | None) -> Site:
    """Return the cluster of a file, of this machine or of the daemon, with its allocations.

    Raises BadInput for a bad file and for a file beside --detect, Unreachable where no daemon or driver answers.
    """
    if detect and cluster is not None:
        raise BadInput("--detect cannot be used with a cluster file")
    with busy("Reading"):
        return _site(cluster, detect, state)


def _site(cluster: str | None, detect: bool, state: Path | None) -> Site:
    if detect:
        return described_site(read_cluster(this_machine_text(), "this machine"))
    if cluster is not None:
        return described_site(read_cluster(read_text(cluster), source_of(cluster)))
    return answered_site(client(state).cluster())


def write_output(text: str, output: Path) -> None:
    """Write what a command made to the file that -o names. Raises BadInput if it cannot be written."""
    try:
        with busy("Writing"):
            output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}") from None
