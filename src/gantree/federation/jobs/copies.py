"""The copies of a service in several regions: at most one in each, and each a job of the front of its own. Pure.

A copy may be in any cluster of its region, or where only a number of regions is asked for, in any region in which no
other copy is. A copy that was lost goes by the same rule, so it waits where there is no such cluster.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gantree.federation.jobs.federated_job import FederatedJob
from gantree.model.errors import BadInput
from gantree.model.federation import Federation


@dataclass(frozen=True, slots=True)
class Copies:
    """What becomes of the copies of a service: (copy, its region) to be updated, regions of new ones, copies to end."""

    kept: tuple[tuple[FederatedJob, str], ...]
    new: tuple[str, ...]
    ending: tuple[FederatedJob, ...]


def copies_of(
    service: FederatedJob, federation: Federation, live: Sequence[FederatedJob]
) -> Copies:
    """What becomes of the live copies of a service by its new description. Raises BadInput for regions that are not.

    A copy stays where it is, if one is to be there.
    """
    missing = list(_regions_of(service, federation))
    left = [copy for copy in live if not copy.cancelled]
    kept: list[tuple[FederatedJob, str]] = []
    for is_match in (_is_in, _may_be_in):
        for region in list(missing):
            copy = next((each for each in left if is_match(federation, each, region)), None)
            if copy is not None:
                missing.remove(region)
                left.remove(copy)
                kept.append((copy, region))
    return Copies(tuple(kept), tuple(missing), tuple(left))


def _regions_of(service: FederatedJob, federation: Federation) -> Iterator[str]:
    """A region for each copy; "" for any."""
    asked, there = service.regions, federation.regions
    if unknown := [name for name in asked.names if name not in there]:
        raise BadInput(
            f"{service.name}: regions: there is no {unknown[0]}; there are {', '.join(there)}"
        )
    if asked.count is not None and asked.count > len(there):
        raise BadInput(
            f"{service.name}: regions: {asked.count}; there are {len(there)}: {', '.join(there)}"
        )
    yield from asked.names or ([""] * asked.count if asked.count else there)


def _region_of(federation: Federation, copy: FederatedJob) -> str:
    """Where a copy is, or has to be; "" for one that has no cluster yet and may get any."""
    return federation.cluster(copy.cluster).region if copy.is_assigned else copy.region


def _is_in(federation: Federation, copy: FederatedJob, region: str) -> bool:
    there = _region_of(federation, copy)
    return bool(there) and region in ("", there)


def _may_be_in(federation: Federation, copy: FederatedJob, region: str) -> bool:
    return not copy.is_assigned


def copy_ids(name: str) -> Iterator[str]:
    """The ids of the copies of a service: the first has its name."""
    yield name
    for number in range(2, 1_000_000):
        yield f"{name}.region{number}"


def allowed_clusters(
    federation: Federation, job: FederatedJob, jobs: Iterable[FederatedJob]
) -> set[str]:
    """The clusters that a job may be assigned to, among all live ones: a copy of a service not beside another."""
    if not job.is_service:
        return {each.name for each in federation.clusters}
    taken = {
        _region_of(federation, other)
        for other in jobs
        if other.is_service and other.name == job.name and other.job != job.job
    }
    return {
        each.name
        for each in federation.clusters
        if job.region in ("", each.region) and each.region not in taken
    }
