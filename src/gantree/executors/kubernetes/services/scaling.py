"""How the number of a GangService changed last: what is noticed, for the journal, and said in the status. Pure.

Whoever may scale it writes the number into the spec. The reason is known where this daemon wrote it; otherwise the
server says which client did. What the status says of it outlives this process, and the number in it tells a new
leader of a change that nobody has noticed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gantree.executors.kubernetes.apiserver.conditions import api_time, seconds_of
from gantree.executors.kubernetes.apiserver.objects import Group, ManagedMetadata
from gantree.executors.kubernetes.services.gang_service import GangService
from gantree.executors.served_services import Scaled
from gantree.model.events import ServiceScaleObserved
from gantree.model.services import ANOTHER_CLIENT


@dataclass(slots=True)
class NumberOfReplicas:
    """The number that is wanted, when it last changed and why, and which one was requested here, and why."""

    wanted: int | None = None
    last: Scaled | None = None
    _requested: tuple[int, str, bool] | None = None

    def request(self, replicas: int, reason: str, *, automatic: bool) -> None:
        """This daemon is about to write another number."""
        self._requested = replicas, reason, automatic

    def observe(
        self, group: Group, service: GangService, now: float
    ) -> ServiceScaleObserved | None:
        """Take the number of the object; gives what changed, None for nothing."""
        before, self.wanted = self.wanted, service.wanted
        if before is None or before == service.wanted:
            return None
        reason, automatic = scaled_by(group), False
        if self._requested is not None and self._requested[0] == service.wanted:
            _, reason, automatic = self._requested
        self._requested, self.last = None, Scaled(now, reason, automatic)
        return ServiceScaleObserved(
            id=f"{group.metadata.uid}/scaled/{group.metadata.generation}",
            observed_at=now,
            service=service.full_name,
            replicas=service.wanted,
            before=before,
            reason=reason,
            automatic=automatic,
        )

    def status(self) -> dict[str, Any]:
        """What the status says of it."""
        if self.last is None:
            return {}
        return {
            "scaledAt": api_time(self.last.at),
            "scaledFor": f"{self.wanted} replicas: {self.last.reason}",
            "scaledAutomatically": self.last.automatic,
        }


def scaled_by(group: Group) -> str:
    """The client of the API server that has set the number, as the server says: kubectl, kube-controller-manager (of
    a HorizontalPodAutoscaler)."""
    meta = group.metadata
    managed = meta.managed_fields if isinstance(meta, ManagedMetadata) else ()
    found = [each for each in managed if _has_set_number(each.fields)]
    by_scale = [each for each in found if each.subresource == "scale"]
    names = (each.manager for each in (*by_scale, *found))
    return next((name for name in names if name), ANOTHER_CLIENT)


def _has_set_number(fields: Mapping[str, Any]) -> bool:
    told: Any = fields
    for name in ("f:spec", "f:replicas", "f:wanted"):
        told = told.get(name) if isinstance(told, Mapping) else None
    return told is not None


def number_of_status(status: Mapping[str, Any]) -> NumberOfReplicas:
    """What a status says of it."""
    wanted, at, told = (status.get(key) for key in ("wanted", "scaledAt", "scaledFor"))
    last, seconds = None, seconds_of(at)
    if seconds is not None and isinstance(told, str):
        reason = told.partition(": ")[2]
        last = Scaled(seconds, reason, status.get("scaledAutomatically") is True)
    return NumberOfReplicas(wanted if isinstance(wanted, int) else None, last)
