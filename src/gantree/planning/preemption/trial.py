"""The proof of a plan: a copy of an occupancy from which gangs are removed, and on which the gang is placed.

A copy is as large as the cluster, so a plan makes one only. Gangs are given back and taken again; the slot tables of
the copy follow its change log, so each further test costs only what has changed since the last one.

A set of removed gangs that suffices must suffice with more gangs removed. That holds for room (`search.fits`), and the
caller must ensure it for quota. `needed_victims` relies on it.
"""

from collections.abc import Callable, Iterable, Sequence

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import with_beside

Admits = Callable[[Sequence[str]], bool]
"""Whether the quota admits the gang without these owners; true for every larger set, too."""


class Trial:
    """Tests whether a gang fits once some owners are removed. The given occupancy does not change."""

    def __init__(self, occupancy: Occupancy, job: Job, admits: Admits | None = None) -> None:
        self.job = job
        self.room = occupancy.copy()
        self._held = occupancy.owners.copy()
        self._gone: dict[str, None] = {}
        self._admits = admits

    def enough(self, owners: Iterable[str]) -> bool:
        """Whether the gang is admitted and fits without exactly these owners."""
        self.only(owners)
        return self.enough_now()

    def enough_now(self) -> bool:
        """As `enough`, for the owners that are removed now."""
        return self.admitted_now() and fits(self.room, self.job)

    def admitted_now(self) -> bool:
        """Whether the quota admits the gang without the owners that are removed now."""
        return self.admits(tuple(self._gone))

    def admits(self, owners: Sequence[str]) -> bool:
        """Whether the quota admits the gang without these owners."""
        return self._admits is None or self._admits(owners)

    def only(self, owners: Iterable[str]) -> None:
        """Remove exactly these owners."""
        removed = dict.fromkeys(owners)
        self.restore([owner for owner in self._gone if owner not in removed])
        self.leave(removed)

    def leave(self, owners: Iterable[str]) -> None:
        """Remove these owners too."""
        for owner in owners:
            if owner not in self._gone:
                self._gone[owner] = None
                for each in with_beside(owner):
                    self.room.give_back(each)

    def restore(self, owners: Iterable[str]) -> None:
        """Put these removed owners back."""
        for owner in owners:
            del self._gone[owner]
            for each in with_beside(owner):
                if each in self._held:
                    self.room.take(each, self._held[each])

    def fits_without(self, owners: Iterable[str]) -> bool:
        """Whether the gang fits without exactly these owners, whatever the quota."""
        self.only(owners)
        return fits(self.room, self.job)

    def nodes_of(self, owner: str) -> list[int]:
        """Nodes on which an owner is or was, by index."""
        index_of_node = self.room.fabric.index_of_node
        return [index_of_node[member.node] for member in self._held.get(owner, ())]

    def gpus_of(self, owner: str) -> int:
        """GPUs of which an owner has or had all or a part."""
        return sum(len(member.gpus) + len(member.parts) for member in self._held.get(owner, ()))

    def place(self, preferences: PlacementPreferences) -> Placement | None:
        """The best placement for the gang now."""
        return find(self.room, self.job, preferences)


def shortest(trial: Trial, owners: Sequence[str], gone: Sequence[str] = ()) -> int | None:
    """The number of owners, from the first on, that suffice with those removed anyway; None if not even all do."""
    if not trial.enough((*gone, *owners)):
        return None
    too_few, enough = -1, len(owners)
    while enough - too_few > 1:
        middle = (too_few + enough) // 2
        if trial.enough((*gone, *owners[:middle])):
            enough = middle
        else:
            too_few = middle
    return enough


def needed_victims(trial: Trial, owners: Sequence[str]) -> list[str]:
    """The needed ones of some owners that suffice together, in their order; the first ones are left out first, if
    possible.

    Afterwards exactly the needed ones are removed: none of them can be left out as well. Runs of owners are tried at
    once, and grow while that succeeds, so that many unneeded ones take few tests.
    """
    trial.only(owners)
    must_go: list[str] = []
    start, run = 0, 1
    while start < len(owners):
        some = owners[start : start + run]
        trial.restore(some)
        if trial.enough_now():
            start, run = start + len(some), run * 2
            continue
        trial.leave(some)
        if len(some) > 1:
            run = len(some) // 2
            continue
        must_go.extend(some)
        start, run = start + 1, 1
    return must_go
