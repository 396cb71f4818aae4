"""Job ids: a new one that no job ever had, and the job that an id or a name refers to."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gantree.core.ledger.ledger import Ledger
from gantree.model.jobs import Job

NAMES_COUNTED = 100_000
"""Of so many names it is known which number is next."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that was taken: the id that it goes by from now on, and the name that the user gave it."""

    job: str
    name: str


class JobIds:
    """Chooses ids that no job ever had: the name, else name-2, name-3 and so on."""

    def __init__(self, is_taken: Callable[[str], bool]) -> None:
        self._is_taken = is_taken
        self._next_of_name: dict[str, int] = {}

    def choose(self, jobs: Sequence[Job]) -> tuple[Submitted, ...]:
        """One id for each job, different from each other too."""
        chosen: dict[str, Submitted] = {}
        for job in jobs:
            job_id = self._free_id(job.name, chosen)
            chosen[job_id] = Submitted(job_id, job.name)
        return tuple(chosen.values())

    def likely(self, names: Iterable[str]) -> list[str]:
        """The ids that jobs of these names will probably get, and those that will be tried for them before."""
        times = Counter(names)
        first_of = {name: self._next_of_name.get(name, 1) for name in times}
        return [
            _numbered(name, first_of[name] + more)
            for name, count in times.items()
            for more in range(count + 1)
        ]

    def _free_id(self, name: str, chosen: Mapping[str, Submitted]) -> str:
        """Numbers are tried in growing steps, so that a name that many jobs had costs few questions."""

        def is_taken(number: int) -> bool:
            candidate = _numbered(name, number)
            return candidate in chosen or self._is_taken(candidate)

        free = self._next_of_name.get(name, 1)
        taken, step = free - 1, 1
        while is_taken(free):
            taken, free, step = free, free + step, step * 2
        while free - taken > 1:
            middle = (free + taken) // 2
            taken, free = (middle, free) if is_taken(middle) else (taken, middle)
        if len(self._next_of_name) >= NAMES_COUNTED:
            self._next_of_name.clear()
        self._next_of_name[name] = free
        return _numbered(name, free)


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def job_of(ledger: Ledger, word: str) -> str | None:
    """The job that a word means: the one with this id, else the newest of this name, else none."""
    if word in ledger.jobs or word in ledger.rejected:
        return word
    return ledger.newest_of_name.get(word)
