"""GPUs of a machine from an `nvidia-smi -q -x` log, without the paths between them.

Drivers rename elements and write words where numbers are expected ("N/A", "GPU is lost", "Insufficient
Permissions"), so a value that is not of its form is not given, and only what is needed twice can contradict itself.
Elements are found without regard to case and underscores (cliqueId, clique_id). Names of processes are written as they
are, with "&" and "<" and any bytes, which is no XML; they are not read.

GPUs are numbered in the order of the log, which is nvidia-smi's index; the module number of a board and the number
in /dev/nvidiaN may follow another order. No driver up to 615 writes NUMA nodes, CPU affinity or NVLinks here.

A fabric that is set up (state Completed, status Success) with a real cluster UUID joins the NVLinks of several
nodes; H100 and B200 boards have a fabric inside the node only and write a UUID of zeros.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lxml import etree

from gantree.model.errors import BadInput, Problem
from gantree.text.words import plural, shortened
from gantree.text.xml_text import read_xml
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.machines.devices.nvidia_names import (
    clique_name,
    model_name,
    sysfs_bus_id,
)
from gantree.topology.discovery.machines.input_errors.refusal import refuse
from gantree.topology.discovery.machines.input_errors.wrong_format import named_instead
from gantree.topology.hardware.catalog import SELF

MAX_GPUS = 512
_ROOT = re.compile(r"<nvidia_smi_log[\s>]")
_END = "</nvidia_smi_log>"
_NAME, _END_OF_NAME = "<process_name>", "</process_name>"
_MEMORY = re.compile(r"([0-9]{1,9}) M(?:i)?B")
_NUMBER = re.compile(r"[0-9]{1,9}")
_WANTED = "give the print of `nvidia-smi -q -x`"
_HEALTHY = {"summary": "healthy", "bandwidth": "full", "routeunhealthy": "false",
            "routerecoveryinprogress": "false", "accesstimeoutrecovery": "false",
            "incorrectconfiguration": "none", "gfmstate": "connected"}  # fmt: skip
"""What the parts of a fabric's health are when nothing is wrong."""
_NOT_TOLD = frozenset({"", "n/a", "not supported"})


Parts = Mapping[str, etree._Element]
"""The first child of each name, the name without case and underscores."""


@dataclass(frozen=True, slots=True)
class _Mig:
    """MIG of one GPU: now, after the next reset, and the memory of its instances in MiB (None where not given)."""

    current: str
    pending: str
    instances_MiB: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class _Gpu:
    """One GPU of the log. fabric_told: its fabric names a cluster, maybe of zeros; sick: what is wrong with it."""

    line: int
    product: str
    memory_MiB: int | None
    uuid: str | None
    bus_id: str | None
    minor: int | None
    module: int | None
    mig: _Mig
    fabric_told: bool
    fabric_state: str
    cluster: str
    clique_id: int | None
    sick: tuple[str, ...]


def parse(text: str, source: str) -> GpuTopology:
    """Read a log. `source` names the file in errors.

    BadInput: the text holds no such log, or several. BadFields, with lines: XML that is cut or none; more GPUs
    than attached; a GPU twice; two addresses for one GPU.
    """
    root = read_xml(_log_alone(text, source), source)
    elements = [child for child in root if _key(child) == "gpu"]
    if len(elements) > MAX_GPUS:
        raise BadInput(f"{source}: {len(elements)} GPUs; at most {MAX_GPUS}")
    problems: list[Problem] = []
    gpus = [_gpu(element, number, source, problems) for number, element in enumerate(elements)]
    attached = _number(_text(_parts(root), "attachedgpus"))
    problems += _contradictions(gpus, attached, source)
    refuse(problems)
    if not gpus and attached != 0:
        raise BadInput(f"{source}: the log names no GPU; {_WANTED} of a machine with GPUs")
    return _topology(gpus, attached)


def _topology(gpus: Sequence[_Gpu], attached: int | None) -> GpuTopology:
    numbers = range(len(gpus))
    return GpuTopology(
        links=tuple(tuple(SELF if a == b else None for b in numbers) for a in numbers),
        nic_links=((),) * len(gpus),
        numa=(None,) * len(gpus),
        model_of_gpu=tuple(
            model_name(gpu.product, gpu.memory_MiB) if gpu.product and gpu.memory_MiB else None
            for gpu in gpus
        ),
        memory_MiB_of_gpu=tuple(gpu.memory_MiB for gpu in gpus),
        uuid_of_gpu=tuple(gpu.uuid for gpu in gpus),
        bus_id_of_gpu=tuple(gpu.bus_id for gpu in gpus),
        clique_of_gpu=tuple(map(_clique, gpus)) if any(g.fabric_told for g in gpus) else (),
        inferred=tuple(_inferred(gpus)),
        warnings=tuple(_warnings(gpus, attached)),
    )


