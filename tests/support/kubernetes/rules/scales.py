"""The subresource scale of custom resources: how many there are to be, at a path that the definition names.

As "Extend the Kubernetes API with CustomResourceDefinitions" tells it: a Scale of autoscaling/v1 with spec.replicas
from specReplicasPath, status.replicas from statusReplicasPath and status.selector from labelSelectorPath. A GET fails
while there is nothing at specReplicasPath; a write puts the number there, and changes nothing else.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from support.kubernetes.server.statuses import Json, Refusal, bad_request, invalid

PART = "scale"


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the numbers are, each as the steps to it."""

    spec: tuple[str, ...]
    status: tuple[str, ...]
    selector: tuple[str, ...] = ()

    @classmethod
    def read(cls, told: Json) -> "ScalePaths":
        """From a definition."""
        names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
        return cls(*(tuple(filter(None, told.get(name, "").split("."))) for name in names))

    def scale_of(self, content: Json) -> Json:
        """The Scale of an object."""
        meta = content["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        status = {"replicas": _at(content, self.status) or 0}
        if self.selector and (selector := _at(content, self.selector)):
            status["selector"] = selector
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {name: meta[name] for name in kept if name in meta},
            "spec": {"replicas": _at(content, self.spec) or 0},
            "status": status,
        }

    def got(self, content: Json) -> Json:
        """The Scale of an object that says how many there are to be."""
        if _at(content, self.spec) is None:
            path = "." + ".".join(self.spec)
            message = f'Internal error occurred: the spec replicas field "{path}" does not exist'
            raise Refusal(500, "InternalError", message)
        return self.scale_of(content)

    def scaled(self, content: Json, change: Callable[[Json], Json]) -> Json:
        """An object with as many as a changed Scale of it says."""
        replicas = (change(self.scale_of(content)).get("spec") or {}).get("replicas")
        path = "." + ".".join(self.spec)
        if replicas is None:
            raise bad_request(f'the spec replicas field "{path}" cannot be empty')
        if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
            why = f"Invalid value: {replicas!r}: should be a non-negative integer"
            raise invalid("Scale", "autoscaling", content["metadata"]["name"], (path, why))
        made = deepcopy(content)
        holder: Any = made
        for step in self.spec[:-1]:
            holder = holder.setdefault(step, {})
        holder[self.spec[-1]] = replicas
        return made


def _at(content: Json, path: tuple[str, ...]) -> Any:
    found: Any = content
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found
