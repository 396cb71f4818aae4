"""A client of the Kubernetes API: typed lists, watches and writes over one pool of connections.

Answers that ask for patience (429, 503 with Retry-After) are waited for and asked again; a write whose answer was lost
is not: whether it was done is for the caller to look up. What the server refuses is an `ApiError` with its status and
reason.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.objects import Object, read_object
from gantree.executors.kubernetes.apiserver.wire import Answer, Broken, Wire
from gantree.model.errors import Unreachable

T = TypeVar("T")

log = logging.getLogger(__name__)

HOMES_KEPT = 4096
"""Paths of kinds in namespaces that are remembered."""
PAGE = 5000
"""Objects in one page of a list."""
IN_FLIGHT = 64
"""Requests at once, watches not counted."""
PATIENCE = 8
"""How often a throttled request is asked again."""
LONGEST_WAIT_S = 30.0
ANSWER_WITHIN_S = 30.0
WATCH_S = 300
"""How long a watch is asked for before it begins anew, in seconds."""
SILENT_S = 120.0
"""A watch that is silent for so long may be dead, and ends: its reader opens another. Nor does a server send bookmarks
of a kind that is idle: etcd tells it how far it is every ten minutes."""

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json"
NOT_LEADING = "another process leads by now: nothing is written"
_HEAD = f"Accept: {JSON}\r\nUser-Agent: gantree\r\n"
Key = tuple[str, str]
"""Namespace and name of an object."""
_OF_OBJECTS = frozenset({"ADDED", "MODIFIED", "DELETED"})
_THROTTLED = frozenset({429, 503, 504})
_PLAIN = re.compile(r"[a-z0-9.-]*")
"""Names as nearly all are: nothing in them has to be quoted."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One kind of objects: its path below the server ("api/v1/pods"), and the type that they are read as."""

    path: str
    type: type[T]
    selectors: Mapping[str, str] = field(default_factory=dict)

    def of_namespace(self, namespace: str) -> str:
        """The path of its objects in one namespace."""
        return _home(self.path, namespace)

    def of_object(self, namespace: str, name: str) -> str:
        """The path of one object; namespace is "" where the kind has none."""
        home = self.of_namespace(namespace) if namespace else self.path
        return f"{home}/{name if _PLAIN.fullmatch(name) else quote(name)}"


@lru_cache(maxsize=HOMES_KEPT)
def _home(path: str, namespace: str) -> str:
    head, _, plural = path.rpartition("/")
    return f"{head}/namespaces/{quote(namespace)}/{plural}"


