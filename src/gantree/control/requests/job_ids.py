"""Job ids: a new one that no job ever had, and the job that an id or a name refers to."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.arrays import Spans, element_name, has_index, indices_of, parse_element
from gantree.model.errors import Conflict
from gantree.model.jobs import Job

NAMES_COUNTED = 100_000
"""Of so many names it is known which number is next."""
IDS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that was taken: the id that it goes by from now on, and the name that the user gave it."""

    job: str
    name: str
    array: Spans = ()


class JobIds:
    """Chooses ids that no job ever had: the name, else name-2, name-3 and so on.

    Of an array name, name.2, name.3 and so on: an element has the id of its array with its index behind.
    """

    def __init__(
        self,
        is_taken: Callable[[str], bool],
        any_taken: Callable[[Collection[str]], bool],
    ) -> None:
        self._is_taken, self._any_taken = is_taken, any_taken
        self._next_of_name: dict[str, int] = {}

    def choose(self, jobs: Sequence[Job]) -> tuple[Submitted, ...]:
        """One id for each job, different from each other too."""
        chosen: dict[str, Submitted] = {}
        for job in jobs:
            job_id = (
                self._free_array_id(job, chosen) if job.array else self._free_id(job.name, chosen)
            )
            chosen[job_id] = Submitted(job_id, job.name, job.array)
        return tuple(chosen.values())

    def _free_array_id(self, array: Job, chosen: Mapping[str, Submitted]) -> str:
        for number in count(1):
            candidate = array.name if number == 1 else f"{array.name}.{number}"
            elements = [element_name(candidate, index) for index in indices_of(array.array)]
            if _is_among(candidate, chosen) or not chosen.keys().isdisjoint(elements):
                continue
            if not self._is_taken(candidate) and not self._any_taken(elements):
                return candidate
        raise AssertionError("numbers do not end")

    def likely(self, names: Iterable[str]) -> list[str]:
        """The ids that jobs of these names will probably get, and those that will be tried for them before."""
        times = Counter(names)
        first_of = {name: self._next_of_name.get(name, 1) for name in times}
        return [
            _numbered(name, first_of[name] + more)
            for name, jobs in times.items()
            for more in range(jobs + 1)
        ]

    def _free_id(self, name: str, chosen: Mapping[str, Submitted]) -> str:
        """Numbers are tried in growing steps, so that a name that many jobs had costs few questions."""

        def is_taken(number: int) -> bool:
            candidate = _numbered(name, number)
            return _is_among(candidate, chosen) or self._is_taken(candidate)

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


def _is_among(job: str, chosen: Mapping[str, Submitted]) -> bool:
    """Whether an id is one of the chosen ones, or that of an element of a chosen array."""
    parsed = parse_element(job)
    array = None if parsed is None else chosen.get(parsed[0])
    is_element = parsed is not None and array is not None and has_index(array.array, parsed[1])
    return job in chosen or is_element


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name}-{number}"


def job_of(ledger: Ledger, word: str) -> str | None:
    """The job or array that a word means to a program: the one with this id, else as a name; None without any.

    A name means the newest live job or array of this name, else the newest one.
    """
    return word if is_id(ledger, word) else _of_name(ledger, word)


def is_id(ledger: Ledger, word: str) -> bool:
    """Whether a job or an array has this id."""
    return word in ledger.arrays or word in ledger.rejected or ledger.find(word) is not None


def live_job_of(ledger: Ledger, word: str, sees: Callable[[JobState], bool]) -> str | None:
    """The live job or array that a word means to a person, who hardly tells an id from a name; None without any.

    The one with this id if it is live, else the only live one of this name among those that the person sees. Raises
    Conflict for several. Ids are given once and names again and again, so the first job of a name has it as its id.
    """
    if is_live(ledger, word) and sees(_like(ledger, word)):
        return word
    live = live_of_name(ledger, word, sees)
    if len(live) > 1:
        shown = ", ".join(live[:IDS_SHOWN]) + (", ..." if len(live) > IDS_SHOWN else "")
        raise Conflict(f"{len(live)} live jobs are named {word}: {shown}; give the id of one")
    return live[0] if live else None


def is_live(ledger: Ledger, job: str) -> bool:
    """Whether this is the id of a job or an array that has not ended."""
    array = ledger.arrays.get(job)
    state = ledger.find(job) if array is None else None
    return (array is not None and not array.is_over) or (
        state is not None and state.ended_at is None
    )


def live_of_name(
    ledger: Ledger, word: str, sees: Callable[[JobState], bool] = lambda _: True
) -> list[str]:
    """The jobs and arrays of a name that have not ended, and elements by the name of their array, oldest first."""
    parsed = parse_element(word)
    found = dict[str, None]()
    if word in ledger.newest_of_name:
        named = (state for state in ledger.jobs.values() if state.spec.name == word)
        found |= dict.fromkeys(state.job for state in named)
    for array in ledger.arrays.values():
        if array.spec.name == word:
            found[array.array] = None
        elif parsed is not None and array.spec.name == parsed[0]:
            found[element_name(array.array, parsed[1])] = None
    live = [job for job in found if is_live(ledger, job) and sees(_like(ledger, job))]
    return sorted(live, key=lambda each: seq_of(ledger, each))


def _like(ledger: Ledger, job: str) -> JobState:
    """The state of a job, or what the elements of an array have in common."""
    array = ledger.arrays.get(job)
    state = ledger.find(job) if array is None else array.unsplit_element(0, 0)
    assert state is not None, f"{job} is not known"
    return state


def seq_of(ledger: Ledger, name: str) -> int:
    """The place of a job or an array in order of arrival."""
    return ledger.arrays[name].seq if name in ledger.arrays else _like(ledger, name).seq


def _of_name(ledger: Ledger, word: str) -> str | None:
    job, array = ledger.newest_of_name.get(word), ledger.newest_array_of_name.get(word)
    known = [each for each in (job, array) if each is not None]
    newest = max(known, key=lambda each: seq_of(ledger, each), default=None)
    newest = newest or _element_by_name(ledger, word)
    if newest is None or is_live(ledger, newest):
        return newest
    live = live_of_name(ledger, word)
    return live[-1] if live else newest


def _element_by_name(ledger: Ledger, word: str) -> str | None:
    """The element of the newest array of a name, of which no job has this name."""
    parsed = parse_element(word)
    array = None if parsed is None else ledger.newest_array_of_name.get(parsed[0])
    if parsed is None or array is None:
        return None
    element = element_name(array, parsed[1])
    return None if ledger.find(element) is None else element
