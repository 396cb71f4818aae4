"""The client of the daemon, for the command line and for programs. Standard library only, so it imports fast.

Every method raises what the daemon raised (see `gantree.model.errors`), and Unreachable where no daemon answers.
Answers are the JSON of the routes as it comes; docs/api.md describes it. What a method sends is in `requests`;
`async_client` has the same methods for asyncio.
"""

import math
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from gantree.api.client import requests, service_requests, site_requests
from gantree.api.client.decoding import decoded_object
from gantree.api.client.failover import ALIVE, CONNECT_WITHIN_S, Failover
from gantree.api.client.login import login_name
from gantree.api.client.request import LONGEST_WAIT_S, Json, Request, Stream
from gantree.api.client.target import NotSent, Target, targets
from gantree.api.http import unix_socket
from gantree.api.http.problems import error_of, problem_in
from gantree.model.errors import GantreeError, JournalError, Unreachable

__all__ = ["LONGEST_WAIT_S", "Client", "Json", "login_name"]

P = ParamSpec("P")
T = TypeVar("T")
BROKEN_OFF = (OSError, HTTPException, ValueError)
ANSWER_WITHIN_S = 60.0
"""How long a daemon may take over an answer, beyond what it was asked to wait."""
CHUNK_BYTES = 1 << 16


class _UnixConnection(HTTPConnection):
    def __init__(self, state_dir: Path, timeout_s: float | None) -> None:
        super().__init__("localhost")
        self._state_dir = state_dir
        self._timeout_s = timeout_s

    def connect(self) -> None:
        self.sock = unix_socket.connect(self._state_dir, self._timeout_s)


def _method(describe: Callable[P, Request[T]]) -> Callable[Concatenate["Client", P], T]:
    @wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(describe(*args, **kwargs))

    return method


def _streamed(
    describe: Callable[P, Stream[T]],
) -> Callable[Concatenate["Client", P], Iterator[T]]:
    @wraps(describe)
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.stream(describe(*args, **kwargs))

    return method


def _connected(at: Target, timeout_s: float | None) -> HTTPConnection:
    """Raises Unsent."""
    connection: HTTPConnection
    if at.state_dir is not None:
        connection = _UnixConnection(at.state_dir, CONNECT_WITHIN_S)
    elif at.scheme == "http":
        connection = HTTPConnection(at.host, at.port, timeout=CONNECT_WITHIN_S)
    else:
        trust = ssl.create_default_context()
        connection = HTTPSConnection(at.host, at.port, timeout=CONNECT_WITHIN_S, context=trust)
    try:
        connection.connect()
    except OSError as error:
        connection.close()
        raise NotSent(error) from error
    connection.sock.settimeout(timeout_s)
    return connection


class Client:
    """Talks to a daemon; every call is a connection of its own, so threads may share one Client."""

    def __init__(self, where: Path | str, token: str | None = None) -> None:
        """where is the daemon's state directory or its URL; token authenticates at a URL. Raises BadInput.

        Several URLs, with commas between them, are those of daemons that share a journal: see `failover`.
        """
        self.targets = targets(where, token)
        self._place = 0
        self._awaits_start = False

    @property
    def target(self) -> Target:
        """The daemon that answered last, or the first."""
        return self.targets[self._place]

    @property
    def state_dir(self) -> Path | None:
        """The daemon's state directory, where the client reaches it through that."""
        return self.target.state_dir

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

    def send(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        return request.read(self._led(request, ANSWER_WITHIN_S, self._answer))

    def stream(self, request: Stream[T]) -> Iterator[T]:
        """Send a request and give what comes as it comes."""
        decoder = request.decoder()
        connection, response = self._led(request, math.inf, self._opened)
        try:
            while chunk := response.read1(CHUNK_BYTES):
                yield from decoder.feed(chunk)
        except (OSError, HTTPException, ValueError) as error:
            raise self.target.broken_off(error) from error
        finally:
            connection.close()

    def _led(
        self,
        request: Request[Any] | Stream[Any],
        patience_s: float,
        send: Callable[[Target, Any, float], T],
    ) -> T:
        """What the daemon that leads says to a request."""
        failover = Failover(self.targets, self._place, request)
        while True:
            at = failover.target
            try:
                if failover.probes_first:
                    self._look(at, failover.probe_timeout_s)
                answer = send(at, request, failover.timeout_s(patience_s))
            except (*BROKEN_OFF, NotSent, JournalError, Unreachable) as error:
                pause_s = failover.pause_s(error)
                if pause_s is None:
                    raise at.problem(error) from error
                if not self._awaits_start and at.is_starting(error):
                    self._awaits_start = (
                        True  # of all calls until one is answered, the first one says so
                    )
                    self._say(f"the daemon {at.name} is starting; waiting for it")
                time.sleep(pause_s)
                continue
            self._place, self._awaits_start = failover.place, False
            return answer

    def _say(self, sentence: str) -> None:
        """What a call waits for; commands print it."""

    def _look(self, at: Target, timeout_s: float) -> None:
        """Check whether a daemon answers, with any status. Raises as `_answer`, but no errors of the daemon."""
        try:
            self._answer(at, ALIVE, timeout_s)
        except (JournalError, Unreachable):
            raise
        except GantreeError:  # a page of that name is behind a proxy, say: somebody answers
            return

    def _answer(self, at: Target, request: Request[Any], timeout_s: float) -> Any:
        connection, response = self._opened(at, request, timeout_s)
        try:
            return decoded_object(response.read())
        finally:
            connection.close()

    def _opened(
        self, at: Target, request: Request[Any] | Stream[Any], timeout_s: float
    ) -> tuple[HTTPConnection, HTTPResponse]:
        """A connection on which a request was sent, and the head of its answer. Raises what the daemon raised."""
        connection = _connected(at, None if timeout_s == math.inf else timeout_s)
        try:
            return connection, self._send(connection, at, request)
        except BaseException:
            connection.close()
            raise

    def _send(
        self, connection: HTTPConnection, at: Target, request: Request[Any] | Stream[Any]
    ) -> HTTPResponse:
        headers = {**at.headers, **request.all_headers}
        url = at.prefix + request.url
        with suppress(BrokenPipeError, ConnectionResetError):  # it answers before it has read all
            connection.request(request.method, url, body=request.content, headers=headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise error_of(response.status, problem_in(response.read()))
        return response
