"""The HTTP of the API server: paths to resources and verbs, answers and streams of watches to bytes.

    async with ApiServer() as server:
        client = Client(server.url)
        server.faults.end_watches("pods", False)

It behaves as observed of Kubernetes 1.36, without authentication unless it has users. What is not modelled:
managedFields and server-side apply, protobuf, tables, dry runs, rules in CEL, conversion between versions, the types
of built-in resources (what they do not know is kept, not dropped).
"""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from traceback import format_exc
from types import TracebackType
from typing import Self

from aiohttp import web

from support.kubernetes.controllers.definitions import Definitions
from support.kubernetes.controllers.garbage import Garbage
from support.kubernetes.faults import Fault, Faults
from support.kubernetes.rules.admission import Admission, Creation
from support.kubernetes.rules.builtin import builtin
from support.kubernetes.rules.resources import Catalog, Resource
from support.kubernetes.server import reviews
from support.kubernetes.server.access import Access, User
from support.kubernetes.server.lists import Lists, Question
from support.kubernetes.server.objects import Objects
from support.kubernetes.server.operations import Request, carry_out, object_of
from support.kubernetes.server.paths import target_of, verb_of
from support.kubernetes.server.queries import flag, number
from support.kubernetes.server.statuses import (
    NO_RESOURCE,
    Json,
    NoSuchPath,
    Refusal,
    status_of,
)
from support.kubernetes.server.storage import Store, encode
from support.kubernetes.server.watch import Watch

DEFAULT_WATCH_S = 1_800.0
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
CLOSES_WITHIN_S = 2.0
LOOKS_EVERY_S = 0.01
"""How often a watch that is held looks whether it still is."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server serves. gang_api is the version of Workload and PodGroup, None where their gates are off.

    kept_changes is how many changes of each resource a watch can go back, at least. access: who may do what.
    collects_garbage: what is owned by nobody any more goes, and namespaces are emptied.
    """

    gang_api: str | None = "v1alpha2"
    kept_changes: int = 20_000
    access: Access | None = None
    collects_garbage: bool = True


