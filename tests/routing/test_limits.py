"""Tenants and their limits, affinity, retries, protocols, and what is measured."""

import asyncio
import hashlib
import shutil
import subprocess
from pathlib import Path

import aiohttp
import pytest

from gantree.routing.haproxy.config import quoted
from gantree.routing.table_file import read_tenants
from support.certificates import certificate
from support.replica import ReplicaProcess
from support.routed import Answer, Routed, routed, row, service, until


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


TENANTS = f"""
tenants:
  - {{name: web, key_sha256: [{_digest("key-of-web")}, {_digest("older key")}], requests_per_s: 3}}
  - {{name: batch, key_sha256: {_digest("key-of-batch")}, concurrent: 1, priority: low}}
"""


def test_a_tenant_has_its_requests_a_second_and_those_at_a_time(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    tenants = read_tenants(TENANTS + "refuse_others: true\n", "tenants.yaml")

    async def scenario() -> None:
        async with routed(tmp_path, tenants=tenants) as router:
            await router.set(service("chat", list(map(row, replicas))))
            refused = await router.get("/services/chat/")
            assert (refused.status, refused.json["error"]["code"]) == (401, "unauthorized")
            assert (await router.get("/services/chat/", X_API_Key="nobody's")).status == 401
            web = {"Authorization": "Bearer key-of-web"}
            asked = [router.get("/services/chat/", **web) for _ in range(40)]
            told = await asyncio.gather(*asked)
            assert sum(each.status == 200 for each in told) >= 3
            limited = next(each for each in told if each.status == 429)
            assert limited.json["error"]["code"] == "too_many_requests"
            assert limited.headers["Retry-After"] == "1"
            older = {"X_API_Key": "older key"}
            await until(lambda: _is_served(router, older), "the second is over")
            batch = {"X_API_Key": "key-of-batch"}
            held = asyncio.create_task(router.get("/services/chat/?held", **batch))
            await until(lambda: _is_busy(router), "it runs")
            assert (await router.get("/services/chat/", **batch)).status == 429
            for each in replicas:
                await router.get_direct(each.port, "/release")
            assert (await held).status == 200
            assert (await router.get("/services/chat/", **batch)).status == 200

    asyncio.run(scenario())


async def _is_served(router: Routed, headers: dict[str, str]) -> bool:
    return (await router.get("/services/chat/", **headers)).status == 200


async def _is_busy(router: Routed) -> bool:
    return any((await router.proxies.now()).in_flight.values())


def test_the_priority_of_a_tenant_is_the_highest_that_its_requests_have(tmp_path: Path) -> None:
    tenants = read_tenants(TENANTS, "tenants.yaml")

    async def scenario() -> None:
        async with routed(tmp_path, tenants=tenants) as router:
            await router.set(service("chat", [], queue=4, wait_s=20.0))
            urgent = {"X_Gantree_Priority": "high"}
            waiting = [
                asyncio.create_task(router.get("/services/chat/", **urgent)) for _ in range(2)
            ]
            await until(lambda: _waiting(router, 2), "half of the queue is taken")
            batch = {**urgent, "X_API_Key": "key-of-batch"}
            refused = await router.get("/services/chat/", **batch)
            assert (refused.status, refused.json["error"]["code"]) == (503, "overloaded")
            for each in waiting:
                each.cancel()

    asyncio.run(scenario())


async def _waiting(router: Routed, requests: int) -> bool:
    return sum((await router.proxies.now()).queued.values()) == requests


def test_a_session_and_a_beginning_of_a_prompt_stay_with_their_replica(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            rows = list(map(row, replicas))
            await router.set(
                service("chat", rows, affinity="session"),
                service("prompts", rows, affinity="prefix"),
            )
            homes = {}
            for user in ("ada", "bob", "eve", "joe", "kim", "liv"):
                by_header = await router.get("/services/chat/", X_Gantree_Session=user)
                by_cookie = await router.get("/services/chat/", Cookie=f"gantree-session={user}")
                by_field = await router.chat("chat", "hi", user=user)
                homes[user] = by_header.chosen
                assert by_header.chosen == by_cookie.chosen == by_field.chosen
                assert by_header.chosen[1] == "affinity"
            assert len(set(homes.values())) > 1
            seen: dict[str, str] = {}
            for number in range(24):
                topic = f"topic {number % 4} " * 60
                told: Answer = await router.chat("prompts", topic + f"and question {number}" * 20)
                home, reason = told.chosen
                assert reason == ("affinity" if topic in seen else "closest")
                assert seen.setdefault(topic, home) == home

    asyncio.run(scenario())


def test_a_request_that_got_no_answer_is_sent_again_but_not_when_all_fail(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", list(map(row, replicas))))

            def retries() -> float:
                found = router.router.metrics.registry.get_sample_value(
                    "gantree_route_retries_total", {"service": "chat"}
                )
                return found or 0.0

            first = await router.get("/services/chat/?fail")
            assert (first.status, first.json["error"]["code"]) == (502, "bad_gateway")
            await until(lambda: retries() == 3, "it was sent again")
            for _ in range(20):
                await router.get("/services/chat/?fail")
            await asyncio.sleep(1.2)  # the budget is counted each second
            await until(lambda: retries() >= 63, "the log is read")
            before = retries()
            for _ in range(10):
                await router.get("/services/chat/?fail")
            assert (await router.get("/services/chat/")).status == 200
            await asyncio.sleep(0.3)
            assert retries() == before

    asyncio.run(scenario())


def test_http_2_with_and_without_tls(tmp_path: Path, replicas: list[ReplicaProcess]) -> None:
    curl = shutil.which("curl")
    if (
        curl is None
        or "HTTP2"
        not in subprocess.run([curl, "-V"], check=False, capture_output=True, text=True).stdout
    ):
        pytest.skip("no curl with HTTP/2 here")
    pem = tmp_path / "pair.pem"
    pem.write_text("".join(path.read_text() for path in certificate(tmp_path)))

    async def scenario() -> None:
        tls = f"ssl crt {quoted(pem)} alpn h2,http/1.1"
        for name, bind, how in (("a", "", "--http2-prior-knowledge"), ("b", tls, "--http2")):
            home = tmp_path / name
            home.mkdir()
            async with routed(home, bind=bind) as router:
                await router.set(service("chat", list(map(row, replicas))))
                command = [
                    curl,
                    "-sk",
                    how,
                    "-w",
                    " %{http_version}",
                    f"{router.url}/services/chat/h2",
                ]
                asked = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
                told, _ = await asked.communicate()
                assert told.endswith(b" 2"), told
                assert b'"path": "/h2"' in told

    asyncio.run(scenario())


def test_a_report_says_what_requests_took(tmp_path: Path, replicas: list[ReplicaProcess]) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            rows = list(map(row, replicas))
            await router.set(service("chat", rows))
            for _ in range(9):
                assert (await router.get("/services/chat/?wait_ms=50")).status == 200
            assert (await router.get("/services/chat/?fail")).status == 502
            await router.set(service("chat", [{**rows[0], "draining": True}, *rows[1:]]))
            await until(lambda: _counted(router, "requests") == 10, "they are reported")
            assert (_counted(router, "errors"), _counted(router, "shed")) == (1, 0)
            told = [
                (report["window_s"], each)
                for report in router.reports
                for each in report["services"]
            ]
            some = [(window_s, each) for window_s, each in told if each["requests"]]
            assert {each["router"] for each in router.reports} == {"r1"}
            assert {each["service"] for _, each in some} == {"chat"}
            for window_s, each in some:
                assert 0 <= each["latency_p50_s"] <= each["latency_p99_s"]
                assert each["rate"] == pytest.approx(each["requests"] / window_s, rel=0.01)
                assert sum(replica["requests"] for replica in each["replicas"]) == each["requests"]
                names = [replica["replica"] for replica in each["replicas"]]
                assert names == ["chat.1", "chat.2", "chat.3"]
            assert max(each["latency_p50_s"] for _, each in some) >= 0.05
            assert max(each["ttft_p99_s"] for _, each in some) >= 0.05

    asyncio.run(scenario())


def test_answers_that_a_replica_breaks_off_are_errors_and_those_that_a_client_leaves_are_not(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", list(map(row, replicas)), timeout_s=0.2))
            stream = f"{router.url}/services/chat/?events=100"
            for url in (f"{router.url}/services/chat/?break", f"{stream}&gap_ms=10000"):
                with pytest.raises(aiohttp.ClientPayloadError):
                    async with router.client.get(url) as answer:
                        assert answer.status == 200
                        await answer.read()
            async with router.client.get(f"{stream}&gap_ms=50") as answer:
                await answer.content.readuntil(b"\n\n")
                answer.close()
            await until(lambda: _counted(router, "requests") == 3, "it is reported")
            assert _counted(router, "errors") == 2
            found = router.router.metrics.registry.get_sample_value(
                "gantree_route_errors_total", {"service": "chat"}
            )
            assert found == 2

    asyncio.run(scenario())


def _counted(router: Routed, field: str) -> int:
    return sum(int(each[field]) for report in router.reports for each in report["services"])


def test_a_request_that_no_replica_was_ready_for_was_turned_away_and_is_no_error(
    tmp_path: Path,
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", [], wait_s=0.1))
            assert (await router.get("/services/chat/")).status == 503
            await until(lambda: _counted(router, "shed") == 1, "it is reported")
            assert (_counted(router, "requests"), _counted(router, "errors")) == (1, 0)

    asyncio.run(scenario())
