"""The clusters of a federation as its front knows them: their leases, what they list, what is to be cancelled there.

A cluster that returns lists what it has of the federation. What is assigned elsewhere by now, or was never
acknowledged, is a stray; only once no stray with a lease is left, the cluster gets its lease.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gantree.federation.calls import Call, CallKind
from gantree.federation.granted_lease import GrantedLease
from gantree.federation.jobs.copies import allowed_clusters
from gantree.federation.jobs.federated_job import FederatedJob, Stage
from gantree.federation.jobs.federated_jobs import FederatedJobs
from gantree.federation.jobs.moves import Moves
from gantree.model.errors import Conflict, NotFound
from gantree.model.federation import EnforcedBy, Federation, Stamp, assignment_of

Json = dict[str, Any]


class Clusters:
    """kept is what the store has of each cluster. strays are calls that cancel, by cluster."""

    def __init__(
        self,
        federation: Federation,
        jobs: FederatedJobs,
        moves: Moves,
        kept: Mapping[str, Mapping[str, Any]],
        now_s: float,
        wall: Callable[[], float],
    ) -> None:
        self._federation, self._jobs, self._wall = federation, jobs, wall
        self._moves = moves
        self.leases = {
            each.name: self._lease(each.name, kept.get(each.name, {}), now_s)
            for each in federation.clusters
        }
        self.strays: dict[str, list[Call]] = {name: [] for name in self.leases}
        self._listed: dict[str, set[str]] = {name: set() for name in self.leases}

    def _lease(self, cluster: str, kept: Mapping[str, Any], now_s: float) -> GrantedLease:
        """That of a cluster after a start: it may have been renewed right before."""
        federation = self._federation
        return GrantedLease(
            federation.name, cluster, kept.get("number", 1), federation.lease_s, federation.margin_s,
            ends_at_s=now_s + federation.lease_s,
            answered_at_s=now_s,
            enforced_by=EnforcedBy(kept.get("enforced_by", "members")),
        )  # fmt: skip

    def is_connected(self, cluster: str, now_s: float) -> bool:
        """Whether it answered lately."""
        return self.leases[cluster].is_connected(now_s, self._federation.lost_after_s)

    def usable(self, now_s: float) -> list[str]:
        """Those that may get jobs now."""
        return [
            name
            for name, lease in self.leases.items()
            if lease.is_held and self.is_connected(name, now_s)
        ]

    def confirm_lost(self, cluster: str, now_s: float) -> None:
        """Nothing runs there any more, an operator says. Raises NotFound, and Conflict if it answers."""
        if (lease := self.leases.get(cluster)) is None:
            raise NotFound(f"there is no cluster {cluster!r} in federation {self._federation.name}")
        if self.is_connected(cluster, now_s):
            raise Conflict(f"{cluster} answers: cancel its jobs instead")
        lease.is_known_lost = True

    def withdraw_lost(self, cluster: str, now_s: float) -> None:
        """Withdraw the jobs of a lease that is over, and the services of a cluster that is lost."""
        lease, of_cluster = self.leases[cluster], self._jobs.in_cluster(cluster)
        reason = f"{cluster} is lost: {lease.trouble or 'it does not answer'}"
        if not self.is_connected(cluster, now_s):
            self._jobs.withdraw([job for job in of_cluster if job.is_service], reason)
        bound = [
            job
            for job in of_cluster
            if job.stage is Stage.SENDING or (job.is_leased and job.is_assigned)
        ]
        if bound and lease.is_over(now_s):
            lease.begin_next()
            self._jobs.withdraw(bound, f"{reason}; its lease {lease.number - 1} is over", lease)

    # What a cluster lists.

    def lists(self, job: FederatedJob) -> bool:
        """Whether the cluster of a job has said lately that it has it."""
        return job.remote in self._listed[job.cluster]

    def note_taken(self, cluster: str, remote: str) -> None:
        """It has taken a job under this id."""
        self._listed[cluster].add(remote)

    def note_gone(self, cluster: str, remote: str) -> None:
        """It has nothing to cancel under this id any more."""
        self.strays[cluster] = [each for each in self.strays[cluster] if each.remote != remote]
        self._listed[cluster].discard(remote)

    def lease_answered(self, call: Call, answer: Mapping[str, Any], now_s: float) -> None:
        """A cluster has answered a renewal, with its list."""
        lease, renewal = self.leases[call.cluster], call.renewal
        if renewal is None or renewal.number != lease.number:
            return  # of a lease that is over: its list of jobs may be older than what was decided since
        self._learn(call.cluster, answer["jobs"], now_s)
        enforced_by, before = EnforcedBy(answer["enforced_by"]), lease.enforced_by
        lease.answered(
            Stamp(**answer["stamp"]),
            enforced_by,
            now_s,
            granted=answer["granted"],
            is_cleared=all(stray.is_service for stray in self.strays[call.cluster]),
        )
        if enforced_by is not before:
            self._jobs.keep(lease=lease)

    def _learn(self, cluster: str, rows: Iterable[Mapping[str, Any]], now_s: float) -> None:
        """Take in the jobs that a cluster has of the federation; what is not assigned to it is a stray."""
        self._listed[cluster], self.strays[cluster] = set(), []
        for row in rows:
            job = self._owner(cluster, row["job"], row["assignment"])
            if job is None:
                self.strays[cluster].append(_cancellation(cluster, row))
                continue
            self._listed[cluster].add(row["job"])
            job.phase, job.came_by = row["phase"], row["assignment"]
            self._moves.note(job, row, now_s)
            if job.stage is Stage.SENDING and job.number == assignment_of(row["assignment"]).number:
                self._jobs.take(job, row["job"])

    def _owner(self, cluster: str, remote: str, assignment: str) -> FederatedJob | None:
        """The job of which this is the current assignment; of a service an update may be under way."""
        told = assignment_of(assignment)
        job = self._jobs.live.get(told.job)
        if job is not None and told.number <= job.since:
            return None
        if job is not None and job.is_service and job.stage is Stage.CHOOSING:
            others = self._jobs.live.values()
            if cluster not in allowed_clusters(self._federation, job, others):
                return None
            job.take_back(cluster, remote, f"{cluster} still has it", self._wall())
            self._jobs.keep([job])
        if job is None or not job.is_assigned or job.cluster != cluster:
            return None
        return job if job.is_service or job.number == told.number else None


def _cancellation(cluster: str, row: Mapping[str, Any]) -> Call:
    """The call that ends what a cluster has and should not."""
    return Call(
        CallKind.CANCEL,
        cluster,
        remote=row["job"],
        is_service=row["service"],
        came_by=row["assignment"],
    )
