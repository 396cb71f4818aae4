"""Accepts submissions of jobs and services in batches: all that arrive together are made durable by one append.

What one of them has wrong is its own refusal; the others are taken. A submission with an idempotency key leaves a
`SubmissionTaken` in the same append, under an id made of the key: whoever tries again with the key, after a broken
connection or a kill -9, gets the receipt that stands there. What is checked of a job is in `submission_checks`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from gantree.control.notifications.settings import (
    NO_NOTIFICATIONS,
    NotifySettings,
    check_notify,
)
from gantree.control.requests.job_ids import JobIds, Submitted
from gantree.control.requests.predecessors import with_predecessors
from gantree.control.requests.service_checks import is_of_service, live_owner, with_replica
from gantree.control.requests.submission_checks import (
    Receipt,
    Warnings,
    about,
    assigned,
    check_commands,
    check_queue,
    check_user,
    completed,
    of_full_queues,
    of_unchecked,
    overridden,
    with_check,
    with_variables,
)
from gantree.control.requests.waiting_limits import (
    DEFAULT_WAITING_LIMITS,
    WaitingCounts,
    WaitingLimits,
)
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.state import JobState
from gantree.core.services.models import warnings_of_models
from gantree.executors.federated_jobs import FederatedJobs
from gantree.journal.contract import Journal
from gantree.model.arrays import Spans, has_index, parse_element
from gantree.model.errors import BadInput, Conflict, EventIdReused, GantreeError, Unsupported
from gantree.model.events import (
    BurnInRequested,
    Event,
    JobSubmitted,
    ServiceSubmitted,
    SubmissionTaken,
)
from gantree.model.federation import Assignment
from gantree.model.jobs import Job
from gantree.model.services import ServiceSpec
from gantree.policy.rules import Policy

IDS_KEPT = 100_000
"""So many ids that were given are known without asking the journal."""


ANY_INDEX: Spans = ((0, 10**9),)
"""The indices of an array of which the journal knows no more than that there was a job or an array of this id."""


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key: text is the caller's, digest is that of what was submitted under it."""

    caller: str
    text: str
    digest: str

    @property
    def event_id(self) -> str:
        """The id under which the receipt is kept."""
        return f"submission/{self.caller}/{self.text}"


@dataclass(frozen=True, slots=True)
class JobSubmission:
    """Jobs and services as one caller hands them in together: all of them are taken, or none.

    source is what they came in, for errors ("": not said); user is whose they are where they do not say. sees tells
    which jobs that one may name as jobs to come after, may_update which services that one may give another description;
    None: all. env and default_env are as in `with_variables`. assignment is that by which a federation hands them in.
    """

    jobs: Sequence[Job]
    base_dir: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    user: str = ""
    source: str = ""
    key: Key | None = None
    sees: Callable[[JobState], bool] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    default_env: Mapping[str, str] = field(default_factory=dict)
    assignment: Assignment | None = None
    services: Sequence[ServiceSpec] = ()
    may_update: Callable[[ServiceState], bool] | None = None


def no_federation(assignment: Assignment) -> None:
    """Raise Conflict: this cluster holds no lease of any federation."""
    raise Conflict(f"no lease of federation {assignment.federation} is held here")


@dataclass(frozen=True, slots=True)
class _Taken:
    receipt: Receipt
    events: tuple[Event, ...]


