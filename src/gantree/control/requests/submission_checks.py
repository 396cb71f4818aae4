"""From a job as a user wrote it to a job under an id: everything that is checked before it is taken.

What is refused here is refused to the user's face. Once a submission is in the inbox it was acknowledged, so
whatever can be known to be wrong (a priority class, a tier, a job that it comes after) is looked at before.
"""

import re
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.formats.job.form import MAX_PRIORITY
from gantree.model.errors import BadFields, BadInput, Unsupported
from gantree.model.jobs import Job, Role
from gantree.model.phases import ENDED, Phase
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place, signature
from gantree.policy.queues import QueueTree
from gantree.text.words import did_you_mean, shortened
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What a job may be called, here and in job files; it becomes a directory name."""
NAMES_SHOWN = 8
"""So many jobs that wait for each other are named."""
NAMES_LOOKED_AT = 1000
"""Among so many names, the latest, the one that was probably meant is looked for."""
NAMES_COUNTED = 100_000
"""Of so many names it is known which number is next."""
WISHES_KEPT = 10_000
"""So many different wishes are remembered with what was said of them."""
OVERRIDABLE = ("name", "queue", "priority")
LONGEST_USER = 256
NO_QUEUE = Job("any", ()).queue
"""Where a job goes that names no queue."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job that was taken: the id that it goes by from now on, and the name that the user gave it."""

    job: str
    name: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """Acknowledgement of a submission: the jobs are durable. warnings are sentences for the user."""

    jobs: tuple[Submitted, ...]
    warnings: tuple[str, ...]


@contextmanager
def about(where: str) -> Iterator[None]:
    """Say before what is found wrong inside where it stands: a file, a job. BadFields say it already."""
    try:
        yield
    except BadFields:
        raise
    except (BadInput, Unsupported) as error:
        raise type(error)(f"{where}: {error}") from None


def overridden(job: Job, overrides: Mapping[str, Any]) -> Job:
    """The job with some fields replaced. Raises BadInput for other fields, and for values that do not fit."""
    for key, value in overrides.items():
        if key not in OVERRIDABLE:
            allowed = ", ".join(OVERRIDABLE)
            raise BadInput(f"{shortened(key)} cannot be overridden; allowed: {allowed}")
        if not _fits(key, value):
            found = repr(value)[:100]
            raise BadInput(f"override of {key}: found {found}, which a job file could not hold")
    changes: Any = dict(overrides)
    return replace(job, **changes) if changes else job


def _fits(key: str, value: object) -> bool:
    if key == "priority" and isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= MAX_PRIORITY
    parts = str(value).split("/") if key == "queue" else [str(value)]
    return isinstance(value, str) and all(NAME.fullmatch(part) for part in parts)


def check_user(user: str) -> None:
    """Raise BadInput for what is no name of a user; "" is nobody.

    It is a word of whoever hands a job in, good for shares and accounts among people who trust each other.
    """
    if len(user) > LONGEST_USER or not user.isprintable() or user != user.strip():
        raise BadInput(
            f"user: found {user[:100]!r}; allowed: at most {LONGEST_USER} printable characters"
        )


def check_commands(job: Job) -> None:
    """Raise BadInput for a role that says neither what it runs nor which image would know."""
    for role in job.roles:
        if not role.run and role.image is None:
            raise BadInput(f"gang: role {role.name} has nothing to run; give it `run`")


def check_queue(job: Job, tree: QueueTree) -> None:
    """Raise BadInput for a queue that the policy lacks, or that has queues of its own."""
    problem = tree.problem(job.queue)
    if problem and job.queue == NO_QUEUE:
        stop = "" if problem.endswith("?") else "."
        problem += f"{stop} A job that names no queue is one of `{NO_QUEUE}`: name one with `queue:` or --queue"
    if problem:
        raise BadInput(f"queue: {problem}")


def completed(job: Job, user: str, base_dir: str | None) -> Job:
    """The job as that of a user, if it names none itself, with relative directories taken as relative to base_dir.

    That is also the default workdir. Raises BadInput where there is something relative and nothing to take it as
    relative to, and for a base_dir that can be no directory.
    """
    if base_dir is not None and (not PurePosixPath(base_dir).is_absolute() or "\0" in base_dir):
        raise BadInput(f"base_dir: found {base_dir[:100]!r}; allowed: an absolute path")
    roles = tuple(_absolute_role(role, base_dir) for role in job.roles)
    checkpoint = job.checkpoint
    if checkpoint is not None and checkpoint.path is not None:
        checkpoint = replace(checkpoint, path=_absolute(checkpoint.path, base_dir))
    secrets = tuple((name, _absolute(path, base_dir)) for name, path in job.secrets)
    return replace(job, user=job.user or user, roles=roles, checkpoint=checkpoint, secrets=secrets)


def _absolute_role(role: Role, base_dir: str | None) -> Role:
    workdir = base_dir if role.workdir is None else _absolute(role.workdir, base_dir)
    return role if workdir == role.workdir else replace(role, workdir=workdir)


def _absolute(path: str, base_dir: str | None) -> str:
    if PurePosixPath(path).is_absolute():
        return path
    if base_dir is None:
        raise BadInput(f"{path} is relative, and no base_dir was given with it")
    return str(PurePosixPath(base_dir) / path)


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
    asked = deque([after])
    while asked:
        name = asked.popleft()
        if name == first:
            circle = [came_from[first]]
            while circle[-1] != first:
                circle.append(came_from[circle[-1]])
            return circle[::-1]
        for each in after_of.get(name, ()):
            if each not in came_from:
                came_from[each] = name
                asked.append(each)
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


def of_full_queues(jobs: Iterable[Job], ledger: Ledger) -> Iterator[str]:
    """Sentences on jobs of queues in which as many wait already as may: what comes then is rejected."""
    for job in jobs:
        reason = ledger.accounts.is_full(job)
        if reason:
            yield f"{job.name}: it will be rejected, unless fewer wait by then: {reason}"


class Warnings:
    """Sentences on jobs that can never start: looked for once for all that ask alike, while the site is the same."""

    def __init__(self) -> None:
        self._fabric: Fabric | None = None
        self._of_alike: dict[Hashable, str | None] = {}

    def of(self, jobs: Sequence[Job], ledger: Ledger) -> tuple[str, ...]:
        """The sentences.

        Raises BadInput and Unsupported for wishes that this cluster has no word for (an unknown tier).
        """
        if ledger.occupancy is None:
            return ()
        if self._fabric is not ledger.fabric or len(self._of_alike) > WISHES_KEPT:
            self._fabric, self._of_alike = ledger.fabric, {}
        found = ((job.name, self._sentence(job, ledger.occupancy)) for job in jobs)
        return tuple(f"{name}: {sentence}" for name, sentence in found if sentence)

    def _sentence(self, job: Job, occupancy: Occupancy) -> str | None:
        alike = signature(job)
        if alike not in self._of_alike:
            verdict = place(occupancy, job)
            told = verdict.sentence if isinstance(verdict, Refused) and verdict.never else None
            self._of_alike[alike] = told
        return self._of_alike[alike]
