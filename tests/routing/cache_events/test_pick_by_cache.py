"""The endpoint picker's choice by what replicas hold, with the events of real publishers."""

import asyncio
import json
import logging
import sys
from pathlib import Path

import pytest

from gantree.routing.cache_events.opening import CacheIndexes
from gantree.routing.choice import Reason
from gantree.routing.endpoint_picker.picker import Picked, Picker, Request
from gantree.routing.table import RouteTable, table_of
from support.routed import until
from support.tokenizer import write_tokenizer

pytest.importorskip("zmq", reason="needs gantree[cache-events]")
pytest.importorskip("tokenizers", reason="needs gantree[cache-events]")

from support.cache_publisher import BLOCK, CachePublisher, stored

TOKENS = list(range(10, 10 + 4 * BLOCK))
REQUEST = Request({}, json.dumps({"model": "chat", "prompt": TOKENS}).encode())


def _table(*ports: int) -> RouteTable:
    row = {"attempt": 1, "host": "127.0.0.1"}
    rows = [
        {**row, "replica": f"chat.{number}", "port": 8000 + number, "cache_events_port": port}
        for number, port in enumerate(ports, 1)
    ]
    return table_of({"services": [{"service": "chat", "affinity": "cache", "replicas": rows}]})


def test_the_replicas_with_the_most_of_a_prompt_come_first(tmp_path: Path) -> None:
    async def acted() -> None:
        async with CachePublisher() as one, CachePublisher() as two, CachePublisher() as three:
            picker = Picker(caches=CacheIndexes(tmp_path), table=_table(one.port, two.port, three.port))  # fmt: skip
            await picker.caches.apply(picker.table)
            assert await picker.looked_up(REQUEST) is None
            for publisher, blocks in ((one, 1), (two, 4), (three, 2)):
                await publisher.subscribed()
                hashes = list(range(blocks))
                await publisher.publish(stored(hashes, None, TOKENS[: blocks * BLOCK]))
            index = picker.caches.index
            assert index is not None
            await until(lambda: index.held()["chat"].blocks == 7, "all blocks")
            match = await picker.looked_up(REQUEST)
            assert match is not None
            assert match.tokens_of_server == {
                "chat.1_1": BLOCK,
                "chat.2_1": 4 * BLOCK,
                "chat.3_1": 2 * BLOCK,
            }
            picked = picker.pick(REQUEST, match)
            assert isinstance(picked, Picked)
            names = [each.replica for each in picked.replicas]
            assert (names, picked.reason) == (["chat.2", "chat.3", "chat.1"], Reason.AFFINITY)
            await picker.caches.end()

    write_tokenizer(tmp_path / "chat")
    asyncio.run(acted())


def test_without_the_libraries_it_goes_by_what_it_sent_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def acted() -> None:
        monkeypatch.setitem(sys.modules, "gantree.routing.cache_events.index", None)
        picker = Picker(caches=CacheIndexes(), table=_table(1, 2))
        with caplog.at_level(logging.WARNING):
            await picker.caches.apply(picker.table)
        assert await picker.looked_up(REQUEST) is None
        await picker.caches.end()

    asyncio.run(acted())
    assert "pip install 'gantree[cache-events]'" in caplog.text
