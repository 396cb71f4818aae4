"""A fabric as one source describes it: nodes in a tree of domains, their NICs, and partitions beside the tree.

Every parser of a fabric source returns a `FabricReading`: what the source states and no more, in the source's order.
`inferred` has sentences on what was concluded from something else, `warnings` what is missing or odd; what contradicts
itself is refused by the parser, with lines. Making one cluster of readings and machines is `assembly`.

How sources that are no even tree become one, the same for all (`ragged` does it):
- Tiers are named from the narrowest outwards, for that is where sources agree. A node that hangs higher up, or a
  branch that is shorter, gets domains of its own in the tiers it lacks, each holding only what is below it and named
  after it (or after the node). So `required: TIER` never joins what no switch joins.
- Several roots are several domains of the widest tier. Nothing is put above them.
- Domains are known by their whole path: `leaf0` under `pod0` is not `leaf0` under `pod1`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from gantree.model.cluster import DomainFacts, Link, Torus


@dataclass(frozen=True, slots=True)
class SeenNic:
    """One NIC of a node, as the fabric sees it.

    name is what the fabric calls it ("mlx5_0", "HCA-1", ""), guids the GUIDs it is known by (16 hex digits, lower
    case), switch the name of the switch it hangs on, rail its number among the rails found.
    """

    name: str
    guids: tuple[str, ...] = ()
    switch: str | None = None
    rail: int | None = None
    bandwidth_GBps: float | None = None


@dataclass(frozen=True, slots=True)
class SeenNode:
    """One node. at names its domain in each tier of the reading, widest first.

    machine names a model of the catalogue where the source gives one; gpus, gpu, cpus and memory_GiB are what it gives
    of a node's hardware otherwise. partitions are divisions of the same nodes that are no tiers.
    """

    name: str
    at: tuple[str, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    partitions: tuple[tuple[str, str], ...] = ()
    nics: tuple[SeenNic, ...] = ()
    machine: str | None = None
    gpus: int | None = None
    gpu: str | None = None
    cpus: float | None = None
    memory_GiB: float | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class FabricReading:
    """What a source states of a fabric. tiers run from wide to narrow, without "node"; links are by tier.

    warnings_if_alone apply only where no other source places the nodes: `merging` keeps or drops them.
    """

    tiers: tuple[str, ...]
    nodes: tuple[SeenNode, ...]
    links: Mapping[str, Link] = field(default_factory=dict)
    domains: tuple[DomainFacts, ...] = ()
    tori: tuple[Torus, ...] = ()
    inferred: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    warnings_if_alone: tuple[str, ...] = ()

    def as_json(self) -> dict[str, object]:
        """Return what `gantree topo import KIND --json` prints for a fabric."""
        return {
            "tiers": list(self.tiers),
            "nodes": [_node_json(node, self.tiers) for node in self.nodes],
            "links": {tier: _told(link) for tier, link in self.links.items()},
            "domains": [_told(domain) for domain in self.domains],
            "tori": [_told(torus) for torus in self.tori],
            "inferred": list(self.inferred),
            "warnings": list(self.warnings),
        }


def ragged(
    paths: Mapping[str, Sequence[str]], names_of_tiers: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """Make paths of different lengths one even tree: (tiers, path of each node).

    paths[node] names its domains from the widest to the one the node hangs on. names_of_tiers are the tiers from the
    narrowest outwards ("leaf", "spine", "core"); where the tree is deeper, "tier4", "tier5"... follow. A domain is
    in the tier of its height: the most domains that any node has below it.
    """
    height_of: dict[tuple[str, ...], int] = {}
    for path in paths.values():
        for length in range(1, len(path) + 1):
            domain = tuple(path[:length])
            height_of[domain] = max(height_of.get(domain, 0), len(path) - length)
    depth = max(height_of.values(), default=-1) + 1
    named = [names_of_tiers[i] if i < len(names_of_tiers) else f"tier{i + 1}" for i in range(depth)]
    at = {node: _even(tuple(path) or (node,), height_of, depth) for node, path in paths.items()}
    return tuple(reversed(named)), at


def _even(
    path: tuple[str, ...], height_of: Mapping[tuple[str, ...], int], depth: int
) -> tuple[str, ...]:
    """Name the domain of each height: the one of the path, else the nearest below, else the narrowest."""
    heights = [height_of.get(path[: i + 1], 0) for i in range(len(path))]
    below = [
        next((name for name, own in zip(path, heights, strict=True) if own <= height), path[-1])
        for height in range(depth)
    ]
    return tuple(reversed(below))


def _node_json(node: SeenNode, tiers: tuple[str, ...]) -> dict[str, object]:
    given = _told(node)
    given["at"] = dict(zip(tiers, node.at, strict=True))
    for key in ("labels", "partitions"):
        if key in given:
            given[key] = dict(getattr(node, key))
    if node.nics:
        given["nics"] = [_told(nic) for nic in node.nics]
    return given


def _told(value: SeenNode | SeenNic | Link | DomainFacts | Torus) -> dict[str, object]:
    """Return the fields that are set."""
    given = {field.name: getattr(value, field.name) for field in fields(value)}
    return {name: _plain(each) for name, each in given.items() if each not in (None, (), "")}


def _plain(value: object) -> object:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
