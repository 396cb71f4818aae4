"""The client of the daemon, for the command line and for programs. Standard library only, so it imports fast.

Every method raises what the daemon raised (see `gantree.model.errors`), and Unreachable where no daemon answers.
Answers are the JSON of the routes as it comes; docs/api.md describes it. What a method sends is in `requests`;
`async_client` has the same methods for asyncio.
"""

import json
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gantree.api import requests, sockets
from gantree.api.problems import error_of, problem_in
from gantree.api.requests import LONGEST_WAIT_S, Json, Request, Stream, login_name
from gantree.api.target import Target, target

__all__ = ["LONGEST_WAIT_S", "Client", "Json", "login_name"]

P = ParamSpec("P")
T = TypeVar("T")
ANSWER_WITHIN_S = 60.0
"""How long a daemon may take over an answer, beyond what it was asked to wait."""
CHUNK_BYTES = 1 << 16


class _UnixConnection(HTTPConnection):
    def __init__(self, state_dir: Path, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._state_dir = state_dir
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = sockets.connect(self._state_dir, self._timeout_s)


def _asked(describe: Callable[P, Request[T]]) -> Callable[Concatenate["Client", P], T]:
    @wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.ask(describe(*args, **kwargs))

    return method


def _streamed(
    describe: Callable[P, Stream[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    @wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.stream(describe(*args, **kwargs))

    return method


class Client:
    """Talks to a daemon; every call is a connection of its own, so threads may share one Client."""

    def __init__(self, where: Path | str, token: str | None = None) -> None:
        """where is the daemon's state directory, or its URL; then token says who asks. Raises BadInput."""
        self.target: Target = target(where, token)

    @property
    def state_dir(self) -> Path | None:
        """The daemon's state directory, where the client reaches it through that."""
        return self.target.state_dir

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

    def ask(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        connection = self._connection(ANSWER_WITHIN_S + request.wait_s)
        try:
            answer = json.loads(self._send(connection, request).read())
        except (OSError, HTTPException, ValueError) as error:
            raise self.target.unreachable(error) from error
        finally:
            connection.close()
        return request.read(answer)

    def stream(self, request: Stream[T]) -> Iterator[T]:
        """Send a request and give what comes as it comes."""
        connection, decoder = self._connection(None), request.decoder()
        try:
            response = self._send(connection, request)
            while chunk := response.read1(CHUNK_BYTES):
                yield from decoder.feed(chunk)
        except (OSError, HTTPException, ValueError) as error:
            raise self.target.unreachable(error) from error
        finally:
            connection.close()

    def _connection(self, timeout_s: float | None) -> HTTPConnection:
        at = self.target
        if at.state_dir is not None:
            return _UnixConnection(at.state_dir, timeout_s)
        if at.scheme == "http":
            return HTTPConnection(at.host, at.port, timeout=timeout_s)
        trust = ssl.create_default_context()
        return HTTPSConnection(at.host, at.port, timeout=timeout_s, context=trust)

    def _send(
        self, connection: HTTPConnection, request: Request[Any] | Stream[Any]
    ) -> HTTPResponse:
        headers = {**self.target.headers, **request.all_headers}
        url = self.target.prefix + request.url
        with suppress(BrokenPipeError, ConnectionResetError):  # it answers before it has read all
            connection.request(request.method, url, body=request.content, headers=headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise error_of(response.status, problem_in(response.read()))
        return response
