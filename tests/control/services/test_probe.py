"""One look at a replica, against servers that answer well, badly, late, or with something else than HTTP."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, cast

import pytest

from gantree.control.services.probe import probe
from gantree.control.services.readiness import (
    AT_ONCE,
    OF_ONE_SERVICE,
    ReadinessProber,
    Target,
    Verdict,
)
from gantree.model.replicas import Endpoint, Readiness

if TYPE_CHECKING:
    from gantree.control.engine.controller import Controller
    from gantree.control.engine.loop import Loop

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def says(text: bytes) -> Answer:
    """Answer a request, then close."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(text)
        writer.close()

    return answer


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def look(answer: Answer, path: str | None, timeout_s: float = 30.0) -> str:
    """The result of a probe of a server that answers so."""

    async def looked() -> str:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await probe(Endpoint("r", 0, "127.0.0.1", port), path, timeout_s)

    return asyncio.run(looked())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.0 204\r\n\r\n", ""),
        (b"HTTP/1.1 399 Odd\r\n\r\n", ""),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "answers 400"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "answers 503"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer as HTTP does"),
        (b"HTTP/1.1 2000 OK\r\n\r\n", "does not answer as HTTP does"),
        (b"x" * 100_000 + b"\r\n", "does not answer as HTTP does"),
        (b"", "does not answer as HTTP does"),
    ],
)
def test_the_status_decides(text: bytes, reason: str) -> None:
    found = look(says(text), "/health?deep=1")
    assert (found == "") == (reason == "")
    assert reason in found


def test_the_path_is_asked_for_once_and_nothing_is_kept_open() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        asked.append(await reader.read())  # until the other side closes
        writer.close()

    assert look(answer, "/health?deep=1") == ""
    assert asked[0].startswith(b"GET /health?deep=1 HTTP/1.1\r\nHost: 127.0.0.1:")
    assert asked[1:] in ([], [b""])


def test_a_connection_is_enough_without_a_path() -> None:
    assert look(silent, None) == ""


def test_a_server_that_is_silent_is_not_ready() -> None:
    assert "no answer from /health at port" in look(silent, "/health", 0.05)


def test_a_port_at_which_nothing_listens_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = asyncio.run(probe(Endpoint("r", 0, "127.0.0.1", port), None, 30.0))
    assert found.startswith(f"no connection to port {port}")


def test_one_good_answer_makes_ready_and_so_many_bad_ones_in_a_row_unready() -> None:
    verdict = Verdict(Readiness(failures=3), ready=False)
    answers = ["x", "x", "x", "", "x", "x", "", "x", "x", "x", "x", ""]
    changes = [verdict.add(answer) for answer in answers]
    assert [at for at, changed in enumerate(changes) if changed] == [3, 9, 11]
    assert verdict.ready


def test_what_is_on_record_is_where_a_verdict_begins() -> None:
    verdict = Verdict(Readiness(failures=2), ready=True)
    assert [verdict.add("x") for _ in range(3)] == [False, True, False]


def test_replicas_that_hang_delay_no_other_service() -> None:
    async def scenario() -> None:
        async with (
            await asyncio.start_server(silent, "127.0.0.1", 0) as hangs,
            await asyncio.start_server(says(b"HTTP/1.1 200 OK\r\n\r\n"), "127.0.0.1", 0) as works,
        ):
            prober = ReadinessProber(cast("Loop", None), cast("Controller", None))

            def target(service: str, number: int, server: asyncio.Server) -> Target:
                port = server.sockets[0].getsockname()[1]
                endpoint = Endpoint("r", 0, "127.0.0.1", port)
                ready = Readiness("/health", every_s=0.05, timeout_s=30.0)
                return Target(service, f"{service}.{number}", 1, endpoint, ready, was_ready=True)

            hung = [target("hangs", number, hangs) for number in range(AT_ONCE + OF_ONE_SERVICE)]
            prober.follow({(each.job, 1): each for each in (*hung, target("chat", 1, works))})
            async with asyncio.timeout(20):
                while ("chat.1", 1) not in prober.answers:
                    await asyncio.sleep(0.01)
            assert prober.answers == {("chat.1", 1): ""}
            await prober.close()

    asyncio.run(scenario())
