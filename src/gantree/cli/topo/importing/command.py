"""`gantree topo import`: machines and fabrics from the output of other tools, as JSON and as a cluster file."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gantree import formats
from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, new_app
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import print_json
from gantree.cli.output.progress import busy
from gantree.cli.topo.importing.arguments import LIVE, SourceFile, source_files_of
from gantree.cli.topo.importing.report import description_of_fabric, description_of_machine
from gantree.cli.topo.importing.sources import (
    ReadMachine,
    choice_of_machines,
    name_of,
    read_fabric,
    read_machines,
)
from gantree.model.errors import BadInput
from gantree.text.words import NAME_PATTERN
from gantree.topology.discovery.assembly import Assembled, assembled
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.gpu_names import known_model
from gantree.topology.discovery.gpus import machine_from
from gantree.topology.discovery.kinds import FABRIC_KINDS, KINDS, Wishes, unknown_kind
from gantree.topology.discovery.machine_of_node import unknown_facts

app = new_app()


_LIVE_HELP = f"{LIVE}: this machine, from its NVIDIA driver and /sys; takes no file"


WordsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND FILE...",
        help='A source kind and its files; may be repeated. "-" is stdin. NODES=FILE: a file for these nodes only.',
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.yaml",
        help="Write a cluster file, or a machine entry for one.",
    ),
]
MachineOption = Annotated[
    list[str] | None,
    typer.Option(metavar="[NODES=]MODEL", help="Machine model of the nodes, from the catalogue."),
]
LeaveOutOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NODES", help="Nodes of the fabric to leave out."),
]
LevelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY", help="Node label of a tier, widest tier first; may be repeated."),
]
TopologyOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Topology to read from a Slurm topology.yaml.")
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="CLUSTER", help="Name of the cluster. [default: the file's]"),
]
GpuOption = Annotated[
    str | None, typer.Option(metavar="MODEL", help="GPU model, if no source names it.")
]


@app.command(
    epilog="\n\n".join([*(f"{kind.name}: {kind.what}" for kind in KINDS.values()), _LIVE_HELP])
)
def topo_import(
    words: WordsArgument,
    output: OutputOption = None,
    machine: MachineOption = None,
    leave_out: LeaveOutOption = None,
    level: LevelOption = None,
    topology: TopologyOption = None,
    name: NameOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
) -> None:
    """Import machines and fabrics from the output of other tools."""
    files = source_files_of(words, list(KINDS), unknown_kind(words[0], [LIVE]))
    _check_options(files, name=name, level=level, topology=topology)
    gpu = None if gpu is None else known_model(gpu, "--gpu")
    machines = read_machines([file for file in files if file.kind not in FABRIC_KINDS])
    of_fabric = [file for file in files if file.kind in FABRIC_KINDS]
    if not of_fabric:
        _refuse_for_machines(
            machine=machine, leave_out=leave_out, level=level, topology=topology, name=name
        )
        _print_machines([read.with_gpu(gpu) for read in machines], output, as_json)
        return
    options = Wishes(tuple(level or ()), topology)
    cluster_name = name or name_of(str(output or of_fabric[0].file), "cluster")
    with busy("Reading"):
        reading = read_fabric(of_fabric, machines, options, leave_out or ())
        found = None
        if output is not None or machines or machine or gpu:
            choice = choice_of_machines(machines, machine or (), gpu)
            found = assembled(cluster_name, reading, choice, _names(of_fabric))
    _print_fabric(reading, found, output, as_json)


def _names(files: Sequence[SourceFile]) -> str:
    return " and ".join(dict.fromkeys(source_of(file.file) for file in files))


def _check_options(
    files: Sequence[SourceFile], name: str | None, level: Sequence[str] | None, topology: str | None
) -> None:
    """Refuse options that no source takes, and a name that no cluster may have, before a file is read."""
    kinds = {file.kind for file in files}
    for option, value, kind in (
        ("level", level, "kubernetes"),
        ("topology", topology, "slurm-yaml"),
    ):
        if value and kind not in kinds and kinds & FABRIC_KINDS.keys():
            raise BadInput(f"--{option} needs a {kind} source")
    if name is not None and not re.fullmatch(NAME_PATTERN, name, re.ASCII):
        raise BadInput(
            f"--name {name!r}: allowed: letters, digits, `.`, `_` and `-`, at most 63, a letter or digit first"
        )


def _refuse_for_machines(**options: object) -> None:
    for option, value in options.items():
        if value:
            raise BadInput(
                f"--{option.replace('_', '-')} needs a fabric source, and only machines are given"
            )


def _print_machines(machines: Sequence[ReadMachine], output: Path | None, as_json: bool) -> None:
    """One machine that is written is named after the file it goes to; several after the files they come from."""
    if output is not None:
        named = [machine.model() for machine in machines]
        if len(machines) == 1:
            named = [machine_from(machines[0].topology, name_of(str(output), "machine"))]
        _refuse_to_replace_a_cluster(output)
        _write(output, formats.write_machines(named))
        for warning in unknown_facts(named):
            warn(warning)
    if as_json and len(machines) == 1:
        print_json(machines[0].topology.as_json())
    elif as_json:
        print_json({"machines": {machine.file: machine.topology.as_json() for machine in machines}})
    else:
        _describe_machines(machines)
        if output is not None:
            typer.echo(f"Wrote machine entries to {output}.")


def _refuse_to_replace_a_cluster(output: Path) -> None:
    """Raises BadInput where the file is there and holds more than machines."""
    if not output.is_file():
        return
    there = re.search(r"^(?:tiers|nodes)[ \t]*:", read_text(str(output)), re.MULTILINE)
    if there:
        raise BadInput(
            f"{output}: it holds a cluster, and only machines would be written; choose another --output"
        )


def _describe_machines(machines: Sequence[ReadMachine]) -> None:
    for machine in machines:
        if len(machines) > 1:
            typer.echo(f"{machine.file}:")
        typer.echo(description_of_machine(machine.topology))
        for warning in machine.topology.warnings:
            warn(warning)


def _print_fabric(
    reading: FabricReading, found: Assembled | None, output: Path | None, as_json: bool
) -> None:
    inferred = found.inferred if found else reading.inferred
    warnings = found.warnings if found else reading.warnings
    shown = replace(reading, inferred=inferred, warnings=warnings)
    if found is not None and output is not None:
        _write(output, formats.write_cluster(found.cluster))
    if as_json:
        print_json(shown.as_json() | _machines_json(found))
        return
    typer.echo(description_of_fabric(shown))
    for warning in warnings:
        warn(warning)
    if output is not None:
        typer.echo(f"Wrote the cluster file to {output}.")


def _machines_json(found: Assembled | None) -> dict[str, object]:
    """Return the machine of each node, if known."""
    if found is None:
        return {}
    return {"machine_of_node": {node.name: node.machine for node in found.cluster.nodes}}


def _write(output: Path, text: str) -> None:
    """Raises BadInput if the file cannot be written."""
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}") from None
