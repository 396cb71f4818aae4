"""A fabric as a graph of switches, NICs and cables, and the tiers, domains and rails made of it.

Belongs here: the graph itself and the reading made of it. Where a switch is in the fabric is `switch_levels`,
which leaves form one domain and what domains are called is `switch_domains`, rails are `rails`. What a tool prints
is read by `ibnetdiscover`, `ufm` and `netq`; all of them end in `read_graph`.

How a graph becomes a tree. A fat tree is none: several spines join the same leaves, and in a rail-optimised fabric
several leaves hang on the same hosts. So a domain is a set of switches, not a switch:
- Leaves are the switches that hosts hang on; a domain of tier `leaf` is the group of leaves that the same hosts hang
  on (a scalable unit), one leaf where hosts have one cable.
- A domain of a wider tier is all that switches up to that level join. So domains nest, whatever the cabling.
- A cable between two switches of one level joins their domains in the next wider tier, not in their own: routers of
  a mesh or a dragonfly stay leaves of their own, and are one domain of the tier above.
Capacity of a domain's up-links is the sum of the rates of the cables that are up and leave it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gantree.model.cluster import DomainFacts
from gantree.text.words import counted, plural
from gantree.topology.discovery.fabrics import FabricReading, SeenNic, SeenNode
from gantree.topology.discovery.networks.rails import Rails, find_rails
from gantree.topology.discovery.networks.switch_domains import (
    Domains,
    Place,
    natural,
    path_of,
    place_of_host,
    tree_of,
)
from gantree.topology.discovery.networks.switch_levels import (
    MAX_LEVELS,
    Levels,
    Wiring,
    leaf_groups,
    levels_of,
)

TIERS = ("leaf", "spine", "core")
"""Names of tiers from the narrowest outwards; "tier4", "tier5"... follow."""


@dataclass(frozen=True, slots=True)
class GraphSwitch:
    """A switch. level counts from 1 (a leaf) where the source gives it."""

    id: str
    name: str = ""
    level: int | None = None


@dataclass(frozen=True, slots=True)
class GraphNic:
    """One port of a NIC, on a cable or not. host is None where no source gives it."""

    id: str
    host: str | None
    name: str = ""
    guids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable between two things, by their ids. GBps is its rate in one direction, None where not given."""

    ends: tuple[str, str]
    GBps: float | None = None
    up: bool = True
    ports: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class SwitchGraph:
    """Switches, NICs and cables, each cable once, in the source's order. Ids are unique; names need not be.

    hosts are those that may have no NIC at all.
    """

    switches: tuple[GraphSwitch, ...]
    nics: tuple[GraphNic, ...]
    cables: tuple[Cable, ...]
    hosts: tuple[str, ...] = ()


def examples(names: Iterable[str], most: int = 3) -> str:
    """Return the first few of some names, each once, for a warning."""
    once = list(dict.fromkeys(names))
    return ", ".join(once[:most]) + (f" and {len(once) - most} more" if len(once) > most else "")


def read_graph(
    graph: SwitchGraph, inferred: Sequence[str] = (), warnings: Sequence[str] = ()
) -> FabricReading:
    """Return the tiers, domains, nodes and rails of a graph, after what its source inferred and warned of.

    Levels are the source's where it gives them for all switches, else counted from the hosts. Never raises.
    """
    switches = _in_order(graph.switches)
    names = _unique_names(switches)
    wiring, rates, odd = _wiring(graph, switches, names)
    levels = levels_of(wiring, [switch.level for switch in switches])
    groups = leaf_groups(wiring, levels.of_switch)
    domains = tree_of(wiring, levels.of_switch, groups)
    places = place_of_host(wiring, levels.of_switch, groups)
    rails = find_rails(wiring, [nic.name for nic in graph.nics], groups)
    tiers = tuple(reversed([tier_name(tier) for tier in range(domains.depth)]))
    paths = [
        path_of(place, host, domains, levels.of_switch, names)
        for place, host in zip(places, wiring.hosts, strict=True)
    ]
    nics = _seen_nics(graph, wiring, rates, rails)
    facts, unrated = _uplinks(wiring, levels.of_switch, domains, places, paths)
    return FabricReading(
        tiers,
        tuple(
            SeenNode(host, at, nics=tuple(nics[i]))
            for i, (host, at) in enumerate(zip(wiring.hosts, paths, strict=True))
        ),
        domains=facts,
        inferred=(*inferred, *_inferred(graph, wiring, levels, rails)),
        warnings=(
            *warnings,
            *odd,
            *_place_warnings(wiring, levels, domains, places, unrated),
            *_rail_warnings(graph, wiring, rails),
        ),
    )


