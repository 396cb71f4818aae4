"""Asks for nodes that do not exist yet, for gangs that their queues admit and that not even the empty site could hold.

A gang is asked for whole, by one ProvisioningRequest for nodes of one group. One that comes to nothing is deleted, and
asked for again after a pause that doubles, of the next group that has room. A request stays until its gang's first pod
is gone: autoscalers take back what nobody asks for. It is deleted before that if the gang is not to start any more.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.client import ApiError, Client, Resource
from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.nodes.node_group_room import groups_with_room
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.executors.kubernetes.workloads.provisioning_requests import (
    CLASS,
    CONSUMES,
    MOST_SETS,
    OVER,
    PROVISIONING,
    Json,
    Request,
    Wanted,
    pause_s,
    read_request,
    request_body,
    said_of,
    template_body,
)
from gantree.executors.kubernetes.writes.patches import annotate
from gantree.executors.kubernetes.writes.writes import PODS
from gantree.model.errors import Unreachable
from gantree.model.node_groups import NodeGroup

log = logging.getLogger(__name__)

AT_ONCE = 16
"""Gangs that are looked at in one step."""
EVERY_S = 0.5
SEEN_WITHIN_S = 30.0
"""A request that was made and is not seen for so long is made again: under its name there is one."""
UNSERVED = (
    "the server has no ProvisioningRequest (autoscaling.x-k8s.io), or gantree may not list any"
)
Name = tuple[str, str]
TEMPLATES: Resource[Group] = Resource("api/v1/podtemplates", Group)


class Provisioning:
    """The requests of all gangs."""

    def __init__(
        self,
        api: ApiThread,
        pending: PendingPods,
        groups: Sequence[NodeGroup],
        levels: Sequence[str],
        explain: Callable[[Key, str], None],
    ) -> None:
        """explain writes to the pods of a gang why they wait."""
        self._api, self._pending, self._explain = api, pending, explain
        self._groups, self._levels = tuple(groups), tuple(levels)
        self._requests: dict[Name, Request] = {}
        self._deleted: dict[Name, float] = {}
        """Requests that were deleted and are still there, and when that is tried again."""
        self._made: dict[Key, float] = {}
        """Gangs that were asked for, until when that may take to be seen."""
        self._retry: dict[Key, tuple[int, float]] = {}
        """Attempts that came to nothing, and when the next may be made."""
        self._told: dict[Key, str] = {}
        """What gangs wait for here, as a part of a sentence."""
        self._next_at, self._cursor = 0.0, 0
        self._is_warned = False

    def update(self, where: Name, group: Group | None) -> None:
        """A ProvisioningRequest was added or has changed; None: it is gone."""
        request = None if group is None else read_request(group)
        if request is None:
            self._requests.pop(where, None)
            self._deleted.pop(where, None)
        else:
            self._requests[where] = request
            self._made.pop(request.gang, None)

    def told(self, job: str) -> str:
        """What a job waits for here, as a part of a sentence; "" for nothing."""
        key = self._pending.key_of_job.get(job)
        return "" if key is None else self._told.get(key, "")

    def step(
        self,
        decided: LedgerView,
        site: SiteReading | None,
        without_topology: Mapping[Key, None],
        pods: Mapping[str, Pod],
        now: float,
    ) -> None:
        """Follow what was asked for, and ask for a few gangs more.

        without_topology: gangs whose tier the site lacks. pods are all that are ours, by uid.
        """
        if not self._groups or now < self._next_at:
            return
        self._next_at = now + EVERY_S
        version = self._api.version_of(PROVISIONING)
        if version is None:
            self._warn_unserved()
            return
        self._is_warned = False
        self._forget()
        latest = self._latest()
        for where, request in list(self._requests.items()):
            is_needed = latest[request.gang] is request and self._is_needed(
                request, decided, pods, now
            )
            if not is_needed and now >= self._deleted.get(where, now):
                self._deleted[where] = now + SEEN_WITHIN_S
                self._api.write(partial(remove, request=request, version=version))
        for key in [] if site is None else self._next_keys(without_topology):
            if key not in latest and self._may_ask(key, now):
                job = self._pending.gangs[key].job
                is_short = job is not None and decided.needs_more_nodes(job, now)
                if is_short or key in without_topology:
                    self._ask(key, site, version, now)

    def _warn_unserved(self) -> None:
        if not self._is_warned:
            self._is_warned = True
            log.warning("node groups are not asked for: %s", UNSERVED)

    def _forget(self) -> None:
        """Drop what is known of gangs of which nothing waits or was asked for."""
        there = {*self._pending.gangs, *(each.gang for each in self._requests.values())}
        known: tuple[dict[Key, Any], ...] = (self._made, self._retry, self._told)
        for each in known:
            for key in each.keys() - there:
                del each[key]

    def _latest(self) -> dict[Key, Request]:
        """The last request of each gang."""
        ordered = sorted(self._requests.values(), key=lambda each: each.attempt)
        return {each.gang: each for each in ordered}

    def _is_needed(
        self, request: Request, decided: LedgerView, pods: Mapping[str, Pod], now: float
    ) -> bool:
        """Whether a request stays; says to its gang how far it is."""
        key, first = request.gang, pods.get(request.first_pod)
        self._told.pop(key, None)
        if first is None or self._is_refused(key):
            self._retry.pop(key, None)
            return False
        if first.spec.node_name or not self._is_short(key, decided, now):
            self._retry.pop(key, None)
            return True
        if request.stage not in OVER:
            self._say(key, said_of(request))
            return True
        if self._retry.get(key, (0, 0.0))[0] < request.attempt:
            self._retry[key] = request.attempt, now + pause_s(request.attempt)
        self._say(
            key, f"{said_of(request)}; it is asked for again after {pause_s(request.attempt):g} s"
        )
        return False

    def _is_short(self, key: Key, decided: LedgerView, now: float) -> bool:
        """Whether the nodes of a gang have not come."""
        pending = self._pending.gangs.get(key)
        if pending is None:
            return False
        return pending.job is None or decided.needs_more_nodes(pending.job, now)

    def _is_refused(self, key: Key) -> bool:
        """Whether a gang's job was cancelled or rejected, so that its pods are not handed in again."""
        gang = self._pending.gangs.get(key)
        return gang is not None and bool(gang.pods) and frozenset(gang.pods) == gang.refused

    def _say(self, key: Key, sentence: str) -> None:
        self._told[key] = sentence
        self._explain(key, f"Waiting: {sentence}.")

    def _next_keys(self, first: Mapping[Key, None]) -> list[Key]:
        """Gangs to look at: those whose topology the site lacks, and the next few of all that wait."""
        gangs = self._pending.gangs
        start = self._cursor if self._cursor < len(gangs) else 0
        self._cursor = start + AT_ONCE
        chosen = dict.fromkeys((*islice(first, AT_ONCE), *islice(gangs, start, start + AT_ONCE)))
        return [key for key in chosen if key in gangs]

    def _may_ask(self, key: Key, now: float) -> bool:
        next_at = self._retry.get(key, (0, now))[1]
        return now >= max(next_at, self._made.get(key, now)) and not self._is_refused(key)

    def _ask(self, key: Key, site: SiteReading | None, version: str, now: float) -> None:
        """Ask for the nodes of a gang, if it is complete and a group has room for it."""
        gang = self._pending.gang(key)
        if gang is None or site is None or len(gang.roles) > MOST_SETS:
            return
        fitting = groups_with_room(gang, self._groups, site, self._levels)
        if not fitting:
            return
        attempt = self._retry.get(key, (0, 0.0))[0] + 1
        wanted = Wanted(gang, fitting[(attempt - 1) % len(fitting)], attempt)
        self._made[key] = now + SEEN_WITHIN_S
        self._api.write(partial(self._create, wanted=wanted, version=version))

    async def _create(self, client: Client, wanted: Wanted, version: str) -> str:
        try:
            await create(client, wanted, version)
        except (ApiError, Unreachable) as error:
            self._told[wanted.gang.key] = (
                f"the nodes of the whole gang cannot be asked for: {error}"
            )
            return f"ProvisioningRequest {wanted.name}: {error}"
        return ""


