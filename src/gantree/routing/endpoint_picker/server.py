"""The gRPC server of an endpoint picker: Envoy's external processing, and the health of gRPC's own protocol."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gantree.model.errors import BadInput
from gantree.routing.addresses import resolved
from gantree.routing.endpoint_picker.messages import (
    METHOD,
    SERVICE,
    ProcessingRequest,
    ProcessingResponse,
)
from gantree.routing.endpoint_picker.picker import Picker
from gantree.routing.endpoint_picker.stream import RequestStream
from gantree.routing.following import Source, follow
from gantree.routing.measurements import Measurements, Now, drained
from gantree.routing.table import RouteTable

log = logging.getLogger(__name__)
REPORT_S, SAMPLE_S = 5.0, 1.0
READY = ("", "readiness", SERVICE)
"""Services of the health protocol that are serving once there is a table; `liveness` always is."""


class EndpointPicker:
    """Runs until it is stopped. name is its name in reports; source None: the table stays as it is."""

    def __init__(self, name: str, picker: Picker, source: Source | None) -> None:
        self._name, self._picker, self._source = name, picker, source
        self._measurements = Measurements(random.Random(0))  # noqa: S311 - a sample of figures
        self._health = health.aio.HealthServicer()
        self._drained: frozenset[tuple[str, int]] = frozenset()

    async def run(
        self,
        address: str,
        credentials: Any,
        stop: asyncio.Event,
        grace_s: float,
        ready: Callable[[int], None],
    ) -> None:
        """Serve at an address until stop is set, then let streams end within grace_s. Raises BadInput."""
        server = grpc.aio.server()
        handler = grpc.stream_stream_rpc_method_handler(
            self._process,
            request_deserializer=ProcessingRequest.FromString,
            response_serializer=ProcessingResponse.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {METHOD: handler}),)
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        port = _opened(server, address, credentials)
        await self._picker.caches.apply(self._picker.table)
        await self._tell_health()
        await server.start()
        tasks = [asyncio.create_task(self._measure())]
        if self._source is not None:
            tasks.append(asyncio.create_task(follow(self._source, lambda: None, self._apply)))
        ready(port)
        stopped = asyncio.create_task(stop.wait())
        try:
            done, _ = await asyncio.wait([stopped, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for each in done - {stopped}:
                each.result()
        finally:
            for each in (stopped, *tasks):
                each.cancel()
            await server.stop(grace_s)
            await self._picker.caches.end()
            await self._report(REPORT_S)

    async def _process(self, requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One stream of the gateway, which is one request."""
        stream = RequestStream(self._picker, self._measurements, time.monotonic)
        try:
            async for message in requests:
                async for answer in stream.answers(message):
                    yield answer
        finally:
            stream.end()

    async def _apply(self, table: RouteTable) -> None:
        self._picker.table = await resolved(table, lambda text: log.warning("no address: %s", text))
        await self._picker.caches.apply(self._picker.table)
        await self._tell_health()

    async def _tell_health(self) -> None:
        statuses = health_pb2.HealthCheckResponse
        has_table = bool(self._picker.table.version or self._picker.table.services)
        await self._health.set("liveness", statuses.SERVING)
        for each in READY:
            await self._health.set(each, statuses.SERVING if has_table else statuses.NOT_SERVING)

    async def _measure(self) -> None:
        """Measure for ever, and report: at once when the last request has left a replica that drains."""
        reported_s = time.monotonic()
        while True:
            await asyncio.sleep(SAMPLE_S)
            now = self._now()
            self._measurements.sample(now)
            empty = drained(self._picker.table, now)
            if empty != self._drained or time.monotonic() - reported_s >= REPORT_S:
                self._drained = empty
                await self._report(time.monotonic() - reported_s)
                reported_s = time.monotonic()

    async def _report(self, window_s: float) -> None:
        if self._source is not None:
            table = self._picker.table
            report = self._measurements.report(self._name, table, self._now(), window_s)
            await self._source.report(report)

    def _now(self) -> Now:
        in_flight = {
            (each.backend, replica.server): self._picker.in_flight[each.service, replica.server]
            for each in self._picker.table.services
            for replica in each.replicas
        }
        return Now({}, in_flight)


def _opened(server: Any, address: str, credentials: Any) -> int:
    """The port at which a server listens. Raises BadInput."""
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise BadInput(f"--listen: {address}: {error}") from error
    opened: int = port
    return opened
