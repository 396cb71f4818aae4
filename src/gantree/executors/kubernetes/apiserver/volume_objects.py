"""Fields of PersistentVolumeClaims, volumes, storage classes and namespaces that gantree reads."""

from typing import Any

from gantree.executors.kubernetes.apiserver.client import Resource
from gantree.executors.kubernetes.apiserver.objects import (
    LabelSelector,
    Metadata,
    NodeSelector,
    Object,
    Resources,
)


class ClaimSpec(Object, frozen=True):
    """What a claim asks for."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    resources: Resources = Resources()
    selector: LabelSelector | None = None


class Phase(Object, frozen=True):
    """What became of a claim, or of a volume."""

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


class ClaimRef(Object, frozen=True):
    """The claim that a volume is for; without a uid the one of that name, whichever it is."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class Capacity(Object, frozen=True):
    """How large a volume is, as a quantity; a number may come as a number."""

    storage: str | float = ""


class VolumeSpec(Object, frozen=True):
    """The location, capacity and claim of a volume."""

    node_affinity: VolumeAffinity | None = None
    capacity: Capacity = Capacity()
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    volume_mode: str = "Filesystem"
    claim_ref: ClaimRef | None = None


class Volume(Object, frozen=True):
    """A PersistentVolume."""

    metadata: Metadata
    spec: VolumeSpec = VolumeSpec()
    status: Phase = Phase()

    def is_for(self, claim: Claim) -> bool:
        """Whether it is bound to a claim, or is to be."""
        ref, meta = self.spec.claim_ref, claim.metadata
        if ref is None or (ref.namespace, ref.name) != (meta.namespace, meta.name):
            return False
        return ref.uid in ("", meta.uid)


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