def _log_alone(text: str, source: str) -> str:
    """Blank out what is around the log (prompts, warnings of nvidia-smi), and the names of processes in it."""
    found = _ROOT.search(text)
    if found is None:
        raise BadInput(f"{source}: no `nvidia-smi -q -x` log; {named_instead(text)}; {_WANTED}")
    end = text.find(_END, found.start())
    stop = len(text) if end < 0 else end + len(_END)
    second = _ROOT.search(text, stop)
    if second:
        line = text.count("\n", 0, second.start()) + 1
        raise BadInput(f"{source}: a second log from line {line} on; give one")
    before = "\n" * text.count("\n", 0, found.start())
    return before + _without_process_names(text[found.start() : stop])


def _without_process_names(log: str) -> str:
    """Leave the names of processes out, lines kept."""
    first, *parts = log.split(_NAME)
    kept = [first]
    for part in parts:
        name, end, after = part.partition(_END_OF_NAME)
        kept.append("\n" * name.count("\n") + after if end else _NAME + part)
    return "".join(kept)


def _gpu(element: etree._Element, number: int, source: str, problems: list[Problem]) -> _Gpu:
    parts = _parts(element)
    # drivers before 331 know one kind of memory
    memory = _parts(parts.get("fbmemoryusage", parts.get("memoryusage")))
    fabric, product = _parts(parts.get("fabric")), _text(parts, "productname")
    return _Gpu(
        line=_line(element),
        product="" if product.lower() in _NOT_TOLD else product,
        memory_MiB=_MiB(_text(memory, "total")),
        uuid=_uuid(_text(parts, "uuid")),
        bus_id=_bus_id(element, parts, number, source, problems),
        minor=_number(_text(parts, "minornumber")),
        module=_number(_text(_parts(parts.get("platforminfo")), "moduleid")),
        mig=_mig(parts),
        fabric_told=_text(fabric, "clusteruuid").lower() not in _NOT_TOLD,
        fabric_state=f"{_text(fabric, 'state')}, {_text(fabric, 'status')}",
        cluster=_text(fabric, "clusteruuid"),
        clique_id=_clique_id(fabric),
        sick=tuple(_sick(fabric.get("health"))),
    )


def _bus_id(
    element: etree._Element, parts: Parts, number: int, source: str, problems: list[Problem]
) -> str | None:
    """Return the address, which a log gives twice."""
    inside = sysfs_bus_id(_text(_parts(parts.get("pci")), "pcibusid"))
    outside = sysfs_bus_id(element.get("id", ""))
    if inside and outside and inside != outside:
        where, allowed = f"GPU{number}, pci_bus_id", f"{outside}, its id"
        problems.append(Problem(source, _line(element), where, inside, allowed))
    return inside or outside


def _mig(parts: Parts) -> _Mig:
    mode, devices = _parts(parts.get("migmode")), parts.get("migdevices")
    found = [] if devices is None else [one for one in devices if _key(one) == "migdevice"]
    sizes = (_MiB(_text(_parts(_parts(one).get("fbmemoryusage")), "total")) for one in found)
    return _Mig(_text(mode, "currentmig"), _text(mode, "pendingmig"), tuple(sizes))


def _clique_id(fabric: Parts) -> int | None:
    """Return the clique; where a newer driver gives only one per kind of traffic: the one that all name."""
    given = _number(_text(fabric, "cliqueid"))
    cliques = fabric.get("cliques")
    if given is not None or cliques is None:
        return given
    entries = {_number(_text(_parts(entry), "cliqueid")) for entry in cliques}
    return entries.pop() if len(entries) == 1 else None


def _sick(health: etree._Element | None) -> Iterator[str]:
    for name, child in _parts(health).items():
        good, found = _HEALTHY.get(name), (child.text or "").strip()
        if good and found.lower() not in _NOT_TOLD | {good}:
            yield f"{_name(child)} {shortened(found)}"


def _is_set_up(gpu: _Gpu) -> bool:
    return gpu.fabric_state.lower() == "completed, success"


def _clique(gpu: _Gpu) -> str | None:
    if gpu.clique_id is None or not _is_set_up(gpu):
        return None
    return clique_name(gpu.cluster, gpu.clique_id)


def _contradictions(gpus: Sequence[_Gpu], attached: int | None, source: str) -> Iterator[Problem]:
    if attached is not None and attached < len(gpus):
        found = f"{attached}, but the log describes {plural(len(gpus), 'GPU')}"
        yield Problem(source, None, "attached_gpus", found, "the number of GPUs, or more")
    for field, values in (
        ("uuid", [gpu.uuid for gpu in gpus]),
        ("pci_bus_id", [gpu.bus_id for gpu in gpus]),
    ):
        first: dict[str, int] = {}
        for number, value in enumerate(values):
            if value and first.setdefault(value, number) != number:
                found = f"{value}, which GPU{first[value]} has"
                yield Problem(
                    source, gpus[number].line, f"GPU{number}, {field}", found, "each GPU once"
                )


