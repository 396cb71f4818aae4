"""The NCCL graph file (NCCL_GRAPH_FILE) of one member: the rings over its GPUs.

A graph file holds channels. Each is the part of a ring that runs on one node: in by a NIC, over every GPU, out by a
NIC; on a single node the GPUs alone. Here a channel goes over the GPUs in link order, turned so that it begins at a GPU
near its NIC, and comes back to the same NIC (crossnic 0): so the rings of a rail stay on it. Only rings (graph 0,
pattern 4) are written; for what a file does not have, trees say, NCCL searches by itself.

As NCCL reads it (NVIDIA/nccl, src/graph/search.cc and xml.cc, 2.6 to 2.30): version 1; `dev` of a GPU is NVML's number
of it where the process runs, `dev` of a NIC its place among those that NCCL uses (NCCL_IB_HCA), both in the hexadecimal
form that all versions read; every GPU of a channel must be in the communicator, or NCCL fails to start. Link types are
NCCL's own: NVL, PIX, PXB, PXN (over a GPU that is nearer), PHB (through one CPU, host bridges of one NUMA node
included), SYS.

A process reads one graph file for all its communicators, so the file is right only where each of them has, on this
node, all GPUs of the member: `fits_all_groups` tells. It is right for one node alone: where NVLink joins nodes, NCCL
takes them for one machine. GPUs that are wired to each other directly, three or more (DGX-1,
boards without NVSwitches), get no file: NCCL's own search packs rings into such meshes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gantree.model.cluster import Machine, Nic
from gantree.model.errors import BadInput, Unsupported
from gantree.topology.fabric.fabric import IntArray
from gantree.topology.hardware.constants import traits
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.intra_node import Host
from gantree.topology.hardware.link_classes import bonded_links, weakness

RING_GRAPH, RING_PATTERN = 0, 4
CHANNEL_GBps = 24.0
"""What NCCL lets one channel carry on most machines; a NIC or an island with more gets several channels."""
MOST_CHANNELS = 32
_PATH_TYPES = {"PIX": "PIX", "PXB": "PXB", "PHB": "PHB", "NODE": "PHB", "SYS": "SYS"}
_SYS = "SYS"


@dataclass(frozen=True, slots=True)
class Channel:
    """GPUs in ring order, by index on the machine; net is the NIC in and out, by its place among those held."""

    gpus: tuple[int, ...]
    net: int | None = None


@dataclass(frozen=True, slots=True)
class Graph:
    """Rings over the GPUs of one member. Types and GB/s of a channel are inside the node and beyond it."""

    channels: tuple[Channel, ...]
    intra_GBps: float
    inter_GBps: float
    intra: str
    inter: str


def graph_of(
    machine: Machine, gpus: Sequence[int], nics: Sequence[str] = (), *, leaves_node: bool
) -> Graph:
    """The rings of a member that holds these GPUs, in link order, and NICs. leaves_node: its gang has other nodes.

    BadInput: no GPU, GPUs that are not NVIDIA's, no NIC by name where traffic leaves the node. Unsupported: three or
    more GPUs that are wired to each other directly.
    """
    _check(machine, gpus, nics, leaves_node)
    intra_GBps = Host.of(machine, {}).inside(gpus).ring_GBps if len(gpus) > 1 else CHANNEL_GBps
    if not leaves_node:
        count = min(MOST_CHANNELS, max(1, int(intra_GBps // CHANNEL_GBps)))
        each = round(min(intra_GBps / count, 1e3), 2)
        return Graph((Channel(tuple(gpus)),) * count, each, each, _intra(machine, gpus), "PIX")
    held = [nic for nic in machine.nics if nic.name in nics]
    channels = [
        Channel(_from(gpus, nic), net)
        for net, nic in enumerate(held)
        for _ in range(_channels_of_nic(machine, nic, len(held)))
    ]
    out_GBps = min(_rate(machine, nic) / _channels_of_nic(machine, nic, len(held)) for nic in held)
    worst = max(
        (_inter(machine, channel.gpus, held[channel.net or 0]) for channel in channels),
        key=("PIX", "PXB", "PXN", "PHB", "SYS").index,
    )
    each = round(min(out_GBps, intra_GBps / len(channels)) if len(gpus) > 1 else out_GBps, 2)
    return Graph(tuple(channels), each, round(out_GBps, 2), _intra(machine, gpus), worst)


def graph_xml(graph: Graph, dev_of_gpu: Mapping[int, int] | None = None) -> str:
    """Write a graph file. dev_of_gpu gives NVML's numbers where the process sees others than the machine has, as in a
    container with some of its GPUs."""
    same = all(channel.gpus == graph.channels[0].gpus for channel in graph.channels)
    lines = [
        '<graphs version="1">',
        f'  <graph id="{RING_GRAPH}" pattern="{RING_PATTERN}" crossnic="0" nchannels="{len(graph.channels)}" '
        f'speedintra="{graph.intra_GBps:g}" speedinter="{graph.inter_GBps:g}" latencyinter="0" '
        f'typeintra="{graph.intra}" typeinter="{graph.inter}" samechannels="{int(same)}">',
    ]
    for channel in graph.channels:
        gpus = [dev_of_gpu[gpu] if dev_of_gpu else gpu for gpu in channel.gpus]
        nets = [] if channel.net is None else [f'      <net dev="{channel.net:#x}"/>']
        lines += ["    <channel>", *nets]
        lines += [f'      <gpu dev="{dev:#x}"/>' for dev in gpus]
        lines += [*nets, "    </channel>"]
    return "\n".join([*lines, "  </graph>", "</graphs>"]) + "\n"


def fits_all_groups(
    node: IntArray, member: IntArray, groups_of_axis: Mapping[str, IntArray]
) -> bool:
    """Whether each group, on each node where it is, has all GPUs of the members that it has any of.

    node[rank] and member[rank] say where ranks run, groups_of_axis[axis][group, rank] who talks to whom. A node with
    two members of the gang never fits: all ranks together are a group too.
    """
    gpus_of_member = np.bincount(member)
    nodes_of_members = dict(zip(member.tolist(), node.tolist(), strict=True)).values()
    if len(set(nodes_of_members)) < len(gpus_of_member):
        return False
    members = len(gpus_of_member)
    for groups in groups_of_axis.values():
        group = np.repeat(np.arange(len(groups)), groups.shape[1])
        held = np.bincount(
            group * members + member[groups].ravel(), minlength=len(groups) * members
        )
        held = held.reshape(len(groups), members)
        if ((held > 0) & (held != gpus_of_member)).any():
            return False
    return True


def _check(machine: Machine, gpus: Sequence[int], nics: Sequence[str], leaves_node: bool) -> None:
    model = gpu_model(machine.gpu)
    if not gpus:
        raise BadInput(f"machine {machine.name}: rings need GPUs; the member holds none")
    if model is not None and not model.architecture.startswith("sm"):
        raise BadInput(
            f"machine {machine.name}: graph files are NCCL's; {model.name} is no GPU of NVIDIA"
        )
    unknown = [name for name in nics if name not in {nic.name for nic in machine.nics}]
    if unknown or (leaves_node and not nics):
        said = (
            f"no NIC {unknown[0]!r}" if unknown else "no NIC by name, and its gang has other nodes"
        )
        raise BadInput(f"machine {machine.name}: the member has {said}; ask for nics in the job")
    wired = any(bonded_links(link) for link in _hops(machine, gpus))
    if len(gpus) > 2 and wired and not Host.of(machine, {}).switched:  # two GPUs have one ring
        raise Unsupported(
            f"machine {machine.name}: its GPUs are wired to each other directly, and NCCL's own search packs rings "
            f"into such a mesh; leave NCCL_GRAPH_FILE unset"
        )


def _hops(machine: Machine, gpus: Sequence[int]) -> Iterator[str]:
    """Link classes along the closed ring."""
    for a, b in pairwise([*gpus, gpus[0]]):
        if a != b:
            yield machine.links[a][b] if machine.links else _SYS


def _intra(machine: Machine, gpus: Sequence[int]) -> str:
    """NCCL's type of the weakest hop of the ring."""
    if len(gpus) == 1:
        return "LOC"
    weakest = max(_hops(machine, gpus), key=weakness)
    return "NVL" if bonded_links(weakest) else _PATH_TYPES.get(weakest, _SYS)


