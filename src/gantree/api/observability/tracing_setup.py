"""Sets up OpenTelemetry's SDK, an extra, if the environment names a collector; otherwise spans are no-ops.

The SDK reads the rest of its OTEL_* variables itself. What spans there are is in `gantree.control.tracing`.
"""

import importlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace

from gantree import __version__
from gantree.model.errors import BadInput

ENDPOINT = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


@contextmanager
def exported(environment: Mapping[str, str] = os.environ) -> Iterator[None]:
    """Export spans within this, if the environment asks for it. Raises BadInput where the extra is not installed."""
    provider = _provider(environment)
    try:
        yield
    finally:
        if provider is not None:
            provider.shutdown()


def _provider(environment: Mapping[str, str]) -> Any:
    """Return the tracer provider with an exporter; None if no collector is configured."""
    asked = next((name for name in ENDPOINT if environment.get(name)), None)
    if asked is None or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    try:
        sdk = importlib.import_module("opentelemetry.sdk.trace")
        export = importlib.import_module("opentelemetry.sdk.trace.export")
        resources = importlib.import_module("opentelemetry.sdk.resources")
        exporter = importlib.import_module(EXPORTER)
    except ImportError as error:
        raise BadInput(
            f"{asked} is set, and {error.name} is not installed: pip install 'gantree[otel]', or unset {asked}"
        ) from error
    named = {"service.name": environment.get("OTEL_SERVICE_NAME", "gantree")}
    resource = resources.Resource.create({**named, "service.version": __version__})
    provider = sdk.TracerProvider(resource=resource)
    provider.add_span_processor(export.BatchSpanProcessor(exporter.OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return provider
