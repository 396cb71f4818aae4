"""The condition PodGroupScheduled of Kubernetes' own pod groups whose gangs are bound, or were (`scheduled_condition`).

True is written until it is seen, so that neither a lost write nor a restart leaves "not scheduled" on a group that
runs. Why a gang waits is written to its group with its pods (`pod_status`).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.client import MERGE
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pod_groups import scheduled_condition

AGAIN_S = 30.0
"""A write that has no effect is repeated after so long."""
Json = dict[str, Any]


class GroupConditions:
    """Groups as they were seen, and when to look at which. job_of and is_bound tell of gangs and attempts."""

    def __init__(
        self,
        api: ApiThread,
        job_of: Callable[[Key], str | None],
        is_bound: Callable[[str, int], bool],
    ) -> None:
        self._api, self._job_of, self._is_bound = api, job_of, is_bound
        self._conditions: dict[Key, tuple[Json, ...]] = {}
        self._due: dict[Key, float] = {}

    def update(self, key: Key, group: Group | None) -> None:
        """A group was added or has changed; None: it is gone."""
        if group is None:
            self._conditions.pop(key, None)
            self._due.pop(key, None)
            return
        told = group.status.get("conditions")
        found = told if isinstance(told, list) else ()
        self._conditions[key] = tuple(each for each in found if isinstance(each, dict))
        self.look(key)

    def look(self, key: Key | None) -> None:
        """The gang of a group may be bound by now."""
        if key in self._conditions:
            self._due[key] = float("-inf")

    def explain(self, key: Key, sentence: str, now: float) -> None:
        """Write why a gang that was bound is not any more."""
        path = self._api.status_of_group(key)
        if key in self._conditions and path is not None:
            self._write(key, path, "False", "Unschedulable", sentence, now)

    def step(self, decided: LedgerView, now: float) -> None:
        """Write to those of which it is not seen that they are bound."""
        for key in [key for key, due_at in self._due.items() if due_at <= now]:
            state = decided.job(self._job_of(key) or "")
            is_bound = state is not None and self._is_bound(state.job, state.attempt)
            path = self._api.status_of_group(key)
            if path is None or not is_bound or self._is_told(key, path):
                del self._due[key]
                continue
            self._due[key] = now + AGAIN_S
            self._write(key, path, "True", "Scheduled", "All pods of the gang are bound.", now)

    def _is_told(self, key: Key, path: str) -> bool:
        return any(
            each.get("type") == scheduled_condition(path) and each.get("status") == "True"
            for each in self._conditions[key]
        )

    def _write(
        self, key: Key, path: str, status: str, reason: str, message: str, now: float
    ) -> None:
        """With the group's other conditions, as a merge patch replaces the list."""
        kind = scheduled_condition(path)
        others = [each for each in self._conditions[key] if each.get("type") != kind]
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"status": {"conditions": [*others, condition]}}
        self._api.request("PATCH", path, body, MERGE)
