"""Clusters drawn as text, so that tests read as tables.

    s0/l0: n0 aaaa.... n1 ........
    s0/l1: n2 bb...... n3! .......

A line is the narrowest domain above the node, by its path; a letter is a GPU held by the owner of that name, a dot a
free one; "!" after a node's name says that it may not be used. Owners with longer names are drawn as "#".
"""

from collections.abc import Iterator

from gantree.model.cluster import Cluster, Machine, Node
from gantree.model.placements import MemberPlacement
from gantree.testing.builders import machine
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

TIERS = ("region", "zone", "spine", "leaf", "node")
"""A picture whose paths have n names has the last n + 1 of these tiers."""

FREE, LONG_NAME, UNUSABLE = ".", "#", "!"


def drawn(picture: str, like: Machine | None = None) -> Occupancy:
    """The occupancy that a picture shows; nodes are as `like` but for the number of GPUs, which are drawn.

    ValueError for a picture that is none: a node without GPUs drawn, or lines of unequal depth.
    """
    rows = [_read_row(line) for line in picture.strip().splitlines() if line.strip()]
    depth = {len(path) for path, _ in rows}
    if len(depth) != 1:
        raise ValueError(f"lines of unequal depth {sorted(depth)} in {picture!r}")
    sizes = sorted({len(gpus) for _, nodes in rows for _, gpus in nodes})
    machines = {f"m{size}": like or machine(size, name=f"m{size}") for size in sizes}
    nodes = [
        Node(name.rstrip(UNUSABLE), f"m{len(gpus)}", path)
        for path, row in rows
        for name, gpus in row
    ]
    tiers = TIERS[-depth.pop() - 1 :]
    occupancy = Occupancy(Fabric.build(Cluster("drawn", tiers, machines, tuple(nodes))))
    for name, gpus in (node for _, row in rows for node in row):
        _hold_drawn(occupancy, name, gpus)
    return occupancy


def picture_of(occupancy: Occupancy) -> str:
    """Draw an occupancy, one line per domain above the node."""
    fabric = occupancy.fabric
    tier = fabric.node_tier - 1
    first = fabric.first_node_of_domain[tier]
    return "\n".join(
        " ".join([f"{name}:", *(_node_drawn(occupancy, n) for n in range(first[d], first[d + 1]))])
        for d, name in enumerate(fabric.names_of_domain[tier])
    )


def _read_row(line: str) -> tuple[tuple[str, ...], list[tuple[str, str]]]:
    path, colon, rest = line.strip().partition(":")
    words = rest.split()
    if not colon or not words or len(words) % 2:
        raise ValueError(f"expected `path: node gpus node gpus ...`, found {line!r}")
    return tuple(path.split("/")), list(zip(words[::2], words[1::2], strict=True))


def _hold_drawn(occupancy: Occupancy, name: str, gpus: str) -> None:
    node = name.rstrip(UNUSABLE)
    for owner, held in _holders(gpus):
        rank = len(occupancy.owners.get(owner, ()))
        occupancy.take(owner, (MemberPlacement("drawn", rank, node, held),))
    if name.endswith(UNUSABLE):
        occupancy.mark(node, usable=False)


def _holders(gpus: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    for owner in sorted({*gpus} - {FREE}):
        yield owner, tuple(gpu for gpu, letter in enumerate(gpus) if letter == owner)


def _node_drawn(occupancy: Occupancy, index: int) -> str:
    name = occupancy.fabric.nodes[index].name
    holders = [
        occupancy.holder_of_gpu(name, gpu) or FREE
        for gpu in range(int(occupancy.fabric.gpus_of_node[index]))
    ]
    letters = "".join(holder if len(holder) == 1 else LONG_NAME for holder in holders)
    return f"{name}{'' if occupancy.usable(name) else UNUSABLE} {letters}"
