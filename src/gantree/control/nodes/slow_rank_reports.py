"""Makes events of ranks that are named as slow: after some rounds in a row, and after as many in which they are not.

Names are judged anew in each round, without memory (`telemetry.stragglers`); this is what makes them lasting enough for
decisions. What is on record is compared, so a restart repeats nothing. A rank of which nothing is reported any more is
not slow.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gantree.core.ledger.ledger import Ledger
from gantree.model.events import RankSlownessObserved

ROUNDS = 4
"""Rounds in a row, one every 15 seconds."""
CHANGE = 0.05
"""A factor that differs by less from the one on record is the same."""

Key = tuple[str, int, int]
"""Job, attempt and rank."""


@dataclass(frozen=True, slots=True)
class SlowRankSeen:
    """A rank that is named as slow, where it runs, and by which factor each step of its gang is longer for it."""

    job: str
    attempt: int
    rank: int
    node: str
    slowdown: float

    @property
    def key(self) -> Key:
        """What tells it from others."""
        return self.job, self.attempt, self.rank


def slowdown(own_s: float, ratio: float, step_s: float | None) -> float:
    """The factor by which a step is longer, of a rank whose own time is so many times that of its peers.

    step_s is what the gang reports of its steps, in seconds; None: the own time is taken for the whole step.
    """
    with_it_s = max(own_s, step_s or 0.0)
    return with_it_s / (with_it_s - own_s * (1 - 1 / ratio))


class SlowRankReports:
    """For how many rounds ranks have been named, or those on record have not been."""

    def __init__(self) -> None:
        self._named: dict[Key, int] = {}
        self._clean: dict[Key, int] = {}
        self._told = 0

    def events(
        self, seen: Iterable[SlowRankSeen], ledger: Ledger, now: float, epoch: int
    ) -> list[RankSlownessObserved]:
        """What follows from a round in which these ranks were named; now is in seconds."""
        seen_of_key = {each.key: each for each in seen}
        recorded = _on_record(ledger)
        self._named = {key: self._named.get(key, 0) + 1 for key in seen_of_key}
        self._clean = {
            key: self._clean.get(key, 0) + 1 for key in recorded if key not in seen_of_key
        }
        due = [
            each
            for key, each in seen_of_key.items()
            if self._named[key] >= ROUNDS and _differs(each, recorded.get(key))
        ]
        ended = [recorded[key] for key, rounds in self._clean.items() if rounds >= ROUNDS]
        return [self._event(each, now, epoch) for each in (*due, *ended)]

    def _event(self, seen: SlowRankSeen, now: float, epoch: int) -> RankSlownessObserved:
        self._told += 1
        return RankSlownessObserved(
            id=f"slow-rank/{seen.job}/{epoch}.{self._told}",
            observed_at=now,
            job=seen.job,
            attempt=seen.attempt,
            rank=seen.rank,
            node=seen.node,
            slowdown=seen.slowdown if self._named.get(seen.key) else 1.0,
        )


def _on_record(ledger: Ledger) -> Mapping[Key, SlowRankSeen]:
    """The slow ranks of the present attempts."""
    found = (
        SlowRankSeen(state.job, state.attempt, each.rank, each.node, each.slowdown)
        for state in ledger.slowed.values()
        for each in state.slow
    )
    return {each.key: each for each in found}


def _differs(seen: SlowRankSeen, recorded: SlowRankSeen | None) -> bool:
    if recorded is None or recorded.node != seen.node:
        return True
    return abs(recorded.slowdown - seen.slowdown) >= CHANGE
