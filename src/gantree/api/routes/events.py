"""The route of the timeline as it grows: server-sent events, read and framed by `api.streams.event_feed`."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Reads
from gantree.api.http.responses import comes_as
from gantree.api.streams.event_feed import EventFeed
from gantree.api.streams.streaming import LastingResponse, WhoHolds
from gantree.api.views import queries

LARGEST_SEQ = 2**63 - 1
FRAME = (
    'id: 7\nevent: GangPlaced\ndata: {"seq":7,"fact":"GangPlaced","at":1795300000.1,"data":{}}\n\n'
)


def router(backend: Reads) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["events"])
    feed = EventFeed(backend)

    @routes.get(
        "/events",
        **comes_as("text/event-stream", "An event for each fact.", FRAME),
        **needs(Need.KNOWN),
    )
    async def events(
        held_by: WhoHolds,
        job: Annotated[str | None, Query(description="Only what is about this job.")] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=LARGEST_SEQ)] = None,
    ) -> StreamingResponse:
        """Each fact as it is recorded, for ever; after Last-Event-ID where it is given, so that nothing is missed."""
        only = None

        async def named(caller: Caller) -> str:
            return await backend.look(queries.job_id, caller, job or "", Need.SEE)

        if job is not None:
            only = await named(held_by.caller)
            held_by.only_if(named)
        after = await feed.place(last_event_id)
        frames = feed.frames(after, only, held_by)
        return LastingResponse(frames, held_by, media_type="text/event-stream")

    return routes
