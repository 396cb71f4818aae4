"""What a follower prints over breaks: each byte of each log once, whatever was dropped meanwhile."""

from collections.abc import Iterator
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.api.streams.logs.pieces import Piece
from gantree.cli.jobs.log_follow import Seen
from support.examples import examples

TEXT = bytes(range(65, 91))


def pieces_of(texts: list[bytes], random: Random) -> Iterator[Piece]:
    """The logs of some ranks in pieces of any size, the ranks mixed, the order of each kept."""
    places = dict.fromkeys(range(len(texts)), 0)
    while left := [rank for rank, place in places.items() if place < len(texts[rank])]:
        rank = random.choice(left)
        start = places[rank]
        end = places[rank] = min(len(texts[rank]), start + random.randrange(1, 5))
        yield Piece(1, rank, start, end, 0.0, texts[rank][start:end])


@settings(max_examples=examples(100), deadline=None)
@given(
    texts=st.lists(st.integers(0, len(TEXT)).map(lambda n: TEXT[:n]), max_size=3),
    random=st.randoms(use_true_random=False),
    breaks=st.integers(0, 3),
)
def test_each_byte_of_each_rank_is_printed_once_over_any_number_of_breaks(
    texts: list[bytes], random: Random, breaks: int
) -> None:
    seen, out = Seen(), dict.fromkeys(range(len(texts)), b"")
    for turn in range(breaks + 1):
        whole = list(pieces_of(texts, random))
        sent = whole if turn == breaks else whole[: random.randrange(len(whole) + 1)]
        for piece in seen.new(sent):
            out[piece.rank] += piece.data
    assert list(out.values()) == texts


def test_what_is_behind_a_gap_that_came_meanwhile_is_not_printed_again() -> None:
    """The first stream had bytes 0 to 20; then 5 to 15 were dropped, and 4 more written."""
    seen = Seen()
    first = [Piece(1, 0, 0, 20, 0.0, TEXT[:20])]
    gap = Piece(1, 0, 5, 15, 0.0, b"10 bytes were dropped\n", notice=True)
    again = [Piece(1, 0, 0, 5, 0.0, TEXT[:5]), gap, Piece(1, 0, 15, 24, 0.0, TEXT[15:24])]
    assert [piece.data for piece in seen.new(first)] == [TEXT[:20]]
    assert [piece.data for piece in seen.new(again)] == [TEXT[20:24]]


def test_a_gap_that_has_not_been_passed_is_printed() -> None:
    seen = Seen()
    assert list(seen.new([Piece(1, 0, 0, 8, 0.0, TEXT[:8])]))
    gap = Piece(1, 0, 5, 15, 0.0, b"10 bytes were dropped\n", notice=True)
    rest = Piece(1, 0, 15, 20, 0.0, TEXT[15:20])
    assert list(seen.new([gap, rest])) == [gap, rest]
