"""PersistentVolumeClaims of pods: where their volumes are, provisioning on a pod's node, choice of available ones.

A claim that is bound is where the node affinity of its volume says. One that is not bound and whose class waits for its
first consumer (WaitForFirstConsumer) is given a volume that is there and suits it (`static_volumes`), or, where the
class has a provisioner, is made where the pod goes, within the topologies that the class allows; that is waited for
before anything of the gang is bound (`volume_writes`). All others have to be bound before a gang is handed in.
"""

from collections.abc import Iterator, Mapping, Sequence

from gantree.executors.kubernetes.apiserver.client import Key
from gantree.executors.kubernetes.apiserver.objects import Node, Pod
from gantree.executors.kubernetes.apiserver.volume_objects import (
    Claim,
    StorageClass,
    TopologyTerm,
    Volume,
)
from gantree.executors.kubernetes.constraints.static_volumes import (
    MANY,
    FreeVolumes,
    Limit,
    claim_size,
    limit_of,
)
from gantree.executors.kubernetes.constraints.volume_writes import Provision
from gantree.executors.kubernetes.pods.pod_amounts import Amounts
from gantree.executors.kubernetes.pods.shapes import alternatives_of, held_by
from gantree.model.node_rules import Alternatives, Requirement
from gantree.topology.discovery.listings.kubernetes_nodes import quantity

WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
ONE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


