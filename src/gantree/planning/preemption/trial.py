"""The proof of a plan: a copy of an occupancy from which gangs are removed, and on which the gang is placed.

A copy costs as much as the cluster is large, so there is one for a whole plan. Gangs that leave are given back and
those that return are taken again; the slot tables of the copy follow its change log, so each further question costs
only what changed since the last one.

Enough is monotone: whatever is enough stays so when more gangs leave. Both halves of it must be: room (`search.fits`)
is by nature; what the caller adds (quota) must be by promise. `spared` rests on it.
"""

from collections.abc import Callable, Iterable, Sequence

from gantree.model.jobs import Job
from gantree.model.placements import Placement
from gantree.placement.choice.search import find, fits
from gantree.placement.request.placement_preferences import PlacementPreferences
from gantree.topology.occupancy.occupancy import Occupancy

Admits = Callable[[Sequence[str]], bool]
"""Whether it is enough for the quota that these owners go; whatever is enough stays so when more go."""


class Trial:
    """Whether a gang has a place once some owners are gone. The occupancy that is asked about stays as it is."""

    def __init__(self, occupancy: Occupancy, job: Job, admits: Admits | None = None) -> None:
        self.job = job
        self.room = occupancy.copy()
        self._held = occupancy.owners.copy()
        self._gone: dict[str, None] = {}
        self._admits = admits

    def enough(self, owners: Iterable[str]) -> bool:
        """Whether the gang may start, and has a place, once exactly these are gone."""
        self.only(owners)
        return self.enough_now()

    def enough_now(self) -> bool:
        """As `enough`, for those who are gone now."""
        return self.admitted_now() and fits(self.room, self.job)

    def admitted_now(self) -> bool:
        """Whether those who are gone now are enough for the quota."""
        return self.admits(tuple(self._gone))

    def admits(self, owners: Sequence[str]) -> bool:
        """Whether it is enough for the quota that these are gone."""
        return self._admits is None or self._admits(owners)

    def only(self, owners: Iterable[str]) -> None:
        """Let exactly these be gone."""
        wanted = dict.fromkeys(owners)
        self.come_back([owner for owner in self._gone if owner not in wanted])
        self.leave(wanted)

    def leave(self, owners: Iterable[str]) -> None:
        """Let these be gone too."""
        for owner in owners:
            if owner not in self._gone:
                self._gone[owner] = None
                self.room.give_back(owner)

    def come_back(self, owners: Iterable[str]) -> None:
        """Let these be where they were; they are gone now."""
        for owner in owners:
            del self._gone[owner]
            if owner in self._held:
                self.room.take(owner, self._held[owner])

    def fits_without(self, owners: Iterable[str]) -> bool:
        """Whether there is room once exactly these are gone, whatever the quota says."""
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
        """The best place for the gang now."""
        return find(self.room, self.job, preferences)


def shortest(trial: Trial, owners: Sequence[str], gone: Sequence[str] = ()) -> int | None:
    """How many of the owners, from the first on, are enough together with those gone anyway; None: not even all."""
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


def spared(trial: Trial, owners: Sequence[str]) -> list[str]:
    """Those of the owners, in the same order, who must go: the first ones are spared first, where that is possible.

    All of them together are enough, and are gone afterwards but for the spared ones: none of the rest can be spared as
    well. Runs are spared at once and grow while that succeeds, so that many who need not go cost few questions.
    """
    trial.only(owners)
    must_go: list[str] = []
    start, run = 0, 1
    while start < len(owners):
        some = owners[start : start + run]
        trial.come_back(some)
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
