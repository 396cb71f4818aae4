"""Decides for a federation: which cluster has which job, and when another may have it. Pure but for its store.

`calls` says which calls to make now, `answered` and `refused` and `failed` what came of one. Every decision is in the
store before a call that follows from it is made, so a front that is killed goes on where it stopped.

**No job runs twice at a time.** A job has one assignment. It ends in one of three ways: the cluster says that the job
has ended; the cluster refused the first and only request to take it; or the cluster's lease is over
(`granted_lease`), which takes its number with it. Silence alone ends nothing: a request that broke off is made again
with the same idempotency key until one of the three is known. After the end of a lease the front takes the next number
first, and withdraws its jobs in the same transaction. What a cluster that returns has, and should not, is cancelled
before it gets the new lease (`clusters`).

A service has no lease: replicas that run in two clusters do no harm, and none would. It is started elsewhere as soon as
its cluster is lost, and cancelled where it was when that cluster returns.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gantree.federation.call_schedule import AGAIN_S, CallSchedule
from gantree.federation.calls import Call, CallKind
from gantree.federation.clusters import Clusters
from gantree.federation.granted_lease import GrantedLease
from gantree.federation.jobs.choice import Offer, offer_of
from gantree.federation.jobs.copies import allowed_clusters, copies_of
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.federated_jobs import NOBODY, FederatedJobs
from gantree.federation.jobs.moves import Moves
from gantree.federation.jobs.rounds import Rounds, best_offer
from gantree.federation.jobs.store import Store
from gantree.model.errors import BadInput, Conflict, GantreeError, NotFound, Unsupported
from gantree.model.federation import Assignment, Federation
from gantree.model.phases import ENDED, Phase

Json = dict[str, Any]
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
        self.federation, self._wall = federation, wall
        self._jobs = FederatedJobs(store, wall)
        self._moves = Moves(federation)
        kept = store.clusters()
        self._clusters = Clusters(federation, self._jobs, self._moves, kept, now_s, wall)
        self._schedule, self._rounds = CallSchedule(), Rounds()

    @property
    def jobs(self) -> Mapping[str, FederatedJob]:
        """All jobs by id, in order of arrival."""
        return self._jobs.all

    @property
    def leases(self) -> Mapping[str, GrantedLease]:
        """Those of the clusters."""
        return self._clusters.leases

    # What users ask for.

    def submit(self, asked: Iterable[tuple[FederatedJob, list[Offer]]]) -> list[FederatedJob]:
        """Take jobs, all or none: each gets an id that no job had, the name if it can.

        With each come the offers of connected clusters, as far as they were asked just now. A live service of the same
        name is updated, where it is. Raises Conflict for a service by the id of a job, BadInput for regions that
        there are not.
        """
        taken: dict[str, FederatedJob] = {}
        for job, offers in asked:
            regions: tuple[str, ...] = ("",)
            if job.is_service:
                regions = self._update_copies(job, taken)
            for region in regions:
                new = self._jobs.new(replace(job, region=region), taken)
                taken[new.job] = new
                self._choose(new, offers, taken)
        self._jobs.add(taken)
        return [job for job in taken.values() if not job.cancelled]

    def _update_copies(
        self, service: FederatedJob, taken: dict[str, FederatedJob]
    ) -> tuple[str, ...]:
        """Update the live copies of a service, and end those that are too many; the regions of new ones."""
        copies = copies_of(service, self.federation, self._jobs.copies(service.name, taken))
        taken |= {copy.job: self._jobs.ending(copy) for copy in copies.ending}
        for copy, region in copies.kept:
            lease = self.leases[copy.cluster].number if copy.is_assigned else 0
            described = replace(service, region=region)
            taken[copy.job] = self._jobs.updated(copy, described, lease)
        return copies.new

    def copies(self, name: str) -> list[FederatedJob]:
        """The live copies of a service. Raises NotFound where there is none."""
        if not (found := self._jobs.copies(name)):
            raise NotFound(f"there is no service {name!r}")
        return found

    def of_key(self, key: str) -> list[FederatedJob]:
        """The jobs that were taken under an idempotency key."""
        return self._jobs.of_key(key)

    def cancel(self, name: str) -> FederatedJob:
        """End a job, wherever it is. Raises NotFound, and Conflict for one that has ended."""
        job = self._jobs.to_cancel(name)
        if job.stage is Stage.CHOOSING:
            self._jobs.end(job, "cancelled", "")
            self._rounds.drop(job.job)
        else:
            self._jobs.keep([job])
        return job

    def confirm_lost(self, cluster: str, now_s: float) -> None:
        """An operator says that nothing runs in a cluster any more. Raises NotFound, and Conflict if it answers."""
        self._clusters.confirm_lost(cluster, now_s)

    def usable(self, now_s: float) -> list[str]:
        """The clusters that may get jobs now."""
        return self._clusters.usable(now_s)

    # What to do.

    def calls(self, now_s: float) -> list[Call]:
        """The calls to make now. Each comes once, until it was answered or failed."""
        for cluster in self.leases:
            self._clusters.withdraw_lost(cluster, now_s)
        self._schedule.forget(now_s)
        self._moves.forget(self._jobs.live)
        due = [call for call in self._wanted(now_s) if self._schedule.is_due(call.key, now_s)]
        for call in due:
            self._schedule.begin(call.key)
        return due

    def _wanted(self, now_s: float) -> Iterator[Call]:
        for cluster, lease in self.leases.items():
            is_asked = self._schedule.is_under_way((CallKind.LEASE, cluster, ""))
            if not is_asked and lease.is_due(now_s, self.federation.heartbeat_s):
                yield Call(CallKind.LEASE, cluster, renewal=lease.renewal(now_s))
            yield from self._clusters.strays[cluster]
        for job in list(self._jobs.live.values()):
            yield from self._wanted_of(job, now_s)

    def _wanted_of(self, job: FederatedJob, now_s: float) -> Iterator[Call]:
        if job.stage is Stage.CHOOSING:
            yield from self._questions(job, now_s)
        elif job.stage is Stage.SENDING and self.leases[job.cluster].is_held:
            yield self._submission(job)
        elif job.stage is Stage.PLACED and not self._clusters.lists(job):
            yield self._about(CallKind.LOOK, job)
        elif job.stage is Stage.PLACED and job.cancelled:
            yield self._about(CallKind.CANCEL, job)
        elif job.stage is Stage.PLACED and job.moving:
            version = self._moves.version(job)
            kind = CallKind.CANCEL if version else CallKind.LOOK
            yield replace(self._about(kind, job), version=version)
        elif self._moves.is_due(job, now_s):
            yield from self._questions(job, now_s)

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

    def _questions(self, job: FederatedJob, now_s: float) -> Iterator[Call]:
        """Ask each usable cluster when it would start a job; decide once all have answered or failed.

        Of a job that waits in a cluster the others are asked, and rarely.
        """
        is_new = job.stage is Stage.CHOOSING
        round_key = (CallKind.FORECAST, "", job.job if is_new else f"move {job.job}")
        if self._rounds.is_open(job.job) or not self._schedule.is_due(round_key, now_s):
            return
        allowed = allowed_clusters(self.federation, job, self._jobs.live.values())
        allowed.discard(job.cluster)
        if usable := [name for name in self.usable(now_s) if name in allowed]:
            self._rounds.open(job.job, usable)
            every_s = ROUND_S if is_new else self.federation.move_waiting_s
            self._schedule.wait(round_key, now_s + every_s)
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
        self._schedule.over(call.key)
        if call.kind is CallKind.LEASE:
            self._clusters.lease_answered(call, answer, now_s)
        elif call.kind is CallKind.FORECAST:
            if (job := self._jobs.live.get(call.job)) is not None:
                offer = offer_of(self.federation, call.cluster, job.data, answer)
                self._offered(call, offer, now_s)
        elif call.kind is CallKind.SUBMIT:
            self._taken(call, answer["jobs"][0]["job"])
        elif call.kind is CallKind.LOOK:
            self._schedule.wait(call.key, now_s + AGAIN_S)
            self._looked(call, answer)
        elif call.kind is CallKind.CANCEL:
            self._schedule.wait(call.key, now_s + self.federation.heartbeat_s)

    def refused(self, call: Call, error: GantreeError, now_s: float) -> None:
        """The cluster has said no."""
        self._schedule.over(call.key)
        if call.kind is CallKind.LEASE:
            self.leases[call.cluster].failed(str(error))
        elif call.kind is CallKind.FORECAST:
            is_no = isinstance(error, (*NOT_TAKEN, Conflict))
            offer = Offer(call.cluster, None, refusal=str(error)) if is_no else None
            self._offered(call, offer, now_s)
        elif call.kind is CallKind.SUBMIT and isinstance(error, NOT_TAKEN):
            self._not_taken(call, str(error), now_s)
        elif call.kind is CallKind.LOOK and isinstance(error, NotFound):
            if (job := self._jobs.placed(call.job, call.cluster, call.remote)) is not None:
                gone = f"{call.cluster} does not know it any more"
                self._jobs.end(job, "cancelled" if job.cancelled else LOST_SIGHT, gone)
        else:
            if call.kind is CallKind.CANCEL and isinstance(error, NotFound | Conflict):
                self._clusters.note_gone(call.cluster, call.remote)  # it has ended: look how
            self._schedule.wait(call.key, now_s + AGAIN_S)

    def failed(self, call: Call, trouble: str, now_s: float) -> None:
        """There was no answer; whether the cluster has heard it is not known."""
        self._schedule.over(call.key)
        if call.kind is CallKind.LEASE:
            self.leases[call.cluster].failed(trouble)
        elif call.kind is CallKind.FORECAST:
            self._offered(call, None, now_s)
        else:
            self._schedule.wait(call.key, now_s + AGAIN_S)
        if call.kind is CallKind.SUBMIT:
            self._jobs.unsure.add(call.job)

    def _looked(self, call: Call, answer: Mapping[str, Any]) -> None:
        job = self._jobs.placed(call.job, call.cluster, call.remote)
        if job is None:
            return
        job.phase = answer["phase"]
        if job.moving and not job.cancelled and job.phase == Phase.CANCELLED:
            self._jobs.move_on(job)
            self._moves.end(job)
        elif job.phase in ENDED:
            self._jobs.end(job, job.phase, answer.get("reason") or "")
        elif job.moving and not self._moves.looked(job, answer):
            job.moving = False
            job.note(f"it stays in {job.cluster}: it has started there", self._wall())
            self._jobs.keep([job])

    def _assigned(self, call: Call) -> FederatedJob | None:
        """The job of a submission, if its assignment still is the current one."""
        job = self._jobs.live.get(call.job)
        if job is None or job.stage is not Stage.SENDING:
            return None
        return job if job.assignment(self.federation.name) == call.assignment else None

    def _taken(self, call: Call, remote: str) -> None:
        if (job := self._assigned(call)) is not None:
            self._jobs.take(job, remote)
            self._clusters.note_taken(call.cluster, remote)

    def _not_taken(self, call: Call, reason: str, now_s: float) -> None:
        """The cluster refused a job. An earlier request may still be under way: then nothing is known."""
        job = self._assigned(call)
        if job is None:
            return
        if job.job in self._jobs.unsure:
            self._schedule.wait(call.key, now_s + AGAIN_S)
        else:
            self._jobs.withdraw([job], f"{call.cluster} refused it: {reason}")

    # Which cluster gets a job.

    def _offered(self, call: Call, offer: Offer | None, now_s: float) -> None:
        offers = self._rounds.take(call.job, call.cluster, offer)
        job = self._jobs.live.get(call.job)
        if offers is None or job is None:
            return
        before = list(job.reasons)
        if job.stage is Stage.CHOOSING:
            self._choose(job, offers)
        elif reason := self._moves.reason(job, offers, now_s):
            job.moving = True
            job.note(reason, self._wall())
        if job.reasons != before:
            self._jobs.keep([job])

    def _choose(
        self, job: FederatedJob, offers: list[Offer], others: Mapping[str, FederatedJob] = NOBODY
    ) -> None:
        """Assign a job to the best of the clusters that made an offer, if there is one that it may have."""
        live = {**self._jobs.live, **others}.values()
        allowed = allowed_clusters(self.federation, job, live)
        offers = [offer for offer in offers if offer.cluster in allowed]
        if not offers:
            return
        best, reason = best_offer(self.federation, job, offers)
        if best is None:
            job.note(reason, self._wall())
        else:
            lease = self.leases[best.cluster].number
            job.assign(best.cluster, lease, reason, self._wall())
