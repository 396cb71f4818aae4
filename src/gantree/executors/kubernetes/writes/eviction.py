"""Evicts pods through the Eviction API: it waits for PodDisruptionBudgets, up to a limit.

A gang leaves whole or not at all, and the API evicts pods one by one: a budget that lets one pod of four go would leave
three that are of no use. So nothing is evicted before every budget lets all of them go, or the grace of the stop is
over. The room was promised to somebody by then, so what the budgets still refuse is deleted, as the default scheduler
does it: with the condition DisruptionTarget (`PreemptionByScheduler`), and a warning beside the gang. Who evicts by the
API writes that condition itself. Where gantree may not evict, it does not delete either: the gang stays, and a warning
names the missing permission.
"""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.objects import LabelSelector, Metadata, Object, Pod
from gantree.executors.kubernetes.apiserver.selectors import matches
from gantree.executors.kubernetes.writes.patches import add_condition
from gantree.executors.kubernetes.writes.writes import PODS, StatusMessage, delete, write_status
from gantree.model.errors import Unreachable

AGAIN_S = 1.0
"""Budgets that refuse are asked again so often."""
VIOLATED, FORBIDDEN = "DisruptionBudgetViolated", "EvictionForbidden"
log = logging.getLogger(__name__)

_UNKNOWN = frozenset({405, 501})
"""Answers of a server that evicts nothing: pods are deleted then."""
_MAY_NOT = 403


class BudgetSpec(Object, frozen=True):
    """Whose budget it is."""

    selector: LabelSelector | None = None


class BudgetStatus(Object, frozen=True):
    """What its controller says."""

    disruptions_allowed: int = 0


class Budget(Object, frozen=True):
    """A PodDisruptionBudget."""

    metadata: Metadata
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()


class _Budgets(Object, frozen=True):
    items: tuple[Budget, ...] = ()


BUDGETS: Resource[Budget] = Resource("apis/policy/v1/poddisruptionbudgets", Budget)


@dataclass(slots=True)
class Evictions:
    """Those that are under way, by uid: pods that are asked to leave again meanwhile are not asked twice."""

    _under_way: set[str] = field(default_factory=set)
    _warned: set[str] = field(default_factory=set)
    """Pods that gantree may not evict, once that was said."""

    async def evict(self, client: Client, pods: Sequence[Pod], grace_s: float) -> str:
        """Have the pods of one gang leave, each with this grace; "" once all are gone or going, else why not.

        Never raises.
        """
        mine = [pod for pod in pods if pod.metadata.uid not in self._under_way]
        if not mine:
            return ""
        uids = {pod.metadata.uid for pod in mine}
        self._under_way |= uids
        try:
            return await self._evict(client, mine, grace_s)
        finally:
            self._under_way -= uids

    async def _evict(self, client: Client, pods: Sequence[Pod], grace_s: float) -> str:
        try:
            return await _evict(client, pods, grace_s)
        except _Forbidden as error:
            uid = pods[0].metadata.uid
            if uid in self._warned:
                return ""
            self._warned.add(uid)
            await _warn(client, pods, FORBIDDEN, str(error))
            return str(error)


class _Forbidden(Exception):
    """gantree may not evict a pod."""

    def __init__(self, pod: Metadata, said: str) -> None:
        super().__init__(
            f"The pods stay: gantree may not evict them. It needs the permission to create pods/eviction in namespace"
            f" {pod.namespace} ({said})."
        )


async def _evict(client: Client, pods: Sequence[Pod], grace_s: float) -> str:
    """Raises _Forbidden."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    while (hindered := await _hindered(client, pods)) and loop.time() < deadline:
        await asyncio.sleep(min(AGAIN_S, grace_s))
    if hindered:
        sentence = f"{hindered}; they leave all the same: their grace is over."
        await _warn(client, pods, VIOLATED, sentence)
    told = await asyncio.gather(*(_one(client, pod, grace_s, deadline) for pod in pods))
    return next(filter(None, told), "")


async def _hindered(client: Client, pods: Sequence[Pod]) -> str:
    """Which budget does not let as many of these pods go as it is about; "" for none that is known of."""
    namespace = pods[0].metadata.namespace
    try:
        budgets = (await client.get(BUDGETS.of_namespace(namespace), _Budgets)).items
    except (ApiError, Unreachable):
        return ""  # each eviction finds out for itself
    for budget in budgets:
        labels = (pod.metadata.labels for pod in pods if pod.status.phase == "Running")
        about = sum(matches(budget.spec.selector, each) for each in labels)
        allowed = budget.status.disruptions_allowed
        if about > allowed:
            return f"The budget {budget.metadata.name!r} lets {allowed} of these {about} pods go"
    return ""


async def _one(client: Client, pod: Pod, grace_s: float, deadline: float) -> str:
    """Evict one pod; delete it if evictions are not served, or a budget refuses until the deadline.

    Raises _Forbidden.
    """
    meta = pod.metadata
    options = {"gracePeriodSeconds": max(0, round(grace_s)), "preconditions": {"uid": meta.uid}}
    path = f"{PODS.of_object(meta.namespace, meta.name)}/eviction"
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": meta.name, "namespace": meta.namespace},
        "deleteOptions": options,
    }
    while True:
        try:
            await client.write("POST", path, body)
            return ""
        except ApiError as error:
            if error.status in (404, 409):
                return ""
            if error.status == _MAY_NOT:
                raise _Forbidden(meta, error.message) from error
            is_late = asyncio.get_running_loop().time() >= deadline
            if error.status in _UNKNOWN or is_late:
                return await _delete(client, pod, grace_s)
        except Unreachable as error:
            return str(error)
        await asyncio.sleep(min(AGAIN_S, grace_s))


async def _delete(client: Client, pod: Pod, grace_s: float) -> str:
    """Delete a pod that no eviction was granted for, and say on it what for."""
    meta = pod.metadata
    if why := await add_condition(client, meta, _disrupted()):
        log.warning("%s/%s was not told why it goes: %s", meta.namespace, meta.name, why)
    return await delete(client, meta.namespace, meta.name, meta.uid, grace_s)


async def _warn(client: Client, pods: Sequence[Pod], reason: str, sentence: str) -> None:
    names = tuple((pod.metadata.namespace, pod.metadata.name) for pod in pods)
    message = StatusMessage(names, pods[0].metadata.uid, reason, sentence, is_warning=True)
    await write_status(client, message)


def _disrupted() -> dict[str, str]:
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "gantree: its room was promised to another gang",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
