"""A subscriber holds what its publisher says, over real sockets: late, after gaps, after a start of the engine."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("zmq", reason="needs gantree[cache-events]")

import zmq.asyncio

from gantree.routing.cache_events.blocks import block_keys, root_key
from gantree.routing.cache_events.subscriber import Publisher, Subscriber
from support.cache_publisher import BLOCK, CachePublisher, removed, stored
from support.routed import until

A, B = (1, 2, 3, 4), (5, 6, 7, 8)


@asynccontextmanager
async def following(publisher: CachePublisher) -> AsyncIterator[tuple[Subscriber, list[str]]]:
    """A subscriber that runs, and the gaps that it found."""
    gaps: list[str] = []
    at = Publisher("127.0.0.1", publisher.port, publisher.replay_port)
    subscriber, context = (
        Subscriber("chat.1", at, lambda: gaps.append("gap")),
        zmq.asyncio.Context(),
    )
    running = asyncio.create_task(subscriber.run(context))
    try:
        await publisher.subscribed()
        yield subscriber, gaps
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        context.destroy(linger=0)


def _held(subscriber: Subscriber, *tokens: int) -> int:
    return subscriber.blocks.matched(block_keys(tokens, BLOCK, root_key()))


def _holds(subscriber: Subscriber, *tokens: int) -> Callable[[], bool]:
    return lambda: _held(subscriber, *tokens) == len(tokens) // BLOCK


def test_it_holds_what_was_stored_and_not_what_was_removed() -> None:
    async def acted() -> None:
        async with CachePublisher(replay=False) as publisher, following(publisher) as (it, gaps):
            await publisher.publish(stored([1], None, A), stored([2], 1, B))
            await until(_holds(it, *A, *B), "both blocks")
            await publisher.publish(removed([2]))
            await until(lambda: _held(it, *A, *B) == 1, "the first block alone")
            assert not gaps

    asyncio.run(acted())


def test_one_that_starts_late_gets_what_came_before() -> None:
    async def acted() -> None:
        async with CachePublisher() as publisher:
            publisher.lose(stored([1], None, A))
            async with following(publisher) as (it, gaps):
                await until(_holds(it, *A), "what came before")
                await publisher.publish(stored([2], 1, B))
                await until(_holds(it, *A, *B), "what comes now")
                assert not gaps

    asyncio.run(acted())


def test_what_is_missed_is_asked_for() -> None:
    async def acted() -> None:
        async with CachePublisher() as publisher, following(publisher) as (it, gaps):
            await publisher.publish(stored([1], None, A))
            await until(_holds(it, *A), "the first")
            publisher.lose(stored([2], 1, B))
            await publisher.publish(stored([3], 2, A))
            await until(_holds(it, *A, *B, *A), "all three")
            assert not gaps

    asyncio.run(acted())


@pytest.mark.parametrize("replay", [False, True])
def test_what_is_lost_for_good_empties_what_is_known(
    replay: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def acted() -> None:
        publisher = CachePublisher(replay=replay, kept=1)
        async with publisher, following(publisher) as (it, gaps):
            await publisher.publish(stored([1], None, A))
            await until(_holds(it, *A), "the first")
            publisher.lose(removed([1]))
            publisher.lose(stored([5], None, A))
            await publisher.publish(stored([2], None, B))
            await until(_holds(it, *B), "the last")
            assert (_held(it, *A), gaps) == (0, ["gap"])

    with caplog.at_level(logging.INFO):
        asyncio.run(acted())


@pytest.mark.parametrize("replay", [False, True])
def test_an_engine_that_starts_again_holds_nothing(replay: bool) -> None:
    async def acted() -> None:
        async with CachePublisher(replay=replay) as publisher, following(publisher) as (it, gaps):
            for number in range(3):
                await publisher.publish(stored([number], None, A))
            await until(_holds(it, *A), "before")
            publisher.start_again(time=100.0)
            await publisher.publish(stored([9], None, B))
            await until(_holds(it, *B), "after")
            assert (_held(it, *A), gaps) == (0, [])

    asyncio.run(acted())


def test_what_came_in_a_replay_already_is_not_taken_twice() -> None:
    async def acted() -> None:
        async with CachePublisher() as publisher:
            await publisher.publish(stored([1], None, A))
            await publisher.publish(removed([1]))
            at = Publisher("127.0.0.1", publisher.port, publisher.replay_port)
            it, context = Subscriber("chat.1", at, lambda: None), zmq.asyncio.Context()
            await it._catch_up(context)
            payload = publisher._kept[0][1]
            await it.take(0, payload, context)
            assert _held(it, *A) == 0
            context.destroy(linger=0)

    asyncio.run(acted())


def test_frames_that_are_no_events_are_passed_over(caplog: pytest.LogCaptureFixture) -> None:
    async def acted() -> None:
        async with CachePublisher() as publisher, following(publisher) as (it, _):
            await publisher.send(b"alone")
            await publisher.send(b"topic", bytes(8), b"\xc1")
            await publisher.publish(stored([1], None, A))
            await until(_holds(it, *A), "the events behind")

    with caplog.at_level(logging.WARNING):
        asyncio.run(acted())
    assert "found no cache events, but 1 frames" in caplog.text
    assert "no batch of cache events" in caplog.text
