"""Node labels of Kubernetes that describe the topology, from all known sources.

Keys only; what is made of them is `kubernetes`, what labels give for a node's hardware is `kubernetes_nodes`. Sources:
topograph's reference of node labels (its three families of keys: fabric.topograph.run and accelerator.topograph.run of
today, network.topology.nvidia.com of before, and the level-N keys between); AWS's EC2 instance topology labels, where
layer 1 is the outermost; GKE's gce-topology labels (block, subblock, host), which Google's topology scheduler for A3
called topology.gke.io (cluster, rack, host), and the TPU sub-slice labels of its TPU labeller; Oracle's oci-hpc-oke
quick start (rdma.*) and OKE (host.*); Crusoe's and CoreWeave's node labels.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gantree.model import node_rules
from gantree.text.document import written
from gantree.text.records import Record, described
from gantree.topology.discovery.listings.switch_tree import TIERS

ACCELERATOR_DOMAIN_KEYS = (
    "accelerator.topology.test/domain",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "nvidia.com/gpu.clique",
)
"""What topograph's models call the accelerator domain, as a label or an annotation."""
ACCELERATOR_SUB_DOMAIN_KEYS = (
    "accelerator.topology.test/sub-domain",
    "accelerator.topograph.run/sub-domain",
)
CLIQUE_KEY = "nvidia.com/gpu.clique"
NVLINK_KEYS = (
    CLIQUE_KEY,
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
    "accelerated.topology.nvidia.com/level-0",
    "topology.k8s.aws/ultraserver-id",
    "oci.oraclecloud.com/host.gpu_memory_fabric_id",
    "ds.coreweave.com/nvlink.domain",
)
"""Labels whose nodes are in one NVLink domain, the finest and surest first."""
DOMAIN_KEY = "accelerator.topograph.run/domain"
SUB_DOMAIN_KEY = "accelerator.topograph.run/sub-domain"
CAPACITY_BLOCK_KEY = "topology.k8s.aws/capacity-block-id"
"""What was reserved together. One NVLink domain on UltraServers only, so it is a partition."""
REGION_KEY, ZONE_KEY = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
OLD_KEYS = {
    REGION_KEY: "failure-domain.beta.kubernetes.io/region",
    ZONE_KEY: "failure-domain.beta.kubernetes.io/zone",
}
HOST_KEY = node_rules.HOST_KEY
TPU_TOPOLOGY_KEY = "cloud.google.com/gke-tpu-topology"
NODE_POOL_KEY = "cloud.google.com/gke-nodepool"
RESERVED_TIERS = frozenset({"node", "socket", "pcie", "gpu", "fabric"})

_NUMBERED = re.compile(
    r"(?:fabric\.topograph\.run/tier-|network\.topology\.nvidia\.com/level-)([0-9]{1,2})", re.ASCII
)
_AWS_LAYER = re.compile(r"topology\.k8s\.aws/network-node-layer-([0-9]{1,2})", re.ASCII)
_ACCELERATED = re.compile(r"accelerated\.topology\.nvidia\.com/level-([0-9]{1,2})", re.ASCII)
_TPU_SLICE = re.compile(
    r"cloud\.google\.com/gke-tpu-(?:slice|partition)-((?:[0-9]{1,4}x){1,2}[0-9]{1,4})-id", re.ASCII
)
_NO_PLACE = re.compile(
    r"(?:[a-z0-9-]{1,60}\.){0,3}(?:nvidia\.com|amd\.com|intel\.com)/|feature\.node\.kubernetes\.io/"
    r"|(?:beta\.|node\.|node-role\.|topology\.|failure-domain\.beta\.)?kubernetes\.io/|node\.k8s\.amazonaws\.com/",
    re.ASCII,
)
_NOT_IN_A_TIER = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class Level:
    """One tier, and the label keys that give a node's domain in it; the first that a node has counts."""

    tier: str
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """Labels that one source puts on nodes: its tiers, from wide to narrow.

    counted_inwards: nodes may have fewer of the levels, always the widest ones, and hang on the last that they have.
    """

    name: str
    levels: tuple[Level, ...]
    counted_inwards: bool = False


