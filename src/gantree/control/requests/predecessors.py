"""The names in `after` of a job, resolved to ids of earlier jobs."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from gantree.control.requests.job_ids import Submitted, job_of
from gantree.control.requests.submission_checks import about
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase
from gantree.text.words import did_you_mean

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
    """The jobs with the names in `after` made into ids: of a job above in the same file, else of an older one or array.

    sees says which of the older ones there are for whoever hands these in; None: all.

    Raises BadInput where there is no such job, where it stands below, and where it has ended without success.
    """
    above: dict[str, str] = {}
    below = Counter(submitted.name for submitted in chosen)
    older: dict[str, tuple[str, ...]] = {}
    resolved = []
    for job, submitted in zip(jobs, chosen, strict=True):
        below[job.name] -= 1
        before: list[str] = []
        with about(f"job {job.name}: after"):
            for name in job.after:
                if below[name] and name not in above:
                    raise BadInput(_below(job, name, jobs))
                if name not in above and name not in older:  # an array costs a walk over all jobs
                    older[name] = _predecessors(name, above, ledger, sees)
                before += [above[name]] if name in above else older[name]
        above[job.name] = submitted.job
        after = tuple(dict.fromkeys(before))
        resolved.append(job if after == job.after else replace(job, after=after))
    return resolved


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
    """The older jobs that a name in `after` means: one, or all of the newest array of that name."""
    before = job_of(ledger, name)
    found = array_of(ledger, name) if before is None else (before,)
    if sees is not None and not all(
        each in ledger.jobs and sees(ledger.jobs[each]) for each in found
    ):
        found = ()
    if not found or before in ledger.rejected:
        known = [*above] if sees is not None else [*ledger.newest_of_name, *above]
        hint = did_you_mean(name, known[-NAMES_LOOKED_AT:])
        raise BadInput(f"there is no job {name}" + (f". {hint}" if hint else ""))
    for each in found:
        phase = ledger.jobs[each].phase
        if phase in ENDED and phase is not Phase.SUCCEEDED:
            which = f"{name}, which" if before else f"{name}, of which {each}"
            raise BadInput(f"it comes after {which} has ended: {phase}")
    return found


def array_of(ledger: Ledger, name: str) -> tuple[str, ...]:
    """The jobs of the array of this name that was submitted last, by index; () where there was none."""
    found = [state for state in ledger.jobs.values() if _is_of_array(state.spec, name)]
    newest_at = max((state.submitted_at for state in found), default=0.0)
    newest = [state for state in found if state.submitted_at == newest_at]
    return tuple(state.job for state in sorted(newest, key=lambda each: each.seq))


def _is_of_array(spec: Job, name: str) -> bool:
    return spec.array_index is not None and spec.name == f"{name}-{spec.array_index}"
