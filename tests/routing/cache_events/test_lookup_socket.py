"""What the lookup socket answers, and what it makes of what was chosen after earlier answers."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("msgspec", reason="needs gantree[cache-events]")

from gantree.routing.cache_events.blocks import Prompt
from gantree.routing.cache_events.lookup_socket import MOST_ANSWERS, open_lookups
from gantree.routing.cache_events.match import Match
from gantree.routing.haproxy.config import CACHE_SOCKET


class Index:
    """Holds what the test says; keeps what is expected."""

    def __init__(self) -> None:
        self.held: dict[bytes, Match] = {}
        self.expected: list[tuple[str, str, Match]] = []

    async def match(self, _backend: str, body: bytes) -> Match | None:
        return self.held.get(body)

    def expect(self, backend: str, server: str, match: Match) -> None:
        self.expected.append((backend, server, match))


async def asked(directory: Path, head: str, body: bytes = b"") -> str:
    """The answer to a request; "" for none."""
    reader, writer = await asyncio.open_unix_connection(directory / CACHE_SOCKET)
    writer.write(f"{head}\n".encode() + body)
    writer.write_eof()
    answer = (await reader.read()).decode()
    writer.close()
    return answer


def test_an_answer_has_a_number_by_which_the_choice_is_told(tmp_path: Path) -> None:
    async def acted() -> None:
        index = Index()
        one = Match(Prompt((1, 2), "chat"), {"chat.1_1": 16, "chat.2_1": 32})
        two = Match(Prompt((3,), "chat"), {})
        index.held = {b"one": one, b"two": two}
        async with await open_lookups(tmp_path, index):
            assert await asked(tmp_path, "chat 3", b"one") == "1 chat.1_1 16 chat.2_1 32\n"
            assert await asked(tmp_path, "chat 3", b"two") == "2\n"
            head = "chat 5 1 chat.2_1 2 chat.1_1 1 chat.1_1 99 chat.1_1 7"
            assert await asked(tmp_path, head, b"other") == "unknown\n"
        assert index.expected == [("chat", "chat.2_1", one), ("chat", "chat.1_1", two)]

    asyncio.run(acted())


def test_answers_whose_choice_is_never_told_are_forgotten(tmp_path: Path) -> None:
    async def acted() -> None:
        index = Index()
        index.held = {b"": Match(Prompt((1,), "chat"), {})}
        async with await open_lookups(tmp_path, index):
            for _ in range(MOST_ANSWERS + 1):
                await asked(tmp_path, "chat 0")
            await asked(tmp_path, "chat 0 1 chat.1_1 2 chat.1_1")
        assert len(index.expected) == 1

    asyncio.run(acted())


@pytest.mark.parametrize("head", ["", "chat", "chat x", "chat 5"])
def test_a_request_that_is_none_gets_no_answer(tmp_path: Path, head: str) -> None:
    async def acted() -> None:
        async with await open_lookups(tmp_path, Index()):
            assert await asked(tmp_path, head) == ""

    asyncio.run(acted())