_FIXED = (
    Family(
        "topograph-nvidia",
        (
            Level("core", ("network.topology.nvidia.com/core", "network.topology.nvidia.com/datacenter")),
            Level("spine", ("network.topology.nvidia.com/spine",)),
            Level("leaf", ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/block")),
        ),
    ),
    Family(
        "gcp",
        (
            Level("block", ("cloud.google.com/gce-topology-block", "topology.gke.io/cluster")),
            Level("subblock", ("cloud.google.com/gce-topology-subblock", "topology.gke.io/rack")),
            Level("host", ("cloud.google.com/gce-topology-host", "topology.gke.io/host")),
        ),
    ),
    Family(
        "oci",
        (
            Level("hpc-island", (
                "oci.oraclecloud.com/rdma.hpc_island_id", "oci.oraclecloud.com/host.hpc_island_id",
            )),
            Level("network-block", (
                "oci.oraclecloud.com/rdma.network_block_id", "oci.oraclecloud.com/host.network_block_id",
            )),
            Level("local-block", (
                "oci.oraclecloud.com/rdma.local_block_id", "oci.oraclecloud.com/host.local_block_id",
            )),
        ),
    ),
    Family("oci-rack", (Level("rack", ("oci.oraclecloud.com/host.rack_id",)),)),
    Family(
        "crusoe",
        (
            Level("ib-partition", ("crusoe.ai/ib.partition.id",)),
            Level("pod", ("crusoe.ai/pod.id",)),
        ),
    ),
    Family(
        "coreweave",
        (
            Level("ib-fabric", ("backend.coreweave.cloud/fabric", "ib.coreweave.cloud/fabric")),
            Level("superpod", ("backend.coreweave.cloud/superpod", "ib.coreweave.cloud/superpod")),
            Level("leafgroup", ("backend.coreweave.cloud/leafgroup", "ib.coreweave.cloud/leafgroup")),
        ),
    ),
)  # fmt: skip
PLACES = Family(
    "kubernetes",
    (
        Level("region", (REGION_KEY, OLD_KEYS[REGION_KEY])),
        Level("zone", (ZONE_KEY, OLD_KEYS[ZONE_KEY])),
    ),
)
"""Where the site is. It lies around any fabric."""


def families(keys: Iterable[str]) -> list[Family]:
    """Return the families of fabric labels of which some key is there, the preferred ones first."""
    present = set(keys)
    found = [
        _numbered("topograph", _of_pattern(present, _NUMBERED), outermost_first=False),
        _FIXED[0],
        _numbered("aws", _of_pattern(present, _AWS_LAYER), outermost_first=True),
        *_FIXED[1:],
        _tpu_slices(present),
    ]
    return [kept for family in found if (kept := _only_present(family, present)).levels]


def dividing_keys(labels_of_nodes: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the keys that all nodes have and whose values make groups of them, the fewest groups first.

    Keys of Kubernetes itself, of device plugins and of discovery describe a node, not its place: they are passed over.
    """
    first = labels_of_nodes[0] if labels_of_nodes else {}
    groups = {}
    for key in first:
        if _NO_PLACE.match(key):
            continue
        values = {labels.get(key, "") for labels in labels_of_nodes}
        if "" not in values and 1 < len(values) < len(labels_of_nodes):
            groups[key] = len(values)
    return sorted(groups, key=lambda key: (groups[key], key))


def accelerated_levels(words: Mapping[str, str]) -> list[str]:
    """Return the accelerator domains of a node by the level-N keys, the innermost (level 0) first."""
    found = {int(match[1]): words[key] for key in words if (match := _ACCELERATED.fullmatch(key))}
    return [found[level] for level in sorted(found) if found[level]]


def labels_of(record: Record | None, field: str = "labels") -> dict[str, str]:
    """Return the labels of an object; a label may be empty, and often is. What is no text is noted."""
    inner = record.record(field) if record is not None else None
    if inner is None:
        return {}
    found = {}
    for key, value in inner.table.items():
        word = "" if value is None else written(value)
        if word is None:
            inner.problem(key, described(value), "text")
        found[key] = word or ""
    return found


def levels_of_keys(keys: Sequence[str]) -> tuple[Level, ...]:
    """Return levels for label keys, from wide to narrow, each with a tier named after it; not for the host's name."""
    levels: list[Level] = []
    for key in keys:
        if key == HOST_KEY:
            continue
        tier = tier_name(key)
        while tier in RESERVED_TIERS or any(level.tier == tier for level in levels):
            tier += "-label"
        levels.append(Level(tier, (key,)))
    return tuple(levels)


def tier_name(key: str) -> str:
    """Return a tier's name for a label key: the known one, or what follows the slash."""
    if key in NVLINK_KEYS:
        return "nvlink"
    for family in (*_FIXED, PLACES):
        for level in family.levels:
            if key in level.keys:
                return level.tier
    word = _NOT_IN_A_TIER.sub("-", key.rpartition("/")[2]).strip("-._")[:60]
    return word or "level"


def _of_pattern(present: Iterable[str], pattern: re.Pattern[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for key in sorted(present):
        match = pattern.fullmatch(key)
        if match:
            found.setdefault(int(match[1]), []).append(key)
    return found


def _numbered(
    name: str, keys_of_number: Mapping[int, Sequence[str]], *, outermost_first: bool
) -> Family:
    """Name tiers from the narrowest outwards: leaf, spine, core, tier4..."""
    outwards = sorted(keys_of_number, reverse=outermost_first)
    levels = [
        Level(
            TIERS[place] if place < len(TIERS) else f"tier{place + 1}",
            tuple(keys_of_number[number]),
        )
        for place, number in enumerate(outwards)
    ]
    return Family(name, tuple(reversed(levels)), counted_inwards=outermost_first)


def _tpu_slices(present: Iterable[str]) -> Family:
    """Return the sub-slices of GKE's TPU nodes, the largest shape as the widest tier."""
    keys_of_shape: dict[str, list[str]] = {}
    for key in sorted(present):
        match = _TPU_SLICE.fullmatch(key)
        if match:
            keys_of_shape.setdefault(match[1], []).append(key)
    shapes = sorted(keys_of_shape, key=lambda shape: (-_chips(shape), shape))
    return Family(
        "gke-tpu",
        tuple(Level(f"tpu-{shape}", tuple(keys_of_shape[shape])) for shape in shapes),
    )


def _chips(shape: str) -> int:
    chips = 1
    for size in shape.split("x"):
        chips *= int(size)
    return chips


def _only_present(family: Family, present: set[str]) -> Family:
    there = (
        (level.tier, tuple(filter(present.__contains__, level.keys))) for level in family.levels
    )
    levels = tuple(Level(tier, keys) for tier, keys in there if keys)
    return replace(family, levels=levels)