def _inferred(gpus: Sequence[_Gpu]) -> Iterator[str]:
    minors, modules = [gpu.minor for gpu in gpus], [gpu.module for gpu in gpus]
    if _is_another_order(minors):
        yield f"GPUs are numbered as nvidia-smi does; /dev/nvidiaN of GPU0, GPU1...: {_listed(minors)}"
    if _is_another_order(modules):
        yield f"GPUs are numbered as nvidia-smi does; module_id of GPU0, GPU1...: {_listed(modules)}"
    if any(map(_clique, gpus)):
        yield "GPUs of one clique share an NVLink domain with those of other nodes that name the same clique"
    zero = [number for number, gpu in enumerate(gpus) if _is_set_up(gpu) and not _clique(gpu)]
    if zero and not any(map(_clique, gpus)):
        yield "no cluster UUID: the NVLink fabric ends at this node"


def _is_another_order(numbers: Sequence[int | None]) -> bool:
    """Return whether numbers do not rise by one from GPU to GPU."""
    known = [number for number in numbers if number is not None]
    return len(known) == len(numbers) > 1 and any(
        number - at != known[0] for at, number in enumerate(known)
    )


def _listed(numbers: Sequence[int | None]) -> str:
    return ", ".join(map(str, numbers))


def _warnings(gpus: Sequence[_Gpu], attached: int | None) -> Iterator[str]:
    if attached is not None and attached > len(gpus):
        yield f"{attached} GPUs are attached, {len(gpus)} are described; numbers may not be nvidia-smi's"
    for number, gpu in enumerate(gpus):
        if gpu.memory_MiB is None or not gpu.product:
            product = f" ({shortened(gpu.product)})" if gpu.product else ""
            yield f"GPU{number}: no product name and memory size, so no model{product}"
        if gpu.bus_id is None:
            yield f"GPU{number}: no PCI address"
        yield from _mig_warnings(number, gpu.mig)
        yield from _fabric_warnings(number, gpu)
    cliques = {clique for gpu in gpus if (clique := _clique(gpu))}
    if len(cliques) > 1:
        yield f"the GPUs of this machine are in {len(cliques)} cliques: NVLink does not join them all"


def _mig_warnings(number: int, mig: _Mig) -> Iterator[str]:
    if mig.current.lower() == "enabled":
        sizes = Counter(mig.instances_MiB)
        given = ", ".join(
            f"{count} of {size} MiB" if size else f"{count}" for size, count in sizes.items()
        )
        parts = f"into instances: {given}" if given else "on, without instances"
        yield f"GPU{number} is cut by MIG {parts}; it has no NVLink or P2P to others"
    if {mig.current.lower(), mig.pending.lower()} == {"enabled", "disabled"}:
        yield f"GPU{number}: MIG becomes {shortened(mig.pending)} at its next reset"


def _fabric_warnings(number: int, gpu: _Gpu) -> Iterator[str]:
    if not _is_set_up(gpu) and clique_name(gpu.cluster, 0):
        yield f"GPU{number}: its fabric is not set up ({shortened(gpu.fabric_state)}), so its clique is not known"
    elif clique_name(gpu.cluster, 0) and gpu.clique_id is None:
        yield f"GPU{number}: its fabric names no clique"
    elif not gpu.fabric_told and gpu.fabric_state.lower().startswith(
        ("in progress", "not started")
    ):
        yield f"GPU{number}: its fabric is not set up ({shortened(gpu.fabric_state)})"
    if gpu.sick:
        yield f"GPU{number}: its fabric is not healthy: {', '.join(gpu.sick)}"


def _name(element: etree._Element) -> str:
    tag = element.tag
    return tag if isinstance(tag, str) else ""


def _key(element: etree._Element) -> str:
    """Return the name of an element without case and underscores."""
    return _name(element).replace("_", "").lower()


def _parts(element: etree._Element | None) -> Parts:
    found: dict[str, etree._Element] = {}
    for child in element if element is not None else ():
        found.setdefault(_key(child), child)
    return found


def _text(parts: Parts, key: str) -> str:
    child = parts.get(key)
    return "" if child is None else (child.text or "").strip()


def _line(element: etree._Element) -> int:
    return int(element.sourceline or 0)


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _MiB(text: str) -> int | None:
    """Read "81559 MiB"; drivers before 331 write MB and mean the same. None for 0 and for what is no size."""
    match = _MEMORY.fullmatch(text)
    return int(match[1]) or None if match else None


def _uuid(text: str) -> str | None:
    return text if re.fullmatch(r"GPU-[0-9A-Za-z-]{1,80}", text) else None
