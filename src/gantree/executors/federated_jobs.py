"""Jobs and services of a federation that a cluster keeps itself: on Kubernetes as GangJobs and GangServices.

Others are in the ledger.
"""

from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from gantree.model.jobs import Job
from gantree.model.services import ServiceSpec

Json = dict[str, Any]


class FederatedJobs(Protocol):
    """What a cluster does with the jobs and services that a federation hands in. It goes by its own names for them."""

    def check(self, asked: Job | ServiceSpec) -> None:
        """Raise Unsupported for what the cluster cannot keep; on the controller's thread."""
        ...

    def create(self, asked: Job | ServiceSpec) -> "Future[str]":
        """Keep a job, once for each assignment, or a service, which may be there already; its name.

        Raises BadInput, Unreachable in the future.
        """
        ...

    def rows(self, federation: str) -> list[Json]:
        """The jobs and services of a federation that have not ended; on the controller's thread."""
        ...

    def row(self, name: str, *, is_service: bool) -> "Future[Json]":
        """One of them, ended or not. Raises NotFound, Unreachable in the future."""
        ...

    def cancel(self, name: str, *, is_service: bool, assignment: str | None) -> "Future[None]":
        """End one; assignment: only if it came by that.

        Raises NotFound, Conflict for one that has ended or came by another one, Unreachable in the future.
        """
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
