"""What is kept of a replica is what an engine with a cache of blocks holds, however it evicts."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.routing.cache_events.blocks import Prompt, ReplicaBlocks, block_keys, root_key
from gantree.routing.cache_events.wire import BlocksCleared, BlocksRemoved, BlocksStored, CacheEvent
from support.examples import examples

SIZE = 2


class Engine:
    """A cache as engines have it: blocks by the tokens up to their end, the last of a prompt evicted first."""

    def __init__(self, room: int, draw: random.Random) -> None:
        self.room, self.draw = room, draw
        self.hash_of: dict[tuple[int, ...], int] = {}

    def run(self, tokens: tuple[int, ...]) -> list[CacheEvent]:
        """The events of a prompt."""
        events: list[CacheEvent] = []
        for end in range(SIZE, len(tokens) + 1, SIZE):
            before, beginning = tokens[: end - SIZE], tokens[:end]
            if beginning in self.hash_of or (before and before not in self.hash_of):
                continue
            if len(self.hash_of) == self.room:
                events.append(self._evict(beginning))
                if before and before not in self.hash_of:
                    continue
            self.hash_of[beginning] = self.draw.getrandbits(64)
            block = tokens[end - SIZE : end]
            parent = self.hash_of.get(before)
            events.append(BlocksStored((self.hash_of[beginning],), parent, block, SIZE))
        return events

    def _evict(self, keep: tuple[int, ...]) -> CacheEvent:
        longest = max(self.hash_of, key=lambda each: (keep[: len(each)] != each, len(each)))
        return BlocksRemoved((self.hash_of.pop(longest),))

    def held(self, tokens: tuple[int, ...]) -> int:
        """How many blocks of a prompt are in the cache, from the first on."""
        ends = range(SIZE, len(tokens) + 1, SIZE)
        return next(
            (end // SIZE - 1 for end in ends if tokens[:end] not in self.hash_of),
            len(tokens) // SIZE,
        )


@settings(max_examples=examples(200))
@given(st.integers(0, 2**32 - 1))
def test_it_holds_what_the_engine_holds(seed: int) -> None:
    draw = random.Random(seed)
    engine, blocks = Engine(draw.randint(2, 12), draw), ReplicaBlocks()
    for _ in range(40):
        prompt = tuple(draw.randint(0, 2) for _ in range(draw.randint(0, 12)))
        for event in engine.run(prompt):
            blocks.apply(event)
        if draw.random() < 0.05:
            engine.hash_of.clear()
            blocks.apply(BlocksCleared())
        asked = tuple(draw.randint(0, 2) for _ in range(draw.randint(0, 12)))
        for tokens in (prompt, asked):
            keys = block_keys(tokens, SIZE, root_key())
            assert blocks.matched(keys) == engine.held(tokens)
        assert len(blocks) == len(engine.hash_of)


def _held(blocks: ReplicaBlocks, *tokens: int, lora: str = "") -> int:
    return blocks.matched(block_keys(tokens, SIZE, root_key(lora)))


def test_a_block_is_held_as_long_as_it_is_in_one_medium() -> None:
    blocks = ReplicaBlocks()
    blocks.apply(BlocksStored((1,), None, (5, 6), SIZE, medium="GPU"))
    blocks.apply(BlocksStored((1,), None, (), 0, medium="CPU"))
    blocks.apply(BlocksRemoved((1,), "GPU"))
    assert _held(blocks, 5, 6) == 1
    blocks.apply(BlocksRemoved((1,), "CPU"))
    assert _held(blocks, 5, 6) == 0


def test_the_same_tokens_with_an_adapter_are_another_block() -> None:
    blocks = ReplicaBlocks()
    blocks.apply(BlocksStored((1,), None, (5, 6), SIZE, lora="sql"))
    assert (_held(blocks, 5, 6), _held(blocks, 5, 6, lora="sql")) == (0, 1)


def test_blocks_behind_one_that_is_not_known_are_left_out_and_counted() -> None:
    blocks = ReplicaBlocks()
    blocks.apply(BlocksStored((2, 3), 1, (7, 8, 9, 9), SIZE))
    assert (len(blocks), blocks.orphans) == (0, 2)


def test_a_hash_that_is_used_again_stands_for_the_newer_tokens() -> None:
    blocks = ReplicaBlocks()
    blocks.apply(BlocksStored((1,), None, (5, 6), SIZE))
    blocks.apply(BlocksStored((1,), None, (7, 8), SIZE))
    assert (_held(blocks, 5, 6), _held(blocks, 7, 8)) == (0, 1)


def test_the_oldest_blocks_go_beyond_the_bound() -> None:
    blocks = ReplicaBlocks(most_blocks=3)
    for number in range(10):
        blocks.apply(BlocksStored((number,), None, (number, number), SIZE))
    assert len(blocks) == 3
    assert [_held(blocks, each, each) for each in (6, 7, 8, 9)] == [0, 1, 1, 1]


def test_what_was_sent_counts_until_it_is_removed_or_its_time_is_over() -> None:
    blocks, prompt = ReplicaBlocks(), Prompt((5, 6, 7, 8, 9, 9), "chat")
    blocks.expect(prompt, 0.0, 10.0)
    assert blocks.matched_tokens(prompt, 1.0) == 0, "the size of its blocks is not known"
    blocks.apply(BlocksStored((1,), None, (5, 6), SIZE))
    blocks.expect(prompt, 0.0, 10.0)
    assert blocks.matched_tokens(prompt, 9.0) == 6
    assert blocks.matched_tokens(prompt, 10.0) == 2
    blocks.apply(BlocksStored((2,), 1, (7, 8), SIZE))
    blocks.apply(BlocksRemoved((2,)))
    assert blocks.matched_tokens(prompt, 9.0) == 2


def test_what_was_sent_is_bounded() -> None:
    blocks = ReplicaBlocks(most_blocks=4)
    blocks.apply(BlocksStored((1,), None, (0, 0), SIZE))
    for number in range(1, 100):
        blocks.expect(Prompt((number,) * 8, "chat"), 0.0, 10.0)
    assert len(blocks._expected) <= 8
    blocks.expect(Prompt((100, 100), "chat"), 11.0, 20.0)
    assert len(blocks._expected) == 1
    blocks.expect(Prompt((101, 101), "chat"), 30.0, 20.0)
    assert not blocks._expected, "that was too long ago"


def test_tokens_that_are_none_are_left_out() -> None:
    blocks = ReplicaBlocks()
    blocks.apply(BlocksStored((1,), None, (-1, 1 << 40), SIZE))
    assert len(blocks) == 0
