"""Jobs of a federation that a cluster keeps itself: on Kubernetes as GangJobs. Others are in the ledger."""

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from gantree.model.jobs import Job

Json = dict[str, Any]


class FederatedJobs(Protocol):
    """What a cluster does with the jobs that a federation hands in. It goes by its own names for them."""

    def check(self, job: Job) -> None:
        """Raise Unsupported for a job that the cluster cannot keep; on the controller's thread."""
        ...

    def create(self, job: Job) -> "Future[str]":
        """Keep a job, once for each assignment; its name. Raises BadInput, Unreachable in the future."""
        ...

    def rows(self, federation: str) -> list[Json]:
        """The jobs of a federation that have not ended; on the controller's thread."""
        ...

    def row(self, name: str) -> "Future[Json]":
        """One job, ended or not. Raises NotFound, Unreachable in the future."""
        ...

    def cancel(self, name: str) -> "Future[None]":
        """End a job. Raises NotFound, Conflict for one that has ended, Unreachable in the future."""
        ...


@runtime_checkable
class KeepsFederatedJobs(Protocol):
    """A cluster that keeps the jobs of federations itself."""

    @property
    def federated_jobs(self) -> FederatedJobs:
        """Its jobs of federations."""
        ...


def federated_jobs_of(cluster: object) -> FederatedJobs | None:
    """The jobs of federations that a cluster keeps itself; None where they are in the ledger."""
    return cluster.federated_jobs if isinstance(cluster, KeepsFederatedJobs) else None
