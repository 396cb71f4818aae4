"""Chooses the GPUs and NICs of a member on one machine, and their order; the domains inside a node.

Only the inside of a node belongs here: which node is `placement.choice.search`, what a path costs in seconds is
`topology.cost.cost`. How sets of GPUs are judged is in `placement.machine.gpu_sets`. Answers are cached per machine,
so the same question again costs a dictionary look-up.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.model.errors import BadInput
from gantree.placement.machine.gpu_sets import (
    EXACT_GPUS,
    Exhaustive,
    GpuLinks,
    Greedy,
    Matrix,
    NearbyResources,
    NumaShortages,
    bits,
)
from gantree.topology.hardware.catalog import bonded_links, weakness
from gantree.topology.hardware.masks import mask_of

INNER_TIERS = ("socket", "nvlink", "pcie", "gpu")
"""Tiers inside a node that a job may require."""
DISTANCES = 4
"""How far a GPU may be from a NIC: near, behind its PCIe switch, on its socket, elsewhere in the node."""
MOST_CACHED = 1 << 16
"""Most answers cached per machine, and machines; then the cache is cleared. 8 GPUs have 2,048 questions."""

_Question = tuple[int, int, int | None, int, NumaShortages]
"""The arguments of `choose_gpus` beside the machine."""


def choose_gpus(
    machine: Machine,
    free: int,
    count: int,
    free_nics: int | None = None,
    nics: int = 0,
    shortages: NumaShortages = (),
) -> tuple[int, ...]:
    """Return the best `count` of the GPUs in the bit mask `free`, in link order. AssertionError if too few.

    If traffic leaves the node, or NICs are requested: free_nics is the mask of the NICs (a bit each, in the machine's
    order) that are free and whole, of which `nics` are requested; a GPU far from all of them is worth less. shortages
    are the NUMA nodes that are short of cores or memory (`placement.machine.numa.numa_shortages`).
    """
    cache = _cache_of(machine)
    question = (free, count, free_nics, nics, shortages)
    answer = cache.chosen_gpus.get(question)
    return answer if answer is not None else cache.choose_gpus(question)


def choose_nics(
    machine: Machine, gpus: tuple[int, ...], free: tuple[str, ...], count: int
) -> tuple[str, ...]:
    """Return the best `count` of the `free` NICs for a member on `gpus`, in the order of the GPUs they serve.

    The nearest come first: a nearest NIC of a chosen GPU, then one of a GPU behind the same PCIe switch, then on
    the same socket, then of any GPU, and NICs that are near to no GPU (storage) last. Among equals: the NIC that
    serves most GPUs without one, the least shared with GPUs of others, the first of the machine. AssertionError if
    too few are free or the machine has no such NIC.
    """
    cache = _cache_of(machine)
    answer = cache.chosen_nics.get((gpus, free, count))
    return answer if answer is not None else cache.choose_nics(gpus, free, count)


def inner_domains(machine: Machine, tier: str) -> tuple[int, ...]:
    """Return the domains of a tier inside the node as masks of GPUs, by lowest GPU. BadInput: unknown tier.

    nvlink: GPUs that NVLinks join, directly or over others; a GPU without is a domain of one. socket: GPUs of one
    NUMA node as the machine numbers them; those without a number are together. pcie: GPUs behind one PCIe switch
    (PIX or PXB); where NVLink hides the PCIe path or no link is known, GPUs that share a nearest NIC, or, if no NIC
    tells, a NUMA node; where nothing is known each GPU is alone. gpu: each alone.
    """
    if tier not in INNER_TIERS:
        raise BadInput(f"{tier!r} is no tier inside a node; allowed: {', '.join(INNER_TIERS)}")
    return _cache_of(machine).domains[tier]


@dataclass(slots=True)
class _MachineCache:
    """One machine: its inner domains, and the questions answered so far."""

    machine: Machine
    domains: dict[str, tuple[int, ...]]
    search: Exhaustive | Greedy
    chosen_gpus: dict[_Question, tuple[int, ...]] = field(default_factory=dict)
    chosen_nics: dict[tuple[tuple[int, ...], tuple[str, ...], int], tuple[str, ...]] = field(
        default_factory=dict
    )
    nearby: dict[tuple[int, int, NumaShortages], NearbyResources] = field(default_factory=dict)

    def choose_gpus(self, question: _Question) -> tuple[int, ...]:
        free, count, free_nics, nics, shortages = question
        assert free >> self.machine.gpus == 0, (
            f"{free:b} names GPUs that {self.machine.name} has not"
        )
        assert 0 <= count <= free.bit_count(), f"{count} GPUs of {free.bit_count()} that are free"
        nearby = self._nearby(free_nics, nics, shortages)
        if nearby is not None and nearby.is_irrelevant_for(free):
            answer = self._answer((free, count, None, 0, ()))
        else:
            answer = self.search.choose(free, count, nearby) if count else ()
        if len(self.chosen_gpus) >= MOST_CACHED:
            self.chosen_gpus.clear()
        self.chosen_gpus[question] = answer
        return answer

    def _answer(self, question: _Question) -> tuple[int, ...]:
        answer = self.chosen_gpus.get(question)
        return answer if answer is not None else self.choose_gpus(question)

    def _nearby(
        self, free_nics: int | None, nics: int, shortages: NumaShortages
    ) -> NearbyResources | None:
        """What is free near the GPUs, read once; None if that does not matter."""
        if free_nics is None and not shortages:
            return None
        key = (free_nics or 0, nics, shortages)
        kept = self.nearby.get(key)
        if kept is None:
            if len(self.nearby) >= MOST_CACHED:
                self.nearby.clear()
            kept = self.nearby[key] = self._read_nearby(*key)
        return kept

    def _read_nearby(self, free_nics: int, nics: int, shortages: NumaShortages) -> NearbyResources:
        """What is free near the GPUs; NICs that are near to no GPU do not count."""
        free = [nic for bit, nic in enumerate(self.machine.nics) if free_nics >> bit & 1]
        near = Counter(mask_of(nic.near) for nic in free if nic.near)
        far = [0] * DISTANCES
        for gpu in range(self.machine.gpus if near else 0):
            rings = _rings_around(self.domains, (gpu,))
            far[min(_distance(gpus, rings) for gpus in near)] |= 1 << gpu
        farthest_first = tuple(gpus for gpus in far[:0:-1] if gpus)
        return NearbyResources(farthest_first, tuple(near.items()), nics, shortages)

    def choose_nics(
        self, gpus: tuple[int, ...], free: tuple[str, ...], count: int
    ) -> tuple[str, ...]:
        assert count <= len(free), f"{count} NICs of {len(free)} that are free"
        answer = _nearest_nics(self.machine, self.domains, gpus, frozenset(free), count)
        if len(self.chosen_nics) >= MOST_CACHED:
            self.chosen_nics.clear()
        self.chosen_nics[gpus, free, count] = answer
        return answer


_CACHE_OF_IDENTITY: dict[int, tuple[Machine, _MachineCache]] = {}
"""id(machine) -> the machine, held so that no other gets its id, and its cache. Hashing a machine takes too long."""


def _cache_of(machine: Machine) -> _MachineCache:
    entry = _CACHE_OF_IDENTITY.get(id(machine))
    if entry is None:
        if len(_CACHE_OF_IDENTITY) >= MOST_CACHED:
            _CACHE_OF_IDENTITY.clear()
        entry = _CACHE_OF_IDENTITY[id(machine)] = (machine, _new_cache(machine))
    return entry[1]


@lru_cache(maxsize=256)
def _new_cache(machine: Machine) -> _MachineCache:
    """One cache for all machines that are equal."""
    domains = {
        "nvlink": _joined(machine.gpus, lambda a, b: bonded_links(_link(machine, a, b)) > 0),
        "socket": _joined(machine.gpus, lambda a, b: _numa(machine, a) == _numa(machine, b)),
        "pcie": _joined(machine.gpus, lambda a, b: _behind_one_switch(machine, a, b)),
        "gpu": tuple(1 << gpu for gpu in range(machine.gpus)),
    }
    links = GpuLinks(
        weakness=_matrix(machine, weakness),
        width=_matrix(machine, bonded_links),
        switches=domains["pcie"],
        sockets=domains["socket"],
    )
    search = Exhaustive(links) if machine.gpus <= EXACT_GPUS else Greedy(links)
    return _MachineCache(machine, domains, search)


def _joined(gpus: int, together: Callable[[int, int], bool]) -> tuple[int, ...]:
    """Group GPUs that are together, directly or over others; masks by lowest GPU."""
    groups: list[int] = []
    for gpu in range(gpus):
        near = [group for group in groups if any(together(other, gpu) for other in bits(group))]
        groups = [group for group in groups if group not in near] + [sum(near) | 1 << gpu]
    return tuple(sorted(groups, key=lambda group: group & -group))


def _behind_one_switch(machine: Machine, a: int, b: int) -> bool:
    link = _link(machine, a, b)
    if link != NO_LINK and not bonded_links(link):
        return link in {"PIX", "PXB"}
    near_a, near_b = ({nic.name for nic in machine.nics if gpu in nic.near} for gpu in (a, b))
    if near_a or near_b:
        return not near_a.isdisjoint(near_b)
    return _numa(machine, a) is not None and _numa(machine, a) == _numa(machine, b)


def _link(machine: Machine, a: int, b: int) -> str:
    """Class of the path between two GPUs; the weaker where the two directions differ; NO_LINK if not given."""
    if not machine.links:
        return NO_LINK
    given = [link for link in (machine.links[a][b], machine.links[b][a]) if link != NO_LINK]
    return max(given, key=weakness, default=NO_LINK)


def _numa(machine: Machine, gpu: int) -> int | None:
    return machine.numa[gpu] if machine.numa else None


def _matrix(machine: Machine, measure: Callable[[str], int]) -> Matrix:
    """Return a measure of the link class of each pair [gpu][gpu]; 0 on the diagonal."""
    gpus = range(machine.gpus)
    return tuple(tuple(0 if a == b else measure(_link(machine, a, b)) for b in gpus) for a in gpus)


def _nearest_nics(
    machine: Machine,
    domains: dict[str, tuple[int, ...]],
    gpus: tuple[int, ...],
    free: frozenset[str],
    count: int,
) -> tuple[str, ...]:
    left = [nic for nic in machine.nics if nic.name in free]
    assert len(left) == len(free), f"{sorted(free)}: {machine.name} has no such NICs"
    rings = _rings_around(domains, gpus)
    nics_of_gpu = dict.fromkeys(gpus, 0)
    taken: list[Nic] = []
    for _ in range(count):
        nic = min(left, key=lambda nic: _nic_order(nic, rings, nics_of_gpu))
        left.remove(nic)
        taken.append(nic)
        for gpu in set(nic.near) & nics_of_gpu.keys():
            nics_of_gpu[gpu] += 1
    place = {gpu: place for place, gpu in enumerate(gpus)}
    taken.sort(
        key=lambda nic: min((place[gpu] for gpu in nic.near if gpu in place), default=len(gpus))
    )
    return tuple(nic.name for nic in taken)


def _rings_around(domains: dict[str, tuple[int, ...]], gpus: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chosen GPUs, all behind their PCIe switches, all on their sockets, and all there are, as masks.

    A member without GPUs has nothing around it: all NICs are equally far from it.
    """
    chosen = sum(1 << gpu for gpu in gpus)
    switches, sockets = (
        sum(domain for domain in domains[tier] if domain & chosen) for tier in ("pcie", "socket")
    )
    return chosen, switches, sockets, sum(domains["gpu"]) if chosen else 0


def _distance(near: int, rings: tuple[int, ...]) -> int:
    """Return the first ring with a GPU that a NIC is near to; len(rings) where there is none."""
    return next((ring for ring, gpus in enumerate(rings) if near & gpus), len(rings))


def _nic_order(
    nic: Nic, rings: tuple[int, ...], nics_of_gpu: dict[int, int]
) -> tuple[int, int, int, int]:
    near = mask_of(nic.near)
    distance = _distance(near, rings)
    served = [nics_of_gpu[gpu] for gpu in nic.near if gpu in nics_of_gpu]
    return distance, -served.count(0), min(served, default=0), (near & ~rings[0]).bit_count()