@dataclass
class ApiServer:
    """A server on this event loop, from the beginning of a block to its end. It listens on 127.0.0.1."""

    settings: Settings = field(default_factory=Settings)
    port: int = 0

    def __post_init__(self) -> None:
        """Everything but the socket."""
        self.faults = Faults(end_watches=self.end_watches, compact=self.compact)
        self.store = Store(self.settings.kept_changes)
        self.objects = Objects(Catalog(builtin(self.settings.gang_api)), self.store)
        self.lists = Lists(self.store, self.faults)
        self.admission = Admission(self.objects)
        self.watches: set[Watch] = set()
        self.asked: Counter[tuple[str, str, str, str]] = Counter()
        """How often each user has asked for a verb of a resource of a group."""
        Definitions(self.objects, self.end_watches)
        if self.settings.collects_garbage:
            self.store.listener = Garbage(self.objects).hear
        namespaces = self.objects.catalog.find("", "v1", "namespaces")
        for name in NAMESPACES:
            self.objects.create(namespaces, "", {"metadata": {"name": name}})
        classes = self.objects.catalog.find("scheduling.k8s.io", "v1", "priorityclasses")
        for name, value in SYSTEM_CLASSES.items():
            self.objects.create(classes, "", {"metadata": {"name": name}, "value": value})

    async def __aenter__(self) -> Self:
        """Listen."""
        handler = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(handler, shutdown_timeout=CLOSES_WITHIN_S)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, backlog=1_024).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all watches, then all connections."""
        self.end_watches()
        await self._runner.cleanup()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    def end_watches(self, resource: str = "", cut: bool = False) -> int:
        """End the watches of a resource, or all; cut: by broken connections. Answers with how many."""
        ended = [w for w in self.watches if resource in {"", w.resource.plural}]
        for watch in ended:
            watch.end(cut)
        return len(ended)

    def compact(self) -> None:
        """Forget all changes up to now: who comes back to a revision before is told 410."""
        self.store.compact()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """One request. What is wrong with it is a Status."""
        try:
            return await self._answer(request)
        except NoSuchPath:
            return self._nowhere(request)
        except Refusal as refusal:
            return refused(refusal)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception:
            message = f"a bug of the test server, or an object it cannot read: {format_exc()}"
            return _json(encode(status_of(500, "InternalError", message)), 500)

    def _nowhere(self, request: web.BaseRequest) -> web.Response:
        """Below a built-in group a Status, elsewhere a line of text."""
        if self.objects.catalog.is_built_in(request.path.strip("/").split("/")):
            return _json(encode(NO_RESOURCE), 404)
        return web.Response(text="404 page not found\n", status=404)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        steps = [step for step in request.path.split("/") if step]
        if len(steps) <= 1 and steps not in (["api"], ["apis"]):
            return await self._answer_for_itself(steps, request)
        user = self._user(request)
        if len(steps) <= (2 if steps[0] == "api" else 3):
            return _json(encode(self.objects.catalog.discover(steps)))
        if tuple(steps) == reviews.PATH:
            return _json(encode(reviews.reviewed(user, object_of(await request.read()))), 201)
        target = target_of(steps)
        verb = verb_of(request.method, target, request.query)
        self.asked[user.name if user else "", verb, target.group, target.full] += 1
        if user and self.settings.access:
            self.settings.access.check(
                user, verb, target.group, target.full, target.namespace, target.name
            )
        resource = self.objects.catalog.find(target.group, target.version, target.plural)
        fault = self.faults.meet(verb, target.full, target.name)
        if fault and fault.code:
            raise fault.refusal()
        if verb == "watch":
            return await self._watch(request, resource, target.namespace)
        body = await request.read()
        if verb == "create" and not target.part and self.admission.is_asked:
            asked = Creation(resource, target, user.name if user else "", object_of(body))
            body = encode(await self.admission.mutated(asked))
        self.objects.asker = user
        answer = carry_out(
            self.objects,
            self.lists,
            Request(verb, resource, target, request.query, body, request.content_type),
        )
        response = _json(answer.body, answer.code)
        return await spoiled(request, response, fault) if fault else response

    async def _answer_for_itself(
        self, steps: list[str], request: web.BaseRequest
    ) -> web.StreamResponse:
        """What is asked of the server, not of its objects."""
        match steps:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(encode(_version(self.settings.gang_api)))
            case ["gantree-faults"] if request.method == "POST":
                return _json(encode(self.faults.carry_out(object_of(await request.read()))))
            case ["gantree-faults"]:
                return _json(encode(self.faults.told()))
        raise NoSuchPath

    def _user(self, request: web.BaseRequest) -> User | None:
        access = self.settings.access
        return access.user(request.headers.get("Authorization")) if access else None

    async def _watch(
        self, request: web.BaseRequest, resource: Resource, namespace: str
    ) -> web.StreamResponse:
        """The stream of a watch, until it ends by itself, by its time or by its reader."""
        question = Question.read(resource, namespace, request.query)
        lasts_s = number(request.query, "timeoutSeconds") or DEFAULT_WATCH_S
        watch = Watch(resource, question, self.store, self.faults.watch_room)
        watch.begin(request.query, self.faults.gone_in_stream)
        self.watches.add(watch)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        try:
            await response.prepare(request)
            bookmarks = bool(flag(request.query, "allowWatchBookmarks"))
            await self._stream(response, watch, lasts_s, bookmarks)
        finally:
            watch.end()
            self.watches.discard(watch)
        if watch.is_cut and request.transport:
            request.transport.abort()
        return response

    async def _stream(
        self, response: web.StreamResponse, watch: Watch, lasts_s: float, bookmarks: bool
    ) -> None:
        clock = asyncio.get_running_loop().time
        ends_at, noted_at = clock() + lasts_s, clock() + self.faults.progress_s
        while not (watch.ended and not watch.lines):
            left_s, at_most = ends_at - clock(), self.faults.watch_events
            if left_s <= 0 or (at_most is not None and watch.told >= at_most):
                return
            left = None if at_most is None else at_most - watch.told
            lines = await watch.next_lines(min(left_s, self.faults.bookmark_s), left)
            while watch.resource.plural in self.faults.held and not watch.ended:
                await asyncio.sleep(LOOKS_EVERY_S)
            if lines:
                await response.write(b"".join(lines))
            elif bookmarks and not watch.ended:
                is_noted = clock() >= noted_at
                watch.tell_progress(is_noted=is_noted)
                noted_at = clock() + self.faults.progress_s if is_noted else noted_at


def _json(body: bytes, code: int = 200) -> web.Response:
    return web.Response(body=body, status=code, content_type="application/json")


def refused(refusal: Refusal) -> web.Response:
    """The answer to a request that is refused."""
    response = _json(encode(refusal.status), refusal.code)
    if refusal.retry_after_s is not None:
        response.headers["Retry-After"] = str(refusal.retry_after_s)
    return response


async def spoiled(
    request: web.BaseRequest, response: web.Response, fault: Fault
) -> web.StreamResponse:
    """An answer that is late, or breaks off in the middle."""
    if fault.delay_s:
        await asyncio.sleep(fault.delay_s)
    if not fault.is_lost:
        return response
    body = response.body
    assert isinstance(body, bytes)
    broken = web.StreamResponse(
        status=response.status, headers={"Content-Type": "application/json"}
    )
    broken.content_length = len(body)
    await broken.prepare(request)
    await broken.write(body[: len(body) // 2])
    if request.transport:
        request.transport.abort()
    return broken


def _version(gang_api: str | None) -> Json:
    """The version of which this was observed; the newer gang API came with the next."""
    minor = "36" if gang_api in {None, "v1alpha2"} else "37"
    return {
        "major": "1",
        "minor": minor,
        "gitVersion": f"v1.{minor}.2",
        "gitTreeState": "clean",
        "platform": "linux/amd64",
    }
