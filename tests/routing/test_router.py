"""Requests through a real HAProxy to real replicas: where they go, and what becomes of them when replicas change."""

import asyncio
from pathlib import Path

import pytest

from gantree.model.services import Routing
from gantree.routing.haproxy import config as haproxy_config
from gantree.routing.haproxy.commands import table_lines
from gantree.routing.table import RoutedService, RouteTable
from support.replica import ReplicaProcess
from support.routed import Routed, routed, row, service, until

PLACES = (("s0", "s0/l0", "n0"), ("s0", "s0/l0", "n1"), ("s0", "s0/l1", "n2"))


def rows(replicas: list[ReplicaProcess]) -> list[dict[str, object]]:
    """They, each at its place."""
    return [row(each, place) for each, place in zip(replicas, PLACES, strict=False)]


def test_a_request_goes_to_the_closest_replica_of_the_service_that_it_names(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path, at="s0/l1", places=(("127.0.0.2/32", "n0"),)) as router:
            await router.set(
                service("chat", rows(replicas), models=["llama"]), nodes={"n9": PLACES[0]}
            )
            here = await router.get("/services/chat/v1/x?y=1")
            assert here.chosen == ("chat.3", "closest")
            assert here.json["path"] == "/v1/x"
            for place, expected in (
                ("n0", "chat.1"),
                ("s0/l1", "chat.3"),
                ("n1", "chat.2"),
                ("n9", "chat.1"),
            ):
                told = await router.get("/services/chat/", X_Gantree_From=place)
                assert told.chosen == (expected, "closest")
            for headers in ({"X_Gantree_Service": "chat"}, {"Host": "chat.example.org"}):
                assert (await router.get("/x", **headers)).status == 200
            assert (await router.chat("llama", "hi")).json["name"] == "chat.3"

    asyncio.run(scenario())


