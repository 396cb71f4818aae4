"""The tables of routers of all clusters as one, and reports of routers divided among the clusters. Pure.

A replica is called CLUSTER/REPLICA here, as two clusters may have replicas of one name. Its place begins with its
region and its cluster, so for a router the region is the widest domain: what is near is in its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from gantree.model.federation import Federation

Json = dict[str, Any]
SEPARATOR = "/"
LATENCIES = ("latency_p50_s", "latency_p99_s", "ttft_p99_s", "itl_p99_s")


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """The table of one cluster, and whether it can be reached now.

    names are those of services of the front, by the names that they have there.
    """

    cluster: str
    version: str
    services: tuple[Json, ...]
    is_reachable: bool
    names: Mapping[str, str] = field(default_factory=dict)

    def name_of(self, service: Json) -> str:
        """The name of a row's service here."""
        there: str = service["service"]
        return self.names.get(there, there)

    def name_there(self, service: str) -> str:
        """The name of a service in the cluster."""
        return next((there for there, name in self.names.items() if name == service), service)


def merged(federation: Federation, tables: Iterable[ClusterTable]) -> list[Json]:
    """A row for each service that any cluster has; of a cluster that cannot be reached no replica is ready."""
    rows: dict[str, Json] = {}
    for table in tables:
        region = federation.cluster(table.cluster).region
        for service in table.services:
            replicas = [_replica(table, region, each) for each in service["replicas"]]
            name = table.name_of(service)
            row = rows.setdefault(name, {**service, "service": name, "wanted": 0, "replicas": []})
            row["wanted"] += service["wanted"] if table.is_reachable else 0
            row["replicas"] += replicas
    return [rows[name] for name in sorted(rows)]


def _replica(table: ClusterTable, region: str, replica: Json) -> Json:
    return {
        **replica,
        "replica": f"{table.cluster}{SEPARATOR}{replica['replica']}",
        "place": [region, f"{region}/{table.cluster}", *replica["place"]],
        "ready": replica["ready"] and table.is_reachable,
    }


def divided(report: Json, tables: Sequence[ClusterTable]) -> dict[str, Json]:
    """The report of a router for each cluster that can be reached: the part that concerns its own replicas."""
    reachable = [table for table in tables if table.is_reachable]
    having: dict[str, list[str]] = {}
    for table in reachable:
        for service in table.services:
            having.setdefault(table.name_of(service), []).append(table.cluster)
    return {
        table.cluster: {
            **report,
            "version": table.version,
            "services": [
                {
                    **_part(service, table.cluster, having[service["service"]][0]),
                    "service": table.name_there(service["service"]),
                }
                for service in report["services"]
                if table.cluster in having.get(service["service"], ())
            ],
        }
        for table in reachable
    }


def _part(service: Json, cluster: str, first: str) -> Json:
    """The part of a service's row that concerns a cluster that has the service.

    What is in work or waits is divided as the requests in flight are, the rest as those that have ended. Where no
    cluster has a replica, the first one gets all: a request that waits has it start one. A cluster that has answered
    nothing has no latency.
    """
    prefix = f"{cluster}{SEPARATOR}"
    own = [each for each in service["replicas"] if each["replica"].startswith(prefix)]
    every = service["replicas"]
    of_all = len(own) / len(every) if every else float(cluster == first)
    tokens = service["tokens_per_s"]
    busy, ended = _share(own, every, "in_flight"), _share(own, every, "requests")
    busy, ended = (
        next(share for share in (busy, ended, of_all) if share is not None),
        next(share for share in (ended, busy, of_all) if share is not None),
    )
    return {
        **service,
        **{key: ceil(service[key] * busy) for key in ("in_flight", "queued")},
        **{key: round(service[key] * ended) for key in ("requests", "errors", "shed")},
        "concurrency": service["concurrency"] * busy,
        "rate": service["rate"] * ended,
        "tokens_per_s": tokens if tokens is None else tokens * ended,
        **({} if ended else dict.fromkeys(LATENCIES)),
        "replicas": [{**each, "replica": each["replica"].removeprefix(prefix)} for each in own],
    }


def _share(own: Sequence[Json], every: Sequence[Json], count: str) -> float | None:
    """The share of a count that some replicas have; None where nobody has any."""
    total = sum(each[count] for each in every)
    return sum(each[count] for each in own) / total if total else None
