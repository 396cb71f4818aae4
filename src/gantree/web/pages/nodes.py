"""The pages of nodes: a list with the jobs on each, and one node. Operators cordon, drain and uncordon here.

What a button does is the API's own request, sent by the browser (`static/nodes.js`); the API decides who may.
"""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.views import queries
from gantree.web.pages.frame import page_router, render

Json = dict[str, Any]
PER_PAGE: Final = 100
Which = Literal["all", "ready", "cordoned", "draining", "drained", "lost", "broken", "free"]


def router(reads: QueryBackend) -> APIRouter:
    """The routes of the pages."""
    routes = page_router()

    @routes.get("/nodes", **needs(Need.KNOWN))
    async def nodes(
        request: Request,
        caller: CurrentCaller,
        which: Which = "all",
        find: Annotated[str, Query(max_length=256)] = "",
        page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    ) -> Response:
        """The list, a page at a time."""
        rows = await reads.read(queries.nodes, caller)
        found = found_nodes(rows, which, find.strip())
        context: Json = {
            "rows": found[(page - 1) * PER_PAGE : page * PER_PAGE],
            "found": len(found),
            "total": len(rows),
            "page_number": page,
            "pages": max(1, -(-len(found) // PER_PAGE)),
            "which": which,
            "find": find,
        }
        return render(request, caller, "nodes.html", **context)

    @routes.get("/nodes/{name}", **needs(Need.KNOWN))
    async def node(request: Request, caller: CurrentCaller, name: str) -> Response:
        """One node."""
        row = await reads.read(queries.node, caller, name)
        return render(request, caller, "node.html", row=row)

    return routes


def found_nodes(rows: list[Json], which: Which, find: str) -> list[Json]:
    """Nodes in one state ("free": ready, with free GPUs) that a search finds by name, domain, machine, label or job."""
    sought = find.lower()
    return [
        row
        for row in rows
        if _is_in(row, which) and (not sought or any(sought in word for word in _words(row)))
    ]


def _is_in(row: Json, which: Which) -> bool:
    if which == "free":
        return row["state"] == "ready" and bool(row["free_gpus"])
    return which in ("all", row["state"])


def _words(row: Json) -> list[str]:
    domains = row["domains"].values()
    labels = (f"{key}={value}" for key, value in row["labels"].items())
    jobs = (job["job"] for job in row["jobs"])
    words = (row["node"], row["machine"], *domains, "/".join(domains), *labels, *jobs)
    return [str(word).lower() for word in words]
