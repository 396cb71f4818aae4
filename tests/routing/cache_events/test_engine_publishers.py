"""Subscribers on the publishers of engines themselves: what was published before they came is sent again."""

import asyncio
import socket
from typing import Any

import pytest

pytest.importorskip("zmq", reason="needs gantree[cache-events]")

import zmq.asyncio

from gantree.routing.cache_events.blocks import block_keys, root_key
from gantree.routing.cache_events.subscriber import Publisher, Subscriber
from support.engine_publishers import publisher_module
from support.routed import until

TOKENS = tuple(range(100, 112))
MORE = {"vllm": {"lora_name": None, "group_idx": 0, "kv_cache_spec_kind": "full_attention"}, "sglang": {}}  # fmt: skip


def _ports() -> tuple[int, int]:
    with socket.create_server(("", 0)) as one, socket.create_server(("", 0)) as two:
        return one.getsockname()[1], two.getsockname()[1]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_subscriber_that_comes_late_holds_what_the_engine_holds(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = publisher_module(engine, monkeypatch.setitem)
    port, replay_port = _ports()
    publisher = module.ZmqEventPublisher(
        0, endpoint=f"tcp://*:{port}", replay_endpoint=f"tcp://*:{replay_port}"
    )

    def publish(time: float, *events: Any) -> None:
        publisher.publish(module.KVEventBatch(ts=time, events=list(events)))

    def stored(number: int, parent: int | None) -> Any:
        tokens = list(TOKENS[4 * number : 4 * number + 4])
        common = {"block_hashes": [number + 1], "parent_block_hash": parent, "token_ids": tokens}
        more = {"block_size": 4, "lora_id": None, "medium": "GPU", **MORE[engine]}
        return module.BlockStored(**common, **more)

    async def acted() -> None:
        context = zmq.asyncio.Context()
        it = Subscriber("chat.1", Publisher("127.0.0.1", port, replay_port), lambda: None)
        keys = block_keys(TOKENS, 4, root_key())
        publish(1.0, stored(0, None))
        publish(2.0, stored(1, 1))
        running = asyncio.create_task(it.run(context))
        await until(lambda: it.blocks.matched(keys) == 2, "what came before")
        publish(3.0, stored(2, 2))
        await until(lambda: it.blocks.matched(keys) == 3, "what comes now")
        publish(4.0, module.BlockRemoved(block_hashes=[3], medium="GPU"))
        await until(lambda: it.blocks.matched(keys) == 2, "what is removed")
        publish(5.0, module.AllBlocksCleared())
        await until(lambda: it.blocks.matched(keys) == 0, "nothing")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        context.destroy(linger=0)

    try:
        asyncio.run(acted())
    finally:
        publisher.shutdown()