class Status(Object, frozen=True):
    """What the server says instead of an object."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ApiError(Exception):
    """The server said no. status is that of HTTP, reason Kubernetes' word for it ("Conflict").

    wait_s: after how long it may be asked again, where it is throttled and the server says so.
    """

    def __init__(self, status: int, reason: str, message: str, wait_s: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason, self.message, self.wait_s = status, reason, message, wait_s


class Gone(ApiError):
    """The server remembers no more what happened since then: list again."""


class Change(NamedTuple, Generic[T]):
    """One event of a watch. type is ADDED, MODIFIED, DELETED or BOOKMARK; of a bookmark only the version counts.

    key is namespace and name; object is None where it cannot be read.
    """

    type: str
    key: Key
    object: T | None
    resource_version: str


@dataclass(frozen=True, slots=True)
class Listed(Generic[T]):
    """All objects of a kind at a version; unread are the keys of those that are there and cannot be read."""

    objects: list[T]
    unread: frozenset[Key]
    version: str


class _ListMeta(Object, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _ListHead(Object, frozen=True):
    metadata: _ListMeta = _ListMeta()


class _HeadMetadata(Object, frozen=True):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Head(Object, frozen=True):
    metadata: _HeadMetadata = _HeadMetadata()


class _Line(Object, frozen=True):
    type: str
    object: msgspec.Raw


class Client:
    """Talks to one API server; to be built and used inside one event loop."""

    def __init__(
        self,
        connection: Connection,
        leads: Callable[[], bool] = lambda: True,
        *,
        within_s: float = ANSWER_WITHIN_S,
        patience: int = PATIENCE,
    ) -> None:
        """leads says whether this process may write, and is asked before each write is sent, also again.

        within_s is how long an answer may take, patience how often a throttled request is asked again.
        Raises BadInput for certificates that cannot be read.
        """
        self._connection, self._leads = connection, leads
        self._within_s, self._patience = within_s, patience
        self._base = connection.server.rstrip("/")
        self._wire = Wire(connection.server, connection.ssl_context())
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._list_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
        self._line_decoders: dict[type, msgspec.json.Decoder[Any]] = {}
        self._raw_line_decoder = msgspec.json.Decoder(_Line)
        self._status_decoder = msgspec.json.Decoder(Status)
        self._head_decoder = msgspec.json.Decoder(_Head)
        self._list_head_decoder = msgspec.json.Decoder(_ListHead)

    async def close(self) -> None:
        """Let go of the connections."""
        self._wire.close()

    async def get(self, path: str, kind: type[T]) -> T:
        """One object. Raises ApiError, Unreachable."""
        return self._decoded(await self._ask("GET", path), msgspec.json.Decoder(kind))

    async def list(self, resource: Resource[T]) -> Listed[T]:
        """All objects of a kind. Raises ApiError, Unreachable."""
        found: list[T] = []
        unread: set[Key] = set()
        query = {**resource.selectors, "limit": str(PAGE)}
        coming = self._page(resource, query)
        try:
            while True:
                content = await coming
                head = self._decoded(content, self._list_head_decoder).metadata
                if head.continue_:
                    coming = self._page(resource, {**query, "continue": head.continue_})
                    await asyncio.sleep(0)  # so that the server makes it while this one is read
                objects, odd = self._read_page(content, resource.type)
                found += objects
                unread |= odd
                if not head.continue_:
                    return Listed(found, frozenset(unread), head.resource_version)
        finally:
            coming.cancel()

    def _page(self, resource: Resource[Any], query: Mapping[str, str]) -> "asyncio.Task[bytes]":
        """A page of a list, asked for now."""
        return asyncio.ensure_future(self._ask("GET", f"{resource.path}?{urlencode(query)}"))

    def _read_page(self, content: bytes, kind: type[T]) -> tuple[Sequence[T], set[Key]]:
        """The objects of a page, and the keys of those that cannot be read."""
        try:
            return self._list_decoder(kind).decode(content).items or (), set()
        except msgspec.DecodeError:
            decoder = msgspec.json.Decoder(kind)
            page = self._decoded(content, self._list_decoder(msgspec.Raw))
        read = [self._read(text, decoder) for text in page.items or ()]
        unread = {key for key, thing in read if thing is None}
        return [thing for _, thing in read if thing is not None], unread

    async def revision(self, resource: Resource[Any]) -> str:
        """The version at which a kind is now, by the newest that the server can know. Raises ApiError, Unreachable."""
        query = urlencode({**resource.selectors, "limit": "1"})
        content = await self._ask("GET", f"{resource.path}?{query}")
        return self._decoded(content, self._list_head_decoder).metadata.resource_version

    async def watch(self, resource: Resource[T], version: str) -> AsyncIterator[Change[T]]:
        """What happens to objects of a kind from a version on, until the server ends it.

        It ends after its time, or when nothing was heard for long. Raises Gone where the version is too old, ApiError,
        Unreachable.
        """
        query = {
            **resource.selectors,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        }
        line_decoder = self._line_decoder(resource.type)
        path = f"{resource.path}?{urlencode(query)}"
        try:
            await self._renew()
            async with self._wire.stream(path, self._headers(), SILENT_S) as (
                answer,
                chunks,
            ):
                if answer.status != 200:
                    raise self._refusal(answer.status, b"".join([part async for part in chunks]))
                async for line in _lines(chunks):
                    yield self._change(line, line_decoder, resource.type)
        except (Broken, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def write(self, method: str, path: str, body: object, kind: str = JSON) -> bytes:
        """Create, change or delete something; the answer's body. Raises ApiError, Unreachable."""
        return await self._ask(method, path, msgspec.json.encode(body), kind)

    @property
    def is_ready(self) -> bool:
        """Whether `post` may be called now."""
        return self._wire.is_ready and not self._connection.is_token_old

    def post(
        self, path: str, body: object, told: Callable[[ApiError | Unreachable | None], None]
    ) -> None:
        """Create something without waiting: `told` is called with why it was not done, None once it is.

        As `write`, but for patience: when a throttled request may be asked again is for the caller
        (`ApiError.wait_s`).
        """
        if not self._leads():
            told(Unreachable(NOT_LEADING))
            return
        request = ("POST", path, self._headers(JSON), msgspec.json.encode(body))
        self._wire.send(request, self._within_s, partial(self._told, told))

    def _told(
        self,
        told: Callable[[ApiError | Unreachable | None], None],
        answer: Answer | Exception,
    ) -> None:
        if isinstance(answer, Exception):
            told(self._unreachable(answer))
        elif answer.status < 300:
            told(None)
        else:
            wait_s = _retry_after_s(answer) if answer.status in _THROTTLED else None
            told(self._refusal(answer.status, answer.body, wait_s))

    def _line_decoder(self, kind: type[T]) -> Any:
        found = self._line_decoders.get(kind)
        if found is None:
            fields = [("type", str), ("object", kind)]
            found = msgspec.json.Decoder(msgspec.defstruct(f"{kind.__name__}Line", fields))
            self._line_decoders[kind] = found
        return found

    def _list_decoder(self, kind: type[T]) -> Any:
        found = self._list_decoders.get(kind)
        if found is None:
            fields = [
                ("metadata", _ListMeta, _ListMeta()),
                ("items", list[kind] | None, None),  # type: ignore[valid-type]  # a type made at run time
            ]
            found = msgspec.json.Decoder(msgspec.defstruct(f"{kind.__name__}List", fields))
            self._list_decoders[kind] = found
        return found

    async def _renew(self) -> None:
        if self._connection.is_token_old:
            await asyncio.to_thread(self._connection.renew)

    def _headers(self, kind: str = "") -> str:
        token = self._connection.token
        let_in = f"Authorization: Bearer {token}\r\n" if token else ""
        return f"{_HEAD}{let_in}Content-Type: {kind}\r\n" if kind else f"{_HEAD}{let_in}"

    async def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> bytes:
        """The body of an answer that is a success; throttled requests are asked again."""
        for attempt in range(self._patience + 1):
            async with self._slots:
                if method != "GET" and not self._leads():
                    raise Unreachable(NOT_LEADING)
                answer = await self._once(method, path, body, kind)
            if answer.status < 300:
                return answer.body
            wait_s = _retry_after_s(answer)
            if answer.status not in _THROTTLED or wait_s is None or attempt == self._patience:
                raise self._refusal(answer.status, answer.body)
            await asyncio.sleep(min(wait_s, LONGEST_WAIT_S))
        raise AssertionError("the last attempt raises")

    async def _once(self, method: str, path: str, body: bytes, kind: str) -> Answer:
        try:
            await self._renew()
            return await self._wire.request(method, path, self._headers(kind), body, self._within_s)
        except (Broken, TimeoutError) as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> Unreachable:
        return Unreachable(f"{self._base} does not answer: {str(error) or type(error).__name__}")

    def _refusal(self, status: int, content: bytes, wait_s: float | None = None) -> ApiError:
        try:
            told = self._status_decoder.decode(content)
        except msgspec.DecodeError:
            told = Status(message=content[:200].decode(errors="replace"))
        kind = Gone if status == 410 else ApiError
        return kind(status, told.reason, told.message, wait_s)

    def _change(self, line: bytes, line_decoder: Any, kind: type[T]) -> Change[T]:
        """One event. What is usual is decoded once; what is no object, or an odd one, is looked at by its parts."""
        try:
            told = line_decoder.decode(line)
        except msgspec.DecodeError:
            return self._odd_change(line, kind)
        if told.type not in _OF_OBJECTS:
            return self._odd_change(line, kind)
        meta = told.object.metadata
        key = (meta.namespace, meta.name)
        return Change(told.type, key, told.object, meta.resource_version)

    def _odd_change(self, line: bytes, kind: type[T]) -> Change[T]:
        told = self._decoded(line, self._raw_line_decoder)
        if told.type == "ERROR":
            status = self._decoded(told.object, self._status_decoder)
            raise (Gone if status.code == 410 else ApiError)(
                status.code, status.reason, status.message
            )
        head = self._decoded(told.object, self._head_decoder).metadata
        if told.type == "BOOKMARK":
            return Change(told.type, ("", ""), None, head.resource_version)
        key, thing = self._read(told.object, msgspec.json.Decoder(kind))
        return Change(told.type, key, thing, head.resource_version)

    def _read(self, text: msgspec.Raw, decoder: "msgspec.json.Decoder[Any]") -> tuple[Key, Any]:
        """The key of an object, and the object if it can be read: one that is odd must not hide all others."""
        head = self._decoded(text, self._head_decoder).metadata
        try:
            return (head.namespace, head.name), read_object(text, decoder)
        except msgspec.DecodeError as error:
            log.warning("%s/%s is passed over: %s", head.namespace, head.name, error)
            return (head.namespace, head.name), None

    def _decoded(self, text: bytes | msgspec.Raw, decoder: "msgspec.json.Decoder[T]") -> T:
        """What the server said. Raises Unreachable for what no such server says: a proxy's page, half an answer."""
        try:
            return read_object(text, decoder)
        except msgspec.DecodeError as error:
            raise Unreachable(f"{self._base} does not talk as an API server: {error}") from error


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream, up to its end or a long silence."""
    rest = b""
    try:
        async for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    yield line
    except TimeoutError:
        return


def _retry_after_s(answer: Answer) -> float | None:
    """After how many seconds the server asks to be asked again, if it does."""
    value = answer.retry_after
    return float(value) if value.isascii() and value.isdecimal() else None
