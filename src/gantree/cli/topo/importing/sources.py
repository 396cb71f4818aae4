"""Reads source files into one machine or one cluster, in the order of their dependencies.

Machines come first, for their NICs' GUIDs can name hosts that a fabric does not. What is concluded and put together is
`topology.discovery`; this module opens files and says which belongs to which nodes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gantree.cli.input.files import read_text, source_of
from gantree.cli.topo.importing.arguments import LIVE, SourceFile, names
from gantree.model.cluster import Machine
from gantree.model.errors import BadInput
from gantree.telemetry.nvml import driver as nvml
from gantree.topology.discovery.assembly import without
from gantree.topology.discovery.default_names import warnings_of_names
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.gpus import GpuTopology, machine_from
from gantree.topology.discovery.kinds import FABRIC_KINDS, MACHINE_KINDS, MachineReading, Wishes
from gantree.topology.discovery.machine_of_node import MachineChoice
from gantree.topology.discovery.machines.merge.same_machine import joined
from gantree.topology.discovery.merging import Source, merged
from gantree.topology.hardware import catalog

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ReadMachine:
    """One machine and the file it was first read from; nodes are those it was named for, host what it calls itself."""

    topology: GpuTopology
    file: str
    nodes: tuple[str, ...] = ()

    @property
    def host(self) -> str | None:
        """The one node that this machine is, if a source names it."""
        return (
            self.nodes[0]
            if len(self.nodes) == 1
            else None
            if self.nodes
            else self.topology.hostname
        )

    def with_gpu(self, gpu: str | None) -> "ReadMachine":
        """The same with a model for GPUs without one. Raises BadInput if some have another model."""
        models = self.topology.model_of_gpu or (None,) * self.topology.gpus
        others = sorted({model for model in models if model not in (None, gpu)})
        if gpu is None:
            return self
        if others:
            raise BadInput(
                f"--gpu {gpu}: {source_of(self.file)} has {' and '.join(map(str, others))}"
            )
        named = tuple(model or gpu for model in models)
        return replace(self, topology=replace(self.topology, model_of_gpu=named))

    def model(self) -> Machine:
        """The machine model, named after the file."""
        return machine_from(self.topology, name_of(self.file, "machine"))


def name_of(file: str, otherwise: str) -> str:
    """Return a file's name without its ending as a name of ours."""
    return _NOT_IN_A_NAME.sub("-", Path(file).stem).strip("-._") or otherwise


def read_machines(files: Sequence[SourceFile]) -> list[ReadMachine]:
    """Read the files of machine kinds. Those of the same nodes, or of the same host, tell of one machine."""
    groups: dict[str | None, list[tuple[SourceFile, MachineReading]]] = {}
    for file in files:
        reading = _read(file)
        host = reading.hostname if isinstance(reading, GpuTopology) else None
        groups.setdefault(file.nodes or host, []).append((file, reading))
    return [_one_machine(group) for group in groups.values()]


def _read(file: SourceFile) -> MachineReading:
    if file.kind == LIVE:
        return nvml.topology()
    return MACHINE_KINDS[file.kind].parse(read_text(file.file), source_of(file.file))


def _one_machine(group: Sequence[tuple[SourceFile, MachineReading]]) -> ReadMachine:
    first = group[0][0]
    topology = joined([(source_of(file.file), reading) for file, reading in group])
    nodes = tuple(names(first.nodes, first.file)) if first.nodes else ()
    return ReadMachine(topology, first.file, nodes)


def read_fabric(
    files: Sequence[SourceFile],
    machines: Sequence[ReadMachine],
    options: Wishes,
    leave_out: Sequence[str],
) -> FabricReading:
    """Read the files of fabric kinds, the first as the tree, and put them together."""
    named = next((file for file in files if file.nodes), None)
    if named is not None:
        raise BadInput(
            f"{named.nodes}={named.file}: a {named.kind} file names its nodes; give FILE alone"
        )
    texts: dict[str, list[tuple[str, str]]] = {}
    for file in files:
        texts.setdefault(file.kind, []).append((read_text(file.file), source_of(file.file)))
    known = replace(options, host_of_guid=_hosts_of_guids(machines))
    sources = [source for kind, given in texts.items() for source in _sources(kind, given, known)]
    reading = merged(sources)
    out = frozenset(name for hostlist in leave_out for name in names(hostlist, "--leave-out"))
    reading = without(reading, out, source_of(files[0].file)) if out else reading
    name_warnings = warnings_of_names(node.name for node in reading.nodes)
    return replace(reading, warnings=(*reading.warnings, *name_warnings))


def _sources(kind: str, texts: Sequence[tuple[str, str]], options: Wishes) -> list[Source]:
    readings = FABRIC_KINDS[kind].read(texts, options)
    names_of_files = [source for _, source in texts]
    if len(readings) < len(texts):
        names_of_files = [" and ".join(names_of_files)]
    return [
        Source(file, kind, reading) for file, reading in zip(names_of_files, readings, strict=True)
    ]


def _hosts_of_guids(machines: Sequence[ReadMachine]) -> dict[str, str]:
    return {
        guid: machine.host
        for machine in machines
        if machine.host is not None
        for guid in machine.topology.guid_of_nic
        if guid is not None
    }


def choice_of_machines(
    machines: Sequence[ReadMachine], named: Sequence[str], gpu: str | None = None
) -> MachineChoice:
    """Say which machine the nodes are: from `--machine [NODES=]MODEL`, and from the machines that were read.

    gpu is the model of GPUs of which nothing else tells it.
    """
    of_node: dict[str, Machine] = {}
    of_all: list[tuple[str, Machine]] = []
    for word in named:
        nodes, equals, model = word.rpartition("=")
        machine = catalog.machine(model)
        of_node |= dict.fromkeys(names(nodes, "--machine") if equals else (), machine)
        of_all += [] if equals else [(word, machine)]
    of_host = {}
    for read in machines:
        if read.nodes:
            of_node |= dict.fromkeys(read.nodes, read.model())
        elif read.topology.hostname:
            of_host[read.topology.hostname] = read.model()
        else:
            of_all.append((read.file, read.model()))
    if len(of_all) > 1:
        models = " and ".join(word for word, _ in of_all)
        raise BadInput(
            f"two machines for all nodes: {models}; name the nodes of one: NODES={of_all[1][0]}"
        )
    return MachineChoice(of_node, of_host, of_all[0][1] if of_all else None, gpu)
