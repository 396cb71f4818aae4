"""The kinds of sources of topologies, by the names that `gantree topo import` takes.

A machine kind describes one machine, a fabric kind many nodes. Every parser gets texts with the names of their
sources; some fabric kinds are one text each, some are several texts of one fabric (the answers of an API).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean
from gantree.topology.discovery.fabrics import FabricReading
from gantree.topology.discovery.gpus import GpuTopology
from gantree.topology.discovery.listings import (
    domains_csv,
    kubernetes,
    lingjun,
    slurm_conf,
    slurm_yaml,
    topograph,
)
from gantree.topology.discovery.machines import slurmd_gres
from gantree.topology.discovery.machines.hwloc import hwloc_xml
from gantree.topology.discovery.machines.nccl import nccl_xml
from gantree.topology.discovery.machines.nvidia import (
    nvidia_smi,
    nvidia_xml,
    nvlink_status,
    peer_matrix,
)
from gantree.topology.discovery.machines.nvidia.nvlink_status import NvlinkStatus
from gantree.topology.discovery.machines.rocm import rocm_smi
from gantree.topology.discovery.networks import ibnetdiscover, netq, ufm
from gantree.topology.discovery.other_kinds import instead_of

Text = tuple[str, str]
"""The text of a source, and its name for errors."""
MachineReading = GpuTopology | NvlinkStatus


@dataclass(frozen=True, slots=True)
class Wishes:
    """Options of the parsers of fabrics.

    levels are label keys from wide to narrow, topology the name of one of several, host_of_guid the hosts of NIC
    GUIDs (16 hex digits, lower case) that a fabric does not name.
    """

    levels: tuple[str, ...] = ()
    topology: str | None = None
    host_of_guid: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A kind of source that describes one machine."""

    name: str
    what: str
    parse: Callable[[str, str], MachineReading]


@dataclass(frozen=True, slots=True)
class FabricKind:
    """A kind of source that describes a fabric. read returns a reading of each text, or one of all of them."""

    name: str
    what: str
    read: Callable[[Sequence[Text], Wishes], list[FabricReading]]


def _each(
    parse: Callable[[str, str, Wishes], FabricReading],
) -> Callable[[Sequence[Text], Wishes], list[FabricReading]]:
    """Read texts one by one."""
    return lambda texts, wishes: [parse(text, source, wishes) for text, source in texts]


def _refusing_other_kinds(
    kind: str, read: Callable[[Sequence[Text], Wishes], list[FabricReading]]
) -> Callable[[Sequence[Text], Wishes], list[FabricReading]]:
    """Refuse a text that is of another kind in one line, not with a problem for each of its lines."""

    def checked(texts: Sequence[Text], wishes: Wishes) -> list[FabricReading]:
        for text, source in texts:
            if not text.strip("\ufeff \t\r\n"):
                raise BadInput(f"{source}: the text is empty")
        try:
            return read(texts, wishes)
        except BadInput:
            _refuse_other_kinds(kind, texts)
            raise

    return checked


def _machine_refusing_other_kinds(kind: MachineKind) -> MachineKind:
    """Report the kind of a text that is of another kind than given; keep a report of the parser itself."""

    def parse(text: str, source: str) -> MachineReading:
        try:
            return kind.parse(text, source)
        except BadInput as error:
            if "it looks like" not in str(error):
                _refuse_other_kinds(kind.name, [(text, source)])
            raise

    return replace(kind, parse=parse)


def _refuse_other_kinds(kind: str, texts: Sequence[Text]) -> None:
    for text, source in texts:
        instead = instead_of(kind, text)
        if instead is not None:
            raise BadInput(f"{source}: {instead}") from None


_MACHINES = (
    MachineKind("nvidia-smi", "nvidia-smi topo -m", nvidia_smi.parse),
    MachineKind("nvidia-smi-p2p", "nvidia-smi topo -p2p r", peer_matrix.parse),
    MachineKind("nvidia-smi-xml", "nvidia-smi -q -x", nvidia_xml.parse),
    MachineKind("nvlink-status", "nvidia-smi nvlink -s", nvlink_status.parse),
    MachineKind("nccl-xml", "topology of NCCL or RCCL (NCCL_TOPO_DUMP_FILE)", nccl_xml.parse),
    MachineKind("rocm-smi", "rocm-smi --showtopo", rocm_smi.parse),
    MachineKind("hwloc", "lstopo --of xml", hwloc_xml.parse),
    MachineKind("slurmd", "slurmd -G", slurmd_gres.parse),
)
_FABRICS = (
    FabricKind("ibnetdiscover", "ibnetdiscover",
               _each(lambda text, source, wishes: ibnetdiscover.parse(text, source, wishes.host_of_guid))),
    FabricKind("ufm", "answers of UFM's REST API: systems, ports, links (one file or several)",
               lambda texts, wishes: [ufm.parse(texts, wishes.host_of_guid)]),
    FabricKind("netq", "answers of NetQ: topologyGraph, computeNodes (one file or several)",
               lambda texts, _: [netq.parse(texts)]),
    FabricKind("slurm", "Slurm's topology.conf, or scontrol show topology",
               _each(lambda text, source, _: slurm_conf.parse(text, source))),
    FabricKind("slurm-yaml", "Slurm's topology.yaml",
               _each(lambda text, source, wishes: slurm_yaml.parse(text, source, wishes.topology))),
    FabricKind("topograph", "a model of topograph",
               _each(lambda text, source, _: topograph.parse(text, source))),
    FabricKind("lingjun", "topo.csv of Lingjun",
               _each(lambda text, source, _: lingjun.parse(text, source))),
    FabricKind("csv", "a table of nodes and their domains",
               _each(lambda text, source, _: domains_csv.parse(text, source))),
    FabricKind("kubernetes", "kubectl get nodes -o json (or yaml), with a Kueue Topology if there is one",
               lambda texts, wishes: [kubernetes.read(texts, wishes.levels or None)]),
)  # fmt: skip

MACHINE_KINDS: Mapping[str, MachineKind] = MappingProxyType(
    {kind.name: _machine_refusing_other_kinds(kind) for kind in _MACHINES}
)
FABRIC_KINDS: Mapping[str, FabricKind] = MappingProxyType(
    {
        kind.name: replace(kind, read=_refusing_other_kinds(kind.name, kind.read))
        for kind in _FABRICS
    }
)
KINDS: Mapping[str, MachineKind | FabricKind] = MappingProxyType({**MACHINE_KINDS, **FABRIC_KINDS})


def unknown_kind(word: str, more: Sequence[str] = ()) -> BadInput:
    """Return the error for a word that is no kind; more are kinds that are no files. Beginnings count as near."""
    kinds = [*KINDS, *more]
    begun = [kind for kind in kinds if len(word) > 1 and kind.startswith(word.lower())]
    hint = f"Did you mean {' or '.join(f'`{kind}`' for kind in begun)}?" if begun else ""
    hint = hint or did_you_mean(word, kinds)
    return BadInput(
        f"no kind of source {word!r}; allowed: {', '.join(kinds)}" + (f". {hint}" if hint else "")
    )
