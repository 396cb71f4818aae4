"""Whether a record and its simulation agree: the same gangs start in the same order on the same GPUs.

Events that lie close together may be decided in one batch or in two, and in one order or another; a simulation that is
told submissions alone cannot know. So order and placement are compared up to the first moment at which two causes of
decisions lie within a given time of each other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile
from math import inf

from gantree.model.events import CheckpointSaved, Event, GangEnded, JobSubmitted
from gantree.model.facts import Fact, GangPlaced
from gantree.model.placements import Placement
from gantree.sim.replay.requests import REPLAYED

CAUSES = (JobSubmitted, GangEnded, CheckpointSaved, *REPLAYED)
"""Events that change what is decided. That a gang has started, or a rank exited, does not."""


@dataclass(frozen=True, slots=True)
class Placed:
    """An attempt was placed at a moment: (role, rank, node, GPUs) of each member."""

    at: float
    job: str
    attempt: int
    members: tuple[tuple[str, int, str, tuple[int, ...]], ...]

    def is_as(self, other: "Placed") -> bool:
        """Whether the same attempt was placed alike, whenever."""
        return (self.job, self.attempt, self.members) == (other.job, other.attempt, other.members)


def placed(at: float, job: str, attempt: int, placement: Placement) -> Placed:
    """A placement in names and numbers that a record and a simulation share."""
    members = tuple((each.role, each.rank, each.node, each.gpus) for each in placement.members)
    return Placed(at, job, attempt, members)


def placed_in(facts: Iterable[Fact]) -> list[Placed]:
    """All placements of a record, in order."""
    return [
        placed(fact.at, fact.job, fact.attempt, fact.placement)
        for fact in facts
        if isinstance(fact, GangPlaced)
    ]


def first_close(events: Iterable[Event], within_s: float) -> float:
    """The first moment at which causes about two different jobs lie within so many seconds; inf if none do.

    What comes before the first submission decides nothing: a site that is observed then is close to nothing.
    """
    decided = dropwhile(lambda event: not isinstance(event, JobSubmitted), events)
    causes = [event for event in decided if isinstance(event, CAUSES)]
    for before, after in pairwise(causes):
        apart_s = after.observed_at - before.observed_at
        if apart_s < within_s and getattr(before, "job", "") != getattr(after, "job", ""):
            return before.observed_at
    return inf


@dataclass(frozen=True, slots=True)
class Agreement:
    """compared placements of a record came before the first close causes; alike of them, from the first on, agree."""

    compared: int
    alike: int
    in_all: int


def agreement(recorded: Sequence[Placed], simulated: Sequence[Placed], until: float) -> Agreement:
    """Compare placements in their order, up to a moment of the record."""
    pairs = list(zip((each for each in recorded if each.at < until), simulated, strict=False))
    alike = sum(1 for _ in takewhile(lambda pair: pair[0].is_as(pair[1]), pairs))
    compared = sum(each.at < until for each in recorded)
    return Agreement(compared, alike, len(recorded))
