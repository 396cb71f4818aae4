"""Batches of events as the publishers of engines send them, recorded (tests/data/cache_events)."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gantree.routing.cache_events.wire import BlocksCleared, BlocksRemoved, BlocksStored, batch_of

DATA = Path(__file__).parents[2] / "data" / "cache_events"


def recorded(name: str) -> list[tuple[Any, ...]]:
    """The events of each batch of a record."""
    frames = json.loads((DATA / f"{name}.json").read_text())["frames"]
    return [batch_of(bytes.fromhex(payload)).events for _, _, payload in frames]


def _hash(number: int) -> bytes:
    return bytes([number]) * 32


def test_vllm_with_an_adapter_an_image_a_second_group_and_host_memory() -> None:
    assert recorded("vllm-0.33.0") == [
        (BlocksStored((_hash(0), _hash(1)), None, tuple(range(8)), 4, "", "GPU"),),
        (
            BlocksStored((_hash(2),), _hash(1), (8, 9, 10, 151643), 4, "", "GPU"),
            BlocksStored((_hash(3),), None, (1, 2, 3, 4), 4, "sql", "GPU"),
        ),
        (
            BlocksStored((_hash(0),), None, (), 0, "", "CPU"),
            BlocksRemoved((_hash(0),), "GPU"),
        ),
        (BlocksRemoved((_hash(2),), "GPU"),),
        (BlocksCleared(),),
    ]


@pytest.mark.parametrize(("name", "medium"), [("sglang-0.5.23", "GPU"), ("sglang-0.5.3", "")])
def test_sglang_as_maps_and_as_lists(name: str, medium: str) -> None:
    assert recorded(name) == [
        (
            BlocksStored((-5,), None, (0, 1, 2, 3), 4, "", medium),
            BlocksStored((2**63 - 1,), -5, (4, 5, 6, 7), 4, "", medium),
        ),
        (BlocksRemoved((2**63 - 1,), medium),),
        (BlocksCleared(),),
    ]


def test_dynamo_stores_what_it_wrote_behind_the_prompt() -> None:
    first, second, *_ = recorded("dynamo-1.6.1")
    (prompt,), (answer,) = first, second
    assert (len(prompt.hashes), prompt.parent, prompt.block_size) == (9, None, 16)
    assert len(prompt.tokens) == 9 * 16
    assert answer.parent == prompt.hashes[-1]


@pytest.mark.parametrize(
    "more",
    [
        {"cache_salt": "tenant"},
        {"mm_keys": [[{"hash": "a1", "start_offset": 0}]]},
        {"extra_keys": [["salt"]]},
        {"lora_id": 3},
        {"kv_cache_spec_kind": "mamba"},
        {"token_ids": [[1, 2], [2, 3]]},
    ],
)
def test_blocks_that_no_prompt_can_be_compared_with_are_left_out(more: dict[str, Any]) -> None:
    row = {"type": "BlockStored", "block_hashes": [1], "token_ids": [1, 2], "block_size": 2}
    plain = row | {"mm_keys": [[]], "extra_keys": [None]}
    assert len(batch_of(msgspec.msgpack.encode([1.0, [plain]])).events) == 1
    assert batch_of(msgspec.msgpack.encode([1.0, [row | more]])).events == ()


def test_events_and_fields_of_later_versions_are_passed_over() -> None:
    rows = [
        {"type": "BlockPinned", "block_hashes": [1]},
        ["BlockRemoved", [7], "GPU", 0, "later"],
        {"type": "AllBlocksCleared", "later": 1},
    ]
    document = {"ts": 1.0, "events": rows, "later": True}
    found = batch_of(msgspec.msgpack.encode(document))
    assert found.events == (BlocksRemoved((7,), "GPU"), BlocksCleared())


@pytest.mark.parametrize(
    "payload", [b"", b"\xc1", b"\x01", msgspec.msgpack.encode([1.0, [["BlockStored", [1]]]])]
)
def test_what_is_no_batch_says_so(payload: bytes) -> None:
    with pytest.raises(ValueError, match="no batch of cache events"):
        batch_of(payload)
