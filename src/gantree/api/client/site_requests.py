"""Requests about nodes and links, as `requests` has those about jobs."""

from collections.abc import Mapping, Sequence

from gantree.api.client.request import Json, Request, Rows, rows_named
from gantree.model.errors import NotFound


def nodes() -> Request[Rows]:
    """All nodes: their states, what runs there, their labels."""
    return Request("GET", "/v1/nodes", read=rows_named("nodes"))


def node(node: str) -> Request[Json]:
    """One node."""
    return Request("GET", "/v1/nodes/{node}", node_path(node))


def cordon(node: str, reason: str = "") -> Request[Json]:
    """Let nothing new start on a node; what runs there stays."""
    return Request("POST", "/v1/nodes/{node}/cordon", node_path(node), body={"reason": reason})


def uncordon(node: str) -> Request[Json]:
    """Let a node be used again."""
    return Request("POST", "/v1/nodes/{node}/uncordon", node_path(node))


def burn_in(
    nodes: Sequence[str], *, duration_s: float = 600.0, queue: str = "default"
) -> Request[Json]:
    """Have cordoned, empty nodes check their GPUs and links; the answer names the job."""
    body = {"nodes": list(nodes), "duration_s": duration_s, "queue": queue}
    return Request("POST", "/v1/nodes/burn-in", body=body)


def drain(node: str, *, deadline_s: float | None = None, reason: str = "") -> Request[Json]:
    """Drain a node: gangs move elsewhere, or stop after deadline_s seconds (None: at once)."""
    body = {"deadline_s": deadline_s, "reason": reason}
    return Request("POST", "/v1/nodes/{node}/drain", node_path(node), body=body)


def label(node: str, labels: Mapping[str, str | None]) -> Request[Json]:
    """Give a node labels; None takes one away."""
    body = {"labels": dict(labels)}
    return Request("POST", "/v1/nodes/{node}/labels", node_path(node), body=body)


def node_fault(
    node: str,
    *,
    gpu: int | None = None,
    xid: int | None = None,
    reason: str = "",
    source: str = "operator",
) -> Request[Json]:
    """Report a fault of a GPU (None: not known which); neither xid nor reason: the source says that all is well."""
    body = {"gpu": gpu, "xid": xid, "reason": reason, "source": source}
    return Request("POST", "/v1/nodes/{node}/fault", node_path(node), body=body)


def repair(node: str, action: str = "start") -> Request[Json]:
    """Start the repair of a node from its first step, or stop it (action "stop")."""
    body = {"action": action}
    return Request("POST", "/v1/nodes/{node}/repair", node_path(node), body=body)


def renew_lease(
    federation: str, number: int, lease_s: float, stamp: Mapping[str, object] | None = None
) -> Request[Json]:
    """Renew the lease of a federation on its jobs in this cluster, from a stamp of the answer before."""
    body: Json = {"federation": federation, "number": number, "lease_s": lease_s}
    if stamp is not None:
        body["stamp"] = dict(stamp)
    return Request("POST", "/v1/federation/lease", body=body)


def federated_object(kind: str, name: str) -> Request[Json]:
    """What a federation handed in, as the API server has it. kind: gangjobs or gangservices; name: NAMESPACE/NAME."""
    return Request("GET", "/v1/federation/{kind}/{namespace}/{name}", _object_path(kind, name))


def cancel_federated_object(
    kind: str, name: str, *, assignment: str | None = None
) -> Request[Json]:
    """Delete what a federation handed in, if it came by this assignment; it is there until its pods are gone."""
    path = "/v1/federation/{kind}/{namespace}/{name}/cancel"
    query = {"assignment": assignment}
    return Request("POST", path, _object_path(kind, name), query=query)


def _object_path(kind: str, name: str) -> dict[str, str]:
    namespace, _, own = name.partition("/")
    return {"kind": kind, "namespace": namespace, "name": own}


def links() -> Request[Rows]:
    """The links of which a source reports that they carry less than their rate."""
    return Request("GET", "/v1/links", read=rows_named("links"))


def degrade(
    link: str, health: float, *, reason: str = "", source: str = "operator", load: float = 0.0
) -> Request[Json]:
    """Report which share of its rate, between 0 and 1, a link carries, and its load; 1 and 0 once it is well again."""
    body = {"link": link, "health": health, "reason": reason, "source": source, "load": load}
    return Request("POST", "/v1/links/degrade", body=body)


def restore(link: str) -> Request[Json]:
    """Count a link as whole, until a source reports something else of it."""
    return Request("POST", "/v1/links/restore", body={"link": link})


def node_path(node: str) -> dict[str, str]:
    """What fills `{node}` in a path. Raises NotFound for a word that could not even be put into one."""
    if not node or "/" in node or node in (".", "..") or not node.isprintable():
        raise NotFound(f"there is no node {node!r}")
    return {"node": node}
