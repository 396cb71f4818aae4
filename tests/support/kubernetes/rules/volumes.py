"""What a server asks of PersistentVolumes and their claims: that they say how much, for whom, and on what."""

from collections.abc import Iterator

from support.kubernetes.rules.rules import Others, Rules
from support.kubernetes.server.statuses import Json, invalid

SOURCES = frozenset({"csi", "fc", "hostPath", "iscsi", "local", "nfs"})
Cause = tuple[str, str]


class VolumeRules(Rules):
    """Those of volumes."""

    def create(self, others: Others, new: Json) -> Json:
        """With a capacity, ways to have it, and exactly one source; Pending."""
        spec = new.get("spec") or {}
        causes = list(_missing(spec, "capacity", "accessModes"))
        if len(SOURCES & spec.keys()) != 1:
            causes.append(("spec", "Required value: must specify a volume type"))
        if causes:
            raise invalid("PersistentVolume", "", new["metadata"]["name"], *causes)
        return {**new, "status": {"phase": "Pending"}}


class VolumeClaimRules(Rules):
    """Those of claims of volumes."""

    def create(self, others: Others, new: Json) -> Json:
        """With ways to have it and an amount; Pending."""
        spec = new.get("spec") or {}
        causes = list(_missing(spec, "accessModes"))
        if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
            causes.append(("spec.resources[storage]", "Required value"))
        if causes:
            raise invalid("PersistentVolumeClaim", "", new["metadata"]["name"], *causes)
        return {**new, "status": {"phase": "Pending"}}


def _missing(spec: Json, *names: str) -> Iterator[Cause]:
    for name in names:
        if not spec.get(name):
            yield f"spec.{name}", "Required value"
