"""Makes the calls that the front asks for, and tells it what came of them. All on one event loop."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from typing import Any

from gantree.api.client.async_client import AsyncClient
from gantree.api.client.request import Request
from gantree.api.client.requests import cancel, job
from gantree.api.client.service_requests import cancel_service, service
from gantree.api.client.site_requests import (
    cancel_federated_object,
    federated_object,
    renew_lease,
)
from gantree.federation.calls import Call, CallKind
from gantree.federation.front import NOT_TAKEN, Front
from gantree.federation.jobs.choice import Offer, offer_of
from gantree.federation.jobs.federated_job import FederatedJob
from gantree.model.errors import (
    Conflict,
    Forbidden,
    GantreeError,
    NotFound,
    Stale,
    TooLarge,
    TooOften,
    Unauthenticated,
)

Json = dict[str, Any]
ANSWER_WITHIN_S = 10.0
LOOK_EVERY_S = 0.25
REFUSALS = (
    *NOT_TAKEN, Conflict, Forbidden, NotFound, Stale, TooLarge, TooOften, Unauthenticated,
)  # fmt: skip
"""Errors that a daemon gives before it has done anything. After another one nothing is known."""

log = logging.getLogger(__name__)


def now_s() -> float:
    """Seconds on a clock that cannot be set, and that goes on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Driver:
    """Drives a front. clients are those of its clusters."""

    def __init__(self, front: Front, clients: Mapping[str, AsyncClient]) -> None:
        self.front, self.clients = front, clients
        self._woken = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Look at once what there is to do."""
        self._woken.set()

    async def run(self) -> None:
        """Make calls until cancelled. Raises JournalError where nothing can be made durable any more."""
        try:
            while True:
                self._woken.clear()
                for done in [task for task in self._tasks if task.done()]:
                    self._tasks.discard(done)
                    done.result()  # a bug, or a disk that takes nothing, ends the front
                for call in self.front.calls(now_s()):
                    self._tasks.add(asyncio.create_task(self._make(call)))
                try:
                    async with asyncio.timeout(LOOK_EVERY_S):
                        await self._woken.wait()
                except TimeoutError:
                    continue
        finally:
            for task in self._tasks:
                task.cancel()

    async def _make(self, call: Call) -> None:
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await self.clients[call.cluster].send(request_of(call))
        except REFUSALS as error:
            if call.kind is CallKind.LEASE:
                self._warn(call, str(error))
            self.front.refused(call, error, now_s())
        except (GantreeError, TimeoutError) as error:
            trouble = str(error) or f"no answer within {ANSWER_WITHIN_S:g} s"
            self._warn(call, trouble)
            self.front.failed(call, trouble, now_s())
        else:
            self.front.answered(call, _plain(call, answer), now_s())
        self.wake()

    def _warn(self, call: Call, trouble: str) -> None:
        """Log a call that failed; of the heartbeats only the first one that fails so."""
        if call.kind is not CallKind.LEASE or trouble != self.front.leases[call.cluster].trouble:
            log.warning("%s: %s: %s", call.cluster, call.kind.value, trouble)

    async def offers(self, job: FederatedJob) -> list[Offer]:
        """What the clusters that may get jobs say of one that nobody has yet."""
        asked = [self._offer(name, job) for name in self.front.usable(now_s())]
        return [offer for offer in await asyncio.gather(*asked) if offer is not None]

    async def _offer(self, cluster: str, job: FederatedJob) -> Offer | None:
        call = self.front.question(cluster, job)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                answer = await self.clients[cluster].send(request_of(call))
        except (*NOT_TAKEN, Conflict) as error:
            return Offer(cluster, None, refusal=str(error))
        except (GantreeError, TimeoutError):
            return None
        return offer_of(self.front.federation, cluster, job.data, answer)


def request_of(call: Call) -> Request[Json]:
    """The request that a call is."""
    if call.kind is CallKind.LEASE:
        assert call.renewal is not None
        asked, stamp = call.renewal, call.renewal.stamp
        shown = None if stamp is None else {"boot": stamp.boot, "at_s": stamp.at_s}
        return renew_lease(asked.federation, asked.number, asked.lease_s, shown)
    if call.kind is CallKind.FORECAST:
        return Request("POST", "/v1/jobs/forecast", body=_submission(call))
    if call.kind is CallKind.SUBMIT:
        assert call.assignment is not None
        key = sha256(f"{call.assignment} {call.assignment.lease}".encode()).hexdigest()
        headers = {"Idempotency-Key": key}
        return Request("POST", "/v1/jobs", body=_submission(call), headers=headers)
    return _cancellation(call) if call.kind is CallKind.CANCEL else _question(call)


def _cancellation(call: Call) -> Request[Json]:
    if "/" in call.remote:
        came_by = call.came_by if call.is_service else None
        return cancel_federated_object(_kind(call), call.remote, assignment=came_by)
    if call.is_service:
        return cancel_service(call.remote, assignment=call.came_by)
    return cancel(call.remote, if_version=call.version or None)


def _question(call: Call) -> Request[Json]:
    """About what a cluster has; an object of Kubernetes is known as NAMESPACE/NAME."""
    if "/" in call.remote:
        return federated_object(_kind(call), call.remote)
    return service(call.remote) if call.is_service else job(call.remote)


def _kind(call: Call) -> str:
    return "gangservices" if call.is_service else "gangjobs"


def _submission(call: Call) -> Json:
    """The body of a submission, with the assignment by which it comes."""
    assert call.assignment is not None
    return {**call.body, "assignment": asdict(call.assignment)}


def _plain(call: Call, answer: Json) -> Json:
    """The answer as the front reads it: a service that has ended was cancelled."""
    if call.kind is CallKind.LOOK and call.is_service and "/" not in call.remote:
        return {"phase": "running" if answer["ended_at"] is None else "cancelled"}
    if call.kind is CallKind.SUBMIT and call.is_service:
        return {"jobs": [{"job": each["service"]} for each in answer["services"]]}
    return answer
