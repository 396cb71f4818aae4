"""The blocks that one replica holds, kept from its events.

The hashes of an engine cannot be made here: they depend on a seed, and differ between engines. An event says the tokens
of its blocks too, so a block has a key of our own: a digest of its tokens and of the key of the block before it. The
same is made of the tokens of a prompt. Keys of 64 bits: two prompts that collide cost a cache miss, nothing else.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice

from gantree.routing.cache_events.wire import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    CacheEvent,
    Hash,
)

MOST_BLOCKS = 1 << 18
"""Of one replica; beyond, the oldest are forgotten. Some 500 bytes each."""
KEY_BYTES = 8
MOST_FORGOTTEN = 10_000
"""Of expected blocks at a time: more than a prompt has."""
LARGEST_TOKEN = (1 << 32) - 1


def root_key(lora: str = "") -> bytes:
    """The key in front of the first block; other ones with an adapter."""
    return blake2b(lora.encode(), digest_size=KEY_BYTES).digest()


def block_keys(tokens: Sequence[int], block_size: int, before: bytes) -> list[bytes]:
    """Return the key of each whole block of these tokens. before: the key of the block in front of them."""
    keys = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        block = array("I", tokens[start : start + block_size])
        before = blake2b(before + block.tobytes(), digest_size=KEY_BYTES).digest()
        keys.append(before)
    return keys


@dataclass(slots=True)
class Prompt:
    """The tokens of a request, and the model that it names."""

    tokens: Sequence[int]
    model: str
    _keys: dict[tuple[int, str], list[bytes]] = field(default_factory=dict)

    def keys(self, block_size: int, lora: str) -> list[bytes]:
        """Return the keys of its blocks; made once for each size."""
        if (block_size, lora) not in self._keys:
            self._keys[block_size, lora] = block_keys(self.tokens, block_size, root_key(lora))
        return self._keys[block_size, lora]


@dataclass(slots=True)
class _Block:
    key: bytes
    mediums: set[str]


@dataclass(slots=True)
class ReplicaBlocks:
    """What one replica holds, and what it was sent a moment ago. block_size is 0 until a block was stored.

    orphans: blocks left out, as the block in front of them is not known: it was stored before the first event that was
    read. loras: names of adapters.
    """

    most_blocks: int = MOST_BLOCKS
    block_size: int = 0
    orphans: int = 0
    loras: set[str] = field(default_factory=set)
    _blocks: dict[tuple[Hash, int], _Block] = field(default_factory=dict)
    _held: Counter[bytes] = field(default_factory=Counter)
    _expected: dict[bytes, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._blocks)

    def apply(self, event: CacheEvent) -> None:
        """Take an event."""
        match event:
            case BlocksStored():
                self._store(event)
            case BlocksRemoved():
                for each in event.hashes:
                    self._remove((each, event.group), event.medium)
            case BlocksCleared():
                self.clear()

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()
        self._held.clear()
        self._expected.clear()

    def matched_tokens(self, prompt: Prompt, now: float) -> int:
        """How many tokens of a prompt, from the first on, it holds or is expected to hold now."""
        if not self.block_size:
            return 0
        return self.matched(self._keys(prompt), now) * self.block_size

    def expect(self, prompt: Prompt, now: float, until: float) -> None:
        """A prompt was sent to it: its blocks count until its events have come, or will not come any more."""
        for key in list(islice(self._expected, MOST_FORGOTTEN)):
            if self._expected[key] > now and len(self._expected) <= self.most_blocks:
                break
            del self._expected[key]
        if not self.block_size or until <= now:
            return
        for key in self._keys(prompt):
            self._expected.pop(key, None)
            self._expected[key] = until

    def matched(self, keys: Sequence[bytes], now: float = 0.0) -> int:
        """How many of these blocks, from the first on, it holds or is expected to hold now."""
        for number, key in enumerate(keys):
            if key not in self._held and self._expected.get(key, now) <= now:
                return number
        return len(keys)

    def _keys(self, prompt: Prompt) -> list[bytes]:
        lora = prompt.model if prompt.model in self.loras else ""
        return prompt.keys(self.block_size, lora)

    def _store(self, event: BlocksStored) -> None:
        if not event.tokens or len(event.tokens) != len(event.hashes) * event.block_size:
            self._copied(event)
            return
        before = root_key(event.lora)
        if event.parent is not None:
            parent = self._blocks.get((event.parent, event.group))
            if parent is None:
                self.orphans += len(event.hashes)
                return
            before = parent.key
        if max(event.tokens, default=0) > LARGEST_TOKEN or min(event.tokens, default=0) < 0:
            return
        self.block_size = max(self.block_size, event.block_size)
        if event.lora:
            self.loras.add(event.lora)
        keys = block_keys(event.tokens, event.block_size, before)
        for each, key in zip(event.hashes, keys, strict=True):
            self._add((each, event.group), key, event.medium)

    def _copied(self, event: BlocksStored) -> None:
        """Blocks whose tokens were said before."""
        for each in event.hashes:
            known = self._blocks.get((each, event.group))
            if known is not None:
                known.mediums.add(event.medium)

    def _add(self, name: tuple[Hash, int], key: bytes, medium: str) -> None:
        known = self._blocks.get(name)
        if known is not None and known.key == key:
            known.mediums.add(medium)
            return
        if known is not None:
            self._drop(name)
        self._blocks[name] = _Block(key, {medium})
        self._held[key] += 1
        if len(self._blocks) > self.most_blocks:
            self._drop(next(iter(self._blocks)))

    def _remove(self, name: tuple[Hash, int], medium: str) -> None:
        known = self._blocks.get(name)
        if known is None:
            return
        known.mediums.discard(medium)
        if not known.mediums:
            self._drop(name)

    def _drop(self, name: tuple[Hash, int]) -> None:
        key = self._blocks.pop(name).key
        self._expected.pop(key, None)
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
