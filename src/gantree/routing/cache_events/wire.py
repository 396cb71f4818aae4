"""Batches of KV-cache events as engines publish them: msgpack, read into values.

vLLM (`vllm/distributed/kv_events.py`) made the format; SGLang (`sglang/srt/disaggregation/kv_events.py`), TensorRT-LLM
and Dynamo publish in it too. A batch is [time, events, rank] or a map of these. An event is a map with `type`, or in
older versions a list of the type and the fields in their order, to which later ones append. What is not known is passed
over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec

Hash = int | bytes
"""A hash of the engine. What it is made of differs between engines, and from one start to the next."""
STORED, REMOVED, CLEARED = "BlockStored", "BlockRemoved", "AllBlocksCleared"
FIELDS = {
    STORED: (
        "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name", "extra_keys",
        "group_idx", "kv_cache_spec_kind",
    ),
    REMOVED: ("block_hashes", "medium", "group_idx"),
    CLEARED: (),
}  # fmt: skip
WHOLE_PREFIX = (None, "full_attention", "mla_attention", "sink_full_attention")
"""Kinds of caches in which a block is of use only with all blocks before it. Of others, the last few are enough."""


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Blocks that follow each other, and the tokens in them. medium: where they are; group: of layers.

    lora: the adapter that they were computed with. tokens is empty if the engine does not say them, as of blocks that
    it copies to another medium.
    """

    hashes: tuple[Hash, ...]
    parent: Hash | None
    tokens: tuple[int, ...]
    block_size: int
    lora: str = ""
    medium: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks that are not in a medium any more."""

    hashes: tuple[Hash, ...]
    medium: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class BlocksCleared:
    """There is no block any more."""


CacheEvent = BlocksStored | BlocksRemoved | BlocksCleared


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that were published together, and when."""

    published_s: float
    events: tuple[CacheEvent, ...]


def batch_of(payload: bytes) -> Batch:
    """Read a batch. Raises ValueError for what is none."""
    try:
        document: Any = msgspec.msgpack.decode(payload)
        if isinstance(document, dict):
            document = [document["ts"], document["events"]]
        events = map(_event, document[1])
        return Batch(float(document[0]), tuple(each for each in events if each is not None))
    except (msgspec.DecodeError, LookupError, TypeError) as error:
        raise ValueError(f"no batch of cache events: {error!r}") from error


def _event(row: Any) -> CacheEvent | None:
    """An event; None for one of another type, or of blocks that no request can be compared with."""
    fields = _fields(row)
    match fields["type"]:
        case "BlockStored":
            return _stored(fields)
        case "BlockRemoved":
            return BlocksRemoved(
                tuple(fields["block_hashes"]), fields.get("medium") or "", _group(fields)
            )
        case "AllBlocksCleared":
            return BlocksCleared()
    return None


def _fields(row: Any) -> Mapping[str, Any]:
    if isinstance(row, dict):
        return row
    kind, *values = row
    named: Sequence[tuple[str, Any]] = [
        pair for pair in zip_longest(FIELDS.get(kind, ()), values) if pair[0] is not None
    ]
    return {"type": kind, **dict(named)}


def _stored(fields: Mapping[str, Any]) -> BlocksStored | None:
    """None of blocks with images, salts or an adapter without a name, and of caches that need no whole prefix."""
    lora = fields.get("lora_name") or ""
    has_lora = fields.get("lora_id") not in (None, 0)
    others = [fields[name] for name in ("cache_salt", "mm_keys") if any(fields.get(name) or ())]
    others += [key for keys in fields.get("extra_keys") or () for key in keys or () if key != lora]
    if others or (has_lora and not lora) or fields.get("kv_cache_spec_kind") not in WHOLE_PREFIX:
        return None
    tokens = tuple(fields["token_ids"])
    if not all(isinstance(token, int) for token in tokens):  # pairs, with speculative decoding
        return None
    return BlocksStored(
        tuple(fields["block_hashes"]),
        fields.get("parent_block_hash"),
        tokens,
        int(fields["block_size"]),
        lora,
        fields.get("medium") or "",
        _group(fields),
    )


def _group(fields: Mapping[str, Any]) -> int:
    return fields.get("group_idx") or 0
