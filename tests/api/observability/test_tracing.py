"""Traces: a request is a span, the turn that decides about it links to it; nothing is exported unless asked for."""

import asyncio
from pathlib import Path

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gantree.api.access.access import Access, Transport
from gantree.api.backend import Backend
from gantree.api.observability import tracing_setup
from gantree.api.server.app import build_app
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster
from support.recording import RecordingCluster

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
JOB = "name: a\ngang:\n  - {role: w, members: 1, each: {gpus: 1}, run: ['true']}\n"


async def hand_in(place: Path, exporter: InMemorySpanExporter) -> None:
    """Hand a job in over the whole application, on behalf of a caller with a trace of its own."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    loop = Loop()

    def make() -> Controller:
        made = Controller(
            SqliteJournal(place), Policy(), RecordingCluster, site=cluster(), wake=loop.wake
        )
        made.causes.tracer = provider.get_tracer("test")
        made.recover()
        return made

    controller = await loop.call(make)
    exporter.clear()
    app = build_app(Backend(loop, controller, 0.0), Access())

    async def by_socket(scope: dict[str, object], receive: object, send: object) -> None:
        scope["state"] = {"transport": Transport("socket", 0)}
        await app(scope, receive, send)  # type: ignore[arg-type]  # what httpx hands on is ASGI's

    transport = httpx.ASGITransport(app=by_socket)  # type: ignore[arg-type]  # the same
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as http:
            headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
            answer = await http.post("/v1/jobs", json={"text": JOB}, headers=headers)
            assert answer.status_code == 201
            assert (await http.get("/v1/jobs/nobody")).status_code == 404
    finally:
        await loop.call(controller.close)
        loop.close()


def test_a_turn_is_found_from_the_request_that_caused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter, everywhere = InMemorySpanExporter(), TracerProvider()
    everywhere.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", everywhere)  # as `tracing.exported` does
    asyncio.run(hand_in(tmp_path, exporter))
    names = [span.name for span in exporter.get_finished_spans()]
    assert [name for name in names if "v1" in name or "fastapi" in name] == [
        "POST /v1/jobs",
        "GET /v1/jobs/{word}",
    ], "one span for each request"
    spans = {span.name: span for span in exporter.get_finished_spans()}
    asking, turn, asked = spans["POST /v1/jobs"], spans["turn"], spans["GET /v1/jobs/{word}"]
    assert asking.context is not None
    assert f"{asking.context.trace_id:032x}" == TRACE, "it goes on its caller's trace"
    (link,) = turn.links
    assert link.context.span_id == asking.context.span_id
    assert link.attributes == {"gantree.event": "a/submitted"}
    assert turn.parent is None
    assert asking.attributes is not None
    assert asking.attributes["http.response.status_code"] == 201
    assert asked.attributes is not None
    assert asked.attributes["http.response.status_code"] == 404
    assert asked.parent is None


@pytest.mark.parametrize("environment", [{}, {"OTEL_SERVICE_NAME": "x"}])
def test_nothing_is_exported_unless_the_environment_names_a_collector(
    environment: dict[str, str],
) -> None:
    assert tracing_setup._provider(environment) is None


def test_a_collector_without_the_extra_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing_setup, "EXPORTER", "opentelemetry.exporter.that_is_not_installed")
    with (
        pytest.raises(BadInput, match=r"gantree\[otel\].*unset OTEL_EXPORTER_OTLP_ENDPOINT"),
        tracing_setup.exported({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}),
    ):
        pass


def test_the_sdk_can_be_switched_off() -> None:
    asked = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318", "OTEL_SDK_DISABLED": "true"}
    assert tracing_setup._provider(asked) is None
