"""Positions of devices in a PCI tree, and the link class of the path between two of them.

A path goes up from one device and down to the other. Where it turns gives its class, in the words of
`nvidia-smi topo -m`: below one switch (PIX), over several (PXB), in the root complex, which is a host bridge (PHB),
between the host bridges of one NUMA node (NODE), beyond it (SYS).

Sources draw switches in two ways. Linux and hwloc show every port of a switch as a bridge of its own, one up and
several down, so a path through one switch passes two bridges; NCCL shows the upstream port alone. A path
turns in the deepest bridge that both devices are below. Fewer bridges further down, on either side, than one
switch has: the switch they share is the only one on the path.
"""

from dataclasses import dataclass

MAX_BRIDGES = 64
"""Bridges above one device at most. A PCI domain has 256 buses, real machines nest about ten bridges; more is no
machine, and would make comparing all pairs of devices slow."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a device sits.

    bridges are named from the root complex down to the device, without either; root names the root complex and numa
    the NUMA node, None where not given.
    """

    bridges: tuple[str, ...] = ()
    root: str | None = None
    numa: int | None = None


def path_class(a: Place, b: Place, bridges_of_switch: int) -> str | None:
    """Return PIX, PXB, PHB, NODE or SYS for the path between two places; None where neither is known.

    bridges_of_switch is how many bridges a path through one switch passes: 2 where the source shows every port of a
    switch, 1 where it shows a switch as one.
    """
    if a.root == b.root:
        shared = _shared(a.bridges, b.bridges)
        if shared:
            further_down = max(len(a.bridges), len(b.bridges)) - shared
            return "PIX" if further_down < bridges_of_switch else "PXB"
        if a.root is not None:
            return "PHB"
    if a.numa is None or b.numa is None:
        return None
    return "NODE" if a.numa == b.numa else "SYS"


def _shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """Return how many bridges both begin with, found by halves: all pairs of hundreds of devices are compared."""
    least, most = 0, min(len(a), len(b))
    while least < most:
        tried = (least + most + 1) // 2
        if a[:tried] == b[:tried]:
            least = tried
        else:
            most = tried - 1
    return least
