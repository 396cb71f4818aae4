"""`gantree topo import`: what another tool printed about a machine, as facts and as a machine for a cluster file."""

import re
from pathlib import Path
from typing import Annotated

import typer

from gantree import formats
from gantree.cli.errors import warn
from gantree.cli.options import JsonOption, new_app
from gantree.cli.printing import columns, plural, print_json
from gantree.cli.reading import read_text, source_of
from gantree.model.errors import BadInput
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.nvidia_smi import parse

app = new_app()

NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@app.callback()
def topo_import() -> None:
    """Read a topology that a tool printed."""


@app.command("nvidia-smi")
def nvidia_smi(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help='Output of nvidia-smi topo -m; "-" is stdin.')
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="MACHINE.yaml", help="Write the machine here."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Read the matrix of nvidia-smi topo -m."""
    topology = parse(read_text(file), source_of(file))
    if output is not None:
        _write(topology, output)
    if as_json:
        print_json(topology.as_json())
        return
    typer.echo(_description(topology))
    for warning in topology.warnings:
        warn(warning)
    if output is not None:
        typer.echo(f"Written to {output}: a machines section for a cluster file.")


def _write(topology: GpuTopology, output: Path) -> None:
    """The machine is named after the file. Raises BadInput if the file cannot be written."""
    name = NOT_IN_A_NAME.sub("-", output.stem).strip("-._") or "machine"
    try:
        output.write_text(formats.write_machine(machine_from(topology, name)))
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}") from None


def _description(topology: GpuTopology) -> str:
    """The links as a matrix, then per GPU its CPU node and NICs, then the NVLink islands."""
    head = ["", *(f"GPU{gpu}" for gpu in range(topology.gpus)), "NUMA", "NEAREST NICS"]
    rows = [
        [
            f"GPU{gpu}",
            *(link or "?" for link in topology.links[gpu]),
            "?" if topology.numa[gpu] is None else str(topology.numa[gpu]),
            ",".join(topology.nearest_nics()[gpu]) or "any",
        ]
        for gpu in range(topology.gpus)
    ]
    islands = [",".join(str(gpu) for gpu in island) for island in topology.nvlink_islands()]
    told = f"NVLink islands: {'; '.join(islands)}" if islands else "No NVLink."
    return f"{plural(topology.gpus, 'GPU')}\n{columns(head, rows)}\n{told}"
