"""Volumes of pods: on which nodes they can be had, what must be there first, and having them made where a pod goes.

A claim that is bound is where the node affinity of its volume says. One that is not bound and whose class waits for its
first consumer (WaitForFirstConsumer) is made where the pod goes, within the topologies that its class allows: the node
is written into its annotation `volume.kubernetes.io/selected-node`, and its provisioner is waited for before anything
of the gang is bound. All others have to be bound before a gang is handed in. Volumes of classes without a provisioner
are bound by nobody here: such a gang waits, and is told.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.executors.kubernetes.client import MERGE, ApiError, Client, Key, Resource
from gantree.executors.kubernetes.objects import Metadata, NodeSelector, Object, Pod
from gantree.executors.kubernetes.shapes import alternatives_of
from gantree.model.errors import Unreachable
from gantree.model.node_rules import Alternatives, Requirement

SELECTED_NODE = "volume.kubernetes.io/selected-node"
WAITS_FOR_CONSUMER = "WaitForFirstConsumer"
ONE_POD = "ReadWriteOncePod"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
MADE_WITHIN_S = 120.0
"""Volumes that are not there after so long are not waited for: the gang gives its room back, and tries again."""
AGAIN_S = 0.5


class ClaimSpec(Object, frozen=True):
    """What a claim asks for."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()


class Phase(Object, frozen=True):
    """What became of a claim."""

    phase: str = ""


class Claim(Object, frozen=True):
    """A PersistentVolumeClaim."""

    metadata: Metadata
    spec: ClaimSpec = ClaimSpec()
    status: Phase = Phase()

    @property
    def is_bound(self) -> bool:
        """Whether it has its volume."""
        return bool(self.spec.volume_name) and self.status.phase == "Bound"


class VolumeAffinity(Object, frozen=True):
    """Nodes on which a volume can be had."""

    required: NodeSelector | None = None


class VolumeSpec(Object, frozen=True):
    """Where a volume is."""

    node_affinity: VolumeAffinity | None = None


class Volume(Object, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()


class TopologyValues(Object, frozen=True):
    """Values that a label may have."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(Object, frozen=True):
    """Label expressions that must all hold."""

    match_label_expressions: tuple[TopologyValues, ...] = ()


class StorageClass(Object, frozen=True):
    """How volumes of a class are made."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologyTerm, ...] = ()


CLAIMS: Resource[Claim] = Resource("api/v1/persistentvolumeclaims", Claim)
VOLUMES: Resource[Volume] = Resource("api/v1/persistentvolumes", Volume)
CLASSES: Resource[StorageClass] = Resource("apis/storage.k8s.io/v1/storageclasses", StorageClass)
OF_VOLUMES: tuple[Resource[Any], ...] = (CLAIMS, VOLUMES, CLASSES)
"""All that volumes are known by."""


class NamespaceObject(Object, frozen=True):
    """A namespace: its labels are what terms of pods may select by."""

    metadata: Metadata


NAMESPACES: Resource[NamespaceObject] = Resource("api/v1/namespaces", NamespaceObject)


@dataclass(frozen=True, slots=True)
class Provision:
    """A claim that is to be made for a node."""

    namespace: str
    claim: str
    node: str


class Volumes:
    """Claims, volumes and classes as last seen, and which pods use a claim. version grows with every change."""

    def __init__(self) -> None:
        self.version = 0
        self._claims: dict[Key, Claim] = {}
        self._volumes: dict[str, Volume] = {}
        self._classes: dict[str, StorageClass] = {}
        self._users: dict[Key, dict[str, str]] = {}

    def see(self, key: Key, before: object, after: object) -> None:
        """A claim, a volume or a class is like this; None: it is gone."""
        self.version += 1
        match after if after is not None else before:
            case Claim():
                _put(self._claims, key, after)
            case Volume():
                _put(self._volumes, key[1], after)
            case StorageClass():
                _put(self._classes, key[1], after)

    def use(self, pod: Pod, *, ends: bool) -> None:
        """A pod on a node uses its claims, or does not any more."""
        for key in claims_of(pod):
            users = self._users.setdefault(key, {})
            if ends:
                users.pop(pod.metadata.uid, None)
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
        if found.provisioner == NO_PROVISIONER:
            return "is of a class without a provisioner: somebody has to bind it"
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

    def to_make(self, pod: Pod, node: str) -> Iterator[Provision]:
        """Claims of a pod that are to be made where it goes."""
        for key in claims_of(pod):
            claim = self._claims.get(key)
            if claim is not None and not claim.is_bound:
                yield Provision(key[0], key[1], node)

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


def _allowed(term: TopologyTerm) -> tuple[Requirement, ...]:
    return tuple(Requirement(e.key, "in", e.values) for e in term.match_label_expressions)


def _put(known: dict, key: object, thing: object) -> None:  # type: ignore[type-arg]  # of any of the three kinds
    if thing is None:
        known.pop(key, None)
    else:
        known[key] = thing


async def make(client: Client, wanted: Sequence[Provision]) -> str:
    """Have volumes made for nodes, and wait until they are there; "" once they are, else why not. Never raises.

    Where one cannot be had, claims that have none yet are free to be made for another node again.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + MADE_WITHIN_S
    told = await asyncio.gather(*(_select(client, each, each.node) for each in wanted))
    why, missing = next(filter(None, told), ""), list(wanted)
    while missing and not why and loop.time() < deadline:
        found = await asyncio.gather(*(_made(client, each) for each in missing))
        missing = [each for each, (is_made, _) in zip(missing, found, strict=True) if not is_made]
        why = next((trouble for _, trouble in found if trouble), "")
        await asyncio.sleep(AGAIN_S if missing else 0)
    if missing:
        why = why or f"{missing[0].claim!r} was not bound within {MADE_WITHIN_S:g} s"
        await asyncio.gather(*(_select(client, each, None) for each in missing))
    return why


async def _made(client: Client, wanted: Provision) -> tuple[bool, str]:
    """Whether a claim has its volume, and why it will not get one, if that is known."""
    try:
        claim = await client.get(CLAIMS.of_object(wanted.namespace, wanted.claim), Claim)
    except (ApiError, Unreachable) as error:
        return False, str(error)
    if claim.is_bound or claim.metadata.annotations.get(SELECTED_NODE) == wanted.node:
        return claim.is_bound, ""
    return False, f"no volume for the claim {wanted.claim!r} can be made for node {wanted.node}"


async def _select(client: Client, wanted: Provision, node: str | None) -> str:
    """Write the node that a claim is to be made for; None takes it back while there is no volume."""
    path = CLAIMS.of_object(wanted.namespace, wanted.claim)
    try:
        claim = await client.get(path, Claim)
        if claim.is_bound or claim.metadata.annotations.get(SELECTED_NODE) == node:
            return ""
        version = claim.metadata.resource_version
        body = {"metadata": {"resourceVersion": version, "annotations": {SELECTED_NODE: node}}}
        await client.write("PATCH", path, body, MERGE)
    except (ApiError, Unreachable) as error:
        return str(error)
    return ""