def _inter(machine: Machine, gpus: Sequence[int], nic: Nic) -> str:
    """NCCL's type of the worse of the ways from a channel's first and last GPU to its NIC."""
    path = _PATH_TYPES.get(nic.path or "PIX", _SYS)
    if not set(gpus) & set(nic.near):
        return _SYS
    if gpus[-1] in nic.near:
        return path
    if machine.links and bonded_links(machine.links[gpus[-1]][gpus[0]]):
        return "PXN" if path in {"PIX", "PXB"} else path
    numa = machine.numa
    return "PHB" if numa and numa[gpus[-1]] == numa[gpus[0]] else _SYS


def _from(gpus: Sequence[int], nic: Nic) -> tuple[int, ...]:
    """The ring turned to begin at a GPU near a NIC."""
    first = next((place for place, gpu in enumerate(gpus) if gpu in nic.near), 0)
    return (*gpus[first:], *gpus[:first])


def _rate(machine: Machine, nic: Nic) -> float:
    return nic.bandwidth_GBps or traits(machine.gpu).nic_GBps


def _channels_of_nic(machine: Machine, nic: Nic, nics: int) -> int:
    wanted = max(1, int(_rate(machine, nic) // CHANNEL_GBps))
    return min(wanted, max(1, MOST_CHANNELS // nics))
