"""The page of the cluster: its heat map, and the same numbers as a table of domains for screen readers."""

import gzip
from typing import Annotated

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response

from gantree.api.access.access import CurrentCaller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.streams.streaming import AuthorizedStreamingResponse, CurrentStream
from gantree.model.errors import NotFound
from gantree.web.pages.frame import page_router, render
from gantree.web.pages.heat_map.feed import EVERY_S, LEVEL, HeatFeed, gzipped, latest_map, plain
from gantree.web.pages.heat_map.messages import compact

Accepts = Annotated[str, Header(alias="Accept-Encoding")]


def router(reads: QueryBackend) -> APIRouter:
    """The routes of the page."""
    routes = page_router()
    feed = HeatFeed(reads)
    kept: dict[str, bytes] = {}  # the newest map alone, by its id

    @routes.get("/cluster", **needs(Need.KNOWN))
    async def cluster(request: Request, caller: CurrentCaller) -> Response:
        """The page."""
        scene = await feed.scene(EVERY_S)
        tiers = () if scene is None else tuple(dict.fromkeys(row.tier for row in scene.domains))
        counted = scene is not None and reads.gpu_counters.covers(scene.names)
        return render(
            request, caller, "heat.html", scene=scene, tiers=(*tiers, "node"), counted=counted
        )

    @routes.get("/cluster/map/{map_id}", **needs(Need.KNOWN))
    async def drawn(map_id: str, accepts: Accepts = "") -> Response:
        """Return the map. Its URL contains its digest, so browsers may cache it."""
        if map_id not in kept:
            context = await reads.read(latest_map)
            if context is None or context["map_id"] != map_id:
                raise NotFound("the cluster has changed; reload the page")
            kept.clear()
            kept[map_id] = compact(context).encode()
        return _json(kept[map_id], accepts)

    @routes.get("/cluster/stream", **needs(Need.KNOWN))
    async def stream(stream: CurrentStream, accepts: Accepts = "") -> Response:
        """Stream the scene and its changes."""
        frames = feed.frames(stream)
        if "gzip" not in accepts:
            return AuthorizedStreamingResponse(
                plain(frames), stream, media_type="text/event-stream"
            )
        headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        return AuthorizedStreamingResponse(
            gzipped(frames), stream, headers=headers, media_type="text/event-stream"
        )

    return routes


def _json(body: bytes, accepts: str) -> Response:
    headers = {"Cache-Control": "private, max-age=86400", "Vary": "Accept-Encoding"}
    if "gzip" in accepts:
        headers["Content-Encoding"] = "gzip"
        body = gzip.compress(body, LEVEL, mtime=0)
    return Response(body, 200, headers, "application/json")