async def create(client: Client, wanted: Wanted, version: str) -> None:
    """Make a request with its templates. Raises ApiError, Unreachable.

    Pods are marked first: an autoscaler that saw them unmarked would make nodes for some of them by itself.
    """
    marks = {CONSUMES: wanted.name, CLASS: wanted.group.provisioning_class}
    for pod in wanted.gang.pods:
        if why := await annotate(client, pod.metadata, marks):
            raise Unreachable(why)
    for name, pod, _ in wanted.templates:
        meta = pod.metadata
        like = await client.get(PODS.of_object(meta.namespace, meta.name), dict[str, object])
        await _post(client, TEMPLATES, wanted, template_body(wanted, name, dict(like)))
    made = Resource(PROVISIONING.path(version), Group)
    await _post(client, made, wanted, request_body(wanted, version))


async def _post(client: Client, kind: Resource[Group], wanted: Wanted, body: Json) -> None:
    """Create an object; one that is there under its name is ours."""
    try:
        await client.write("POST", kind.of_namespace(wanted.namespace), body)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def remove(client: Client, request: Request, version: str) -> str:
    """Delete a request and its templates; "" once they are gone, else why not."""
    made = Resource(PROVISIONING.path(version), Group)
    paths = [made.of_object(request.namespace, request.name)]
    paths += [TEMPLATES.of_object(request.namespace, name) for name in request.templates]
    for path in paths:
        try:
            await client.write("DELETE", path, {})
        except ApiError as error:
            if error.status != 404:
                return str(error)
        except Unreachable as error:
            return str(error)
    return ""
