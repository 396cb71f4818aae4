"""What-if trials on a copy of an occupancy: what would be placed, and what would be refused.

    trial = WhatIf(occupancy)
    trial.without("n7")                  n7 is out of use
    with trial.branch():                 what is done in here is undone at its end
        trial.give_back("3:train-2")     that gang has ended
        verdict = trial.place(job)       and the job has come, and holds its place for those after it

The occupancy is copied once, when the trials begin, and is never changed by them; later changes to it are not seen. All
steps are kept in a list. At the end of a branch gangs of whole GPUs are given back one by one, which is quick. If GPUs
are split, or something was given back, that would not restore the same state (idle MIG instances stay as they are cut),
so the copy is made again and the steps up to the branch are repeated.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import count

from gantree.model.errors import NotFound
from gantree.model.jobs import Job
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Refused
from gantree.placement.request.placement_preferences import (
    DEFAULT_PREFERENCES,
    PlacementPreferences,
)
from gantree.placement.resize.elastic import placed_elastically
from gantree.topology.occupancy.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class _Take:
    """Give an owner members; plain: of whole GPUs, on nodes without split GPUs."""

    owner: str
    members: tuple[MemberPlacement, ...]
    plain: bool

    def do(self, trial: Occupancy) -> None:
        trial.take(self.owner, self.members)

    def undo(self, trial: Occupancy) -> bool:
        """False where giving back does not lead to the state before."""
        if self.plain:
            trial.give_back(self.owner)
        return self.plain


@dataclass(frozen=True, slots=True)
class _GiveBack:
    """Free all that an owner holds."""

    owner: str

    def do(self, trial: Occupancy) -> None:
        trial.give_back(self.owner)

    def undo(self, trial: Occupancy) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class _Disable:
    """Take a node out of use."""

    node: str

    def do(self, trial: Occupancy) -> None:
        trial.mark(self.node, usable=False)

    def undo(self, trial: Occupancy) -> bool:
        trial.mark(self.node, usable=True)
        return True


class WhatIf:
    """Trial placements on a copied occupancy, any number of them. Read `occupancy`, never change it."""

    def __init__(
        self, occupancy: Occupancy, preferences: PlacementPreferences = DEFAULT_PREFERENCES
    ) -> None:
        self._kept = occupancy.copy()
        self._preferences = preferences
        self._done: list[_Take | _GiveBack | _Disable] = []
        self.occupancy = self._kept.copy()

    def place(self, job: Job) -> Placement | Refused:
        """Place a job, an elastic one smaller where it must be (`placement.resize.elastic`). Raises as `search.place`.

        It holds its place from then on, as "NUMBER:JOB".
        """
        placed, verdict = placed_elastically(self.occupancy, job, self._preferences)
        if isinstance(verdict, Placement):
            self.take(placed, verdict)
        return verdict

    def take(self, job: Job, placement: Placement) -> str:
        """Give a job a place that was found otherwise; returns its owner. AssertionError where it is not free."""
        names = (f"{number}:{job.name}" for number in count(len(self._done)))
        owner = next(name for name in names if name not in self.occupancy.owners)
        self._do(_Take(owner, placement.members, self._is_plain(placement.members)))
        return owner

    def place_all(self, jobs: Iterable[Job]) -> list[Placement | Refused]:
        """Place jobs one after the other; each holds its place while the next is placed."""
        return [self.place(job) for job in jobs]

    def without(self, node: str) -> tuple[str, ...]:
        """Take a node out of use; returns the owners that still hold something of it. NotFound for no such node."""
        index_of_node = self.occupancy.fabric.index_of_node
        if node not in index_of_node:
            raise NotFound(_no("node", node, index_of_node))
        if self.occupancy.usable(node):
            self._do(_Disable(node))
        return tuple(
            owner
            for owner, members in self.occupancy.owners.items()
            if any(member.node == node for member in members)
        )

    def give_back(self, owner: str) -> None:
        """Free all that an owner holds. NotFound for one who holds nothing."""
        if owner not in self.occupancy.owners:
            raise NotFound(_no("owner", owner, self.occupancy.owners))
        self._do(_GiveBack(owner))

    @contextmanager
    def branch(self) -> Iterator[None]:
        """What is done inside is undone at the end."""
        before = len(self._done)
        try:
            yield
        finally:
            self._undo_to(before)

    def _is_plain(self, members: Sequence[MemberPlacement]) -> bool:
        cut, index_of_node = self.occupancy.parts_of_node, self.occupancy.fabric.index_of_node
        return not any(member.parts or index_of_node[member.node] in cut for member in members)

    def _do(self, step: _Take | _GiveBack | _Disable) -> None:
        step.do(self.occupancy)
        self._done.append(step)

    def _undo_to(self, count: int) -> None:
        while len(self._done) > count:
            if not self._done[-1].undo(self.occupancy):
                break
            self._done.pop()
        if len(self._done) > count:
            del self._done[count:]
            self.occupancy = self._kept.copy()
            for step in self._done:
                step.do(self.occupancy)


def _no(kind: str, name: str, names: Iterable[str]) -> str:
    some: Sequence[str] = [each for each, _ in zip(names, range(1000), strict=False)]
    near = get_close_matches(name, some, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"what if: there is no {kind} {name!r}{hint}"
