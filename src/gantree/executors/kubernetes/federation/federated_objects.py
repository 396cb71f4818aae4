"""GangJobs and GangServices that a federation hands in: made, listed and deleted for its front.

The API server owns them. The name of a GangJob follows from its assignment, so handing it in again makes nothing twice,
whoever leads. A GangService goes by the name of the service, and is updated. What is said of a single object is read
from the API server, never from the watched copy: the front takes what is not there for ended.
"""

from concurrent.futures import Future
from typing import Any, TypeVar

from gantree.executors.kubernetes.apiserver.client import JSON, MERGE, ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.objects import Group
from gantree.executors.kubernetes.controllers.gangjobs import FINISHED, WORD_OF_PHASE, Name
from gantree.executors.kubernetes.federation.gangjob_of_job import FEDERATION, Volumes, gangjob_of
from gantree.executors.kubernetes.federation.gangservice_of_service import gangservice_of
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gangjob import ASSIGNMENT, GANGJOB, assignment_in
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE
from gantree.model.errors import BadInput, Conflict, NotFound, Unreachable, Unsupported
from gantree.model.federation import assignment_of
from gantree.model.jobs import Job
from gantree.model.phases import Phase
from gantree.model.services import ServiceSpec

Json = dict[str, Any]
T = TypeVar("T")
NO_NAMESPACE = "this Kubernetes cluster takes no jobs of a federation: its gantree has no --federation-namespace"
REFUSED = frozenset({400, 403, 404, 422})
"""Answers of the API server to a manifest after which nothing was made, and nothing would be another time."""
PHASE_OF_WORD = {word: phase for phase, word in WORD_OF_PHASE.items()} | {
    "Stopping": Phase.STOPPING
}


