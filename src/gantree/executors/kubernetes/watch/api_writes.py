"""Writes to the API server that nobody waits for, on the thread of the API. A failed one is logged, and repeated by
whoever needs it while it is not done.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from gantree.executors.kubernetes.apiserver.client import JSON, ApiError, Client
from gantree.executors.kubernetes.apiserver.device_objects import ResourceClaim
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.apiserver.post_queue import PostQueue
from gantree.executors.kubernetes.constraints.volume_writes import Provision, make
from gantree.executors.kubernetes.devices.claim_writes import take_back
from gantree.executors.kubernetes.watch.loop_thread import LoopThread
from gantree.executors.kubernetes.writes.writes import (
    Binding,
    Bound,
    Failed,
    StatusMessage,
    bind_all,
    bind_with_grants,
    delete,
    write_status,
)
from gantree.model.errors import Unreachable

STATUS_WRITES_AT_ONCE = 4
"""Gangs whose status is written concurrently, so that bindings are not delayed."""

log = logging.getLogger(__name__)


def _is_taken(error: Exception) -> bool:
    """Whether an object was not made because another has its name."""
    return isinstance(error, ApiError) and error.reason == "AlreadyExists"


class ApiWrites:
    """Writes through one client. report is called with (noun, result): what came of bindings and of claims."""

    def __init__(
        self,
        client: Client,
        thread: LoopThread,
        on_bug: Callable[[BaseException], None],
        report: Callable[[str, Any], None],
        namespace: str,
    ) -> None:
        """namespace is where records of devices are kept."""
        self._client, self._thread, self._report, self._namespace = (
            client,
            thread,
            report,
            namespace,
        )
        self._post_queue = PostQueue(client, thread.keep, on_bug)
        self._status_writes = asyncio.Semaphore(STATUS_WRITES_AT_ONCE)

    def bind(
        self, job: str, attempt: int, bindings: Sequence[Binding], volumes: Sequence[Provision]
    ) -> None:
        """Bind the pods of an attempt: at once if they need neither claims nor volumes, as most do."""
        if volumes or any(each.grants for each in bindings):
            self._thread.keep(
                asyncio.get_running_loop().create_task(
                    self._prepare(job, attempt, bindings, volumes)
                )
            )
        else:
            bind_all(self._post_queue, bindings, lambda failed: self._bound(job, attempt, failed))

    async def _prepare(
        self, job: str, attempt: int, bindings: Sequence[Binding], volumes: Sequence[Provision]
    ) -> None:
        """Bind pods once their volumes are made and their claims are allocated."""
        why = await make(self._client, volumes) if volumes else ""
        failed: Failed = tuple((binding.uid, why) for binding in bindings)
        if not why:
            failed = await bind_with_grants(self._post_queue, bindings, self._namespace)
        self._bound(job, attempt, failed)

    def _bound(self, job: str, attempt: int, failed: Failed) -> None:
        self._report("bound", Bound(job, attempt, failed))

    async def take_back(self, claim: ResourceClaim, pod: str) -> None:
        """Remove the allocation of a claim that was for one pod."""
        why = await take_back(self._client, claim, pod)
        if why:
            log.warning("claim %s was not given back: %s", claim.metadata.name, why)
            self._report("claim again", (claim.metadata.namespace, claim.metadata.name))

    async def request(self, method: str, path: str, body: object, kind: str) -> None:
        """Any write; that its object is gone or there already is no failure."""
        try:
            await self._client.write(method, path, body, kind)
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("%s %s: %s", method, path, error)

    async def create(self, path: str, body: object, on_refused: Callable[[str], None]) -> None:
        """Make an object. Where it was not made, ("answer", (on_refused, why)) is reported: "" if its name is taken."""
        try:
            await self._client.write("POST", path, body, JSON)
        except (ApiError, Unreachable) as error:
            self._report("answer", (on_refused, "" if _is_taken(error) else str(error)))

    async def create_owned(
        self, path: str, body: Mapping[str, Any], on_answer: Callable[[str], None]
    ) -> None:
        """Make an object unless its owner has it; ("answer", (on_answer, why not)) is reported, "" if it is there."""
        why = ""
        try:
            await self._client.write("POST", path, body, JSON)
        except (ApiError, Unreachable) as error:
            why = str(error)
            if _is_taken(error):
                why = await self._why_foreign(path, body)
        self._report("answer", (on_answer, why))

    async def _why_foreign(self, path: str, body: Mapping[str, Any]) -> str:
        """Why an object that has the name of another is not that; "" if it has the same owner."""
        kind, meta = body["kind"], body["metadata"]
        try:
            there = await self._client.get(f"{path}/{meta['name']}", Group)
        except (ApiError, Unreachable) as error:
            return str(error)
        owners = {each.uid for each in there.metadata.owner_references}
        (owner,) = meta["ownerReferences"]
        if owner["uid"] in owners:
            return ""
        return f"{kind} {meta['name']} is not of this {owner['kind']}: delete it, or choose another name"

    async def delete(self, namespace: str, name: str, uid: str, grace_s: float | None) -> None:
        """Delete a pod."""
        why = await delete(self._client, namespace, name, uid, grace_s)
        if why:
            log.warning("pod %s/%s was not deleted: %s", namespace, name, why)

    async def write(self, work: Callable[[Client], Coroutine[Any, Any, str]]) -> None:
        """A write that answers "", or why it was not done."""
        if why := await work(self._client):
            log.warning("not written: %s", why)

    async def report_status(self, message: StatusMessage) -> None:
        """Write why pods wait, a few gangs at a time."""
        async with self._status_writes:
            why = await write_status(self._client, message)
        if why:
            log.warning("the status of pods was not written: %s", why)
