"""Telemetry of requests: counts, durations, spans, and a log line for each.

ASGI itself, not FastAPI: an answer that is sent as it comes (events, facts, logs) is not held back, and is counted as
open until its end. A route is named by its pattern, never by what a caller made of it.
"""

import logging
import time
from typing import Any

from opentelemetry import propagate
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer, get_tracer
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gantree import __version__
from gantree.control.metrics.metrics import Metrics

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNKNOWN = "(unknown)"
"""The route of requests that no route answers."""
SERVER_ERROR = 500

log = logging.getLogger(__name__)


class RequestTelemetry:
    """The middleware. Without a tracer of its own it takes the process's."""

    def __init__(self, app: ASGIApp, metrics: Metrics, tracer: Tracer | None = None) -> None:
        self._app, self._metrics = app, metrics
        self._tracer = tracer or get_tracer("gantree", __version__)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass on what is none."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(self._metrics, scope, send)
        with self._tracer.start_as_current_span(
            scope["method"], context=_caller(scope), kind=SpanKind.SERVER
        ) as span:
            try:
                await self._app(scope, receive, answer.send)
            finally:
                answer.end()
                span.update_name(answer.route)
                span.set_attribute("http.request.method", scope["method"])
                span.set_attribute("http.route", answer.route)
                span.set_attribute("http.response.status_code", answer.status)
                if answer.status >= SERVER_ERROR:
                    span.set_status(StatusCode.ERROR)


class _Answer:
    """One answer, as it is sent."""

    def __init__(self, metrics: Metrics, scope: Scope, send: Send) -> None:
        self._metrics, self._scope, self._send = metrics, scope, send
        self._began = time.perf_counter()
        self.status = SERVER_ERROR  # for one that breaks before its head
        self._streams = self._told = False

    @property
    def route(self) -> str:
        """The method and the pattern of the route; known once the application has found it."""
        pattern = getattr(self._scope.get("route"), "path", None)
        method = self._scope["method"]
        return UNKNOWN if pattern is None or method not in METHODS else f"{method} {pattern}"

    async def send(self, message: Message) -> None:
        """Pass on a message; the head has the status of the response."""
        if message["type"] == "http.response.start":
            self.status = int(message["status"])
            self._tell()
            self._streams = self.status == 200 and _comes_in_parts(message)
            if self._streams:
                self._metrics.open_streams.labels(self.route).inc()
        await self._send(message)

    def end(self) -> None:
        """Nothing more is sent."""
        self._tell()
        if self._streams:
            self._metrics.open_streams.labels(self.route).dec()

    def _tell(self) -> None:
        if self._told:
            return
        self._told = True
        took_s = time.perf_counter() - self._began
        self._metrics.http_requests.labels(self.route, str(self.status)).inc()
        self._metrics.http.labels(self.route).observe(took_s)
        log.info(
            "answered %s with %d",
            self.route,
            self.status,
            extra={"route": self.route, "status": self.status, "took_s": round(took_s, 6)},
        )


def _comes_in_parts(head: Message) -> bool:
    return all(name.lower() != b"content-length" for name, _ in head.get("headers", ()))


def _caller(scope: Scope) -> Context:
    """The span of the caller, where the request names it."""
    headers: dict[str, Any] = {
        name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
    }
    return propagate.extract(headers, context=Context())
