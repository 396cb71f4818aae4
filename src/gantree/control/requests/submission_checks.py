"""Checks of a job before it is accepted: overrides, user, commands, queue, directories, whether it can ever start.

An accepted submission was acknowledged, so all that can be known to be wrong is refused before: a priority class, a
tier, a queue.
"""

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from gantree.control.requests.job_ids import Submitted
from gantree.core.ledger.ledger import Ledger
from gantree.formats.job.form import MAX_PRIORITY
from gantree.model.errors import BadFields, BadInput, Unsupported
from gantree.model.federation import Assignment
from gantree.model.gang_shapes import every_shape
from gantree.model.jobs import Job, Role
from gantree.model.verdicts import Refused
from gantree.placement.choice.search import place, signature
from gantree.policy.queues import QueueTree
from gantree.policy.rules import Policy
from gantree.text.words import shortened
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy import Occupancy

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""What a job may be called, here and in job files; it becomes a directory name."""


WISHES_KEPT = 10_000
"""So many different wishes are remembered with what was said of them."""


OVERRIDABLE = ("name", "queue", "priority")


LONGEST_USER = 256


NO_QUEUE = Job("any", ()).queue
"""Where a job goes that names no queue."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """Acknowledgement of a submission: jobs and services, by name, are durable. warnings are sentences for the user."""

    jobs: tuple[Submitted, ...]
    warnings: tuple[str, ...]
    services: tuple[str, ...] = ()


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


def with_variables(job: Job, env: Mapping[str, str], default_env: Mapping[str, str]) -> Job:
    """The job with variables in every role: env overrides its own, default_env yields to them and to secrets.

    A role with an image lacks default_env: paths of the caller mean nothing there. Raises BadInput for a secret in env.
    """
    if not (env or default_env):
        return job
    secrets = {name for name, _ in job.secrets}
    if taken := sorted(secrets & env.keys()):
        raise BadInput(f"{taken[0]} is a secret of the job, which no variable overrides")
    defaults = {name: value for name, value in default_env.items() if name not in secrets}
    roles = tuple(
        replace(
            role, env=tuple({**({} if role.image else defaults), **dict(role.env), **env}.items())
        )
        for role in job.roles
    )
    return replace(job, roles=roles)


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


def with_check(job: Job, policy: Policy, *, can_check: bool) -> Job:
    """The job with the check of its queue, where it says nothing of one and has no parts of GPUs.

    Raises Unsupported for a check of its own where the executor carries out none; that of a queue is left out there.
    """
    if job.check is not None and not can_check:
        raise Unsupported(
            "check: this executor does not check links before the start; leave `check` out, or on Kubernetes "
            "submit a GangJob with `check`"
        )
    shapes = (role.shape for _, shape in every_shape(job) for role in shape.roles)
    parts = any(shape.part for shape in shapes)
    check = None if parts or not can_check else policy.check_of(job.queue)
    return job if job.check is not None or check is None else replace(job, check=check)


def assigned(job: Job, assignment: Assignment | None) -> Job:
    """The job as one of a federation. Raises Unsupported for what is not bound to its lease as one job."""
    if assignment is None:
        return job
    if job.array or job.after:
        field = "array" if job.array else "after"
        raise Unsupported(f"{field}: a job of a federation has none; submit it to a cluster")
    return replace(job, assignment=str(assignment))


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


def of_full_queues(jobs: Iterable[Job], ledger: Ledger) -> Iterator[str]:
    """Sentences on jobs of queues in which as many wait already as may: what comes then is rejected."""
    for job in jobs:
        reason = ledger.accounts.is_full(job)
        if reason:
            yield f"{job.name}: it will be rejected, unless fewer wait by then: {reason}"


def of_unchecked(jobs: Iterable[Job], policy: Policy) -> Iterator[str]:
    """Sentences on jobs whose queue has a check that this executor does not carry out."""
    for job in jobs:
        if policy.check_of(job.queue) is not None:
            yield f"{job.name}: the check of queue {job.queue} is not carried out by this executor"


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
            never_fits = (
                verdict.sentence if isinstance(verdict, Refused) and verdict.never else None
            )
            self._of_alike[alike] = never_fits
        return self._of_alike[alike]
