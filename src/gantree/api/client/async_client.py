"""The client of the daemon for asyncio: the methods of `client.Client`, awaited; streams are iterated with `async for`.

It needs httpx, which takes a while to import; programs that must start fast use `client`.
"""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx

from gantree.api.client import requests, service_requests, site_requests
from gantree.api.client.client import ANSWER_WITHIN_S
from gantree.api.client.decoding import decoded_object
from gantree.api.client.failover import ALIVE, CONNECT_WITHIN_S, Failover
from gantree.api.client.request import Request, Stream
from gantree.api.client.target import NotSent, Target, targets
from gantree.api.http import unix_socket
from gantree.api.http.problems import error_of, problem_in
from gantree.model.errors import GantreeError, JournalError, Unreachable

BROKEN_OFF = (httpx.HTTPError, OSError, ValueError)
P = ParamSpec("P")
T = TypeVar("T")


def _method(
    describe: Callable[P, Request[T]],
) -> Callable[Concatenate["AsyncClient", P], Awaitable[T]]:
    @wraps(describe)
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self.send(describe(*args, **kwargs))

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
        """where is the daemon's state directory or its URL; token authenticates at a URL. Raises BadInput.

        Several URLs, with commas between them, are those of daemons that share a journal: see `failover`.
        """
        self.targets = targets(where, token)
        self._place = 0
        self._held = ExitStack()
        self._http_of = {
            at: httpx.AsyncClient(
                transport=self._transport(at), base_url=at.url, headers=at.headers
            )
            for at in self.targets
        }

    @property
    def target(self) -> Target:
        """The daemon that answered last, or the first."""
        return self.targets[self._place]

    submit = _method(requests.submit)
    check = _method(requests.check)
    forecast = _method(requests.forecast)
    jobs = _method(requests.jobs)
    jobs_page = _method(requests.jobs_page)
    job = _method(requests.job)
    job_id = _method(requests.job_id)
    why = _method(requests.why)
    when = _method(requests.when)
    what_if = _method(requests.what_if)
    queues = _method(requests.queues)
    defragment = _method(requests.defragment)
    cancel = _method(requests.cancel)
    hold = _method(requests.hold)
    release = _method(requests.release)
    record = _method(requests.record)
    curve = _method(requests.curve)
    rerun = _method(requests.rerun)
    suspend = _method(requests.suspend)
    resume = _method(requests.resume)
    scale = _method(requests.scale)
    reprioritise = _method(requests.reprioritise)
    extend = _method(requests.extend)
    exempt = _method(requests.exempt)
    nodes = _method(site_requests.nodes)
    node = _method(site_requests.node)
    cordon = _method(site_requests.cordon)
    uncordon = _method(site_requests.uncordon)
    node_fault = _method(site_requests.node_fault)
    repair = _method(site_requests.repair)
    burn_in = _method(site_requests.burn_in)
    drain = _method(site_requests.drain)
    label = _method(site_requests.label)
    links = _method(site_requests.links)
    renew_lease = _method(site_requests.renew_lease)
    federated_object = _method(site_requests.federated_object)
    cancel_federated_object = _method(site_requests.cancel_federated_object)
    degrade = _method(site_requests.degrade)
    restore = _method(site_requests.restore)
    services = _method(service_requests.services)
    service = _method(service_requests.service)
    scale_service = _method(service_requests.scale_service)
    cancel_service = _method(service_requests.cancel_service)
    routes = _method(service_requests.routes)
    report_routes = _method(service_requests.report_routes)
    policy = _method(requests.policy)
    policy_versions = _method(requests.policy_versions)
    policy_version = _method(requests.policy_version)
    policy_what_if = _method(requests.policy_what_if)
    apply_policy = _method(requests.apply_policy)
    roll_back_policy = _method(requests.roll_back_policy)
    logs = _streamed(requests.logs)
    log_pieces = _streamed(requests.log_pieces)
    cluster = _method(requests.cluster)
    domains = _method(requests.domains)
    facts = _streamed(requests.facts)
    events = _streamed(requests.events)
    usage = _method(requests.usage)
    book = _method(requests.book)
    gpu_use = _method(requests.gpu_use)
    waste = _method(requests.waste)
    ended_jobs = _method(requests.ended_jobs)
    ended_job = _method(requests.ended_job)
    usage_history = _method(requests.usage_history)
    wait_history = _method(requests.wait_history)
    node_signs = _method(requests.node_signs)
    health = _method(requests.health)
    session = _method(requests.session)
    make_token = _method(requests.make_token)
    tokens = _method(requests.tokens)
    revoke_token = _method(requests.revoke_token)
    audit = _method(requests.audit)

    async def send(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        return request.read(await self._led(request, ANSWER_WITHIN_S, self._answer))

    async def stream(self, request: Stream[T]) -> AsyncIterator[T]:
        """Send a request and give what comes as it comes."""
        decoder = request.decoder()
        response = await self._led(request, math.inf, self._opened)
        try:
            async for chunk in response.aiter_raw():
                for item in decoder.feed(chunk):
                    yield item
        except (httpx.HTTPError, OSError, ValueError) as error:
            raise self.target.broken_off(_cause(error)) from error
        finally:
            await response.aclose()

    async def _led(
        self,
        request: Request[Any] | Stream[Any],
        patience_s: float,
        send: Callable[[Target, Any, float], Awaitable[T]],
    ) -> T:
        """What the daemon that leads says to a request."""
        failover = Failover(self.targets, self._place, request)
        while True:
            at = failover.target
            try:
                if failover.probes_first:
                    await self._look(at, failover.probe_timeout_s)
                answer = await send(at, request, failover.timeout_s(patience_s))
            except (*BROKEN_OFF, JournalError, Unreachable) as error:
                cause = _cause(error)
                pause_s = failover.pause_s(cause)
                if pause_s is None:
                    raise at.problem(cause) from error
                await asyncio.sleep(pause_s)
                continue
            self._place = failover.place
            return answer

    async def _look(self, at: Target, timeout_s: float) -> None:
        """Check whether a daemon answers, with any status. Raises as `_answer`, but no errors of the daemon."""
        try:
            await self._answer(at, ALIVE, timeout_s)
        except (JournalError, Unreachable):
            raise
        except GantreeError:  # a page of that name is behind a proxy, say: somebody answers
            return

    async def _answer(self, at: Target, request: Request[Any], timeout_s: float) -> Any:
        response = await self._http_of[at].send(self._built(at, request, timeout_s))
        if response.status_code >= 400:
            raise error_of(response.status_code, problem_in(response.content))
        return decoded_object(response.content)

    async def _opened(self, at: Target, request: Stream[Any], timeout_s: float) -> httpx.Response:
        """The head of an answer that comes bit by bit. Raises what the daemon raised."""
        built = self._built(at, request, timeout_s)
        response = await self._http_of[at].send(built, stream=True)
        if response.status_code < 400:
            return response
        try:
            raise error_of(response.status_code, problem_in(await response.aread()))
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Let the connections go."""
        for http in self._http_of.values():
            await http.aclose()
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

    def _transport(self, at: Target) -> httpx.AsyncHTTPTransport:
        if at.state_dir is None:
            return httpx.AsyncHTTPTransport(verify=ssl.create_default_context())
        try:
            address = self._held.enter_context(unix_socket.address(at.state_dir))
        except OSError as error:
            raise at.unreachable(error) from error
        return httpx.AsyncHTTPTransport(uds=address)

    def _built(
        self, at: Target, request: Request[Any] | Stream[Any], timeout_s: float
    ) -> httpx.Request:
        within_s = None if timeout_s == math.inf else timeout_s
        return self._http_of[at].build_request(
            request.method,
            request.url,
            content=request.content,
            headers=request.all_headers,
            timeout=httpx.Timeout(within_s, connect=CONNECT_WITHIN_S),
        )


def _cause(error: Exception) -> Exception:
    """What stands behind an error of httpx, as `Failover` and `Target.problem` tell errors apart."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NotSent(_of_system(error))
    return error if isinstance(error, GantreeError) else _of_system(error)


def _of_system(error: Exception) -> Exception:
    """The error of the system below that of httpx."""
    if isinstance(error, httpx.TimeoutException):
        return TimeoutError(str(error))
    below: BaseException | None = error
    while below is not None:
        if isinstance(below, OSError):
            return below
        below = below.__cause__ or below.__context__
    return error