class Volumes:
    """Claims, volumes and classes as last seen, and which pods use a claim. version grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._claims: dict[Key, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._users: dict[Key, dict[str, str]] = {}
        self._free = FreeVolumes()
        self._limits: dict[tuple[str, ...], Limit | None] = {}

    def update(self, key: Key, before: object, after: object) -> None:
        """A claim, a volume or a class is like this; None: it is gone."""
        self.version += 1
        self._limits.clear()
        match after if after is not None else before:
            case Claim():
                _put(self._claims, key, after)
            case Volume():
                _put(self._volumes, key[1], after)
                self._free.update(key[1], after if isinstance(after, Volume) else None)
            case StorageClass():
                _put(self._classes, key[1], after)

    def use(self, pod: Pod, *, ends: bool) -> None:
        """A pod on a node uses its claims, or does not any more."""
        for key in claims_of(pod):
            users = self._users.setdefault(key, {})
            if ends:
                users.pop(pod.metadata.uid, None)
                self._limits.clear()
                self._free.let_go(key)
            else:
                users[pod.metadata.uid] = pod.metadata.name
            if not users:
                del self._users[key]
            claim = self._claims.get(key)
            self.version += claim is not None and ONE_POD in claim.spec.access_modes

    def missing(self, pod: Pod) -> str:
        """What has to be there before a pod can go anywhere, as a sentence's end; "" for nothing."""
        return next(filter(None, (self._missing(key, pod) for key in claims_of(pod))), "")

    def _missing(self, key: Key, pod: Pod) -> str:
        claim = self._claims.get(key)
        if claim is None:
            return f"there is no PersistentVolumeClaim {key[1]!r}"
        told = f"the PersistentVolumeClaim {key[1]!r}"
        if claim.metadata.deletion_timestamp is not None:
            return f"{told} is being deleted"
        users = [user for uid, user in self._users.get(key, {}).items() if uid != pod.metadata.uid]
        if ONE_POD in claim.spec.access_modes and users:
            return f"{told} is for one pod alone, and {users[0]} has it"
        trouble = self._unlike_bound(claim) if claim.is_bound else self._unlike_made(claim)
        return f"{told} {trouble}" if trouble else ""

    def _unlike_bound(self, claim: Claim) -> str:
        """What is wrong with a claim that has its volume."""
        known = claim.spec.volume_name in self._volumes
        return "" if known else f"is bound to {claim.spec.volume_name!r}, which is not there"

    def _unlike_made(self, claim: Claim) -> str:
        """Why a claim without a volume gets none where its pod goes."""
        found = self._class_of(claim)
        if found is None or found.volume_binding_mode != WAITS_FOR_CONSUMER:
            return "is not bound yet"
        if found.provisioner == NO_PROVISIONER and not self._free.has_any(
            claim, found.metadata.name
        ):
            return "is of a class without a provisioner, and no volume that is free suits it"
        return ""

    def asked(self, pod: Pod) -> Iterator[Alternatives]:
        """What nodes must be like, claim by claim."""
        for key in claims_of(pod):
            claim = self._claims[key]
            if claim.is_bound:
                affinity = self._volumes[claim.spec.volume_name].spec.node_affinity
                if affinity is not None and affinity.required is not None:
                    yield alternatives_of(affinity.required)
                continue
            found = self._class_of(claim)
            if found is not None and found.allowed_topologies:
                yield tuple(_allowed(term) for term in found.allowed_topologies)

    def limit(self, pods: Sequence[Pod], nodes: Mapping[str, Node]) -> Limit | None:
        """On which nodes, and how many on each, pods of a role find free volumes; None where they need none."""
        if not any(self._chosen(pod, may_be_made=False) for pod in pods):
            return None
        name = tuple(pod.metadata.uid for pod in pods)
        if name not in self._limits:
            asked = [self._chosen(pod, may_be_made=False) for pod in pods]
            amounts = held_by(pods[0])
            self._limits[name] = limit_of(
                self._free, asked, nodes, lambda node: _room(node, amounts)
            )
        return self._limits[name]

    def forget_limits(self) -> None:
        """Nodes are others than before."""
        self._limits.clear()
        self._free.forget_nodes()

    def choose(self, placed: Sequence[tuple[Pod, str]], nodes: Mapping[str, Node]) -> str:
        """Keep free volumes for the claims of pods where they were placed; "" or why there are not enough.

        What is kept is let go where a pod is not bound after all. A claim that may be made needs none.
        """
        for pod, node in placed:
            if not pod.spec.volumes or node not in nodes:
                continue
            for name, claim in self._chosen(pod, may_be_made=True):
                found = self._class_of(claim)
                is_kept = self._free.keep(claim, name, node, nodes)
                if not is_kept and found is not None and found.provisioner == NO_PROVISIONER:
                    return f"no volume that is free on {node} suits the PersistentVolumeClaim {claim.metadata.name!r}"
        return ""

    def _chosen(self, pod: Pod, *, may_be_made: bool) -> list[tuple[str, Claim]]:
        """Claims of a pod that get a volume which is there already, each with its class; the smallest first."""
        found = []
        for key in claims_of(pod) if pod.spec.volumes else ():
            claim = self._claims.get(key)
            of = None if claim is None else self._class_of(claim)
            if claim is None or of is None or claim.is_bound:
                continue
            waits = of.volume_binding_mode == WAITS_FOR_CONSUMER
            if waits and (may_be_made or of.provisioner == NO_PROVISIONER):
                found.append((of.metadata.name, claim))
        return sorted(found, key=lambda each: claim_size(each[1]))

    def to_make(self, pod: Pod, node: str) -> Iterator[Provision]:
        """Claims of a pod that are to have a volume where it goes."""
        for key in claims_of(pod):
            claim = self._claims.get(key)
            if claim is not None and not claim.is_bound:
                yield Provision(key[0], key[1], node, self._free.kept_for(key))

    def _class_of(self, claim: Claim) -> StorageClass | None:
        name = claim.spec.storage_class_name
        if name is not None:
            return self._classes.get(name)
        told = self._classes.values()
        return next((c for c in told if c.metadata.annotations.get(DEFAULT_CLASS) == "true"), None)


def claims_of(pod: Pod) -> list[Key]:
    """The claims that a pod's volumes are."""
    home, name = pod.metadata.namespace, pod.metadata.name
    found = []
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found.append((home, volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            found.append((home, f"{name}-{volume.name}"))
    return found


def _room(node: Node, amounts: Amounts) -> int:
    """Return how many pods with these amounts an empty node holds, by its declared limits."""
    told = node.status.allocatable
    there = {name: quantity(str(told[name])) or 0.0 for name in amounts if name in told}
    return min((int(there[name] // amounts[name]) for name in there if amounts[name]), default=MANY)


def _allowed(term: TopologyTerm) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, "in", e.values) for e in term.match_label_expressions)


def _put(known: dict, key: object, thing: object) -> None:  # type: ignore[type-arg]  # of any of the three kinds
    if thing is None:
        known.pop(key, None)
    else:
        known[key] = thing
