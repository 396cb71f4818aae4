"""The page of the cluster: its heat map, and the same as a table of domains for those who do not look at pictures."""

import gzip
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response, StreamingResponse

from gantree.api.access import WhoAsks
from gantree.api.backend import Backend
from gantree.api.permissions import Need, needs
from gantree.model.errors import NotFound
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.heat_feed import LEVEL, HeatFeed, map_asked, plain, squeezed
from gantree.web.pages.heat_words import compact
from gantree.web.pages.sight import sight_of

Accepts = Annotated[str, Header(alias="Accept-Encoding")]


def router(backend: Backend) -> APIRouter:
    """The routes of the page."""
    routes = page_router()
    feed = HeatFeed(backend)
    kept: dict[str, bytes] = {}  # the newest map alone, by its id

    @routes.get("/cluster", **needs(Need.KNOWN))
    async def cluster(request: Request, caller: WhoAsks) -> Response:
        """The page."""
        scene = await feed.scene()
        tiers = () if scene is None else tuple(dict.fromkeys(row.tier for row in scene.domains))
        return render(request, caller, "heat.html", scene=scene, tiers=(*tiers, "node"))

    @routes.get("/cluster/map/{map_id}", **needs(Need.KNOWN))
    async def drawn(map_id: str, accepts: Accepts = "") -> Response:
        """Where everything is drawn; the address changes with it, so a browser may keep it."""
        if map_id not in kept:
            told = await backend.read(map_asked)
            if told is None or told["map_id"] != map_id:
                raise NotFound("the cluster is another one by now; load the page again")
            kept.clear()
            kept[map_id] = compact(told).encode()
        return _json(kept[map_id], accepts)

    @routes.get("/cluster/stream", **needs(Need.KNOWN))
    async def stream(caller: WhoAsks, accepts: Accepts = "") -> StreamingResponse:
        """Who holds what, and what changes of it, for ever."""
        frames = feed.frames(sight_of(caller))
        if "gzip" not in accepts:
            return StreamingResponse(plain(frames), media_type="text/event-stream")
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return StreamingResponse(squeezed(frames), 200, headers, "text/event-stream")

    return routes


def _json(body: bytes, accepts: str) -> Response:
    headers = {"Cache-Control": "private, max-age=86400", "Vary": "Accept-Encoding"}
    if "gzip" in accepts:
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, LEVEL, mtime=0)
    return Response(body, 200, headers, "application/json")
