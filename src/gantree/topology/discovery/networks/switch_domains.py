"""The tree of domains of a fabric: the switches, name and hosts of each domain of each tier.

Names. A domain of one switch has the name of the switch. A domain of several has the pattern of their names, where
they agree but for some parts, with "x" in place of these ("leaf-1-4" to "leaf-8-4" are "leaf-x-4"); where two domains
of a tier would get the same, or the names have no pattern, it is called after its first and last switch
("leaf1..leaf4"). A domain without a switch of its own tier has the name of the domain inside it. So a name stays as
long as the fabric stays, whatever the order of the source.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gantree.topology.discovery.networks.switch_levels import Sets, Wiring

_PARTS = re.compile(r"\d+|[^\W\d_]+|[\W_]")
_ANY = "x"


def natural(name: str) -> tuple[tuple[bool, int, str], ...]:
    """Return a key that sorts "n2" before "n10"."""
    parts = re.split(r"(\d+)", name)
    return tuple(
        (part.isdecimal(), int(part[:18]) if part.isdecimal() else 0, part) for part in parts
    )


@dataclass(frozen=True, slots=True)
class Domains:
    """By tier, narrowest first: of_switch[tier][switch] is a domain, known by its first switch, and its name."""

    of_switch: tuple[tuple[int, ...], ...]
    name_of: tuple[Mapping[int, str], ...]
    links_in_a_level: int

    @property
    def depth(self) -> int:
        """How many tiers there are."""
        return len(self.of_switch)


def tree_of(wiring: Wiring, levels: Sequence[int], group_of_leaf: Mapping[int, int]) -> Domains:
    """Join switches tier by tier. Switches that lead to no host (level 0) are domains of their own."""
    sets = Sets(len(wiring.switches))
    for leaf, first in group_of_leaf.items():
        sets.join(leaf, first)
    links_of_tier: dict[int, list[tuple[int, int]]] = defaultdict(list)
    level_links = 0
    for a, b, _ in wiring.links:
        if levels[a] and levels[b]:
            level_links += levels[a] == levels[b]
            links_of_tier[max(levels[a], levels[b]) + (levels[a] == levels[b])].append((a, b))
    depth = max([*links_of_tier, *levels], default=0)
    of_switch: list[tuple[int, ...]] = []
    name_of: list[Mapping[int, str]] = []
    inner: Mapping[int, str] = {}
    for tier in range(1, depth + 1):
        for a, b in links_of_tier[tier]:
            sets.join(a, b)
        domain_of = tuple(sets.find(switch) for switch in range(len(wiring.switches)))
        inner = _names(
            wiring.switches, levels, tier, domain_of, of_switch[-1] if of_switch else (), inner
        )
        of_switch.append(domain_of)
        name_of.append(inner)
    return Domains(tuple(of_switch), tuple(name_of), level_links)


def _names(
    switches: Sequence[str],
    levels: Sequence[int],
    tier: int,
    domain_of: Sequence[int],
    inner_of: Sequence[int],
    inner_names: Mapping[int, str],
) -> dict[int, str]:
    own: dict[int, list[str]] = defaultdict(list)
    inside: dict[int, dict[str, None]] = defaultdict(dict)
    for switch, domain in enumerate(domain_of):
        if levels[switch] == tier:
            own[domain].append(switches[switch])
        elif 0 < levels[switch] < tier:
            inside[domain][inner_names[inner_of[switch]]] = None
    members = {
        d: own.get(d) or list(inside[d])
        for d in dict.fromkeys(domain_of)
        if d in own or d in inside
    }
    patterns = {domain: _pattern(names) for domain, names in members.items()}
    times = Counter(patterns.values())
    taken = frozenset(switches)
    return {
        domain: names[0]
        if len(names) == 1
        else patterns[domain]
        if patterns[domain] and times[patterns[domain]] == 1 and patterns[domain] not in taken
        else f"{names[0]}..{names[-1]}"
        for domain, names in members.items()
    }


def _pattern(names: Sequence[str]) -> str:
    """Return what all names have in common, with "x" for the parts in which they differ; "" where that is little."""
    split = [_PARTS.findall(name) for name in names]
    if len({len(parts) for parts in split}) != 1:
        return ""
    common = [parts[0] if len(set(parts)) == 1 else "" for parts in zip(*split, strict=True)]
    letters = sum(len(part) for part in common if part.isalnum())
    return "".join(part or _ANY for part in common) if letters > 1 else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a host hangs: the switch whose domains are its own, None where it hangs on none.

    straddles: its NICs hang on several leaf domains, of which the one with most of them was taken.
    """

    switch: int | None = None
    straddles: bool = False


def place_of_host(
    wiring: Wiring, levels: Sequence[int], group_of_leaf: Mapping[int, int]
) -> list[Place]:
    """Place each host in the leaf domain with most of its NICs (of these, the one with the fewest hosts).

    A host that hangs on no leaf is placed at the switch with most of its NICs.
    """
    nics_of_host: list[Counter[int]] = [Counter() for _ in wiring.hosts]
    for switch, host in zip(wiring.switch_of_nic, wiring.host_of_nic, strict=True):
        if switch is not None and host is not None:
            nics_of_host[host][group_of_leaf.get(switch, switch)] += 1
    hosts_on = Counter(at for nics in nics_of_host for at in nics)

    def place(nics: Counter[int]) -> Place:
        groups = [at for at in nics if levels[at] == 1] or list(nics)
        if not groups:
            return Place()
        best = min(groups, key=lambda at: (-nics[at], hosts_on[at], at))
        return Place(best, straddles=len(groups) > 1)

    return [place(nics) for nics in nics_of_host]


def path_of(
    place: Place, host: str, domains: Domains, levels: Sequence[int], switches: Sequence[str]
) -> tuple[str, ...]:
    """Return the domain of a host in each tier, widest first.

    Below the level of the switch it hangs on it has a domain of its own, called after that switch and shared only
    with hosts on the same switch; a host on no switch has one called after itself in every tier.
    """
    if place.switch is None:
        return (host,) * domains.depth
    at = [
        switches[place.switch]
        if tier < levels[place.switch]
        else domains.name_of[tier - 1][domains.of_switch[tier - 1][place.switch]]
        for tier in range(1, domains.depth + 1)
    ]
    return tuple(reversed(at))
