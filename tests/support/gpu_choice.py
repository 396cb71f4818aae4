"""A judge of GPU sets inside a node that tries every set and every ring, for tests of `placement.machine.devices`.

Slow and plain: link classes are counted by name, nothing is remembered. What the order of judgement is for is told in
`placement.machine.gpu_sets`; this says the same a second time, without its numbers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

from gantree.model.cluster import Machine
from gantree.placement.machine.devices import inner_domains
from gantree.placement.machine.gpu_sets import NumaShortages
from gantree.topology.hardware.catalog import bonded_links, weakness
from gantree.topology.hardware.masks import gpus_of, mask_of


def plain_link(model: Machine, a: int, b: int) -> str:
    """Class of the path between two GPUs, the weaker of its directions; "" if not known."""
    if not model.links:
        return ""
    given_links = [link for link in (model.links[a][b], model.links[b][a]) if link]
    return max(given_links, key=weakness, default="")


def plain_counts(model: Machine, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """How many of the pairs have the weakest class of the machine, the next weakest..., then sockets, switches."""
    pairs = list(pairs)
    links = {plain_link(model, a, b) for a, b in combinations(range(model.gpus), 2)}
    counts = [
        sum(plain_link(model, *pair) == link for pair in pairs)
        for link in sorted(links, key=weakness)
    ]
    crossings = [
        sum(
            not any(set(pair) <= set(gpus_of(d)) for d in inner_domains(model, tier))
            for pair in pairs
        )
        for tier in ("socket", "pcie")
    ]
    return (*reversed(counts), *crossings)


def plain_ring(model: Machine, order: tuple[int, ...]) -> tuple[int, ...]:
    """`plain_counts` of the hops of a ring."""
    if len(order) == 1:
        return plain_counts(model, [])
    return plain_counts(model, zip(order, (*order[1:], order[0]), strict=True))


@dataclass(frozen=True, slots=True)
class FreeNearby:
    """What is free beside the GPUs: as `choose_gpus` is told."""

    free_nics: int
    nics: int = 0
    shortages: NumaShortages = ()


def plain_lack(model: Machine, nearby: FreeNearby, chosen: tuple[int, ...]) -> tuple[int, ...]:
    """GPUs with their nearest free NIC elsewhere, on the socket, behind the switch; NICs short; GPUs unserved."""
    free = [nic for bit, nic in enumerate(model.nics) if nearby.free_nics >> bit & 1 and nic.near]
    distances = []
    for gpu in chosen:
        rings = [{gpu}]
        for tier in ("pcie", "socket"):
            rings += [set(gpus_of(d)) for d in inner_domains(model, tier) if d >> gpu & 1]
        found = [
            ring for nic in free for ring, gpus in enumerate(rings) if not gpus.isdisjoint(nic.near)
        ]
        distances.append(min(found, default=3))
    near = sum(not set(chosen).isdisjoint(nic.near) for nic in free)
    unserved = sum(
        max(0, (mask_of(chosen) & gpus).bit_count() - most) for gpus, most in nearby.shortages
    )
    counts = [distances.count(distance) for distance in (3, 2, 1)]
    return (*counts, max(0, nearby.nics - near), unserved)


def plain_rank(
    model: Machine,
    free: frozenset[int],
    chosen: tuple[int, ...],
    nearby: FreeNearby | None = None,
) -> tuple[Any, ...]:
    """What decides between sets of GPUs of one size, in turn; the least is the best."""
    ring = min(plain_ring(model, (chosen[0], *rest)) for rest in permutations(chosen[1:]))
    rest_free = sorted(free - set(chosen))
    width = sum(bonded_links(plain_link(model, a, b)) for a, b in combinations(rest_free, 2))
    together = [
        sum(
            len(set(gpus_of(domain)) & set(rest_free)) ** 2 for domain in inner_domains(model, tier)
        )
        for tier in ("pcie", "socket")
    ]
    pairs = plain_counts(model, combinations(chosen, 2))
    return (
        (ring[:-2], pairs[:-2]),
        plain_lack(model, nearby, chosen) if nearby else (),
        -width,
        (ring, pairs),
        [-part for part in together],
        chosen,
    )


def plain_choice(
    model: Machine, free: frozenset[int], count: int, nearby: FreeNearby | None = None
) -> tuple[int, ...]:
    """The best `count` of the free GPUs, rising, among all sets."""
    return min(
        combinations(sorted(free), count),
        key=lambda chosen: plain_rank(model, free, chosen, nearby),
    )
