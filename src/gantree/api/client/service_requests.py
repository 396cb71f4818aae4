"""Requests about services and of routers, as `requests` has those about jobs."""

from collections.abc import Mapping, Sequence

from gantree.api.client.request import LONGEST_WAIT_S, Json, Request, Rows, rows_named
from gantree.model.errors import NotFound


def services() -> Request[Rows]:
    """The live services, a row each."""
    return Request("GET", "/v1/services", read=rows_named("services"))


def service(service: str) -> Request[Json]:
    """One service with its replicas and its last scalings."""
    return Request("GET", "/v1/services/{service}", service_path(service))


def scale_service(service: str, replicas: int) -> Request[Json]:
    """Have another number of replicas run."""
    body = {"replicas": replicas}
    return Request("POST", "/v1/services/{service}/scale", service_path(service), body=body)


def cancel_service(service: str, *, assignment: str | None = None) -> Request[Json]:
    """End a service; its replicas finish their requests first. assignment: of a federation, only if it came by that."""
    query = {"assignment": assignment}
    return Request("POST", "/v1/services/{service}/cancel", service_path(service), query)


def routes(after: str = "", *, wait_s: float = 0.0) -> Request[Json]:
    """Where the replicas of services listen; as soon as the table is not that of the version `after`, for wait_s."""
    wait_s = min(wait_s, LONGEST_WAIT_S)
    query = {"after": after, "wait_s": wait_s}
    return Request("GET", "/v1/routes", query=query, wait_s=wait_s)


def report_routes(
    router: str, window_s: float, services: Sequence[Mapping[str, object]], *, version: str = ""
) -> Request[Json]:
    """Report the requests of the last window_s seconds, for each service that the router sends requests to."""
    body = {
        "router": router,
        "window_s": window_s,
        "version": version,
        "services": list(services),
    }
    return Request("POST", "/v1/routes/reports", body=body)


def service_path(service: str) -> dict[str, str]:
    """What fills `{service}` in a path. Raises NotFound for a word that could not even be put into one."""
    if not service or "/" in service or service in (".", "..") or not service.isprintable():
        raise NotFound(f"there is no service {service!r}")
    return {"service": service}
