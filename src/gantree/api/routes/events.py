"""The route of the timeline as it grows: server-sent events. How they are read and framed is in `api.event_feed`."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from gantree.api.access import WhoAsks
from gantree.api.answers import comes_as
from gantree.api.backend import Backend
from gantree.api.event_feed import EventFeed
from gantree.api.permissions import Need, job_for, needs

LARGEST_SEQ = 2**63 - 1
FRAME = (
    'id: 7\nevent: GangPlaced\ndata: {"seq":7,"fact":"GangPlaced","at":1795300000.1,"data":{}}\n\n'
)


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["events"])
    feed = EventFeed(backend)

    @routes.get(
        "/events",
        **comes_as("text/event-stream", "An event for each fact.", FRAME),
        **needs(Need.KNOWN),
    )
    async def events(
        caller: WhoAsks,
        job: Annotated[str | None, Query(description="Only what is about this job.")] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=LARGEST_SEQ)] = None,
    ) -> StreamingResponse:
        """Each fact as it is recorded, for ever; after Last-Event-ID where it is given, so that nothing is missed."""
        only = None
        if job is not None:
            only = await backend.ask(lambda controller: job_for(controller, caller, job, Need.SEE))
        after = await feed.place(last_event_id)
        frames = feed.frames(after, only, caller)
        return StreamingResponse(frames, media_type="text/event-stream")

    return routes
