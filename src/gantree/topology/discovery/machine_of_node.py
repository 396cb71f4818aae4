"""The machine of each node, from the given machines and from what the fabric's source reports.

A node's machine is, in this order: the one that was named for it; the one whose own print gives its host name; the one
that was given for all nodes, if the node may be it; the one that the fabric's source names or describes. So what
a source gives beats what a list states, but a machine never becomes what the source contradicts: one that was named for
a node is refused there, and so is one given for all that no node may be. Facts that a machine's print leaves open (GPU
model, CPUs, memory) are those that the fabric's source gives for the node.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from gantree.model.cluster import Machine
from gantree.model.errors import BadInput
from gantree.text.words import counted
from gantree.topology.discovery.fabrics import SeenNode
from gantree.topology.discovery.merging import some
from gantree.topology.hardware.catalog import machine as catalog_machine
from gantree.topology.hardware.catalog import plain

_WAY_OUT = "say of which nodes: NODES=MODEL after --machine, NODES=FILE for a print"


@dataclass(frozen=True, slots=True)
class MachineChoice:
    """Which machine nodes are: of_node by name, of_host by what a machine's own print calls its host, else default.

    gpu is the model of GPUs whose model is not given otherwise.
    """

    of_node: Mapping[str, Machine]
    of_host: Mapping[str, Machine]
    default: Machine | None = None
    gpu: str | None = None


class Chosen(NamedTuple):
    """The machine of each node, what was concluded, and what is odd."""

    machine_of_node: dict[str, Machine]
    inferred: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the fabric's source gives for a node's hardware, by itself or by naming a machine of the catalogue."""

    gpus: int | None
    gpu: str | None
    cpus: float | None
    memory_GiB: float | None

    def __str__(self) -> str:
        return _words(self.gpus, self.gpu)


def machines_of_nodes(nodes: Sequence[SeenNode], choice: MachineChoice, source: str) -> Chosen:
    """Return the machine of each node; different machines never share a name.

    source names the fabric's file in errors. BadInput where nothing gives a node's machine, where a machine that was
    named for a node cannot be it, and where no node may be the machine that was given for all.
    """
    found: dict[str, Machine] = {}
    by_default: list[SeenNode] = []
    others: list[SeenNode] = []
    for node in nodes:
        machine = _named(node, choice)
        if machine is None and choice.default is not None:
            fits = _may_be(_facts(node), choice.default)
            (by_default if fits else others).append(node)
            machine = choice.default if fits else None
        machine = _declared_machine(node) if machine is None else _filled(machine, _facts(node))
        if machine is not None:
            found[node.name] = _with_gpu(machine, choice.gpu)
    _check_gpu(found.values(), choice.gpu)
    said, odd = _of_default(choice.default, by_default, others, source)
    untold = [node.name for node in nodes if node.name not in found]
    if untold:
        raise BadInput(_undeclared(untold, choice, source))
    warnings = (*odd, *_unused(nodes, choice))
    return Chosen(_named_apart(found), tuple(said), warnings)


def unknown_facts(machines: Iterable[Machine]) -> list[str]:
    """Report which parts of machines are not given, and how to give them."""
    listed = list(machines)
    no_gpu = [machine.name for machine in listed if machine.gpus and machine.gpu is None]
    no_cpus = [machine.name for machine in listed if machine.cpus is None]
    no_memory = [machine.name for machine in listed if machine.memory_GiB is None]
    said = []
    if no_gpu:
        said.append(
            f"the GPU model of machine {some(no_gpu)} is not told; give its `nvidia-smi -q -x` too "
            f"(nvidia-smi-xml), or name it: --gpu MODEL"
        )
    if no_cpus or no_memory:
        what = " and ".join(
            word for word, names in (("CPUs", no_cpus), ("memory", no_memory)) if names
        )
        fields = " and ".join(
            word for word, names in (("cpus", no_cpus), ("memory_GiB", no_memory)) if names
        )
        names = dict.fromkeys([*no_cpus, *no_memory])
        said.append(
            f"{what} of machine {some(names)} {'is' if what == 'memory' else 'are'} not told; add a source that tells "
            f"(kubernetes, csv), or write {fields} of the machine into the file"
        )
    return said


def _named(node: SeenNode, choice: MachineChoice) -> Machine | None:
    """Return the machine that was named for a node, or that names it as its host. BadInput where it cannot be it."""
    machine = choice.of_node.get(node.name) or _of_host(node, choice)
    if machine is not None and not _may_be(_facts(node), machine):
        raise BadInput(
            f"node {node.name}: the fabric's source tells of {_facts(node)}, but machine {machine.name} has "
            f"{_words(machine.gpus, machine.gpu)}"
        )
    return machine


def _of_host(node: SeenNode, choice: MachineChoice) -> Machine | None:
    short = node.name.partition(".")[0]
    return choice.of_host.get(node.name) or choice.of_host.get(short)


def _facts(node: SeenNode) -> _Facts:
    memory = None if node.memory_GiB is None else float(int(node.memory_GiB))
    if node.machine is None:
        return _Facts(node.gpus, node.gpu, node.cpus, memory)
    model = catalog_machine(node.machine)
    return _Facts(
        model.gpus if node.gpus is None else node.gpus,
        node.gpu or model.gpu,
        model.cpus if node.cpus is None else node.cpus,
        model.memory_GiB if memory is None else memory,
    )


