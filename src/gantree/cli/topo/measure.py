"""`gantree topo measure`: time collectives here or on several nodes, and write the measured links."""

import os
import re
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from gantree import formats
from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import columns, print_json
from gantree.cli.output.progress import progress
from gantree.model.cluster import Cluster, Machine
from gantree.model.errors import BadInput, Unsupported
from gantree.telemetry.measuring.fit import FITTED
from gantree.telemetry.measuring.here import gpus_here, share_of
from gantree.telemetry.measuring.launch import HOW, Launch, launch_of
from gantree.telemetry.measuring.measure import calibration_of, chosen_backend, measure
from gantree.telemetry.measuring.plan import NODE, UNKNOWN
from gantree.telemetry.measuring.request import Task
from gantree.text.hostlists import BadHostlist, count_nodes, expand
from gantree.text.words import did_you_mean, plural, shortened
from gantree.topology.fabric.calibration import Calibration

SIZES = "1K-1G"
SIZES_OF_GLOO = "1K-64M"
STEP = 4
"""Each size is so many times the one before."""
COLLECTIVES = "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast"
MAX_BYTES = 1 << 40
MOST = 1024
"""GPUs or processes of one node."""

_SIZE = re.compile(r"([1-9][0-9]{0,15})([KMG]?)")
_BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="Cluster file with the tiers and the machine of this node.",
    ),
]
NodesOption = Annotated[
    str | None, typer.Option("--nodes", metavar="n[0-3]", help="Nodes to measure.")
]
CollectivesOption = Annotated[
    str,
    typer.Option(
        "--collectives", metavar="NAME,...", help=f"Collectives to time, of {', '.join(FITTED)}."
    ),
]
SizesOption = Annotated[
    str | None,
    typer.Option("--sizes", metavar="FROM-TO", help=f"[default: {SIZES}; gloo {SIZES_OF_GLOO}]"),
]
GpusOption = Annotated[
    int | None, typer.Option("--gpus", min=1, max=MOST, help="Use the first N GPUs. [default: all]")
]
ProcessesOption = Annotated[
    int | None,
    typer.Option(
        "--processes", min=1, max=MOST, help="Processes, for gloo. [default: 2; 1 in a launch]"
    ),
]
BackendOption = Annotated[
    str, typer.Option("--backend", metavar="NAME", help="auto, nccl-tests, nccl or gloo.")
]
BinaryDirOption = Annotated[
    Path | None,
    typer.Option(
        "--binary-dir", metavar="DIR", help="Directory of all_reduce_perf. [default: PATH]"
    ),
]
TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=1, help="Stop the measurement after this time."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write the calibration to this file. [default: stdout]",
    ),
]


