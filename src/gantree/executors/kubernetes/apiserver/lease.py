"""Leader election by a Kubernetes Lease, in front of a journal that one process opens exclusively.

A journal in a local file keeps nobody away who has another file. So whoever is to lead on a cluster takes the Lease
first, as client-go's leader election does: a Lease that has not changed for as long as it says, by the clock of whoever
looks, may be taken, and each write names the version that it was made of, so that of two one is refused (409). Times
in it are for people. How long a leader may go on without a renewal is `control.engine.leadership`'s: until before
anybody else can have taken it. A daemon of the holder's name is taken for the holder, started again.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from gantree.executors.kubernetes.apiserver.client import JSON, MERGE, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Metadata, Object
from gantree.journal.contract import Election
from gantree.model.errors import JournalError, Unreachable

LEASE_S = 15.0
"""As client-go has it."""
LOOK_EVERY_S = 2.0
"""Seconds between two reads of the Lease by a standby."""
ANSWER_WITHIN_S = 4.0

T = TypeVar("T")


class LeaseSpec(Object, frozen=True):
    """The holder of the Lease, and the seconds after its last renewal in which no other may take it."""

    holder_identity: str = ""
    lease_duration_seconds: int = 0
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    """A Lease of coordination.k8s.io/v1."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


LEASES: Resource[Lease] = Resource("apis/coordination.k8s.io/v1/leases", Lease)


class LeaseElection:
    """The part of a journal that leadership asks: the Lease, and then the journal's own. Safe from any thread."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        journal: Election,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is asked yet. steady gives seconds that never go back. Raises BadInput for odd certificates."""
        self._namespace, self._name = connection.namespace, name
        self._journal, self._steady = journal, steady
        self._client = Client(connection, within_s=ANSWER_WITHIN_S, patience=0)
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()
        self._known: Lease | None = None
        self._known_since_s = self._looked_at_s = -math.inf

    def lead(self, holder: str, for_s: float) -> int | None:
        """Begin an epoch; None while the Lease is another's."""
        if self._ask(self._take(holder, for_s)) is None:
            return None
        return self._journal.lead(holder, for_s)

    def renew(self, epoch: int, for_s: float) -> bool:
        """Let the Lease run for so long from now on; False if it is another's."""
        return self._journal.renew(epoch, for_s) and self._ask(self._renew(for_s)) is not None

    def resign(self, epoch: int) -> None:
        """Give the Lease back, so that another may take it at once."""
        self._journal.resign(epoch)
        self._ask(self._give_back())

    def leader(self) -> tuple[int, str | None]:
        """Return the newest epoch of this journal, and the last seen holder of the Lease."""
        known = self._known
        return self._journal.leader()[0], (known and known.spec.holder_identity) or None

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            self._runner.run(self._client.close())
            self._runner.close()

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            try:
                return self._runner.run(work)
            except (ApiError, Unreachable) as error:
                raise JournalError(f"lease {self._namespace}/{self._name}: {error}") from error

    async def _take(self, holder: str, for_s: float) -> Lease | None:
        now_s = self._steady()
        if now_s - self._looked_at_s < LOOK_EVERY_S:
            return None
        found = await self._look()
        self._looked_at_s = now_s
        if found is None:
            return await self._create(holder, for_s)
        spec = found.spec
        is_free = spec.holder_identity in ("", holder)
        if not is_free and self._steady() - self._known_since_s < spec.lease_duration_seconds:
            return None
        begun = {"acquireTime": _now(), "leaseTransitions": spec.lease_transitions + 1}
        return await self._change(found, {**_held_by(holder, for_s), **begun})

    async def _renew(self, for_s: float) -> Lease | None:
        """Where it was changed meanwhile, by us where an answer was lost, it is looked at again."""
        known = self._known
        assert known is not None, "renewed before it was taken"
        holder = known.spec.holder_identity
        renewed = await self._change(known, _held_by(holder, for_s))
        if renewed is not None:
            return renewed
        found = await self._look()
        if found is None:
            return await self._create(holder, for_s)
        if found.spec.holder_identity != holder:
            return None
        return await self._change(found, _held_by(holder, for_s))

    async def _give_back(self) -> None:
        known = self._known
        if known is not None:
            await self._change(known, {"holderIdentity": "", "renewTime": _now()})
        self._looked_at_s = -math.inf

    async def _look(self) -> Lease | None:
        """The Lease as it is now; None where there is none. A change of it is noted with when it was seen."""
        try:
            found = await self._client.get(LEASES.of_object(self._namespace, self._name), Lease)
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return self._see(found)

    async def _create(self, holder: str, for_s: float) -> Lease | None:
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {**_held_by(holder, for_s), "acquireTime": _now(), "leaseTransitions": 0},
        }
        return await self._write("POST", LEASES.of_namespace(self._namespace), body, JSON)

    async def _change(self, found: Lease, spec: dict[str, object]) -> Lease | None:
        """None where it is not as it was found any more."""
        version = {"resourceVersion": found.metadata.resource_version}
        path = LEASES.of_object(self._namespace, self._name)
        return await self._write("PATCH", path, {"metadata": version, "spec": spec}, MERGE)

    async def _write(self, method: str, path: str, body: object, kind: str) -> Lease | None:
        """Return the written Lease; None on a conflict."""
        try:
            written = await self._client.write(method, path, body, kind)
        except ApiError as error:
            is_gone = error.status == 404 and method == "PATCH"
            if is_gone or error.status == 409:
                return None
            raise
        return self._see(msgspec.json.decode(written, type=Lease))

    def _see(self, lease: Lease) -> Lease:
        known = self._known
        if known is None or known.metadata.resource_version != lease.metadata.resource_version:
            self._known, self._known_since_s = lease, self._steady()
        return lease


def _held_by(holder: str, for_s: float) -> dict[str, object]:
    return {
        "holderIdentity": holder,
        "leaseDurationSeconds": max(1, math.ceil(for_s)),
        "renewTime": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
