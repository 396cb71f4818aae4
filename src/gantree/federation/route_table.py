"""The tables of routers of all clusters as one, and reports of routers divided among the clusters. Pure.

A replica is called CLUSTER/REPLICA here, as two clusters may have replicas of one name. Its place begins with its
region and its cluster, so for a router the region is the widest domain: what is near is in its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gantree.model.federation import Federation

Json = dict[str, Any]
SEPARATOR = "/"
ADDITIVE = ("requests", "errors", "shed", "in_flight", "queued", "concurrency", "rate", "tokens_per_s")  # fmt: skip
COUNTS = frozenset({"requests", "errors", "shed", "in_flight", "queued"})


@dataclass(frozen=True, slots=True)
class ClusterTable:
    """The table of one cluster, and whether it can be reached now."""

    cluster: str
    version: str
    services: tuple[Json, ...]
    is_reachable: bool


def merged(federation: Federation, tables: Iterable[ClusterTable]) -> list[Json]:
    """A row for each service that any cluster has; of a cluster that cannot be reached no replica is ready."""
    rows: dict[str, Json] = {}
    for table in tables:
        region = federation.cluster(table.cluster).region
        for service in table.services:
            replicas = [_replica(table, region, each) for each in service["replicas"]]
            row = rows.setdefault(service["service"], {**service, "wanted": 0, "replicas": []})
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


def divided(report: Json, clusters: Iterable[str], versions: Mapping[str, str]) -> dict[str, Json]:
    """The report of a router for each cluster: what can be added up, by the share of requests on its replicas."""
    told: dict[str, Json] = {}
    for cluster in clusters:
        services = [_share(service, cluster) for service in report["services"]]
        told[cluster] = {
            **report,
            "version": versions.get(cluster, ""),
            "services": [each for each in services if each is not None],
        }
    return told


def _share(service: Json, cluster: str) -> Json | None:
    """The part of a service's row that concerns a cluster; None where it has no replica of it."""
    prefix = f"{cluster}{SEPARATOR}"
    own = [each for each in service["replicas"] if each["replica"].startswith(prefix)]
    if not own:
        return None
    total = sum(each["requests"] for each in service["replicas"])
    part = sum(each["requests"] for each in own)
    share = part / total if total else len(own) / len(service["replicas"])
    scaled = {
        key: round(service[key] * share) if key in COUNTS else service[key] * share
        for key in ADDITIVE
        if service.get(key) is not None
    }
    replicas = [{**each, "replica": each["replica"].removeprefix(prefix)} for each in own]
    return {**service, **scaled, "replicas": replicas}