def _may_be(facts: _Facts, machine: Machine) -> bool:
    same_count = facts.gpus is None or facts.gpus == machine.gpus
    return same_count and (None in (facts.gpu, machine.gpu) or facts.gpu == machine.gpu)


def _words(gpus: int | None, gpu: str | None) -> str:
    count = "GPUs" if gpus is None else counted(gpus, "GPU", "GPUs")
    return count + (f" ({gpu})" if gpu else "")


def _filled(machine: Machine, facts: _Facts) -> Machine:
    """Complete a machine from the fabric's source."""
    return replace(
        machine,
        gpu=machine.gpu or (facts.gpu if machine.gpus else None),
        cpus=facts.cpus if machine.cpus is None else machine.cpus,
        memory_GiB=facts.memory_GiB if machine.memory_GiB is None else machine.memory_GiB,
    )


def _with_gpu(machine: Machine, gpu: str | None) -> Machine:
    return replace(machine, gpu=gpu) if machine.gpus and machine.gpu is None and gpu else machine


def _check_gpu(machines: Iterable[Machine], gpu: str | None) -> None:
    """Raise BadInput where a GPU model was given that no node has, for all have others."""
    models = dict.fromkeys(machine.gpu for machine in machines if machine.gpus)
    if gpu is not None and gpu not in models:
        others = some(model for model in models if model is not None) or "no GPUs"
        raise BadInput(f"--gpu {gpu}: no node has GPUs of an unknown model; they have {others}")


def _declared_machine(node: SeenNode) -> Machine | None:
    """Return the machine that the fabric's source names or describes. BadInput where it does both, and they differ."""
    if node.machine is None:
        return _described(node)
    model = catalog_machine(node.machine)
    if not _may_be(_facts(node), model):
        raise BadInput(
            f"node {node.name}: the fabric's source tells of {_facts(node)}, but machine {model.name}, which it names, "
            f"has {_words(model.gpus, model.gpu)}"
        )
    return _filled(model, _facts(node))


def _described(node: SeenNode) -> Machine | None:
    """Return a machine with the counts that the fabric's source gives, if it gives how many GPUs there are.

    Memory is rounded down to whole GiB: nodes of one model report a few MiB more or less.
    """
    if node.gpus is None:
        return None
    name = f"{node.gpu or 'gpu'}-x{node.gpus}" if node.gpus else "cpu-only"
    machine = plain(name, node.gpus, node.gpu, node.cpus, _facts(node).memory_GiB)
    return replace(machine, nics_counted=False)


def _of_default(
    default: Machine | None, by_default: Sequence[SeenNode], others: Sequence[SeenNode], source: str
) -> tuple[list[str], list[str]]:
    """Return a note, and a warning, where some nodes are the machine given for all and others are not."""
    if default is None:
        return [], []
    has = f"machine {default.name} has {_words(default.gpus, default.gpu)}"
    if others and not by_default:
        raise BadInput(
            f"node {others[0].name}: {source} tells of {_facts(others[0])}, but {has}, and so no node may be it; give "
            f"another machine, or {_WAY_OUT}"
        )
    if not by_default:
        return [], [
            f"machine {default.name}, given for all nodes, is none: each has one of its own"
        ]
    instead = [node.name for node in by_default if node.machine not in (None, default.name)]
    models = some(
        dict.fromkeys(str(n.machine) for n in by_default if n.machine not in (None, default.name))
    )
    said = [
        f"machine {default.name}, as given, is taken for {models} of {source} ({some(instead)})"
    ]
    unlike = [node for node in others if _facts(node).gpus != 0]
    odd = [
        f"{has}, but {source} tells otherwise of {counted(len(unlike), 'node', 'nodes')}, which are taken as told "
        f"({some(f'{node.name}: {_facts(node)}' for node in unlike)}); else {_WAY_OUT}"
    ]
    return said if instead else [], odd if unlike else []


def _unused(nodes: Sequence[SeenNode], choice: MachineChoice) -> list[str]:
    """Warn of machines whose host is no node."""
    names = {name for node in nodes for name in (node.name, node.name.partition(".")[0])}
    unused = [host for host in choice.of_host if host not in names]
    shadowed = [host for host in choice.of_host if host in choice.of_node]
    said = []
    if unused:
        said.append(
            f"the machine of host {some(unused)} is no node's, and is not used; say of which nodes: NODES=FILE"
        )
    if shadowed:
        said.append(
            f"the print of host {some(shadowed)} is not used: another machine was named for it"
        )
    return said


def _undeclared(untold: Sequence[str], choice: MachineChoice, source: str) -> str:
    hosts = f" (what was given is of host {some(choice.of_host)})" if choice.of_host else ""
    return (
        f"{source}: nothing tells what machine {counted(len(untold), 'node is', 'nodes are')} ({some(untold)}){hosts}; "
        f"name a model with --machine, or give what the machine itself prints, such as `nvidia-smi topo -m`"
        + (", as NODES=FILE" if hosts else "")
    )


def _named_apart(machine_of_node: Mapping[str, Machine]) -> dict[str, Machine]:
    """Give machines that differ different names: the second "m" becomes "m-2"."""
    known: dict[str, list[Machine]] = {}
    found: dict[str, Machine] = {}
    for node, machine in machine_of_node.items():
        alike = known.setdefault(machine.name, [])
        if machine not in alike:
            alike.append(machine)
        number = alike.index(machine) + 1
        found[node] = machine if number == 1 else replace(machine, name=f"{machine.name}-{number}")
    return found
