"""What the front answers about jobs, clusters and leases, as the API of a daemon has it where that has it. Pure."""

from typing import Any

from gantree.federation.front import Front
from gantree.federation.granted_lease import GrantedLease
from gantree.federation.jobs.federated_job import FederatedJob, Stage

Json = dict[str, Any]
UNKNOWN = (
    "priority", "gpus", "members", "members_now", "gpus_now", "processes", "attempt", "domain", "started_at",
    "exit_code", "checkpoint_step", "starts_at", "predicted_step_s", "progress", "check", "idle", "array", "elements",
)  # fmt: skip
"""Fields of a job's row that its cluster knows."""


def job_row(job: FederatedJob) -> Json:
    """A job as a list shows it; its cluster has the rest."""
    return {
        **dict.fromkeys(UNKNOWN),
        "job": job.job,
        "name": job.name,
        "phase": job.phase,
        "queue": job.queue,
        "user": job.user,
        "submitted_at": job.submitted_at,
        "ended_at": job.ended_at,
        "held": False,
        "suspended": False,
        "reason": job.reasons[-1][1] if job.reasons else "",
        "preemptions": 0,
        "failures": 0,
        "last_failure": "",
        "promised": False,
        "stragglers": [],
        "kind": job.kind,
        "stage": job.stage.value,
        "cluster": job.cluster or None,
        "job_there": job.remote or None,
    }


def why(job: FederatedJob, in_cluster: str = "") -> Json:
    """Why a job is where it is: the last reason of the front, and what its cluster says."""
    parts = [sentence(job), in_cluster]
    return {
        "job": job.job,
        "phase": job.phase,
        "sentence": " ".join(part for part in parts if part),
        "refused": None,
        "ahead": [],
        "ahead_count": 0,
        "start": None,
        "in_the_way": [],
        "cluster": job.cluster or None,
        "reasons": [{"at": at, "reason": reason} for at, reason in job.reasons],
    }


def sentence(job: FederatedJob) -> str:
    """Where a job is, and the last reason of the front."""
    reason = job.reasons[-1][1] if job.reasons else "No cluster of the federation can be asked."
    return f"{job.job} {_stands(job)}: {reason.rstrip('.')}."


def _stands(job: FederatedJob) -> str:
    """Where a job is, in words."""
    if job.stage is Stage.ENDED:
        return f"has ended ({job.outcome})"
    if job.stage is Stage.CHOOSING:
        return "has no cluster yet"
    if job.stage is Stage.SENDING:
        return f"is being sent to {job.cluster}"
    return f"is in {job.cluster} as {job.remote}"


def status(front: Front, now_s: float) -> Json:
    """The federation: its clusters with their leases, and how many jobs each has."""
    federation = front.federation
    clusters = [_cluster_row(front, lease, now_s) for lease in front.leases.values()]
    waiting = sum(job.stage is Stage.CHOOSING for job in front.jobs.values())
    return {
        "federation": federation.name,
        "choose": federation.choose.value,
        "lease_s": federation.lease_s,
        "without_cluster": waiting,
        "clusters": clusters,
    }


def _cluster_row(front: Front, lease: GrantedLease, now_s: float) -> Json:
    cluster = front.federation.cluster(lease.cluster)
    jobs = [job for job in front.jobs.values() if job.is_assigned and job.cluster == lease.cluster]
    connected = lease.is_connected(now_s, front.federation.lost_after_s)
    return {
        "cluster": lease.cluster,
        "region": cluster.region,
        "url": cluster.url,
        "state": _state(lease, connected=connected),
        "lease": lease.number,
        "silent_s": None if connected else now_s - lease.answered_at_s,
        "moves_in_s": None
        if connected or not jobs
        else max(0.0, lease.ends_at_s + lease.margin_s - now_s),
        "enforced_by": lease.enforced_by.value,
        "trouble": lease.trouble,
        "jobs": sum(not job.is_service for job in jobs),
        "services": sum(job.is_service for job in jobs),
    }


def _state(lease: GrantedLease, *, connected: bool) -> str:
    if connected:
        return "ready" if lease.is_held else "joining"
    return "confirmed lost" if lease.is_known_lost else "lost"
