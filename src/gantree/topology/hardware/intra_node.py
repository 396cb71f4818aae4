"""Bandwidth between the GPUs of one machine: of rings, exchanges and pairs. No networks here.

How links join decides. Over NVSwitches (more links to all peers together than a GPU has) every GPU has its whole port
to any peer. Direct links (bridges, hybrid cube mesh, xGMI) are packed with rings as NCCL's search does: the closed way
over all GPUs with the widest narrowest link, its width taken out, then again; each way is two rings, one in each
direction. A full mesh of equal links carries a ring for every peer (Tillson 1980: a complete directed graph falls
into that many closed ways, four and six nodes excepted). Where no closed way over links exists, the ring runs over
PCIe in the order that makes its weakest hop best. Where GPUs may not reach each other's memory, every hop is a copy
through the host: the GPUs of a PCIe switch share its up-link, those of a NUMA node its memory.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

from gantree.model.cluster import NO_LINK, Link, Machine
from gantree.topology.hardware.catalog import SELF, bonded_links, link_GBps
from gantree.topology.hardware.constants import HOST_STAGING_GBps, traits

MOST_GPUS_SEARCHED = 10
"""GPUs among which a closed way is searched for (time grows twofold with each); larger sets go by NUMA node."""
HOST_MEMORY = "host memory"
UNKNOWN_LINK = "unknown link"
"""What bounds GPUs whose links no source told; such links count as SYS, the weakest."""


@dataclass(frozen=True, slots=True)
class IntraNodeRates:
    """GPUs of one machine. ring_GBps is the bus bandwidth of a ring (inf for one GPU); exchange_GBps what each
    sends in an all-to-all; weakest the class that holds the ring up; nvlink whether it runs over NVLink or xGMI."""

    ring_GBps: float
    exchange_GBps: float
    weakest: str
    nvlink: bool


ALONE = IntraNodeRates(inf, inf, SELF, nvlink=True)


class WornGpu(NamedTuple):
    """A GPU of which the PCIe port or the NVLinks carry only a share of their rates."""

    gpu: int
    pcie: float = 1.0
    nvlink: float = 1.0


@dataclass(frozen=True, slots=True)
class Host:
    """A machine with the links that a site measured. Build it with `Host.of`.

    switched is whether NVSwitches join the GPUs: together they have more links to their peers than go out of one.
    port_GBps is what one whole GPU has over NVSwitches, inside the machine or, where the site has NVLink domains above
    the node, in its domain, and port_link its class; 0 and "" without any. worn are GPUs whose links carry less.
    """

    machine: Machine
    measured: Mapping[str, Link]
    switched: bool
    port_GBps: float
    port_link: str
    worn: tuple[WornGpu, ...] = ()

    @classmethod
    def of(
        cls,
        machine: Machine,
        measured: Mapping[str, Link],
        *,
        in_domain: bool = False,
        worn: tuple[WornGpu, ...] = (),
    ) -> "Host":
        """Look at how its links join. in_domain: the site says that NVLink reaches beyond the node."""
        host = cls(machine, measured, _switched(machine), 0.0, NO_LINK, worn)
        if not host.switched and not in_domain:
            return host
        widest = max((link for row in machine.links for link in row), key=bonded_links, default="")
        links = bonded_links(widest) or traits(machine.gpu).links
        link = f"NV{links}" if links else "PIX"
        return replace(host, port_GBps=host.hop_GBps(link), port_link=link)

    def port_GBps_of(self, gpus: Iterable[int]) -> float:
        """What each of these GPUs has over NVSwitches while all of them send: as the worst of them."""
        return self.port_GBps * self.left("NV", gpus)

    def hop_GBps(self, link: str) -> float:
        """A path of a link class: as measured here, else as NCCL counts it. Unknown classes count as SYS."""
        if link in self.measured:
            return self.measured[link].bandwidth_GBps
        width = bonded_links(link)
        carried_GBps = width * traits(self.machine.gpu).link_GBps
        return carried_GBps or link_GBps(link, self.machine.gpu)

    def link(self, a: int, b: int) -> str:
        """The class between two GPUs; NO_LINK where unknown."""
        return self.machine.links[a][b] if self.machine.links else NO_LINK

    def reaches(self, a: int, b: int) -> bool:
        """Whether two GPUs read and write each other's memory."""
        return not self.machine.peer or self.machine.peer[a][b]

    def pair_GBps(self, a: int, b: int) -> float:
        """What one GPU sends to another of this machine."""
        if not self.reaches(a, b):
            return self._staged((a, b))
        return self.between_GBps(a, b)

    def between_GBps(self, a: int, b: int) -> float:
        """What the link between two GPUs carries, with what is left of theirs."""
        link = self.link(a, b)
        return self.hop_GBps(link) * self.left(link, (a, b))

    def left(self, link: str, gpus: Iterable[int]) -> float:
        """The least share of their rates that these GPUs' links of a class carry."""
        if not self.worn:
            return 1.0
        over_nvlink, some = link == "NV" or bool(bonded_links(link)), frozenset(gpus)
        shares = [
            each.nvlink if over_nvlink else each.pcie for each in self.worn if each.gpu in some
        ]
        return min(shares, default=1.0)

    def inside(self, gpus: Sequence[int]) -> IntraNodeRates:
        """Price a set of GPUs, in any order."""
        members = tuple(sorted(gpus))
        if len(members) < 2:
            return ALONE
        if self.machine.peer and not all(
            self.reaches(a, b) for a in members for b in members if a != b
        ):
            staged = self._staged(members)
            return IntraNodeRates(staged, staged, HOST_MEMORY, nvlink=False)
        if self.switched or (len(members) == 2 and bonded_links(self.link(*members))):
            link = self.link(*members[:2])
            rate = self.hop_GBps(link) * self.left(link, members)
            return IntraNodeRates(rate, rate, link, nvlink=True)
        return self._over_links(members) or self._over_pcie(members)

    # ----- over links of their own

    def _over_links(self, gpus: Sequence[int]) -> IntraNodeRates | None:
        """Rings over direct links alone; None where no closed way over all GPUs exists."""
        widths = [[bonded_links(self.link(a, b)) for b in gpus] for a in gpus]
        pairs = {w for a, row in enumerate(widths) for b, w in enumerate(row) if a != b}
        some = max((self.link(gpus[0], b) for b in gpus[1:]), key=bonded_links)
        if len(pairs) == 1 and 0 not in pairs:
            total = (len(gpus) - 1) * self.hop_GBps(some) * self.left(some, gpus)
            return IntraNodeRates(total, total, some, nvlink=True)
        if len(gpus) > MOST_GPUS_SEARCHED:
            return None
        rings = _packed(widths)
        if not rings:
            return None
        narrowest = min(rings)
        weakest = f"{some.rstrip('0123456789')}{narrowest}"
        per_link = self.hop_GBps(weakest) * self.left(weakest, gpus) / narrowest
        return IntraNodeRates(2 * sum(rings) * per_link, self._exchange(gpus), weakest, nvlink=True)

    # ----- over PCIe

    def _over_pcie(self, gpus: Sequence[int]) -> IntraNodeRates:
        ring = self._best_order(gpus)
        hops = zip(ring, (*ring[1:], ring[0]), strict=True)
        weakest = min(hops, key=lambda hop: self.between_GBps(*hop))
        word = self.link(*weakest) or UNKNOWN_LINK
        rate = self.between_GBps(*weakest)
        return IntraNodeRates(rate, self._exchange(gpus), word, nvlink=False)

    def _best_order(self, gpus: Sequence[int]) -> tuple[int, ...]:
        """The closed way whose weakest hop is best."""
        if len(gpus) <= MOST_GPUS_SEARCHED:
            speed = [[self.between_GBps(a, b) if a != b else 0.0 for b in gpus] for a in gpus]
            for least in sorted({s for row in speed for s in row if s}, reverse=True):
                way = closed_way([[s >= least for s in row] for row in speed])
                if way:
                    return tuple(gpus[position] for position in way)
        return tuple(sorted(gpus, key=lambda gpu: (self._numa(gpu), gpu)))

    def _numa(self, gpu: int) -> int:
        node = self.machine.numa[gpu] if self.machine.numa else None
        return -1 if node is None else node

    def _exchange(self, gpus: Sequence[int]) -> float:
        """What each GPU sends in an all-to-all: the slowest of its pairs, its PCIe port, and the link of sockets."""
        peers = len(gpus) - 1
        limits: list[float] = []
        for a in gpus:
            others = [self.link(a, b) for b in gpus if b != a]
            limits += [peers * self.hop_GBps(link) for link in others if bonded_links(link)]
            over_pcie = [link for link in others if not bonded_links(link)]
            near = [link for link in over_pcie if link not in {"SYS", NO_LINK}]
            if near:
                limits.append(peers * min(map(self.hop_GBps, near)) / len(over_pcie))
            far = len(over_pcie) - len(near)
            if far:
                limits.append(peers * self.hop_GBps("SYS") / (far * (len(gpus) - far)))
        over_nvlink = all(bonded_links(self.link(a, b)) for a in gpus for b in gpus if a != b)
        return min(limits) * self.left("NV" if over_nvlink else NO_LINK, gpus)

    def _staged(self, gpus: Sequence[int]) -> float:
        """What each of these GPUs copies through host memory while all do."""
        on_numa = [self._numa(gpu) for gpu in gpus]
        behind = [1 + sum(self.link(a, b) in {"PIX", "PXB"} for b in gpus if b != a) for a in gpus]
        memory = min(HOST_STAGING_GBps / on_numa.count(numa) for numa in on_numa)
        port = self.hop_GBps("PIX") / max(behind) * self.left("PIX", gpus)
        return min(memory, self.hop_GBps("PHB"), port)


