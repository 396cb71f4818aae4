"""Available PersistentVolumes, such as local disks: which suit a claim, on which nodes, and which are reserved.

As kube-scheduler matches them (FindMatchingVolume): of the class, mode and access modes that the claim asks for, as
large, with the labels that it selects, available, and to be had on the node; the smallest that will do. One that
names the claim already is for that alone, and comes first. What was chosen for a claim is kept for it until it is
bound or its pod is not bound after all: no two pods are given the same.

A gang must have its volumes all at once, so it is told beforehand how many of a role a node has volumes for: the nodes
with at least so many for each are left, and no more than so many go to one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.apiserver.selectors import matches
from gantree.executors.kubernetes.apiserver.volume_objects import Claim, Volume
from gantree.executors.kubernetes.pods.shapes import alternatives_of
from gantree.model.node_rules import NAME_KEY, Alternatives, Requirement
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

AVAILABLE = "Available"
STORAGE = "storage"
MANY = 1 << 30
EVERYWHERE = ""
"""Stands for all nodes, by name; no node is called so."""

VolumeRequest = Sequence[tuple[str, Claim]]
"""Claims of one pod, each with the name of its class, the smallest first."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Nodes that members of a role may go to, by name, and how many of them to one; None: as many as there are."""

    nodes: tuple[str, ...]
    at_most: int | None = None


class FreeVolumes:
    """Available volumes by class, and the claims for which some are reserved."""

    def __init__(self) -> None:
        self._of_class: dict[str, dict[str, Volume]] = {}
        self._class_of: dict[str, str] = {}
        self._kept: dict[Key, str] = {}
        self._keeps: set[str] = set()
        self._nodes_of: dict[Alternatives, frozenset[str]] = {}
        self._index: dict[str, dict[str, list[str]]] = {}
        self._on_node: dict[str, dict[str, list[Volume]]] = {}
        """Of a class, by node: worked out when it is asked for."""

    def update(self, name: str, volume: Volume | None) -> None:
        """A volume is like this; None: it is gone."""
        before = self._class_of.pop(name, None)
        if before is not None:
            del self._of_class[before][name]
            self._on_node.pop(before, None)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return
        if volume.status.phase == AVAILABLE or volume.spec.claim_ref is not None:
            self._class_of[name] = volume.spec.storage_class_name
            self._on_node.pop(volume.spec.storage_class_name, None)
            self._of_class.setdefault(volume.spec.storage_class_name, {})[name] = volume

    def has_any(self, claim: Claim, of: str) -> bool:
        """Whether some volume, wherever it is, suits a claim of a class."""
        return next(self._suiting(claim, of), None) is not None

    def keep(self, claim: Claim, of: str, node: str, nodes: Mapping[str, Node]) -> bool:
        """Keep a volume for a claim that is to be had on a node; False where there is none.

        Of pods that share a claim the first chooses, and the others have to be where that is.
        """
        kept = self._of_class.get(of, {}).get(self.kept_for(_key(claim)))
        if kept is not None:
            return node in self._where(kept, nodes)
        self.let_go(_key(claim))
        found = self._best(claim, of, node, nodes, frozenset())
        if found is not None:
            self._kept[_key(claim)] = found
            self._keeps.add(found)
        return found is not None

    def kept_for(self, key: Key) -> str:
        """The volume that is kept for a claim; "" for none."""
        return self._kept.get(key, "")

    def let_go(self, key: Key) -> None:
        """Nothing is kept for a claim any more."""
        self._keeps.discard(self._kept.pop(key, ""))

    def forget_nodes(self) -> None:
        """Nodes are others than before."""
        self._nodes_of.clear()
        self._index.clear()
        self._on_node.clear()

    def has_all(
        self, asked: VolumeRequest, node: str, nodes: Mapping[str, Node], taken: set[str]
    ) -> set[str] | None:
        """Volumes for all claims of a pod on a node, beside those taken; None where there are not enough."""
        chosen: set[str] = set()
        for of, claim in asked:
            found = self._best(claim, of, node, nodes, taken | chosen)
            if found is None:
                return None
            chosen.add(found)
        return chosen

    def nodes_for(self, asked: VolumeRequest, nodes: Mapping[str, Node]) -> dict[str, None]:
        """Nodes on which some volume suits the first claim, by name, in order."""
        of, claim = asked[0]
        there = self._there(of, nodes)
        if any(_suits(volume, claim) for volume in there.get(EVERYWHERE, ())):
            return dict.fromkeys(sorted(nodes))
        return dict.fromkeys(
            name for name in sorted(there) if any(_suits(v, claim) for v in there[name])
        )

    def _best(
        self,
        claim: Claim,
        of: str,
        node: str,
        nodes: Mapping[str, Node],
        taken: set[str] | frozenset[str],
    ) -> str | None:
        """The volume that is for a claim already, else the smallest that suits it, on a node."""
        own = self._kept.get(_key(claim))
        found = [
            (not volume.is_for(claim), size_of(volume), volume.metadata.name)
            for volume in self._on(node, of, nodes)
            if _suits(volume, claim)
            and volume.metadata.name not in taken
            and self._is_free(volume.metadata.name, own)
        ]
        return min(found)[2] if found else None

    def _is_free(self, volume: str, own: str | None) -> bool:
        return volume == own or volume not in self._keeps

    def _suiting(self, claim: Claim, of: str) -> Iterator[Volume]:
        for volume in self._of_class.get(of, {}).values():
            if _suits(volume, claim):
                yield volume

    def _on(self, node: str, of: str, nodes: Mapping[str, Node]) -> Iterator[Volume]:
        there = self._there(of, nodes)
        yield from there.get(node, ())
        yield from there.get(EVERYWHERE, ())

    def _there(self, of: str, nodes: Mapping[str, Node]) -> dict[str, list[Volume]]:
        """The volumes of a class, by node."""
        if of not in self._on_node:
            found = self._on_node[of] = {}
            for volume in self._of_class.get(of, {}).values():
                for name in self._where(volume, nodes) if _is_somewhere(volume) else (EVERYWHERE,):
                    found.setdefault(name, []).append(volume)
        return self._on_node[of]

    def _where(self, volume: Volume, nodes: Mapping[str, Node]) -> frozenset[str]:
        """The nodes that a volume can be had on."""
        affinity = volume.spec.node_affinity
        if affinity is None or affinity.required is None:
            return frozenset(nodes)
        asked = alternatives_of(affinity.required)
        if asked not in self._nodes_of:
            there = (name for terms in asked for name in self._as_asked(terms, nodes))
            self._nodes_of[asked] = frozenset(there)
        return self._nodes_of[asked]

    def _as_asked(self, terms: tuple[Requirement, ...], nodes: Mapping[str, Node]) -> Iterator[str]:
        """Nodes that are as all requirements ask; the first that names values says which to look at."""
        first = next((each for each in terms if each.operator == "in"), None)
        among = nodes if first is None else self._with_values(first, nodes)
        for name in among:
            told = {**nodes[name].metadata.labels, NAME_KEY: name}
            if all(each.holds(told) for each in terms):
                yield name

    def _with_values(self, asked: Requirement, nodes: Mapping[str, Node]) -> list[str]:
        if asked.key not in self._index:
            index = self._index[asked.key] = {}
            for name, node in nodes.items():
                value = {**node.metadata.labels, NAME_KEY: name}.get(asked.key)
                if value is not None:
                    index.setdefault(value, []).append(name)
        return [name for value in asked.values for name in self._index[asked.key].get(value, ())]