def tier_name(number: int) -> str:
    """Return the name of the tier of that number, counted from 0 for the narrowest."""
    return TIERS[number] if number < len(TIERS) else f"tier{number + 1}"


def _in_order(switches: Sequence[GraphSwitch]) -> list[GraphSwitch]:
    return sorted(switches, key=lambda switch: (natural(switch.name), switch.id))


def _unique_names(switches: Sequence[GraphSwitch]) -> tuple[str, ...]:
    """Names of switches; those without one, or with another's, are called after their ids too."""
    times = Counter(switch.name for switch in switches)
    return tuple(
        switch.name
        if switch.name and times[switch.name] == 1
        else f"{switch.name or 'switch'}-{switch.id}"
        for switch in switches
    )


def _wiring(
    graph: SwitchGraph, switches: Sequence[GraphSwitch], names: tuple[str, ...]
) -> tuple[Wiring, list[float | None], list[str]]:
    """Return the cables that are up as numbers, GB/s by NIC, and warnings of those that lead nowhere."""
    number_of_switch = {switch.id: number for number, switch in enumerate(switches)}
    number_of_nic = {nic.id: number for number, nic in enumerate(graph.nics)}
    in_nics = [nic.host for nic in graph.nics if nic.host]
    hosts = {host: i for i, host in enumerate(dict.fromkeys([*in_nics, *graph.hosts]))}
    switch_of_nic: list[int | None] = [None] * len(graph.nics)
    rates: list[float | None] = [None] * len(graph.nics)
    links = []
    odd: Counter[str] = Counter()
    for cable in graph.cables:
        a, b = sorted(cable.ends, key=lambda end: end in number_of_nic)
        if not cable.up:
            odd["cables are down and join nothing"] += 1
        elif a in number_of_switch and b in number_of_switch:
            if a == b:
                odd["cables join a switch with itself and are passed over"] += 1
            else:
                links.append((number_of_switch[a], number_of_switch[b], cable.GBps))
        elif a in number_of_switch and b in number_of_nic:
            switch_of_nic[number_of_nic[b]] = number_of_switch[a]
            rates[number_of_nic[b]] = cable.GBps
        elif a in number_of_nic and b in number_of_nic:
            odd["cables join two hosts without a switch and are passed over"] += 1
    wiring = Wiring(
        names,
        tuple(hosts),
        tuple(links),
        tuple(switch_of_nic),
        tuple(hosts[nic.host] if nic.host else None for nic in graph.nics),
    )
    return wiring, rates, [f"{count} {given}" for given, count in odd.items()]


def _seen_nics(
    graph: SwitchGraph, wiring: Wiring, rates: Sequence[float | None], rails: Rails
) -> list[list[SeenNic]]:
    """NICs by host, in the order of their names."""
    nics: list[list[SeenNic]] = [[] for _ in wiring.hosts]
    for number, nic in enumerate(graph.nics):
        host, switch = wiring.host_of_nic[number], wiring.switch_of_nic[number]
        if host is not None:
            name = None if switch is None else wiring.switches[switch]
            rail = None if switch is None else rails.rail_of_leaf.get(switch)
            nics[host].append(SeenNic(nic.name, nic.guids, name, rail, rates[number]))
    for of_host in nics:
        of_host.sort(key=lambda nic: (natural(nic.name), nic.guids))
    return nics


def _uplinks(
    wiring: Wiring,
    levels: Sequence[int],
    domains: Domains,
    places: Sequence[Place],
    paths: Sequence[tuple[str, ...]],
) -> tuple[tuple[DomainFacts, ...], int]:
    """Return the capacity of the domains with hosts in them, and of how many it is not known.

    A domain that no cable leaves has none, and gets no entry: there is nothing beyond it.
    """
    facts: list[DomainFacts] = []
    unrated = 0
    for tier in reversed(range(domains.depth)):
        GBps, unknown = _leaving(wiring, domains.of_switch[tier])
        path_of_domain: dict[int, tuple[str, ...]] = {}
        for place, path in zip(places, paths, strict=True):
            if place.switch is not None and levels[place.switch] <= tier + 1:
                path_of_domain.setdefault(domains.of_switch[tier][place.switch], path)
        for domain, path in path_of_domain.items():
            unrated += domain in unknown
            if domain in GBps and domain not in unknown:
                name = "/".join(path[: len(path) - tier])
                facts.append(DomainFacts(tier_name(tier), name, round(GBps[domain], 6)))
    return tuple(facts), unrated