class FederatedObjects:
    """Those in one namespace; "": the cluster takes none."""

    def __init__(
        self, api: ApiThread, namespace: str, scheduler: str, volumes: Volumes = ()
    ) -> None:
        self._api, self._namespace, self._scheduler = api, namespace, scheduler
        self._volumes = volumes
        self._known: dict[tuple[GroupKind, Name], Group] = {}

    def update(self, kind: GroupKind, name: Name, group: Group | None) -> None:
        """A GangJob or a GangService was added, has changed, or is gone."""
        if group is None or name[0] != self._namespace or not assignment_in(group.metadata):
            self._known.pop((kind, name), None)
        else:
            self._known[kind, name] = group

    def check(self, asked: Job | ServiceSpec) -> None:
        """Raise Unsupported for what no object can be made of."""
        if not self._namespace:
            raise Unsupported(NO_NAMESPACE)
        self._manifest(asked)

    def create(self, asked: Job | ServiceSpec) -> "Future[str]":
        """Make the object of a job, or make or update that of a service; its name with its namespace."""
        body = self._manifest(asked)
        if isinstance(asked, Job):
            return self._api.run(lambda client: self._create(client, body))
        return self._api.run(lambda client: self._apply(client, body))

    def rows(self, federation: str) -> list[Json]:
        """Those of a federation that have not ended."""
        return [
            _row(kind, group)
            for (kind, _), group in self._known.items()
            if group.metadata.labels.get(FEDERATION) == federation and not _has_ended(group)
        ]

    def row(self, name: str, *, is_service: bool) -> "Future[Json]":
        """One of them as the API server has it."""
        kind = GANGSERVICE if is_service else GANGJOB

        async def read(client: Client) -> Json:
            return _row(kind, await self._read(client, kind, name))

        return self._api.run(read)

    def cancel(self, name: str, *, is_service: bool, assignment: str | None) -> "Future[None]":
        """Delete one that has not ended; it is there until its pods are gone."""
        kind = GANGSERVICE if is_service else GANGJOB

        async def delete(client: Client) -> None:
            group = await self._read(client, kind, name)
            came_by = assignment_in(group.metadata)
            if _has_ended(group):
                raise Conflict(f"{name} has ended: {_phase(kind, group)}")
            if assignment not in (None, came_by):
                raise Conflict(f"{name} came by assignment {came_by}")
            await self._delete(client, kind, group)

        return self._api.run(delete)

    def _manifest(self, asked: Job | ServiceSpec) -> Json:
        how = self._namespace, self._scheduler, self._volumes
        return gangjob_of(asked, *how) if isinstance(asked, Job) else gangservice_of(asked, *how)

    def _path(self, kind: GroupKind) -> str:
        home = f"apis/{kind.group}/{kind.versions[0]}/namespaces/{self._namespace}"
        return f"{home}/{kind.plural}"

    async def _create(self, client: Client, body: Json) -> str:
        """Make a GangJob; one of the same assignment is it."""
        meta = body["metadata"]
        if not await self._make(client, GANGJOB, body):
            there = await self._find(client, GANGJOB, meta["name"])
            said = "" if there is None else assignment_in(there.metadata)
            if said != meta["annotations"][ASSIGNMENT]:
                raise Unreachable(f"GangJob {meta['name']} is another one, or is being deleted")
        return f"{self._namespace}/{meta['name']}"

    async def _apply(self, client: Client, body: Json) -> str:
        """Make a GangService, or give one of this federation another description. The number wanted stays."""
        meta = body["metadata"]
        if await self._make(client, GANGSERVICE, body):
            return f"{self._namespace}/{meta['name']}"
        there = await self._find(client, GANGSERVICE, meta["name"])
        if there is None or there.metadata.deletion_timestamp is not None:
            raise Unreachable(f"GangService {meta['name']} is being deleted")
        said = assignment_in(there.metadata)
        asked = assignment_of(meta["annotations"][ASSIGNMENT])
        if not said or assignment_of(said).federation != asked.federation:
            raise BadInput(
                f"a GangService {meta['name']} is in {self._namespace} that did not come from federation"
                f" {asked.federation}; take another name"
            )
        newest = assignment_of(said)
        if newest.job == asked.job and newest.number > asked.number:
            return f"{self._namespace}/{meta['name']}"  # this one comes late
        patch = {**body, "metadata": {**meta, "uid": there.metadata.uid}}
        path = f"{self._path(GANGSERVICE)}/{meta['name']}"
        await self._write(client, "PATCH", path, patch, MERGE)
        return f"{self._namespace}/{meta['name']}"

    async def _make(self, client: Client, kind: GroupKind, body: Json) -> bool:
        """Make an object; False where its name is taken."""
        try:
            await self._write(client, "POST", self._path(kind), body, JSON)
        except Conflict:
            return False
        return True

    async def _write(self, client: Client, method: str, path: str, body: Json, kind: str) -> None:
        """Raises BadInput for what the server refuses, Conflict, Unreachable."""
        what = f"{body['kind']} {self._namespace}/{body['metadata']['name']}"
        try:
            await client.write(method, path, body, kind)
        except ApiError as error:
            if error.status == 409:
                raise Conflict(f"{what} is there") from error
            if error.status in REFUSED:
                raise BadInput(f"the API server refuses {what}: {error}") from error
            raise Unreachable(f"{what} is not written: {error}") from error

    async def _delete(self, client: Client, kind: GroupKind, group: Group) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": group.metadata.uid},
        }
        try:
            await client.write("DELETE", f"{self._path(kind)}/{group.metadata.name}", body, JSON)
        except ApiError as error:
            if error.status != 404:
                raise Unreachable(f"{group.metadata.name} is not deleted: {error}") from error

    async def _read(self, client: Client, kind: GroupKind, name: str) -> Group:
        """One that a federation handed in. Raises NotFound, Unreachable."""
        namespace, _, own = name.partition("/")
        is_ours = namespace == self._namespace and own
        group = await self._find(client, kind, own) if is_ours else None
        if group is None or not assignment_in(group.metadata):
            raise NotFound(f"a federation has handed in no {name} of {kind.plural}")
        return group

    async def _find(self, client: Client, kind: GroupKind, name: str) -> Group | None:
        """By a list, for which gantree has the right; a list of one is as new as a single object."""
        resource = Resource(self._path(kind), Group, {"fieldSelector": f"metadata.name={name}"})
        try:
            found = await client.list(resource)
        except ApiError as error:
            raise Unreachable(f"{kind.plural} {name} cannot be read: {error}") from error
        return found.objects[0] if found.objects else None


def _has_ended(group: Group) -> bool:
    return group.status.get("phase") in FINISHED


def _phase(kind: GroupKind, group: Group) -> Phase:
    if group.metadata.deletion_timestamp is not None and not _has_ended(group):
        return Phase.STOPPING
    if kind is GANGSERVICE:
        return Phase.RUNNING
    return PHASE_OF_WORD.get(str(group.status.get("phase")), Phase.PENDING)


def _row(kind: GroupKind, group: Group) -> Json:
    """An object as a job or a service of the federation."""
    status, meta = group.status, group.metadata
    return {
        "job": f"{meta.namespace}/{meta.name}",
        "assignment": assignment_in(meta),
        "phase": _phase(kind, group).value,
        "attempt": status.get("attempt") or 0,
        "held": False,
        "service": kind is GANGSERVICE,
        "reason": status.get("message") or status.get("reason") or "",
        "in_ledger": status.get("job"),
    }
