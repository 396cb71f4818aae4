"""Clusters made of the first hosts of the published Lingjun topology (topo.csv.gz of the Crux traces, SIGCOMM'24).

Hosts are taken by whole groups below one ASW, groups in the order in which the file first names them; the last group
is cut. Hosts are assumed to be HGX H100: eight GPUs each. The DSW is the tier core, a PSW a spine, an ASW a leaf.
"""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gantree.model.cluster import Cluster, Node
from gantree.model.errors import BadInput, NotFound
from gantree.topology.discovery.assembly import assembled
from gantree.topology.discovery.listings.lingjun import parse
from gantree.topology.discovery.machine_of_node import MachineChoice
from gantree.topology.hardware.catalog import machine

MACHINE = "hgx-h100"
GPUS_OF_HOST = 8

HOSTS_OF_LOAD = {"load70": 67, "load90": 52, "load105": 45}
"""Hosts at which Philly's mean load is about that many percent."""


def read_fabric(path: Path) -> Cluster:
    """The whole published fabric. Raises NotFound, BadInput and BadFields."""
    try:
        text = gzip.decompress(path.read_bytes()).decode()
    except OSError as error:
        raise NotFound(f"{path}: cannot be read: {error.strerror or error}.") from error
    choice = MachineChoice({}, {}, default=machine(MACHINE))
    return assembled("lingjun", parse(text, str(path)), choice, str(path)).cluster


def first_hosts(fabric: Cluster, hosts: int) -> Cluster:
    """The sub-fabric of so many hosts. Raises BadInput where there are fewer."""
    if not 1 <= hosts <= len(fabric.nodes):
        raise BadInput(f"hosts: found `{hosts}`; allowed: 1 to {len(fabric.nodes)}")
    taken = in_groups(fabric.nodes)[:hosts]
    return replace(fabric, name=f"{fabric.name}-{hosts}", nodes=tuple(taken))


def in_groups(nodes: Sequence[Node]) -> list[Node]:
    """Nodes group by group, a group being those at one place, in the order of first mention."""
    nodes_of_place: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        nodes_of_place.setdefault(node.at, []).append(node)
    return [node for group in nodes_of_place.values() for node in group]
