"""GangJobs that a federation hands in: made, listed and deleted for its front. The API server owns them.

The name of a GangJob follows from its assignment, so handing it in again makes nothing twice, whoever leads. What is
said of a single one is read from the API server, never from the watched copy: the front takes what is not there for
ended.
"""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from gantree.executors.kubernetes.apiserver.client import JSON, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.controllers.gangjobs import FINISHED, WORD_OF_PHASE, Name
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gangjob import ASSIGNMENT, GANGJOB, assignment_in
from gantree.executors.kubernetes.workloads.gangjob_of_job import FEDERATION, gangjob_of
from gantree.model.errors import BadInput, Conflict, NotFound, Unreachable, Unsupported
from gantree.model.jobs import Job
from gantree.model.phases import Phase

Json = dict[str, Any]
T = TypeVar("T")
NO_NAMESPACE = "this Kubernetes cluster takes no jobs of a federation: its gantree has no --federation-namespace"
REFUSED = frozenset({400, 403, 404, 422})
"""Answers of the API server to a manifest after which nothing was made, and nothing would be another time."""
PHASE_OF_WORD = {word: phase for phase, word in WORD_OF_PHASE.items()} | {
    "Stopping": Phase.STOPPING
}


class FederatedGangJobs:
    """Those in one namespace; "": the cluster takes none."""

    def __init__(self, api: ApiThread, namespace: str, scheduler: str) -> None:
        self._api, self._namespace, self._scheduler = api, namespace, scheduler
        self._known: dict[Name, Group] = {}

    def update(self, name: Name, group: Group | None) -> None:
        """A GangJob was added, has changed, or is gone."""
        if group is None or name[0] != self._namespace or not assignment_in(group.metadata):
            self._known.pop(name, None)
        else:
            self._known[name] = group

    def check(self, job: Job) -> None:
        """Raise Unsupported for a job of which no GangJob can be made."""
        if not self._namespace:
            raise Unsupported(NO_NAMESPACE)
        gangjob_of(job, self._namespace, self._scheduler)

    def create(self, job: Job) -> "Future[str]":
        """Make the GangJob of a job; its name with its namespace."""
        body = gangjob_of(job, self._namespace, self._scheduler)
        return self._run(lambda client: self._create(client, body))

    def rows(self, federation: str) -> list[Json]:
        """Those of a federation that have not ended."""
        return [
            _row(group)
            for group in self._known.values()
            if group.metadata.labels.get(FEDERATION) == federation and not _has_ended(group)
        ]

    def row(self, name: str) -> "Future[Json]":
        """One of them as the API server has it."""

        async def read(client: Client) -> Json:
            return _row(await self._read(client, name))

        return self._run(read)

    def cancel(self, name: str) -> "Future[None]":
        """Delete one that has not ended; it is there until its pods are gone."""

        async def delete(client: Client) -> None:
            group = await self._read(client, name)
            if _has_ended(group):
                raise Conflict(f"{name} has ended: {_phase(group)}")
            body = {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": group.metadata.uid},
            }
            try:
                await client.write("DELETE", f"{self._path}/{group.metadata.name}", body, JSON)
            except ApiError as error:
                if error.status != 404:
                    raise Unreachable(f"{name} is not deleted: {error}") from error

        return self._run(delete)

    @property
    def _path(self) -> str:
        home = f"apis/{GANGJOB.group}/{GANGJOB.versions[0]}/namespaces/{self._namespace}"
        return f"{home}/{GANGJOB.plural}"

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> "Future[T]":
        return self._api.run(work)

    async def _create(self, client: Client, body: Json) -> str:
        name, meta = f"{self._namespace}/{body['metadata']['name']}", body["metadata"]
        try:
            await client.write("POST", self._path, body, JSON)
        except ApiError as error:
            if error.status in REFUSED:
                raise BadInput(f"the API server refuses GangJob {name}: {error}") from error
            if error.status != 409:
                raise Unreachable(f"GangJob {name} is not made: {error}") from error
            there = await self._find(client, meta["name"])
            if there is None or assignment_in(there.metadata) != meta["annotations"][ASSIGNMENT]:
                raise Unreachable(f"GangJob {name} is another one, or is being deleted") from error
        return name

    async def _read(self, client: Client, name: str) -> Group:
        """One that a federation handed in. Raises NotFound, Unreachable."""
        namespace, _, own = name.partition("/")
        group = await self._find(client, own) if namespace == self._namespace and own else None
        if group is None or not assignment_in(group.metadata):
            raise NotFound(f"there is no GangJob {name} of a federation")
        return group

    async def _find(self, client: Client, name: str) -> Group | None:
        """By a list, for which gantree has the right; a list of one is as new as a single object."""
        resource = Resource(self._path, Group, {"fieldSelector": f"metadata.name={name}"})
        try:
            found = await client.list(resource)
        except ApiError as error:
            raise Unreachable(f"GangJob {name} cannot be read: {error}") from error
        return found.objects[0] if found.objects else None


def _has_ended(group: Group) -> bool:
    return group.status.get("phase") in FINISHED


def _phase(group: Group) -> Phase:
    if group.metadata.deletion_timestamp is not None and not _has_ended(group):
        return Phase.STOPPING
    return PHASE_OF_WORD.get(str(group.status.get("phase")), Phase.PENDING)


def _row(group: Group) -> Json:
    """A GangJob as a job of the federation."""
    status, meta = group.status, group.metadata
    return {
        "job": f"{meta.namespace}/{meta.name}",
        "assignment": assignment_in(group.metadata),
        "phase": _phase(group).value,
        "attempt": status.get("attempt") or 0,
        "held": False,
        "service": False,
        "reason": status.get("message") or status.get("reason") or "",
        "in_ledger": status.get("job"),
    }
