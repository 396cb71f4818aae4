"""The jobs of a federation as its front keeps them: each change is in the store before anything follows from it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gantree.federation.granted_lease import GrantedLease
from gantree.federation.jobs.copies import copy_ids
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.store import Store
from gantree.model.errors import Conflict, NotFound

NOBODY: Mapping[str, FederatedJob] = {}


class FederatedJobs:
    """all are by id, in order of arrival; live are those that have not ended. wall gives seconds since 1970.

    unsure are those of which a request to take them broke off: their cluster may have them, or get them yet.
    """

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store, self._wall = store, wall
        self.all = {job.job: job for job in store.jobs()}
        self.live = {job.job: job for job in self.all.values() if job.stage is not Stage.ENDED}
        self.unsure = {job.job for job in self.live.values() if job.stage is Stage.SENDING}

    def of_key(self, key: str) -> list[FederatedJob]:
        """The jobs that were taken under an idempotency key."""
        return [job for job in self.all.values() if key and job.key == key]

    def in_cluster(self, cluster: str) -> list[FederatedJob]:
        """The live jobs that a cluster has, or may have."""
        return [job for job in self.live.values() if job.cluster == cluster]

    def placed(self, job: str, cluster: str, remote: str) -> FederatedJob | None:
        """The job, if this cluster has it under this id."""
        found = self.live.get(job)
        if found is None or found.stage is not Stage.PLACED:
            return None
        return found if (found.cluster, found.remote) == (cluster, remote) else None

    # New ones.

    def copies(self, name: str, others: Mapping[str, FederatedJob] = NOBODY) -> list[FederatedJob]:
        """The live copies of a service, others among them."""
        live = {**self.live, **others}.values()
        return [
            job
            for job in live
            if job.is_service and job.name == name and job.stage is not Stage.ENDED
        ]

    def new(self, job: FederatedJob, others: Mapping[str, FederatedJob]) -> FederatedJob:
        """The job with an id that neither a job had nor one of others has; a service goes by its name.

        The name of a service that has ended is free again, and numbers of assignments go on. Raises Conflict.
        """
        job.submitted_at = self._wall()
        if not job.is_service:
            job.job = self._free_id(job, others)
            return job
        for job_id in copy_ids(job.name):
            before = others.get(job_id) or self.all.get(job_id)
            is_copy = before is not None and before.is_service and before.name == job.name
            if before is not None and not is_copy and job_id == job.name:
                raise Conflict(f"{job.name} is the id of a job; give the service another name")
            if before is None or (is_copy and before.stage is Stage.ENDED):
                job.job = job_id
                job.number = job.since = 0 if before is None else before.number
                break
        return job

    def _free_id(self, job: FederatedJob, others: Mapping[str, FederatedJob]) -> str:
        """The name, else name-2, name-3 and so on."""
        job_id, number = job.name, 1
        while job_id in self.all or job_id in others:
            number += 1
            job_id = f"{job.name}-{number}"
        return job_id

    def updated(self, before: FederatedJob, service: FederatedJob, lease: int) -> FederatedJob:
        """A live service with another description; the cluster that has it gets it under this lease."""
        job = replace(
            before,
            submission=service.submission,
            data=service.data,
            key=service.key,
            regions=service.regions,
            region=service.region,
        )
        if job.is_assigned:
            self.unsure.discard(job.job)
            job.assign(job.cluster, lease, f"it was updated in {job.cluster}", self._wall())
        return job

    def ending(self, copy: FederatedJob) -> FederatedJob:
        """A live copy of a service that is to end."""
        job = replace(copy, cancelled=True)
        if job.stage is Stage.CHOOSING:
            job.end("cancelled", "", self._wall())
        return job

    def add(self, jobs: Mapping[str, FederatedJob]) -> None:
        """Keep new and updated ones, all or none."""
        self._store.save(jobs.values())
        self.all |= jobs
        self.live |= jobs
        for job in jobs.values():
            if job.stage is Stage.ENDED:
                self.live.pop(job.job, None)

    # What becomes of them.

    def to_cancel(self, name: str) -> FederatedJob:
        """A job that is to end. Raises NotFound, and Conflict for one that has ended."""
        job = self.all.get(name)
        if job is None:
            raise NotFound(f"there is no job {name!r}")
        if job.stage is Stage.ENDED:
            raise Conflict(f"{name} has ended: {job.outcome}")
        job.cancelled = True
        return job

    def take(self, job: FederatedJob, remote: str) -> None:
        """Its cluster has taken it under this id."""
        job.take(remote)
        self.unsure.discard(job.job)
        self.keep([job])

    def withdraw(
        self, jobs: list[FederatedJob], reason: str, lease: GrantedLease | None = None
    ) -> None:
        """No cluster has them any more; the number of the lease that is over is durable with that."""
        for job in jobs:
            job.withdraw(reason, self._wall())
            self.unsure.discard(job.job)
        if jobs:
            self.keep(jobs, lease)

    def move_on(self, job: FederatedJob) -> None:
        """Its cluster has ended a job that only waited there: its checkpoints are where they were before."""
        before = job.before
        job.withdraw(f"it only waited in {job.cluster}", self._wall())
        job.before = before
        self.keep([job])

    def end(self, job: FederatedJob, outcome: str, reason: str) -> None:
        """A job has ended. A service ends through the front alone: one that its cluster has ended is started anew."""
        if job.is_service and not job.cancelled:
            job.withdraw(f"{job.cluster} has ended it: {reason or outcome}", self._wall())
        else:
            job.end(outcome, reason, self._wall())
        self.keep([job])

    def keep(self, jobs: Iterable[FederatedJob] = (), lease: GrantedLease | None = None) -> None:
        """Make what was decided of jobs, and the number of a lease, durable in one transaction."""
        jobs = list(jobs)
        self._store.save(jobs, {} if lease is None else {lease.cluster: lease.to_json()})
        for job in jobs:
            if job.stage is Stage.ENDED:
                self.live.pop(job.job, None)