def _leaving(wiring: Wiring, domain_of: Sequence[int]) -> tuple[dict[int, float], set[int]]:
    """Sum up the cables that leave each domain; the second are domains of which a cable has no known rate."""
    GBps: dict[int, float] = defaultdict(float)
    unknown: set[int] = set()
    for a, b, rate in wiring.links:
        ends = (domain_of[a], domain_of[b])
        if ends[0] != ends[1]:
            for end in ends:
                GBps[end] += rate or 0.0
            if rate is None:
                unknown.update(ends)
    return GBps, unknown


def _inferred(graph: SwitchGraph, wiring: Wiring, levels: Levels, rails: Rails) -> list[str]:
    given = [f"tiers and domains are concluded from {len(graph.cables)} cables"]
    if levels.above:
        named = examples(wiring.switches[switch] for switch in levels.above)
        given.append(f"{named} stand above the leaves, though a few hosts hang on them")
    if rails.count:
        how = "NIC names" if rails.by_name else "the order of leaf names in each leaf domain"
        given.append(f"{rails.count} rails, numbered by {how}")
    return given


def _place_warnings(
    wiring: Wiring, levels: Levels, domains: Domains, places: Sequence[Place], unrated: int
) -> list[str]:
    warnings = []
    idle = [
        name for name, level in zip(wiring.switches, levels.of_switch, strict=True) if not level
    ]
    if idle:
        warnings.append(f"{len(idle)} switches lead to no host: {examples(idle)}")
    if levels.too_far:
        warnings.append(
            f"{levels.too_far} switches are more than {MAX_LEVELS} levels up and count as of level {MAX_LEVELS}"
        )
    if domains.links_in_a_level:
        warnings.append(
            f"no tree: {domains.links_in_a_level} cables join switches of one level; what they join is "
            "one domain of the next wider tier"
        )
    for given, hosts in _odd_hosts(wiring, levels.of_switch, places).items():
        warnings.append(f"{plural(len(hosts), 'host')} {given}: {examples(hosts)}")
    if unrated:
        warnings.append(
            f"the up-link capacity of {plural(unrated, 'domain')} is not known: cables without a rate"
        )
    return (
        warnings
        + _case_warnings("hosts", wiring.hosts)
        + _case_warnings("switches", wiring.switches)
    )


def _odd_hosts(
    wiring: Wiring, levels: Sequence[int], places: Sequence[Place]
) -> dict[str, list[str]]:
    odd: dict[str, list[str]] = defaultdict(list)
    for host, place in zip(wiring.hosts, places, strict=True):
        if place.switch is None:
            odd["on no switch, each a domain of its own"].append(host)
        elif levels[place.switch] > 1:
            odd["on a switch above the leaves, in a leaf domain with no other"].append(host)
        elif place.straddles:
            odd["on several leaf domains, placed where most of the NICs are"].append(host)
    return odd


def _case_warnings(kind: str, names: Sequence[str]) -> list[str]:
    spellings: dict[str, list[str]] = defaultdict(list)
    for name in names:
        spellings[name.lower()].append(name)
    alike = [name for same in spellings.values() if len(same) > 1 for name in same]
    return [f"names of {kind} that differ only in case: {examples(alike)}"] if alike else []


def _rail_warnings(graph: SwitchGraph, wiring: Wiring, rails: Rails) -> list[str]:
    warnings = []
    if rails.doubled:
        hosts = examples(wiring.hosts[host] for host in rails.doubled)
        warnings.append(
            f"{counted(len(rails.doubled), 'host has', 'hosts have')} two or more NICs on one rail: {hosts}"
        )
    if rails.strays:
        nics = examples(f"{graph.nics[nic].host} {graph.nics[nic].name}" for nic in rails.strays)
        warnings.append(
            f"{counted(len(rails.strays), 'NIC hangs', 'NICs hang')} on the rail of others, a swapped cable "
            f"perhaps: {nics}"
        )
    return warnings