def topo_measure(
    cluster: ClusterOption = None,
    nodes: NodesOption = None,
    collectives: CollectivesOption = COLLECTIVES,
    sizes: SizesOption = None,
    gpus: GpusOption = None,
    processes: ProcessesOption = None,
    backend: BackendOption = "auto",
    binary_dir: BinaryDirOption = None,
    timeout: TimeoutOption = 900.0,
    output: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure link bandwidth and latency with collectives."""
    names = _collectives(collectives)
    _check_output(output)
    site = formats.read_cluster(read_text(cluster), source_of(cluster)) if cluster else None
    launch = launch_of(os.environ, socket.gethostname())
    requested = _requested_nodes(nodes, site, launch)
    found_gpus = gpus_here(gpus, _machine(site, launch), os.environ)
    kind = chosen_backend(backend, found_gpus.count, launch is not None, binary_dir)
    share = share_of(kind, found_gpus, processes, launch)
    task = Task(
        names,
        _sizes(sizes or (SIZES_OF_GLOO if kind == "gloo" else SIZES)),
        share.processes,
        share.in_node,
        timeout,
        share.gpu_uuids,
        launch,
        site.tiers if site else (NODE,),
        {node.name: node.at for node in site.nodes} if site else {},
        binary_dir,
    )
    with progress("Measuring") as advance:
        found = measure(task, kind, advance)
    if found is None:
        typer.echo("gantree: measured; the command of rank 0 writes the result", err=True)
        return
    if requested is not None and launch and set(found.nodes) != requested:
        raise BadInput(f"--nodes {nodes}: the measured nodes are {', '.join(found.nodes)}")
    host = (
        f"{plural(len(found.nodes), 'node')} from {found.nodes[0]}"
        if launch
        else socket.gethostname()
    )
    calibration, warnings = calibration_of(found, host)
    _answer(calibration, warnings, output, as_json)


def _check_output(output: Path | None) -> None:
    """Refuse a file that cannot be written before minutes are spent on what it would hold. Raises BadInput."""
    if output is None:
        return
    if output.is_dir():
        raise BadInput(f"{output}: cannot be written: it is a directory; allowed: a file")
    if not output.absolute().parent.is_dir():
        raise BadInput(f"{output}: cannot be written: no directory {output.parent}")
    if not os.access(output if output.exists() else output.absolute().parent, os.W_OK):
        raise BadInput(f"{output}: cannot be written: permission denied")


def _collectives(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in FITTED:
            hint = did_you_mean(name, FITTED)
            raise BadInput(
                f"--collectives: found `{shortened(name)}`; allowed: {', '.join(FITTED)}. {hint}".rstrip()
            )
    return names


def _sizes(text: str) -> tuple[int, ...]:
    """Sizes in bytes from "1K-1G", each STEP times the one before. Raises BadInput."""
    ends = [_SIZE.fullmatch(end) for end in text.upper().split("-")]
    if len(ends) != 2 or None in ends:
        raise BadInput(
            f"--sizes {shortened(text)}: allowed: FROM-TO in bytes, K, M or G, like {SIZES}"
        )
    least, most = (int(end[1]) * _BYTES[end[2]] for end in ends if end)
    if not STEP * least <= most <= MAX_BYTES:
        raise BadInput(
            f"--sizes {text}: allowed: up to {MAX_BYTES >> 30}G, and TO at least {STEP} x FROM"
        )
    sizes = [least]
    while sizes[-1] * STEP <= most:
        sizes.append(sizes[-1] * STEP)
    return tuple(sizes)


def _requested_nodes(
    text: str | None, site: Cluster | None, launch: Launch | None
) -> set[str] | None:
    """The nodes to measure, None for any. Raises BadInput; Unsupported for several nodes without a launcher."""
    if text is None:
        return None
    try:
        count_nodes(text)
    except BadHostlist as error:
        raise BadInput(f"--nodes {shortened(text)}: allowed: {error}") from None
    requested = set(expand(text))
    unknown = sorted(requested - {node.name for node in site.nodes}) if site else []
    if unknown:
        raise BadInput(f"--nodes: the cluster has no node {', '.join(unknown[:5])}")
    if launch is None and len(requested) > 1:
        raise Unsupported(f"one command cannot measure {plural(len(requested), 'node')}: {HOW}")
    return requested


def _machine(site: Cluster | None, launch: Launch | None) -> Machine | None:
    """The machine of this node, if the cluster has a node of its name."""
    here = launch.node if launch else os.environ.get("GANTREE_NODE", socket.gethostname())
    found = next((node for node in site.nodes if node.name == here), None) if site else None
    return site.machines.get(found.machine) if site and found else None


def _answer(
    calibration: Calibration, warnings: tuple[str, ...], output: Path | None, as_json: bool
) -> None:
    if UNKNOWN in calibration.links:
        summary = "the link classes of some paths are unknown; name them with --cluster"
        warnings = (
            *warnings,
            f"{summary}; they are under {UNKNOWN!r}, which gantree cost does not use",
        )
    text = formats.write_calibration(calibration)
    if output is not None:
        _write(output, text)
    if as_json:
        print_json(_json(calibration, warnings))
        return
    for warning in warnings:
        warn(warning)
    typer.echo(text.rstrip() if output is None else _table(calibration, output))


def _write(output: Path, text: str) -> None:
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{output}: cannot be written: {error.strerror}") from None


def _json(calibration: Calibration, warnings: tuple[str, ...]) -> dict[str, object]:
    rows = [asdict(row) for row in calibration.rows]
    return {
        "measured": {
            "backend": calibration.backend, "host": calibration.host, "date": calibration.date,
        },
        "links": {
            name: {"bandwidth_GBps": link.bandwidth_GBps, "latency_us": link.latency_us}
            for name, link in calibration.links.items()
        },
        "rows": [{("bytes" if key == "size_bytes" else key): row[key] for key in row} for row in rows],
        "warnings": list(warnings),
    }  # fmt: skip


def _table(calibration: Calibration, output: Path) -> str:
    head = ["WITHIN", "BUS BANDWIDTH", "LATENCY PER STEP"]
    rows = [
        [name, f"{link.bandwidth_GBps:.3g} GB/s", f"{link.latency_us:.3g} us"]
        for name, link in calibration.links.items()
    ]
    summary = (
        f"{calibration.backend} on {calibration.host}, {plural(len(calibration.rows), 'point')}"
    )
    return f"{summary}\n{columns(head, rows)}\nWrote the calibration to {output}."