class Submissions:
    """The way in for jobs. ledger and policy give those of the moment; ran tells whether a job of this id ever ran.

    checks_links: the executor carries out checks before the start; runs_services: it runs replicas of services.
    federated_jobs: it keeps the jobs of federations itself.
    """

    def __init__(
        self,
        journal: Journal,
        append: Callable[[Sequence[Event]], None],
        clock: Callable[[], float],
        ledger: Callable[[], Ledger],
        policy: Callable[[], Policy],
        ran: Callable[[str], bool],
        limits: WaitingLimits = DEFAULT_WAITING_LIMITS,
        notify: NotifySettings = NO_NOTIFICATIONS,
        checks_links: bool = True,
        check_assignment: Callable[[Assignment], None] = no_federation,
        new_id: Callable[[str, str], str] = lambda noun, name: f"{noun}/{name}",
        federated_jobs: FederatedJobs | None = None,
        *,
        runs_services: bool = True,
    ) -> None:
        self._checks_links, self._check_assignment = checks_links, check_assignment
        self._new_id, self._runs_services = new_id, runs_services
        self._federated_jobs = federated_jobs
        self._journal = journal
        self._append = append
        self._clock = clock
        self._ledger = ledger
        self._policy = policy
        self._ran = ran
        self._limits = limits
        self._notify = notify
        self._counts = WaitingCounts(limits, ledger())
        self._given: dict[str, Spans] = {}
        self._free: frozenset[str] = frozenset()
        self._taken: set[str] = set()
        self._warnings = Warnings()
        self._ids = JobIds(self._id_is_taken, self._any_element_is_taken)

    def accept(self, batch: Sequence[JobSubmission]) -> list[Receipt | GantreeError]:
        """What becomes of each: a receipt, and then its jobs are durable under new ids, or what is wrong with it.

        Raises JournalError where nothing can be made durable; then none is taken.
        """
        self._begin(batch)
        taken: list[_Taken | GantreeError] = []
        by_key: dict[str, tuple[str, Receipt]] = {}
        for submission in batch:
            try:
                taken.append(self._one(submission, by_key))
            except GantreeError as error:
                taken.append(error)
        events = [event for one in taken if isinstance(one, _Taken) for event in one.events]
        try:
            if events:
                self._append(events)
        except (BadInput, EventIdReused):
            return self._each_alone(taken)
        if len(self._taken) > IDS_KEPT:
            self._taken.clear()
        self._taken |= self._given.keys()
        return [one.receipt if isinstance(one, _Taken) else one for one in taken]

    def take_burn_in(self, spec: Job) -> str:
        """Make the burn-in of cordoned nodes durable under a new id, and return that. Raises JournalError."""
        self._begin([JobSubmission((spec,))])
        (chosen,) = self._ids.choose([spec])
        event_id = submitted_event_id(chosen.job)
        self._append(
            [BurnInRequested(id=event_id, observed_at=self._clock(), job=chosen.job, spec=spec)]
        )
        self._taken.add(chosen.job)
        return chosen.job

    def check(self, submission: JobSubmission) -> Receipt:
        """The receipt that a submission would get now; nothing is taken. Raises what is wrong with it."""
        return self._tried(submission).receipt

    def federated(self, submission: JobSubmission) -> Job | ServiceSpec:
        """The job or service of a submission of a federation, for a cluster that keeps it itself.

        Raises what is wrong with it.
        """
        assert submission.assignment is not None, "a submission of a federation"
        self._check_assignment(submission.assignment)
        if len(submission.jobs) + len(submission.services) != 1:
            raise Unsupported("a federation hands in jobs one by one")
        for event in self._tried(submission).events:
            if isinstance(event, JobSubmitted | ServiceSubmitted):
                return event.spec
        raise AssertionError("a submission has an event for each of its parts")

    def first_event(self, submission: JobSubmission) -> JobSubmitted:
        """The event of its first job, or else of a replica of its first service, as it would be recorded now.

        Nothing is taken. Raises what is wrong with it.
        """
        if submission.assignment is not None:
            self._tried(
                submission
            )  # a federation sends what was refused elsewhere, so all must be told
        replicas = [replace(each.replica, name=f"{each.name}.1") for each in submission.services]
        jobs = (*submission.jobs, *replicas)
        first = self._tried(replace(submission, jobs=jobs, services=())).events[0]
        assert isinstance(first, JobSubmitted), "a submission has jobs"
        return first

    def _tried(self, submission: JobSubmission) -> _Taken:
        self._begin([submission])
        with about(submission.source) if submission.source else nullcontext():
            return self._new(submission)

    def _begin(self, batch: Sequence[JobSubmission]) -> None:
        self._given.clear()
        self._counts = WaitingCounts(self._limits, self._ledger())
        self._look_up(batch)

    def _each_alone(self, taken: Sequence[_Taken | GantreeError]) -> list[Receipt | GantreeError]:
        """Submissions that could not be written down together, because of one of them.

        What is wrong with one is wrong with those that were given its receipt under the same key.
        """
        outcomes: list[Receipt | GantreeError] = []
        wrong: dict[int, GantreeError] = {}
        for one in taken:
            if isinstance(one, _Taken):
                try:
                    if one.events:
                        self._append(one.events)
                except (BadInput, EventIdReused) as error:
                    wrong[id(one.receipt)] = error
                outcomes.append(wrong.get(id(one.receipt), one.receipt))
            else:
                outcomes.append(one)
        return outcomes

    def _one(self, submission: JobSubmission, by_key: dict[str, tuple[str, Receipt]]) -> _Taken:
        if submission.assignment is not None:
            self._check_assignment(submission.assignment)
        known = None if submission.key is None else self._receipt_of(submission.key, by_key)
        if known is not None:
            return _Taken(known, ())
        with about(submission.source) if submission.source else nullcontext():
            taken = self._new(submission)
        if submission.key is not None:
            by_key[submission.key.event_id] = (submission.key.digest, taken.receipt)
        return taken

    def _receipt_of(self, key: Key, by_key: Mapping[str, tuple[str, Receipt]]) -> Receipt | None:
        """The receipt that was given under this key before. Raises Conflict where it was for something else."""
        found = by_key.get(key.event_id)
        if found is None:
            event = self._journal.event(key.event_id)
            if isinstance(event, SubmissionTaken):
                spans = dict(event.arrays)
                jobs = tuple(Submitted(job, name, spans.get(job, ())) for job, name in event.jobs)
                found = (event.digest, Receipt(jobs, event.warnings, event.services))
            elif self._journal.seen([key.event_id]):
                raise Conflict(f"the idempotency key {key.text} was used long ago; take another")
        if found is None:
            return None
        digest, receipt = found
        if digest != key.digest:
            raise Conflict(f"the idempotency key {key.text} was used for another submission")
        return receipt

    def _new(self, submission: JobSubmission) -> _Taken:
        jobs, overrides = submission.jobs, submission.overrides
        documents = len(jobs) + len(submission.services)
        if "name" in overrides and documents > 1:
            raise BadInput(f"{documents} jobs cannot all be named {overrides['name']}")
        ledger = self._ledger()
        asked = [self._checked(job, submission, ledger) for job in jobs]
        services = [self._checked_service(each, submission, ledger) for each in submission.services]
        self._counts.add(asked)
        warnings = (
            *self._warnings.of([*asked, *(each.replica for each in services)], ledger),
            *warnings_of_models(ledger, services),
            *of_full_queues(asked, ledger),
            *(() if self._checks_links else of_unchecked(asked, self._policy())),
        )
        chosen = self._ids.choose(asked)
        specs = with_predecessors(asked, chosen, ledger, submission.sees)
        self._given.update((each.job, each.array) for each in chosen)
        now = self._clock()
        events: list[Event] = [
            JobSubmitted(id=submitted_event_id(each.job), observed_at=now, job=each.job, spec=spec)
            for each, spec in zip(chosen, specs, strict=True)
        ]
        events += [self._submitted(each, now) for each in services]
        receipt = Receipt(chosen, warnings, tuple(each.name for each in services))
        if submission.key is not None:
            events.append(_note(submission.key, now, receipt))
        return _Taken(receipt, tuple(events))

    def _submitted(self, service: ServiceSpec, now: float) -> ServiceSubmitted:
        event_id = self._new_id(service.name, "service-submitted")
        return ServiceSubmitted(id=event_id, observed_at=now, service=service.name, spec=service)

    def _checked_service(
        self, service: ServiceSpec, submission: JobSubmission, ledger: Ledger
    ) -> ServiceSpec:
        """A service with overrides and defaults applied to its replicas. Raises GantreeError for what is wrong."""
        with about(f"service {submission.overrides.get('name', service.name)}"):
            if not self._runs_services and not self._is_kept_by_cluster(submission):
                raise Unsupported(
                    "kind: service is for the local executor; on Kubernetes apply a GangService"
                )
            name = str(submission.overrides.get("name", service.name))
            before = live_owner(ledger, name, submission.may_update, submission.assignment)
            owner = submission if before is None else replace(submission, user=before)
            replica = self._checked(service.replica, owner, ledger)
            found = with_replica(service, replica, ledger)
            if self._federated_jobs is not None and replica.assignment:
                self._federated_jobs.check(found)
            return found

    def _is_kept_by_cluster(self, submission: JobSubmission) -> bool:
        return self._federated_jobs is not None and submission.assignment is not None

    def _checked(self, job: Job, submission: JobSubmission, ledger: Ledger) -> Job:
        """A job with its overrides and defaults applied. Raises BadInput for what is wrong with it alone."""
        asked = overridden(replace(job, service=None) if job.service else job, submission.overrides)
        check_user(submission.user)
        with about(f"job {asked.name}"):
            asked = with_variables(asked, submission.env, submission.default_env)
            asked = self._completed(asked, submission)
            check_commands(asked)
            check_notify(asked.notify, self._notify)
            asked = with_check(asked, self._policy(), can_check=self._checks_links)
            asked = assigned(asked, submission.assignment)
            if self._federated_jobs is not None and asked.assignment:
                self._federated_jobs.check(asked)
            self._policy().priority_of(asked.priority)
            check_queue(asked, ledger.accounts.tree)
        return asked

    def _completed(self, job: Job, submission: JobSubmission) -> Job:
        """With user and directories; a container of an image starts in the directory of that, unless the job says."""
        found = completed(job, submission.user, submission.base_dir)
        if self._federated_jobs is None or submission.assignment is None:
            return found
        said = [role.workdir is not None for role in job.roles]
        roles = tuple(
            role if is_said else replace(role, workdir=None)
            for role, is_said in zip(found.roles, said, strict=True)
        )
        return replace(found, roles=roles)

    def _look_up(self, batch: Sequence[JobSubmission]) -> None:
        """Ask the journal once for all the ids that will probably be given."""
        names = [
            submission.overrides.get("name", job.name)
            for submission in batch
            for job in submission.jobs
        ]
        likely = [job for job in self._ids.likely(map(str, names)) if job not in self._taken]
        seen = self._journal.seen([submitted_event_id(job) for job in likely])
        self._free = frozenset(job for job in likely if submitted_event_id(job) not in seen)

    def _id_is_taken(self, job: str) -> bool:
        """Ids on record or about to be, and those under which something ran that this journal knows nothing of."""
        if job in self._taken or job in self._given or self._is_element(job):
            return True
        if is_of_service(self._ledger(), job):
            return True
        if job not in self._free and self._journal.seen([submitted_event_id(job)]):
            return True
        return self._ran(job)

    def _is_element(self, job: str) -> bool:
        """Whether an id is that of an element of an array, which may be long over."""
        parsed = parse_element(job)
        if parsed is None:
            return False
        array, index = parsed
        spans = self._given.get(array) or self._array_on_record(array)
        return has_index(spans, index)

    def _array_on_record(self, array: str) -> Spans:
        known = self._ledger().arrays.get(array)
        if known is not None:
            return known.spec.array
        event_id = submitted_event_id(array)
        event = self._journal.event(event_id)
        if isinstance(event, JobSubmitted):
            return event.spec.array
        return ANY_INDEX if self._journal.seen([event_id]) else ()

    def _any_element_is_taken(self, elements: Collection[str]) -> bool:
        """As `_id_is_taken`, for all elements of an array at once."""
        if not (self._taken | self._given.keys()).isdisjoint(elements):
            return True
        if self._journal.seen([submitted_event_id(job) for job in elements]):
            return True
        return any(map(self._ran, elements))


def submitted_event_id(job: str) -> str:
    """The id of the event `JobSubmitted` of a job."""
    return f"{job}/submitted"


def _note(key: Key, now: float, receipt: Receipt) -> SubmissionTaken:
    return SubmissionTaken(
        id=key.event_id,
        observed_at=now,
        digest=key.digest,
        jobs=tuple((each.job, each.name) for each in receipt.jobs),
        warnings=receipt.warnings,
        arrays=tuple((each.job, each.array) for each in receipt.jobs if each.array),
        services=receipt.services,
    )
