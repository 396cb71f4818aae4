"""The endpoint picker behind a real Envoy, as gateways of the inference extension set it; replicas are processes."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("grpc", reason="grpcio is not installed")

from gantree.routing.endpoint_picker.picker import Picker
from gantree.routing.endpoint_picker.server import EndpointPicker
from gantree.routing.following import Source
from support.envoy import (
    BUFFERED,
    FULL_DUPLEX,
    NONE,
    ORIGINAL_DST,
    OVERRIDE_HOST,
    envoy,
    program,
)
from support.replica import ReplicaProcess
from support.routed import row, until

Json = dict[str, Any]
BODY = {"model": "llama-8b", "messages": [], "padding": "x" * 500_000}
PLACES = (["s0", "s0/l0", "n0"], ["s0", "s0/l1", "n1"], ["s1", "s1/l0", "n2"])
SSE = "/v1/chat/completions?events=3&gap_ms=1"


@dataclass
class Site:
    """Three replicas at PLACES behind Envoy; reports are what the picker told its daemon."""

    http: httpx.AsyncClient
    picker: Picker
    replicas: list[ReplicaProcess]
    reports: list[Mapping[str, Any]] = field(default_factory=list)

    async def post(
        self, path: str = "/v1/chat/completions", at: str = "s0/l0", **body: Any
    ) -> httpx.Response:
        return await self.http.post(path, json={**BODY, **body}, headers={"X-Gantree-From": at})


@asynccontextmanager
async def site(
    place: Path, body: str, cluster: str, endpoints: int, concurrency: int = 0
) -> AsyncIterator[Site]:
    program()
    async with AsyncExitStack() as stack:
        replicas = [stack.enter_context(ReplicaProcess(f"chat.{n}", place)) for n in range(3)]
        rows = [row(each, where) for each, where in zip(replicas, PLACES, strict=True)]
        service = {
            "service": "chat",
            "models": ["llama-8b"],
            "replicas": rows,
            "concurrency": concurrency,
        }
        picker = Picker(service="chat" if body == NONE else "", most_endpoints=endpoints)
        made = Site(httpx.AsyncClient(timeout=300.0), picker, replicas)

        async def fetch(after: str) -> Any:
            await asyncio.sleep(3600.0 if after else 0.0)
            return {"version": "1", "services": [service]}

        async def take(report: Mapping[str, Any]) -> None:
            made.reports.append(report)

        running, stop = EndpointPicker("r1", picker, Source(fetch, take)), asyncio.Event()
        port = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(running.run("127.0.0.1:0", None, stop, 1.0, port.set_result))
        ports = [each.port for each in replicas]
        url = await asyncio.to_thread(
            stack.enter_context, envoy(place, await port, ports, body, cluster)
        )
        made.http.base_url = httpx.URL(url)
        await until(lambda: bool(picker.table.services), "the table is there")
        yield made
        await made.http.aclose()
        stop.set()
        await task


def run(work: Awaitable[None]) -> None:
    async def main() -> None:
        await work

    asyncio.run(main())


def story(
    tmp_path: Path,
    tell: Callable[[Site], Awaitable[None]],
    body: str = FULL_DUPLEX,
    cluster: str = OVERRIDE_HOST,
    endpoints: int = 3,
    concurrency: int = 0,
) -> None:
    async def work() -> None:
        async with site(tmp_path, body, cluster, endpoints, concurrency) as made:
            await tell(made)

    run(work())


@pytest.mark.parametrize("cluster", [OVERRIDE_HOST, ORIGINAL_DST])
@pytest.mark.parametrize("body", [FULL_DUPLEX, BUFFERED, NONE])
def test_requests_go_where_the_picker_says_with_their_whole_body(
    tmp_path: Path, body: str, cluster: str
) -> None:
    async def tell(site: Site) -> None:
        for at, name in (("s0/l0", "chat.0"), ("n1", "chat.1"), ("s1", "chat.2")):
            answer = await site.post(at=at)
            assert answer.status_code == 200, answer.text
            assert (answer.json()["name"], answer.json()["length"]) == (
                name,
                len(json.dumps(BODY, separators=(",", ":"))),
            )
        stream = await site.post(SSE)
        assert stream.text.count("data: ") == 3
        await until(lambda: not site.picker.in_flight, "all streams have ended")

    story(tmp_path, tell, body, cluster, 3 if cluster == OVERRIDE_HOST else 1)


@pytest.mark.parametrize("body", [FULL_DUPLEX, BUFFERED])
def test_a_refusal_reaches_the_client_as_it_is(tmp_path: Path, body: str) -> None:
    async def tell(site: Site) -> None:
        answer = await site.post(model="gpt")
        assert (answer.status_code, answer.json()["error"]["message"]) == (
            404,
            "no service has the model gpt",
        )
        held = [asyncio.create_task(site.post("/x?held")) for _ in range(3)]
        await until(lambda: site.picker.in_flight.total() == 3, "all are full")
        assert (await site.post()).status_code == 429
        for each in site.replicas:
            await asyncio.to_thread(httpx.get, f"http://127.0.0.1:{each.port}/release")
        assert {(await each).status_code for each in held} == {200}
        assert {(await each).json()["name"] for each in held} == {"chat.0", "chat.1", "chat.2"}

    story(tmp_path, tell, body, concurrency=1)


def test_the_next_endpoint_gets_what_the_first_does_not_take(tmp_path: Path) -> None:
    async def tell(site: Site) -> None:
        site.replicas[0].kill()
        answer = await site.post()
        assert (answer.status_code, answer.json()["name"]) == (200, "chat.1")

    story(tmp_path, tell)


def test_a_client_that_leaves_frees_its_replica(tmp_path: Path) -> None:
    async def tell(site: Site) -> None:
        gone = asyncio.create_task(site.post("/x?held"))
        await until(lambda: site.picker.in_flight.total() == 1, "it is on its way")
        gone.cancel()
        await until(lambda: not site.picker.in_flight, "nothing is in flight")

    story(tmp_path, tell)