def limit_of(
    free: FreeVolumes,
    asked: Sequence[VolumeRequest],
    nodes: Mapping[str, Node],
    room: Callable[[Node], int] = lambda node: MANY,
) -> Limit:
    """Where pods of a role that ask so may go, as far as volumes go. room is how many a node could hold otherwise.

    One number counts for all nodes: that by which there are volumes for most pods, up to twice as many as there are
    pods, and of equals that which leaves most nodes. Of a node with more volumes some are not used then.
    """
    some = next(each for each in asked if each)
    count_of = {
        name: count
        for name in free.nodes_for(some, nodes)
        if (count := min(_count(free, asked, name, nodes), room(nodes[name])))
    }

    def worth(count: int) -> tuple[int, int, int]:
        there = sum(each >= count for each in count_of.values())
        return min(2 * len(asked), count * there), there, count

    best = max(set(count_of.values()), key=worth, default=0)
    there = tuple(name for name, count in count_of.items() if count >= best)
    return Limit(there, best if best < len(asked) else None)


def claim_size(claim: Claim) -> float:
    """What a claim asks for, in bytes."""
    return quantity(str(claim.spec.resources.requests.get(STORAGE, 0))) or 0.0


def size_of(volume: Volume) -> float:
    """What a volume has, in bytes."""
    return quantity(str(volume.spec.capacity.storage)) or 0.0


def _count(
    free: FreeVolumes, asked: Sequence[VolumeRequest], node: str, nodes: Mapping[str, Node]
) -> int:
    """How many of these pods, one after the other, find all their volumes on a node."""
    taken: set[str] = set()
    for count, each in enumerate(asked):
        chosen = free.has_all(each, node, nodes, taken)
        if chosen is None:
            return count
        taken |= chosen
    return len(asked)


def _is_somewhere(volume: Volume) -> bool:
    """Whether a volume cannot be had on just any node."""
    affinity = volume.spec.node_affinity
    return affinity is not None and affinity.required is not None


def _suits(volume: Volume, claim: Claim) -> bool:
    if volume.spec.claim_ref is not None:
        return volume.is_for(claim) and size_of(volume) >= claim_size(claim)
    spec = claim.spec
    return (
        size_of(volume) >= claim_size(claim)
        and volume.spec.volume_mode == spec.volume_mode
        and set(spec.access_modes) <= set(volume.spec.access_modes)
        and (spec.selector is None or matches(spec.selector, volume.metadata.labels))
    )


def _key(claim: Claim) -> Key:
    return claim.metadata.namespace, claim.metadata.name
