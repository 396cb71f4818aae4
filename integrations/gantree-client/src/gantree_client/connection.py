"""One pool of HTTP connections to a daemon: over its Unix socket, or to one of several URLs."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from gantree_client.address import SOCKET, Address
from gantree_client.errors import BrokenOff, Rejected

_FAILURES = (httpx.TransportError, OSError)
ANSWER_WITHIN_S = 60.0
"""So long an answer may take, beyond what the daemon was asked to wait."""
CONNECT_WITHIN_S = 5.0
LONGEST_SOCKET_PATH = 107


class Connection:
    """Sends requests; who retries them is the client."""

    def __init__(self, address: Address) -> None:
        """Nothing is connected before the first request."""
        self._urls = address.urls or ("http://localhost",)
        self._place = 0
        self._tried: set[int] = set()
        self._directory: int | None = None
        self._http = httpx.Client(
            transport=self._transport(address),
            headers={"Authorization": f"Bearer {address.token}"} if address.token else {},
            trust_env=False,  # a proxy for the web is none for the cluster
        )

    def __del__(self) -> None:
        """Close what was opened."""
        if self._directory is not None:
            os.close(self._directory)

    def _transport(self, address: Address) -> httpx.HTTPTransport:
        limits = httpx.Limits(max_keepalive_connections=0)  # a daemon closes idle ones after 5 s
        if address.state_dir is None:
            return httpx.HTTPTransport(limits=limits, trust_env=True)  # SSL_CERT_FILE
        path = os.fspath(address.state_dir / SOCKET)
        if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
            self._directory = os.open(address.state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            path = f"/proc/self/fd/{self._directory}/{SOCKET}"
        return httpx.HTTPTransport(uds=path, limits=limits)

    def next_url(self) -> None:
        """Send the next request to the next of the daemons."""
        self._tried.add(self._place)
        self._place = (self._place + 1) % len(self._urls)

    def has_untried_url(self) -> bool:
        """Whether some daemon other than the present one was not tried yet."""
        return len(self._tried | {self._place}) < len(self._urls)

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        wait_s: float,
    ) -> dict[str, Any]:
        """The JSON object that answers a request. Raises Rejected and BrokenOff."""
        with _named():
            response = self._http.request(
                method,
                self._urls[self._place] + path,
                params=dict(query),
                json=None if body is None else dict(body),
                headers=dict(headers),
                timeout=httpx.Timeout(ANSWER_WITHIN_S + wait_s, connect=CONNECT_WITHIN_S),
            )
        _check(response)
        answer: dict[str, Any] = response.json()
        return answer

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[str]:
        """Text as it comes. Raises Rejected and BrokenOff, also in the middle."""
        request = self._http.build_request(
            "GET",
            self._urls[self._place] + path,
            params=dict(query),
            timeout=httpx.Timeout(None, connect=CONNECT_WITHIN_S),
        )
        with _named():
            response = self._http.send(request, stream=True)
            if response.is_error:
                response.read()
        _check(response)
        return _pieces(response)


def _pieces(response: httpx.Response) -> Iterator[str]:
    try:
        with _named():
            yield from response.iter_text()
    finally:
        response.close()


@contextmanager
def _named() -> Iterator[None]:
    """Raise BrokenOff for what httpx raises."""
    try:
        yield
    except _FAILURES as error:
        raise BrokenOff(str(error) or type(error).__name__) from error


def _check(response: httpx.Response) -> None:
    if not response.is_error:
        return
    try:
        problem = response.json()
    except ValueError:
        problem = {}
    raise Rejected(response.status_code, problem if isinstance(problem, dict) else {})
