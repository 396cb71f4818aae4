"""Decides for a federation: which cluster has which job, and when another may have it. Pure but for its store.

`calls` says which calls to make now, `answered` and `refused` and `failed` what came of one. Every decision is in the
store before a call that follows from it is made, so a front that is killed goes on where it stopped.

**No job runs twice at a time.** A job has one assignment. It ends in one of three ways: the cluster says that the job
has ended; the cluster refused the first and only request to take it; or the cluster's lease is over
(`granted_lease`), which takes its number with it. Silence alone ends nothing: a request that broke off is made again
with the same idempotency key until one of the three is known. After the end of a lease the front takes the next number
first, and withdraws its jobs in the same transaction. A cluster that returns lists what it has of the federation; what
is assigned elsewhere by now, or was never acknowledged, is cancelled there, and only once nothing of that is left, the
new lease is granted.

A service has no lease: replicas that run in two clusters do no harm, and none would. It is started elsewhere as soon as
its cluster is lost, and cancelled where it was when that cluster returns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gantree.federation.calls import Call, CallKind
from gantree.federation.choice import Offer, offer_of
from gantree.federation.federated_job import FederatedJob, Stage
from gantree.federation.granted_lease import GrantedLease
from gantree.federation.rounds import Rounds, best_offer
from gantree.federation.store import Store
from gantree.model.errors import BadInput, Conflict, GantreeError, NotFound, Unsupported
from gantree.model.federation import Assignment, EnforcedBy, Federation, Stamp, assignment_of
from gantree.model.phases import ENDED

Json = dict[str, Any]
AGAIN_S = 2.0
"""After a call that failed."""
ROUND_S = 10.0
"""Between two rounds of questions about a job for which no cluster could be chosen."""
NOT_TAKEN = (BadInput, Unsupported)
"""Refusals of a submission that would come again: nothing was taken. (BadFields is a BadInput.)"""
LOST_SIGHT = "unknown"
"""The outcome of a job of which its cluster knows nothing any more."""


class Front:
    """now_s is a clock that cannot be set and goes on while the machine sleeps; wall gives seconds since 1970."""

    def __init__(
        self, federation: Federation, store: Store, now_s: float, wall: Callable[[], float]
    ) -> None:
        self.federation, self._store, self._wall = federation, store, wall
        self.jobs = {job.job: job for job in store.jobs()}
        kept = store.clusters()
        self.leases = {
            each.name: self._lease(each.name, kept.get(each.name, {}), now_s)
            for each in federation.clusters
        }
        self._live = {job.job: job for job in self.jobs.values() if job.stage is not Stage.ENDED}
        self._under_way: set[tuple[CallKind, str, str]] = set()
        self._not_before: dict[tuple[CallKind, str, str], float] = {}
        self._tried = {job.job for job in self._live.values() if job.stage is Stage.SENDING}
        self._listed: dict[str, set[str]] = {name: set() for name in self.leases}
        self._strays: dict[str, list[Call]] = {name: [] for name in self.leases}
        self._rounds = Rounds()

    def _lease(self, cluster: str, kept: Mapping[str, Any], now_s: float) -> GrantedLease:
        """That of a cluster after a start: it may have been renewed right before."""
        federation = self.federation
        return GrantedLease(
            federation.name, cluster, kept.get("number", 1), federation.lease_s, federation.margin_s,
            ends_at_s=now_s + federation.lease_s,
            answered_at_s=now_s,
            enforced_by=EnforcedBy(kept.get("enforced_by", "members")),
        )  # fmt: skip

    # What users ask for.

    def submit(self, asked: Iterable[tuple[FederatedJob, list[Offer]]]) -> list[FederatedJob]:
        """Take jobs, all or none: each gets an id that no job had, the name if it can.

        With each come the offers of connected clusters, as far as they were asked just now. A live service of the same
        name is updated, where it is. Raises Conflict for the name of a service that has ended, or of a job.
        """
        taken: dict[str, FederatedJob] = {}
        for job, offers in asked:
            live = self._live.get(job.job)
            if job.is_service and live is not None and live.is_service:
                taken[job.job] = self._updated(live, job)
                continue
            job.job = self._free_id(job, taken)
            job.submitted_at = self._wall()
            self._choose(job, offers)
            taken[job.job] = job
        self._store.save(taken.values())
        self.jobs |= taken
        self._live |= taken
        return list(taken.values())

    def _free_id(self, job: FederatedJob, taken: Mapping[str, FederatedJob]) -> str:
        """The name, else name-2, name-3 and so on. A service goes by its name alone."""
        job_id, number = job.name, 1
        while job_id in self.jobs or job_id in taken:
            if job.is_service:
                raise Conflict(f"there was a job or a service {job_id} before; take another name")
            number += 1
            job_id = f"{job.name}-{number}"
        return job_id

    def _updated(self, before: FederatedJob, service: FederatedJob) -> FederatedJob:
        """A live service with another description."""
        job = replace(before, submission=service.submission, data=service.data, key=service.key)
        if job.is_assigned:
            self._tried.discard(job.job)
            lease = self.leases[job.cluster].number
            job.assign(job.cluster, lease, f"it was updated in {job.cluster}", self._wall())
        return job

    def of_key(self, key: str) -> list[FederatedJob]:
        """The jobs that were taken under an idempotency key."""
        return [job for job in self.jobs.values() if key and job.key == key]

    def cancel(self, name: str) -> FederatedJob:
        """End a job, wherever it is. Raises NotFound, and Conflict for one that has ended."""
        job = self.jobs.get(name)
        if job is None:
            raise NotFound(f"there is no job {name!r}")
        if job.stage is Stage.ENDED:
            raise Conflict(f"{name} has ended: {job.outcome}")
        job.cancelled = True
        if job.stage is Stage.CHOOSING:
            self._end(job, "cancelled", "")
        else:
            self._store.save([job])
        return job

    def confirm_lost(self, cluster: str, now_s: float) -> None:
        """An operator says that nothing runs in a cluster any more. Raises NotFound, and Conflict if it answers."""
        if (lease := self.leases.get(cluster)) is None:
            raise NotFound(f"there is no cluster {cluster!r} in federation {self.federation.name}")
        if lease.is_connected(now_s, self.federation.lost_after_s):
            raise Conflict(f"{cluster} answers: cancel its jobs instead")
        lease.is_known_lost = True

    def is_usable(self, cluster: str, now_s: float) -> bool:
        """Whether a cluster may get jobs now."""
        lease = self.leases[cluster]
        return lease.is_held and lease.is_connected(now_s, self.federation.lost_after_s)

    # What to do.

    def calls(self, now_s: float) -> list[Call]:
        """The calls to make now. Each comes once, until it was answered or failed."""
        for cluster in self.leases:
            self._withdraw_lost(cluster, now_s)
        self._not_before = {key: at for key, at in self._not_before.items() if at > now_s}
        due = [call for call in self._wanted(now_s) if self._may(call, now_s)]
        self._under_way |= {call.key for call in due}
        return due

    def _may(self, call: Call, now_s: float) -> bool:
        return call.key not in self._under_way and now_s >= self._not_before.get(call.key, now_s)

    def _wanted(self, now_s: float) -> Iterator[Call]:
        for cluster, lease in self.leases.items():
            key = (CallKind.LEASE, cluster, "")
            if key not in self._under_way and lease.is_due(now_s, self.federation.heartbeat_s):
                yield Call(CallKind.LEASE, cluster, renewal=lease.renewal(now_s))
            yield from self._strays[cluster]
        for job in list(self._live.values()):
            yield from self._wanted_of(job, now_s)

    def _wanted_of(self, job: FederatedJob, now_s: float) -> Iterator[Call]:
        if job.stage is Stage.CHOOSING:
            yield from self._asked(job, now_s)
        elif job.stage is Stage.SENDING and self.leases[job.cluster].is_held:
            key = (CallKind.SUBMIT, job.cluster, job.job)
            if key not in self._under_way and now_s >= self._not_before.get(key, now_s):
                yield self._submission(job)
        elif job.stage is Stage.PLACED and job.remote not in self._listed[job.cluster]:
            yield self._about(CallKind.LOOK, job)
        elif job.stage is Stage.PLACED and job.cancelled:
            yield self._about(CallKind.CANCEL, job)

    def _about(self, kind: CallKind, job: FederatedJob) -> Call:
        return Call(
            kind,
            job.cluster,
            job.job,
            job.remote,
            is_service=job.is_service,
            came_by=job.came_by or str(job.assignment(self.federation.name)),
        )

    def _submission(self, job: FederatedJob) -> Call:
        return Call(
            CallKind.SUBMIT,
            job.cluster,
            job.job,
            assignment=job.assignment(self.federation.name),
            body=job.submission,
            is_service=job.is_service,
        )

    def _asked(self, job: FederatedJob, now_s: float) -> Iterator[Call]:
        """Ask each usable cluster when it would start a job; decide once all have answered or failed."""
        if not self._rounds.is_open(job.job):
            usable = [name for name in self.leases if self.is_usable(name, now_s)]
            key = (CallKind.FORECAST, "", job.job)
            if not usable or now_s < self._not_before.get(key, now_s):
                return
            self._rounds.open(job.job, usable)
            self._not_before[key] = now_s + ROUND_S
            for name in usable:
                yield self.question(name, job)

    def question(self, cluster: str, job: FederatedJob) -> Call:
        """When a cluster would start a job that it may be assigned."""
        number, lease = job.number + 1, self.leases[cluster].number
        next_one = Assignment(self.federation.name, job.job, number, lease)
        return Call(CallKind.FORECAST, cluster, job.job, assignment=next_one, body=job.submission)

    # What came of it.

    def answered(self, call: Call, answer: Mapping[str, Any], now_s: float) -> None:
        """A call was answered."""
        self._over(call)
        if call.kind is CallKind.LEASE:
            self._lease_answered(call, answer, now_s)
        elif call.kind is CallKind.FORECAST:
            if (job := self._live.get(call.job)) is not None:
                offer = offer_of(self.federation, call.cluster, job.data, answer)
                self._offered(call, offer)
        elif call.kind is CallKind.SUBMIT:
            self._taken(call, answer["jobs"][0]["job"])
        elif call.kind is CallKind.LOOK:
            self._not_before[call.key] = now_s + AGAIN_S
            self._looked(call, answer)
        elif call.kind is CallKind.CANCEL:
            self._not_before[call.key] = now_s + self.federation.heartbeat_s

    def refused(self, call: Call, error: GantreeError, now_s: float) -> None:
        """The cluster has said no."""
        self._over(call)
        if call.kind is CallKind.LEASE:
            self.leases[call.cluster].failed(str(error))
        elif call.kind is CallKind.FORECAST and isinstance(error, (*NOT_TAKEN, Conflict)):
            self._offered(call, Offer(call.cluster, None, refusal=str(error)))
        elif call.kind is CallKind.FORECAST:
            self._offered(call, None)
        elif call.kind is CallKind.SUBMIT and isinstance(error, NOT_TAKEN):
            self._not_taken(call, str(error), now_s)
        elif call.kind is CallKind.LOOK and isinstance(error, NotFound):
            if (current := self._current(call)) is not None:
                self._end(current, LOST_SIGHT, f"{call.cluster} does not know it any more")
        elif call.kind is CallKind.CANCEL and isinstance(error, NotFound | Conflict):
            strays = self._strays[call.cluster]
            self._strays[call.cluster] = [each for each in strays if each.remote != call.remote]
            self._listed[call.cluster].discard(call.remote)  # it has ended: look how
            self._not_before[call.key] = now_s + AGAIN_S
        else:
            self._not_before[call.key] = now_s + AGAIN_S

    def failed(self, call: Call, trouble: str, now_s: float) -> None:
        """There was no answer; whether the cluster has heard it is not known."""
        self._over(call)
        if call.kind is CallKind.LEASE:
            self.leases[call.cluster].failed(trouble)
        elif call.kind is CallKind.FORECAST:
            self._offered(call, None)
        else:
            self._not_before[call.key] = now_s + AGAIN_S
        if call.kind is CallKind.SUBMIT:
            self._tried.add(call.job)

    def _over(self, call: Call) -> None:
        self._under_way.discard(call.key)

    def _current(self, call: Call) -> FederatedJob | None:
        """The job that a call is about, if it still is where the call went."""
        job = self._live.get(call.job)
        is_there = job is not None and job.stage is Stage.PLACED and job.cluster == call.cluster
        return job if job is not None and is_there and job.remote == call.remote else None

    def _assigned(self, call: Call) -> FederatedJob | None:
        """The job of a submission, if its assignment still is the current one."""
        job = self._live.get(call.job)
        if job is None or job.stage is not Stage.SENDING:
            return None
        return job if job.assignment(self.federation.name) == call.assignment else None

    def _looked(self, call: Call, answer: Mapping[str, Any]) -> None:
        if (job := self._current(call)) is not None:
            job.phase = answer["phase"]
            if job.phase in ENDED:
                self._end(job, job.phase, answer.get("reason") or "")

    def _taken(self, call: Call, remote: str) -> None:
        if (job := self._assigned(call)) is not None:
            job.take(remote)
            self._listed[call.cluster].add(remote)
            self._tried.discard(job.job)
            self._store.save([job])

    def _not_taken(self, call: Call, reason: str, now_s: float) -> None:
        """The cluster refused a job. An earlier request may still be under way: then nothing is known."""
        job = self._assigned(call)
        if job is None:
            return
        if job.job in self._tried:
            self._not_before[call.key] = now_s + AGAIN_S
            return
        job.withdraw(f"{call.cluster} refused it: {reason}", self._wall())
        self._changed([job])

    def _offered(self, call: Call, offer: Offer | None) -> None:
        offers = self._rounds.take(call.job, call.cluster, offer)
        job = self._live.get(call.job)
        if offers is None or job is None or job.stage is not Stage.CHOOSING:
            return
        before = list(job.reasons)
        self._choose(job, offers)
        if job.reasons != before:
            self._changed([job])

    def _choose(self, job: FederatedJob, offers: list[Offer]) -> None:
        """Assign a job to the best of the clusters that made an offer, if there is one."""
        if not offers:
            return
        best, reason = best_offer(self.federation, job, offers)
        if best is None:
            job.note(reason, self._wall())
        else:
            lease = self.leases[best.cluster].number
            job.assign(best.cluster, lease, reason, self._wall())

    # Leases.

    def _lease_answered(self, call: Call, answer: Mapping[str, Any], now_s: float) -> None:
        lease, renewal = self.leases[call.cluster], call.renewal
        if renewal is None or renewal.number != lease.number:
            return  # of a lease that is over: its list of jobs may be older than what was decided since
        strays = self._learn(call.cluster, answer["jobs"])
        enforced_by = EnforcedBy(answer["enforced_by"])
        if enforced_by is not lease.enforced_by:
            self._save_lease(lease, enforced_by)
        lease.answered(
            Stamp(**answer["stamp"]),
            enforced_by,
            now_s,
            granted=answer["granted"],
            is_cleared=not strays,
        )

    def _learn(self, cluster: str, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Take in the jobs that a cluster has of the federation; say whether leased ones are not assigned to it."""
        self._listed[cluster], self._strays[cluster] = set(), []
        for row in rows:
            job = self._owner(cluster, row["job"], row["assignment"])
            if job is None:
                stray = Call(
                    CallKind.CANCEL,
                    cluster,
                    remote=row["job"],
                    is_service=row["service"],
                    came_by=row["assignment"],
                )
                self._strays[cluster].append(stray)
                continue
            self._listed[cluster].add(row["job"])
            job.phase, job.came_by = row["phase"], row["assignment"]
            if job.stage is Stage.SENDING and job.number == assignment_of(row["assignment"]).number:
                job.take(row["job"])
                self._tried.discard(job.job)
                self._store.save([job])
        return any(not stray.is_service for stray in self._strays[cluster])

    def _owner(self, cluster: str, remote: str, assignment: str) -> FederatedJob | None:
        """The job of which this is the current assignment; of a service an update may be under way."""
        told = assignment_of(assignment)
        job = self._live.get(told.job)
        if job is not None and job.is_service and job.stage is Stage.CHOOSING:
            job.take_back(cluster, remote, f"{cluster} still has it", self._wall())
            self._changed([job])
        if job is None or not job.is_assigned or job.cluster != cluster:
            return None
        return job if job.is_service or job.number == told.number else None

    def _withdraw_lost(self, cluster: str, now_s: float) -> None:
        """Withdraw the jobs of a lease that is over, and the services of a cluster that is lost."""
        lease = self.leases[cluster]
        of_cluster = [job for job in self._live.values() if job.cluster == cluster]
        reason = f"{cluster} is lost: {lease.trouble or 'it does not answer'}"
        if not lease.is_connected(now_s, self.federation.lost_after_s):
            services = [job for job in of_cluster if not job.is_leased]
            self._withdraw(services, reason)
        bound = [
            job
            for job in of_cluster
            if job.stage is Stage.SENDING or (job.is_leased and job.is_assigned)
        ]
        if bound and lease.is_over(now_s):
            lease.begin_next()
            self._withdraw(bound, f"{reason}; its lease {lease.number - 1} is over", lease)

    def _withdraw(
        self, jobs: list[FederatedJob], reason: str, lease: GrantedLease | None = None
    ) -> None:
        for job in jobs:
            job.withdraw(reason, self._wall())
            self._tried.discard(job.job)
        if jobs:
            self._changed(jobs, lease)

    def _save_lease(self, lease: GrantedLease, enforced_by: EnforcedBy) -> None:
        kept = {"number": lease.number, "enforced_by": enforced_by.value}
        self._store.save((), {lease.cluster: kept})

    def _end(self, job: FederatedJob, outcome: str, reason: str) -> None:
        """A job has ended. A service ends through the front alone: one that its cluster has ended is started anew."""
        if job.is_service and not job.cancelled:
            job.withdraw(f"{job.cluster} has ended it: {reason or outcome}", self._wall())
        else:
            job.end(outcome, reason, self._wall())
        self._changed([job])

    def _changed(self, jobs: list[FederatedJob], lease: GrantedLease | None = None) -> None:
        """Make what was decided of jobs, and the number of a lease, durable in one transaction."""
        kept: dict[str, Json] = {}
        if lease is not None:
            kept[lease.cluster] = {"number": lease.number, "enforced_by": lease.enforced_by.value}
        self._store.save(jobs, kept)
        for job in jobs:
            if job.stage is Stage.ENDED:
                self._live.pop(job.job, None)
                self._rounds.drop(job.job)
