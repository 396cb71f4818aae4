"""The names in `after` of a job, resolved to ids of earlier jobs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gantree.control.requests.job_ids import Submitted, job_of
from gantree.control.requests.submission_checks import about
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.arrays import element_name, has_index, parse_element
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase
from gantree.text.words import did_you_mean, plural

NAMES_SHOWN = 8
"""So many jobs that wait for each other are named."""


NAMES_LOOKED_AT = 1000
"""Among so many names, the latest, the one that was probably meant is looked for."""


def with_predecessors(
    jobs: Sequence[Job],
    chosen: Sequence[Submitted],
    ledger: Ledger,
    sees: Callable[[JobState], bool] | None = None,
) -> list[Job]:
    """The jobs with the names in `after` made into ids: of a job or array above in the same file, else of an older one.

    An element is named by the name of its array and its index. sees says which of the older ones there are for whoever
    hands these in; None: all.

    Raises BadInput where there is no such job, where it stands below, and where it has ended without success.
    """
    above = _Above()
    below = Counter(submitted.name for submitted in chosen)
    older: dict[str, tuple[str, ...]] = {}
    resolved = []
    for job, submitted in zip(jobs, chosen, strict=True):
        below[job.name] -= 1
        before: list[str] = []
        with about(f"job {job.name}: after"):
            for name in job.after:
                found = above.find(name)
                if found is None and below[name]:
                    raise BadInput(_below(job, name, jobs))
                if found is None and name not in older:  # an old array costs a walk over all jobs
                    older[name] = _predecessors(name, above.ids, ledger, sees)
                before += older[name] if found is None else [found]
        above.add(job, submitted)
        after = tuple(dict.fromkeys(before))
        resolved.append(job if after == job.after else replace(job, after=after))
    return resolved


class _Above:
    """The jobs and arrays above one in its file, by name; a job goes before an array of the same name."""

    def __init__(self) -> None:
        self.ids: dict[str, str] = {}
        self._arrays: dict[str, Submitted] = {}

    def add(self, job: Job, submitted: Submitted) -> None:
        """The next job of the file is below this one."""
        if job.array:
            self._arrays[job.name] = submitted
        else:
            self.ids[job.name] = submitted.job

    def find(self, name: str) -> str | None:
        """The id of a job, of an array, or of an element; None where none of this name is above."""
        if name in self.ids:
            return self.ids[name]
        if name in self._arrays:
            return self._arrays[name].job
        parsed = parse_element(name)
        array = None if parsed is None else self._arrays.get(parsed[0])
        if parsed is None or array is None or not has_index(array.array, parsed[1]):
            return None
        return element_name(array.job, parsed[1])


def _below(job: Job, name: str, jobs: Sequence[Job]) -> str:
    """What to say of a job of the file that comes after one that stands below it."""
    circle = _circle(job.name, name, {each.name: each.after for each in jobs})
    if len(circle) < 2:
        return f"{name} stands below it; write it above"
    *names, last = circle
    shown = names if len(names) < NAMES_SHOWN else [*names[: NAMES_SHOWN - 2], "..."]
    return f"{', '.join(shown)} and {last} wait for each other; remove one `after`"


def _circle(first: str, after: str, after_of: Mapping[str, Sequence[str]]) -> list[str]:
    """The shortest way from a job over one that it comes after back to itself: the names on it; [] for none."""
    came_from = {after: first}
    queue = deque([after])
    while queue:
        name = queue.popleft()
        if name == first:
            circle = [came_from[first]]
            while circle[-1] != first:
                circle.append(came_from[circle[-1]])
            return circle[::-1]
        for each in after_of.get(name, ()):
            if each not in came_from:
                came_from[each] = name
                queue.append(each)
    return []


def _predecessors(
    name: str,
    above: Iterable[str],
    ledger: Ledger,
    sees: Callable[[JobState], bool] | None,
) -> tuple[str, ...]:
    """The older jobs that a name in `after` means: one, an array, or all of the newest array of an older version."""
    before = job_of(ledger, name)
    found = array_of(ledger, name) if before is None else (before,)
    if sees is not None and not all(_is_seen(ledger, each, sees) for each in found):
        found = ()
    if not found or before in ledger.rejected:
        known = [*above] if sees is not None else [*ledger.newest_of_name, *above]
        hint = did_you_mean(name, known[-NAMES_LOOKED_AT:])
        raise BadInput(f"there is no job {name}" + (f". {hint}" if hint else ""))
    for each in found:
        if ended := _ended_in_vain(ledger, each):
            which = f"{name}, which" if before == each else f"{name}, of which {each}"
            raise BadInput(f"it comes after {which} {ended}")
    return found


def _is_seen(ledger: Ledger, name: str, sees: Callable[[JobState], bool]) -> bool:
    array = ledger.arrays.get(name)
    state = ledger.find(name) if array is None else array.unsplit_element(0, 0)
    return state is not None and sees(state)


def _ended_in_vain(ledger: Ledger, name: str) -> str:
    """That a job, or jobs of an array, have ended without success, in words; "" if not."""
    array = ledger.arrays.get(name)
    if array is not None:
        return f"has {plural(array.in_vain, 'job')} that did not succeed" if array.in_vain else ""
    state = ledger.find(name)
    ended = state is not None and state.phase in ENDED and state.phase is not Phase.SUCCEEDED
    return f"has ended: {state.phase}" if state is not None and ended else ""


def array_of(ledger: Ledger, name: str) -> tuple[str, ...]:
    """The jobs of the array of this name that was submitted last to a version that knew no arrays, by index."""
    found = [
        state
        for state in ledger.jobs.values()
        if not state.array and _is_of_array(state.spec, name)
    ]
    newest_at = max((state.submitted_at for state in found), default=0.0)
    newest = [state for state in found if state.submitted_at == newest_at]
    return tuple(state.job for state in sorted(newest, key=lambda each: each.seq))


def _is_of_array(spec: Job, name: str) -> bool:
    return spec.array_index is not None and spec.name == f"{name}-{spec.array_index}"
