"""The client of the daemon for asyncio: the methods of `client.Client`, awaited; streams are iterated with `async for`.

It needs httpx, which takes a while to import; programs that must start fast use `client`.
"""

import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from gantree.api import requests, sockets
from gantree.api.client import ANSWER_WITHIN_S
from gantree.api.problems import error_of, problem_in
from gantree.api.requests import Request, Stream
from gantree.api.target import Target, target

P = ParamSpec("P")
T = TypeVar("T")


def _asked(
    describe: Callable[P, Request[T]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    @wraps(describe)
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self.ask(describe(*args, **kwargs))

    return method


def _streamed(
    describe: Callable[P, Stream[T]],
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[T]]:
    @wraps(describe)
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self.stream(describe(*args, **kwargs))

    return method


class AsyncClient:
    """Talks to a daemon over connections that it keeps; `async with`, or `await close()` at the end."""

    def __init__(self, where: Path | str, token: str | None = None) -> None:
        """where is the daemon's state directory, or its URL; then token says who asks. Raises BadInput."""
        self.target: Target = target(where, token)
        self._held = ExitStack()
        self._http = httpx.AsyncClient(
            transport=self._transport(), base_url=self.target.url, headers=self.target.headers
        )

    submit = _asked(requests.submit)
    jobs = _asked(requests.jobs)
    jobs_page = _asked(requests.jobs_page)
    job = _asked(requests.job)
    why = _asked(requests.why)
    when = _asked(requests.when)
    what_if = _asked(requests.what_if)
    queues = _asked(requests.queues)
    defragment = _asked(requests.defragment)
    cancel = _asked(requests.cancel)
    hold = _asked(requests.hold)
    release = _asked(requests.release)
    record = _asked(requests.record)
    rerun = _asked(requests.rerun)
    suspend = _asked(requests.suspend)
    resume = _asked(requests.resume)
    scale = _asked(requests.scale)
    reprioritise = _asked(requests.reprioritise)
    nodes = _asked(requests.nodes)
    node = _asked(requests.node)
    cordon = _asked(requests.cordon)
    uncordon = _asked(requests.uncordon)
    drain = _asked(requests.drain)
    label = _asked(requests.label)
    policy = _asked(requests.policy)
    policy_versions = _asked(requests.policy_versions)
    policy_version = _asked(requests.policy_version)
    policy_what_if = _asked(requests.policy_what_if)
    apply_policy = _asked(requests.apply_policy)
    roll_back_policy = _asked(requests.roll_back_policy)
    logs = _streamed(requests.logs)
    cluster = _asked(requests.cluster)
    facts = _streamed(requests.facts)
    events = _streamed(requests.events)
    health = _asked(requests.health)

    async def ask(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        try:
            response = await self._http.send(self._built(request, ANSWER_WITHIN_S + request.wait_s))
            if response.status_code < 400:
                return request.read(json.loads(response.content))
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self.target.unreachable(_cause(error)) from error
        raise error_of(response.status_code, problem_in(response.content))

    async def stream(self, request: Stream[T]) -> AsyncIterator[T]:
        """Send a request and give what comes as it comes."""
        decoder, response = request.decoder(), None
        try:
            response = await self._http.send(self._built(request, None), stream=True)
            if response.status_code >= 400:
                raise error_of(response.status_code, problem_in(await response.aread()))
            async for chunk in response.aiter_raw():
                for item in decoder.feed(chunk):
                    yield item
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self.target.unreachable(_cause(error)) from error
        finally:
            if response is not None:
                await response.aclose()

    async def close(self) -> None:
        """Let the connections go."""
        await self._http.aclose()
        self._held.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _transport(self) -> httpx.AsyncHTTPTransport:
        if self.target.state_dir is None:
            return httpx.AsyncHTTPTransport(verify=ssl.create_default_context())
        try:
            address = self._held.enter_context(sockets.address(self.target.state_dir))
        except OSError as error:
            raise self.target.unreachable(error) from error
        return httpx.AsyncHTTPTransport(uds=address)

    def _built(self, request: Request[Any] | Stream[Any], timeout_s: float | None) -> httpx.Request:
        return self._http.build_request(
            request.method,
            request.url,
            content=request.content,
            headers=request.all_headers,
            timeout=timeout_s,
        )


def _cause(error: Exception) -> Exception:
    """The error of the system below that of httpx, as `Target.unreachable` tells them apart."""
    if isinstance(error, httpx.TimeoutException):
        return TimeoutError(str(error))
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError):
            return below
        below = below.__cause__ or below.__context__
    return error
