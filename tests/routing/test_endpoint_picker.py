"""The endpoint picker over gRPC: a client with Envoy's messages, as a gateway; a real server, a table that changes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

grpc = pytest.importorskip("grpc", reason="grpcio is not installed")
health_pb2 = pytest.importorskip("grpc_health.v1.health_pb2")

from gantree.routing.endpoint_picker.messages import (  # noqa: E402 - behind the skip
    SERVICE,
    ProcessingRequest,
    ProcessingResponse,
)
from gantree.routing.endpoint_picker.picker import Picker  # noqa: E402 - behind the skip
from gantree.routing.endpoint_picker.server import EndpointPicker  # noqa: E402 - behind the skip
from gantree.routing.following import Source  # noqa: E402 - behind the skip

WITHIN_S = 20.0
KEY = "x-gateway-destination-endpoint"
FULL, BUFFERED = 4, 2
Json = dict[str, Any]


def replica(number: int, place: Sequence[str] = (), **more: Any) -> Json:
    told = {"replica": f"chat.{number}", "attempt": 1, "host": f"10.0.0.{number}", "port": 8000}
    return {**told, "place": list(place), "ready": True, "draining": False, **more}


def table(replicas: Sequence[Json], version: str = "1", **more: Any) -> Json:
    service = {"service": "chat", "models": ["llama-8b"], "replicas": list(replicas), **more}
    return {"version": version, "services": [service]}


class Gateway:
    """A gateway on a picker whose daemon is a table; reports are kept."""

    def __init__(self, first: Json) -> None:
        self.reports: list[Mapping[str, Any]] = []
        self._table, self._changed = first, asyncio.Event()
        self.channel: Any = None

    def set(self, told: Json) -> None:
        self._table = told
        self._changed.set()

    async def fetch(self, after: str) -> Any:
        while self._table["version"] == after:
            self._changed.clear()
            await self._changed.wait()
        return self._table

    async def post(self, report: Mapping[str, Any]) -> None:
        self.reports.append(report)

    def stream(self) -> Any:
        call = self.channel.stream_stream(
            f"/{SERVICE}/Process",
            request_serializer=ProcessingRequest.SerializeToString,
            response_deserializer=ProcessingResponse.FromString,
        )
        return call()

    async def ask(
        self, body: Any = None, headers: Mapping[str, str] | None = None, **more: Any
    ) -> Any:
        """The first answer to a request whose stream ends at once."""
        stream = await begun(self, body, headers, **more)
        answer = await stream.read()
        await stream.done_writing()
        return answer

    async def endpoints(self, *told: Any, **more: Any) -> list[str]:
        """Where a request goes."""
        return endpoints_of(await self.ask(*told, **more))

    async def health(self, service: str) -> Any:
        check = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
            response_deserializer=health_pb2.HealthCheckResponse.FromString,
        )
        return (await check(health_pb2.HealthCheckRequest(service=service))).status


async def begun(
    gateway: Gateway,
    body: Any,
    headers: Mapping[str, str] | None,
    mode: int = FULL,
    subset: Any = None,
) -> Any:
    """A stream on which a request was sent whole."""
    stream = gateway.stream()
    head = ProcessingRequest()
    for name, value in {":method": "POST", **(headers or {})}.items():
        header = head.request_headers.headers.headers.add()
        header.key, header.raw_value = name, value.encode()
    head.request_headers.end_of_stream = body is None
    head.protocol_config.request_body_mode = head.protocol_config.response_body_mode = mode
    if subset is not None:
        fields = head.metadata_context.filter_metadata["envoy.lb.subset_hint"].fields
        values = fields["x-gateway-destination-endpoint-subset"].list_value.values
        for each in subset:
            values.add().string_value = each
        if not subset:
            fields["x-gateway-destination-endpoint-subset"].list_value.SetInParent()
    await stream.write(head)
    if body is not None:
        text = json.dumps(body).encode()
        half = len(text) // 2
        for part, is_last in ((text[:half], False), (text[half:], True)):
            await stream.write(
                ProcessingRequest(request_body={"body": part, "end_of_stream": is_last})
            )
    return stream


def endpoints_of(answer: Any, part: str = "request_headers") -> list[str]:
    """The endpoints of an answer: the header and the metadata have the same."""
    assert answer.WhichOneof("response") == part, answer
    (option,) = getattr(answer, part).response.header_mutation.set_headers
    assert option.header.key == KEY
    told = answer.dynamic_metadata.fields["envoy.lb"].struct_value.fields[KEY].string_value
    assert option.header.raw_value.decode() == told
    found: list[str] = told.split(",")
    return found


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(first: Json, service: str = "", at: str = "") -> AsyncIterator[Gateway]:
    gateway, picker = Gateway(first), Picker(service, at)
    running = EndpointPicker("r1", picker, Source(gateway.fetch, gateway.post))
    stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(running.run("127.0.0.1:0", None, stop, 1.0, port.set_result))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await port}") as channel:
        gateway.channel = channel
        await until(lambda: picker.table.version == first["version"])
        yield gateway
    stop.set()
    await task


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    asyncio.run(main())


CHAT = {"model": "llama-8b", "messages": [{"role": "user", "content": "hello"}]}
PLACES = [
    replica(1, ["s0", "s0/l0", "n0"]),
    replica(2, ["s0", "s0/l1", "n1"]),
    replica(3, ["s1", "s1/l0", "n2"]),
]


def test_the_closest_come_first_in_the_header_and_the_metadata() -> None:
    async def work() -> None:
        async with serving(table(PLACES), at="s1/l0") as gateway:
            found = await gateway.endpoints(CHAT)
            assert found[0] == "10.0.0.3:8000"
            assert sorted(found) == ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
            near = await gateway.endpoints(CHAT, {"x-gantree-from": "s0/l1"})
            assert near == ["10.0.0.2:8000", "10.0.0.1:8000", "10.0.0.3:8000"]
            assert await gateway.endpoints(CHAT, {"x-gantree-from": "n1"}) == near, "a node"

    run(work())


def test_a_body_comes_back_as_it_was_and_a_buffered_one_gets_the_endpoint_with_it() -> None:
    async def work() -> None:
        async with serving(table(PLACES[:1])) as gateway:
            long = {**CHAT, "padding": "x" * 200_000}
            stream = await begun(gateway, long, None)
            endpoints_of(await stream.read())
            parts, is_last = b"", False
            while not is_last:
                told = (await stream.read()).request_body.response.body_mutation.streamed_response
                parts, is_last = parts + told.body, told.end_of_stream
                assert len(told.body) <= 64_000
            assert json.loads(parts) == long
            buffered = await begun(gateway, CHAT, None, BUFFERED)
            first = await buffered.read()
            assert not first.request_headers.response.header_mutation.set_headers
            assert endpoints_of(await buffered.read(), "request_body") == ["10.0.0.1:8000"]

    run(work())


def test_only_what_the_gateway_names_is_picked() -> None:
    async def work() -> None:
        async with serving(table(PLACES), at="s0/l0") as gateway:
            assert await gateway.endpoints(CHAT, subset=["10.0.0.3:8000"]) == ["10.0.0.3:8000"]
            assert await gateway.endpoints(CHAT, subset=["10.0.0.2, 10.0.0.9:1"]) == [
                "10.0.0.2:8000"
            ]
            for subset in ([], ["10.0.0.3:8001"]):
                answer = await gateway.ask(CHAT, subset=subset)
                assert answer.immediate_response.status.code == 503

    run(work())


@pytest.mark.parametrize(
    ("replicas", "body", "service", "status"),
    [
        ([replica(1, ready=False), replica(2, draining=True)], CHAT, "", 503),
        ([], CHAT, "", 503),
        (PLACES, {"model": "gpt"}, "", 404),
        (PLACES, {"messages": []}, "", 404),
        (PLACES, ["no object"], "", 404),
        (PLACES, CHAT, "talk", 503),
    ],
)
def test_a_request_that_goes_nowhere_is_answered(
    replicas: list[Json], body: Any, service: str, status: int
) -> None:
    async def work() -> None:
        async with serving(table(replicas), service) as gateway:
            answer = await gateway.ask(body)
            assert answer.immediate_response.status.code == status
            assert "message" in json.loads(answer.immediate_response.body)["error"]

    run(work())


def test_a_replica_is_full_until_a_stream_ends_and_then_it_is_reported() -> None:
    async def work() -> None:
        async with serving(table(PLACES[:1], concurrency=1), "chat") as gateway:
            stream = await begun(gateway, None, None)
            assert endpoints_of(await stream.read()) == ["10.0.0.1:8000"]
            assert (await gateway.ask()).immediate_response.status.code == 429
            head = ProcessingRequest(response_headers={})
            header = head.response_headers.headers.headers.add()
            header.key, header.raw_value = ":status", b"200"
            await stream.write(head)
            assert (await stream.read()).WhichOneof("response") == "response_headers"
            part = ProcessingRequest(response_body={"body": b"data", "end_of_stream": True})
            await stream.write(part)
            answer = (await stream.read()).response_body.response.body_mutation
            assert (answer.streamed_response.body, answer.streamed_response.end_of_stream) == (
                b"data",
                True,
            )
            gateway.set(table([replica(1, draining=True)], "2", concurrency=1))
            await asyncio.sleep(0)
            await stream.done_writing()
            await until(lambda: sum(_row(each)["requests"] for each in gateway.reports) == 2)
            rows = [_row(each) for each in gateway.reports]
            assert sum(row["shed"] for row in rows) == 1
            assert (rows[-1]["in_flight"], rows[-1]["replicas"][0]["in_flight"]) == (0, 0)
            assert any(row["ttft_p99_s"] is not None for row in rows)

    run(work())


def _row(report: Mapping[str, Any]) -> Json:
    (row,) = report["services"]
    found: Json = row
    return found


def test_the_replica_that_served_is_the_one_that_works() -> None:
    """A gateway that was refused by the first endpoint goes on to the next, and says so with the response."""

    async def work() -> None:
        async with serving(table(PLACES[:2], concurrency=1), "chat", "s0/l0") as gateway:
            stream = await begun(gateway, None, None)
            assert endpoints_of(await stream.read()) == ["10.0.0.1:8000", "10.0.0.2:8000"]
            head = ProcessingRequest(response_headers={})
            fields = head.metadata_context.filter_metadata["envoy.lb"].fields
            fields["x-gateway-destination-endpoint-served"].string_value = "10.0.0.2:8000"
            await stream.write(head)
            await stream.read()
            assert await gateway.endpoints() == ["10.0.0.1:8000"]

    run(work())


def test_a_session_stays_where_it_was() -> None:
    async def work() -> None:
        replicas = [replica(number) for number in range(1, 9)]
        async with serving(table(replicas, affinity="session"), "chat") as gateway:
            headers = {"x-gantree-session": "a"}
            found = {(await gateway.endpoints(CHAT, headers))[0] for _ in range(5)}
            assert len(found) == 1

    run(work())


def test_a_beginning_of_a_prompt_goes_to_the_replica_that_was_sent_it() -> None:
    async def work() -> None:
        replicas = [replica(number) for number in range(1, 9)]
        async with serving(table(replicas, affinity="prefix"), "chat") as gateway:
            found = {
                (await gateway.endpoints({"prompt": "topic " * 100 + str(number)}))[0]
                for number in range(5)
            }
            assert len(found) == 1

    run(work())


def test_it_is_ready_once_it_has_a_table() -> None:
    async def work() -> None:
        async with serving(table(PLACES)) as gateway:
            serving_now = health_pb2.HealthCheckResponse.SERVING
            for service in ("liveness", "readiness", SERVICE, ""):
                assert await gateway.health(service) == serving_now
        picker = EndpointPicker("r1", Picker(), None)
        await picker._tell_health()
        told = await picker._health.Check(health_pb2.HealthCheckRequest(service="readiness"), None)
        assert told.status == health_pb2.HealthCheckResponse.NOT_SERVING

    run(work())