def _switched(machine: Machine) -> bool:
    widths = [[bonded_links(link) for link in row] for row in machine.links]
    everywhere = all(w for a, row in enumerate(widths) for b, w in enumerate(row) if a != b)
    return len(widths) > 2 and everywhere and max(map(sum, widths)) > traits(machine.gpu).links


def _packed(widths: list[list[int]]) -> list[int]:
    """Widths of the closed ways that fit beside each other, the widest first."""
    left = [row.copy() for row in widths]
    packed: list[int] = []
    for width in sorted({w for row in widths for w in row if w}, reverse=True):
        while way := closed_way([[w >= width for w in row] for row in left]):
            packed.append(width)
            for a, b in zip(way, (*way[1:], way[0]), strict=True):
                left[a][b] -= width
                left[b][a] -= width
    return packed


def closed_way(joined: Sequence[Sequence[bool]]) -> tuple[int, ...] | None:
    """A closed way that visits each of 3 or more places once, as their order from place 0; None if there is none.

    joined[a][b] is whether a hop from a to b exists. Dead ends are remembered by (places seen, place), so time is at
    most 2^places x places.
    """
    count = len(joined)
    dead: set[tuple[int, int]] = set()

    def onward(way: tuple[int, ...], seen: int) -> tuple[int, ...] | None:
        here = way[-1]
        if len(way) == count:
            return way if joined[here][0] else None
        if (seen, here) in dead:
            return None
        for place in range(count):
            if joined[here][place] and not seen >> place & 1:
                found = onward((*way, place), seen | 1 << place)
                if found:
                    return found
        dead.add((seen, here))
        return None

    return onward((0,), 1) if count > 2 else None
