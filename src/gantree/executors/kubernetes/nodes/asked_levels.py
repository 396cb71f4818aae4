"""Label keys that gangs ask domains of although no level is made of them: which tier each means, and which are kept.

Kubernetes' own scheduler takes any node label as a topology key. Here such a key becomes a tier of the site where its
domains nest (`listings.kubernetes.read`), or means the tier that divides the nodes in the same way.
"""

from collections.abc import Iterable, Iterator, Mapping

from gantree.core.view import LedgerView
from gantree.model.cluster import Cluster, Node
from gantree.model.jobs import Job
from gantree.topology.discovery.listings.label_keys import tier_name

MOST_ASKED = 8
"""Any user may ask for a key, and each tier costs time: so many keys are taken at most."""


def tiers_of_keys(cluster: Cluster, keys: Iterable[str]) -> dict[str, str]:
    """The tier that each key means, of those that mean one: nodes are in one domain of it as they have one value."""
    found = {}
    for key in keys:
        tier = _tier_of(cluster, key)
        if tier is not None:
            found[key] = tier
    return found


def keys_of_jobs(
    decided: LedgerView, tiers: Iterable[str], labels: Iterable[str]
) -> tuple[str, ...]:
    """Keys among the nodes' labels after which tiers are named that open jobs ask for and the site lacks."""
    asked = {tier for state in decided.open_jobs() for tier in _tiers_asked(state.spec)}
    lost = asked.difference(tiers, ("socket", "pcie", "nvlink"))
    return tuple(key for key in sorted(labels) if tier_name(key) in lost) if lost else ()


def _tiers_asked(job: Job) -> Iterator[str]:
    for topology in (job.topology, *(role.topology for role in job.roles)):
        words = (topology.required, topology.preferred, *(s.required for s in topology.slices))
        yield from (word for word in words if word)


def _tier_of(cluster: Cluster, key: str) -> str | None:
    value_of = {node.name: dict(node.labels).get(key, "") for node in cluster.nodes}
    labelled = [node for node in cluster.nodes if value_of[node.name]]
    for number, tier in enumerate(cluster.tiers):
        domain_of = {node.name: _path(node)[: number + 1] for node in labelled}
        if labelled and _is_same(value_of, domain_of):
            return tier
    return None


def _path(node: Node) -> tuple[str, ...]:
    return (*node.at, node.name)


def _is_same(value_of: Mapping[str, str], domain_of: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether nodes have one value as they have one domain."""
    pairs = {(value_of[name], domain) for name, domain in domain_of.items()}
    values, domains = {value for value, _ in pairs}, {domain for _, domain in pairs}
    return len(pairs) == len(values) == len(domains)
