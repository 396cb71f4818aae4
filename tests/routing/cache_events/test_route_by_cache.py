"""`affinity: cache`: a prompt goes to the replica that says it holds the most of it; real HAProxy and sockets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from support.replica import ReplicaProcess
from support.routed import WITHIN_S, Routed, routed, row, service, until
from support.tokenizer import write_tokenizer

pytest.importorskip("zmq", reason="needs gantree[cache-events]")
pytest.importorskip("tokenizers", reason="needs gantree[cache-events]")

from gantree.routing.cache_events.prompts import PromptReader
from support.cache_publisher import BLOCK, CachePublisher, removed, stored

OTHER = "the cache holds words of prompts " * 4
PROMPT = "a router sends requests to replicas of a service " * 4


def _row(replica: ReplicaProcess, publisher: CachePublisher, **more: Any) -> dict[str, Any]:
    ports: dict[str, Any] = {
        "cache_events_port": publisher.port,
        "cache_replay_port": publisher.replay_port,
    }
    return row(replica, **ports, **more)


class Stage:
    """A router, and the publishers of the replicas of its service `chat`."""

    def __init__(self, router: Routed, publishers: Sequence[CachePublisher], home: Path) -> None:
        self.router, self.publishers = router, publishers
        self._reader = PromptReader(home)

    async def hold(self, number: int, content: str, blocks: int, first: int = 1) -> None:
        """Let a replica say that it holds so many blocks of a prompt, with hashes from the first on."""
        tokens = self._reader.tokens({"messages": [{"role": "user", "content": content}]})
        assert tokens is not None
        assert len(tokens) >= blocks * BLOCK
        hashes = list(range(first, first + blocks))
        await self.publishers[number].publish(stored(hashes, None, tokens[: blocks * BLOCK]))

    async def until_held(self, blocks: int) -> None:
        """Wait until the router knows of so many blocks."""
        index = self.router.router._caches.index
        assert index is not None
        await until(lambda: index.held()["chat"].blocks == blocks, f"{blocks} blocks")

    async def asked(self, content: str) -> tuple[str, str]:
        """Where a prompt goes, and why."""
        return (await self.router.chat("chat", content)).chosen


@asynccontextmanager
async def staged(
    tmp_path: Path,
    replicas: Sequence[ReplicaProcess],
    cache_wait_s: float = WITHIN_S,
    **more: Any,
) -> AsyncIterator[Stage]:
    """A stage with two replicas."""
    home = write_tokenizer(tmp_path / "tokenizers" / "chat")
    async with AsyncExitStack() as opened:
        publishers = [await opened.enter_async_context(CachePublisher()) for _ in range(2)]
        router = await opened.enter_async_context(
            routed(tmp_path, tokenizers=tmp_path / "tokenizers", cache_wait_s=cache_wait_s)
        )
        rows = [_row(*each) for each in zip(replicas[:2], publishers, strict=True)]
        await router.set(service("chat", rows, affinity="cache", **more))
        for each in publishers:
            await each.subscribed()
        yield Stage(router, publishers, home)


def test_a_prompt_goes_where_the_most_of_it_is_held(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            await stage.hold(0, PROMPT, 2)
            await stage.hold(1, PROMPT, 3)
            await stage.until_held(5)
            assert [await stage.asked(PROMPT) for _ in range(4)] == [("chat.2", "affinity")] * 4
            await stage.hold(0, OTHER, 4, first=10)
            await stage.hold(1, OTHER, 5, first=10)
            await stage.publishers[1].publish(removed([13, 14]))
            await stage.until_held(12)
            assert [await stage.asked(OTHER) for _ in range(4)] == [("chat.1", "affinity")] * 4
            assert (
                stage.router.router.metrics.registry.get_sample_value(
                    "gantree_route_cache_lookups_total", {"service": "chat", "result": "found"}
                )
                == 8
            )

    asyncio.run(acted())


def test_a_prompt_of_a_hundred_kilobytes_is_looked_up(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            await stage.hold(1, PROMPT, 3)
            await stage.until_held(3)
            long = PROMPT * (100_000 // len(PROMPT))
            assert await stage.asked(long) == ("chat.2", "affinity")

    asyncio.run(acted())


def test_of_replicas_that_hold_equally_much_each_gets_its_share(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            prompts = [f"{number} requests" for number in range(20)]
            for number in (0, 1):
                await stage.hold(number, prompts[0], 1)
            await stage.until_held(2)
            assert {await stage.asked(each) for each in prompts} == {
                ("chat.1", "affinity"),
                ("chat.2", "affinity"),
            }

    asyncio.run(acted())


def test_a_full_replica_is_passed_over(tmp_path: Path, replicas: list[ReplicaProcess]) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas, concurrency=1) as stage:
            await stage.hold(1, PROMPT, 3)
            await stage.until_held(3)
            held = asyncio.create_task(stage.router.get("/services/chat/x?held", host="chat"))
            first = replicas[0]
            counted = stage.router.proxies

            async def in_work() -> bool:
                return sum((await counted.now()).in_flight.values()) == 1

            await until(in_work, "a request that is held")
            busy = max((await counted.now()).in_flight.items(), key=lambda item: item[1])[0][1]
            chosen, reason = await stage.asked(PROMPT)
            assert busy != f"{chosen}_1"
            assert reason == ("closest" if busy == "chat.2_1" else "affinity")
            await stage.router.get_direct(first.port, "/release")
            await stage.router.get_direct(replicas[1].port, "/release")
            await held

    asyncio.run(acted())


def test_prompts_that_come_before_the_events_of_the_first_follow_it(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            for number in (0, 1):
                await stage.hold(number, "a router sends", 2)
            await stage.until_held(4)
            first, _ = await stage.asked(PROMPT)
            assert [await stage.asked(PROMPT) for _ in range(8)] == [(first, "affinity")] * 8

    asyncio.run(acted())


def test_without_events_it_goes_by_what_the_router_sent(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            first = await stage.asked(PROMPT * 4)
            assert first[1] == "closest"
            assert await stage.asked(PROMPT * 4) == (first[0], "affinity")
            assert (
                stage.router.router.metrics.registry.get_sample_value(
                    "gantree_route_cache_lookups_total", {"service": "chat", "result": "unknown"}
                )
                == 2
            )

    asyncio.run(acted())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tokenizer": "other"}, "No such file or directory"),
        ({"tokenizer": "../chat"}, "is no name below"),
    ],
)
def test_without_a_tokenizer_the_log_says_what_affinity_goes_by(
    tmp_path: Path,
    replicas: list[ReplicaProcess],
    more: dict[str, Any],
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas, **more) as stage:
            await stage.asked(PROMPT)

    asyncio.run(acted())
    assert "affinity goes by what this router sent" in caplog.text
    assert said in caplog.text


def test_a_lookup_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, replicas: list[ReplicaProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas, cache_wait_s=0.05) as stage:
            await stage.hold(1, PROMPT, 3)
            await stage.until_held(3)
            index, answered = stage.router.router._caches.index, asyncio.Event()

            async def slow(_backend: str, _body: bytes) -> None:
                await answered.wait()

            monkeypatch.setattr(index, "match", slow)
            assert (await stage.asked(PROMPT))[1] == "closest"
            answered.set()

    asyncio.run(acted())


def test_another_table_leaves_what_is_known_of_replicas_in_both(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            index = stage.router.router._caches.index
            assert index is not None
            before = dict(index._services["chat"].subscribers)
            rows = [_row(*each) for each in zip(replicas, stage.publishers, strict=False)]
            rows[1]["draining"] = True
            await stage.router.set(service("chat", rows, affinity="cache"))
            assert index._services["chat"].subscribers == before

    asyncio.run(acted())


def test_a_replica_that_leaves_the_table_is_not_followed_any_more(
    tmp_path: Path, replicas: list[ReplicaProcess]
) -> None:
    async def acted() -> None:
        async with staged(tmp_path, replicas) as stage:
            await stage.hold(0, PROMPT, 2)
            await stage.until_held(2)
            rows = [_row(replicas[1], stage.publishers[1])]
            await stage.router.set(service("chat", rows, affinity="cache"))
            await stage.until_held(0)
            await stage.router.set(service("chat", rows, affinity="prefix"))
            index = stage.router.router._caches.index
            assert index is not None
            assert index.held() == {}
            assert (await stage.asked(PROMPT))[0] == "chat.2"

    asyncio.run(acted())
