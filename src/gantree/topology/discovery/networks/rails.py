"""Rails of a fabric: leaf switches of one leaf domain, numbered consistently across leaf domains.

In a rail-optimised fabric the n-th NIC of every host of a unit hangs on the unit's n-th leaf. Where each leaf is
known by the NIC name that most of its hosts use there, and no two leaves of a unit by the same, rails are these
names in order; so a unit that lacks a leaf keeps the right numbers for the others. Otherwise leaves are numbered
in the order of their names, in each unit by itself. A fabric whose hosts hang on one leaf each has no rails.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gantree.topology.discovery.networks.switch_domains import natural
from gantree.topology.discovery.networks.switch_levels import Wiring

_HCA = re.compile(r"HCA-(\d+)(?=$|[:/])")
_NUMBERED = re.compile(r"[a-z]+[a-z0-9]*_(\d+)(?=$|[:/])")


@dataclass(frozen=True, slots=True)
class Rails:
    """rail_of_leaf by number of the switch; how they were numbered; NICs that hang where most others are another's."""

    rail_of_leaf: Mapping[int, int]
    by_name: bool = False
    strays: tuple[int, ...] = ()
    doubled: tuple[int, ...] = ()
    """Hosts with two or more NICs on one rail."""

    @property
    def count(self) -> int:
        """How many rails there are."""
        return 1 + max(self.rail_of_leaf.values(), default=-1)


def nic_key(name: str) -> str:
    """Return what NICs of the same rail have in common: the number of the device ("HCA-6" and "mlx5_5" are 5)."""
    hca = _HCA.match(name)
    if hca:
        return str(int(hca[1][:9]) - 1)
    numbered = _NUMBERED.match(name)
    return str(int(numbered[1][:9])) if numbered else name


def find_rails(wiring: Wiring, names: Sequence[str], group_of_leaf: Mapping[int, int]) -> Rails:
    """Number the leaves of each group of two or more. names are those of the NICs."""
    leaves_of_group: dict[int, list[int]] = defaultdict(list)
    for leaf, group in sorted(group_of_leaf.items()):
        leaves_of_group[group].append(leaf)
    groups = [leaves for leaves in leaves_of_group.values() if len(leaves) > 1]
    if not groups:
        return Rails({})
    key_of_leaf = _keys(wiring, names)
    keys = [[key_of_leaf.get(leaf, "") for leaf in leaves] for leaves in groups]
    order = sorted({key for row in keys for key in row}, key=natural)
    distinct = all(len(set(row)) == len(row) and "" not in row for row in keys)
    by_name = distinct and len(order) == max(len(row) for row in keys)
    if by_name:
        number = {key: rail for rail, key in enumerate(order)}
        rail_of_leaf = {
            leaf: number[key_of_leaf[leaf]]
            for leaf in group_of_leaf
            if key_of_leaf.get(leaf, "") in number
        }
    else:
        rail_of_leaf = {leaf: rail for leaves in groups for rail, leaf in enumerate(leaves)}
    strays = _strays(wiring, names, key_of_leaf, rail_of_leaf, group_of_leaf) if by_name else ()
    return Rails(rail_of_leaf, by_name, strays, _doubled(wiring, rail_of_leaf))


def _nics_on_leaves(wiring: Wiring) -> Iterable[tuple[int, int, int]]:
    """Yield (NIC, host, switch) for those that have both."""
    for nic, (switch, host) in enumerate(
        zip(wiring.switch_of_nic, wiring.host_of_nic, strict=True)
    ):
        if switch is not None and host is not None:
            yield nic, host, switch


def _keys(wiring: Wiring, names: Sequence[str]) -> dict[int, str]:
    """Return leaf -> the key that most of its NICs have; of two as frequent the first in order."""
    keys: dict[int, Counter[str]] = defaultdict(Counter)
    for nic, _, switch in _nics_on_leaves(wiring):
        keys[switch][nic_key(names[nic])] += 1
    return {
        leaf: min(count, key=lambda key: (-count[key], natural(key)))
        for leaf, count in keys.items()
    }


def _strays(
    wiring: Wiring,
    names: Sequence[str],
    key_of_leaf: Mapping[int, str],
    rail_of_leaf: Mapping[int, int],
    group_of_leaf: Mapping[int, int],
) -> tuple[int, ...]:
    """NICs whose name is that of a rail, but not of the rail that they hang on, of hosts that are on all rails."""
    rails = {key_of_leaf[leaf] for leaf in rail_of_leaf}
    leaves_in_group = Counter(group_of_leaf[leaf] for leaf in rail_of_leaf)
    nics_of_host = Counter(
        host for _, host, leaf in _nics_on_leaves(wiring) if leaf in rail_of_leaf
    )
    return tuple(
        nic
        for nic, host, leaf in _nics_on_leaves(wiring)
        if leaf in rail_of_leaf
        and nics_of_host[host] >= leaves_in_group[group_of_leaf[leaf]]
        and nic_key(names[nic]) != key_of_leaf[leaf]
        and nic_key(names[nic]) in rails
    )


def _doubled(wiring: Wiring, rail_of_leaf: Mapping[int, int]) -> tuple[int, ...]:
    times = Counter(
        (host, rail_of_leaf[leaf])
        for _, host, leaf in _nics_on_leaves(wiring)
        if leaf in rail_of_leaf
    )
    return tuple(dict.fromkeys(host for (host, _), count in times.items() if count > 1))