def test_what_names_no_service_is_told_how_to(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", rows(replicas), models=["llama", "b"]))
            models = (await router.get("/v1/models")).json
            assert [each["id"] for each in models["data"]] == ["b", "llama"]
            for answer, words in (
                (await router.get("/services/nope/x"), "no service nope"),
                (await router.chat('ll"ama', "hi"), 'no service has the model ll"ama'),
                (await router.get("/x"), "name the service"),
                (await router.get("/x", X_Gantree_Service="y"), "no service y"),
            ):
                assert answer.status == 404
                assert words in answer.json["error"]["message"]

    asyncio.run(scenario())


def test_of_services_with_one_model_the_first_has_its_requests_and_then_the_next(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    first, second, other = (row(each) for each in replicas)

    async def scenario() -> None:
        async with routed(tmp_path) as router:
            old = service("old", [first], models=["llama"])
            new = service("new", [second], models=["llama", "qwen"])
            address = service("127", [other])  # as the first part of the router's own address
            await router.set(old, new, address)
            assert (await router.chat("llama", "hi")).json["name"] == "chat.1"
            assert (await router.chat("qwen", "hi")).json["name"] == "chat.2"
            await router.set(service("old", [first], models=["opt"]), new, address)
            assert (await router.chat("llama", "hi")).json["name"] == "chat.2"
            await router.set(old, new, address)
            assert (await router.chat("llama", "hi")).json["name"] == "chat.1"

    asyncio.run(scenario())


def test_a_router_that_has_not_reached_its_daemon_asks_for_patience(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with routed(tmp_path, is_lost=True) as router:
            for path in ("/services/chat/", "/v1/models", "/x"):
                told = await router.get(path)
                assert (told.status, told.json["error"]["code"]) == (503, "no_table")
                assert told.headers["Retry-After"] == "1"
            router.is_lost = False
            await until(lambda: _is_empty_of_services(router), "it has a table")

    async def _is_empty_of_services(router: Routed) -> bool:
        return (await router.get("/services/chat/")).status == 404

    asyncio.run(scenario())


def test_no_list_of_models_makes_a_line_that_haproxy_does_not_take() -> None:
    models = ("llama", *("\u20ac" * 900 + str(number) for number in range(60)))
    table = RouteTable((RoutedService("chat", Routing(models=models)),), version="1")
    (line,) = [each for each in table_lines(table) if each.startswith("service chat ")]
    assert " llama " in line
    assert len(line) < 16 * 1024


def test_a_process_that_starts_after_an_upgrade_runs_what_the_router_was_started_with(
    tmp_path: Path, replicas: list[ReplicaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", rows(replicas)))
            monkeypatch.setattr(haproxy_config, "LUA", tmp_path / "replaced")
            await router.set(service("chat", rows(replicas)), service("another", rows(replicas)))
            assert (await router.get("/services/another/")).status == 200

    asyncio.run(scenario())


def test_events_of_a_stream_pass_one_by_one(tmp_path: Path, replicas: list[ReplicaProcess]) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", rows(replicas[:1])))
            url = f"{router.url}/services/chat/?events=1000&gap_ms=20"
            async with router.client.get(url) as answer:
                first = await answer.content.readuntil(b"\n\n")
                second = await answer.content.readuntil(b"\n\n")
            assert (first, second) == (b"data: 0 chat.1\n\n", b"data: 1 chat.1\n\n")

    asyncio.run(scenario())


def test_requests_beyond_the_concurrency_wait_and_the_urgent_ones_go_first(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", rows(replicas[:1]), concurrency=1, queue=8))
            taken: dict[int, str] = {}

            async def ask(priority: str, query: str = "wait_ms=10") -> int:
                answer = await router.get(f"/services/chat/?{query}", X_Gantree_Priority=priority)
                if answer.status == 200:
                    taken[answer.json["before"]] = priority
                    assert answer.json["in_flight"] == 1
                else:
                    assert answer.headers["Retry-After"] == "1"
                    assert answer.json["error"]["code"] == "overloaded"
                return answer.status

            tasks = [asyncio.create_task(ask("normal", "held"))]
            await until(lambda: _in_flight(router, 1, 0), "the first one runs")
            for queued, priority in enumerate(("low", "low", "high", "normal"), 1):
                tasks.append(asyncio.create_task(ask(priority)))
                await until(lambda queued=queued: _in_flight(router, 1, queued), "it waits")
            assert await ask("low") == 503, "half of the queue is the most for these"
            tasks += [asyncio.create_task(ask("normal")) for _ in range(2)]
            await until(lambda: _in_flight(router, 1, 6), "they wait")
            assert await ask("normal") == 503
            tasks += [asyncio.create_task(ask("high"))]
            await until(lambda: _in_flight(router, 1, 7), "it waits")
            await router.get_direct(replicas[0].port, "/release")
            assert await asyncio.gather(*tasks) == [200] * 8
            order = [taken[before] for before in sorted(taken)]
            assert order == ["normal", *["high"] * 2, *["normal"] * 3, *["low"] * 2]

    asyncio.run(scenario())


async def _in_flight(router: Routed, running: int, queued: int) -> bool:
    now = await router.proxies.now()
    return sum(now.in_flight.values()) == running and sum(now.queued.values()) == queued


def test_requests_wait_for_the_first_replica_of_a_service_that_has_none(
    tmp_path: Path, replicas: list[ReplicaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantree.routing.router.REPORT_S", 3600.0)  # what is reported is so at once

    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", []))
            waiting = [asyncio.create_task(router.get("/services/chat/")) for _ in range(5)]
            await until(lambda: _reports_queued(router, 5), "they are reported at once")
            await router.set(service("chat", []), service("other", []))
            await asyncio.sleep(0.2)  # the next process has them
            assert not any(each.done() for each in waiting)
            async with asyncio.timeout(60):
                while not await _in_flight(router, 0, 5):
                    await asyncio.sleep(0.05)
            await router.set(service("chat", [{**rows(replicas)[0], "ready": False}]))
            await asyncio.sleep(0.2)
            assert not any(each.done() for each in waiting)
            await router.set(service("chat", rows(replicas)[:1]))
            assert {(await each).status for each in waiting} == {200}
            assert await _in_flight(router, 0, 0)
            await router.set(service("chat", [], wait_s=0.2))
            refused = await router.get("/services/chat/")
            assert (refused.status, refused.json["error"]["code"]) == (503, "not_ready")

    asyncio.run(scenario())


def _reports_queued(router: Routed, queued: int) -> bool:
    return any(each["queued"] == queued for one in router.reports for each in one["services"])


def test_requests_whose_clients_have_gone_do_not_wait_any_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with routed(tmp_path) as router:
            await router.set(service("chat", [], queue=4))
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.3):
                        await router.get("/services/chat/")
            await until(lambda: _waits(router), "there is room in the queue again")

    async def _waits(router: Routed) -> bool:
        asked = asyncio.create_task(router.get("/services/chat/"))
        await asyncio.sleep(0.3)
        waits = not asked.done()
        asked.cancel()
        return waits

    asyncio.run(scenario())


def test_a_draining_replica_finishes_what_it_has_gets_nothing_and_is_reported_empty(
    tmp_path: Path, replicas: list[ReplicaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gantree.routing.router.REPORT_S", 3600.0)  # what is reported is so at once

    async def scenario() -> None:
        async with routed(tmp_path, at="n0") as router:
            await router.set(service("chat", rows(replicas)))
            held = asyncio.create_task(router.get("/services/chat/?held"))
            await until(lambda: _in_flight(router, 1, 0), "it runs")
            first, *others = rows(replicas)
            await router.set(service("chat", [{**first, "draining": True}, *others]))
            for _ in range(5):
                assert (await router.get("/services/chat/")).chosen == ("chat.2", "closest")
            assert not held.done()
            assert not any(map(_is_empty, router.reports))
            await router.get_direct(replicas[0].port, "/release")
            assert (await held).json["name"] == "chat.1"
            await until(lambda: any(map(_is_empty, router.reports)), "the router reports")
            await router.set(service("chat", others))
            assert (await router.get("/services/chat/")).status == 200

    def _is_empty(report: dict[str, object]) -> bool:
        told = report["services"][0]["replicas"][0]  # type: ignore[index] # as JSON comes
        return bool(told["replica"] == "chat.1" and told["in_flight"] == 0 and report["window_s"])

    asyncio.run(scenario())
