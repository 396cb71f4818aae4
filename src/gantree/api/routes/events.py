"""The route of the timeline as server-sent events. `api.streams.event_feed` reads and frames them."""

from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse

from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import QueryBackend
from gantree.api.http.responses import documented_stream
from gantree.api.streams.event_feed import EventFeed
from gantree.api.streams.streaming import AuthorizedStreamingResponse, CurrentStream
from gantree.api.views import queries

LARGEST_SEQ = 2**63 - 1
FRAME = (
    'id: 7\nevent: GangPlaced\ndata: {"seq":7,"fact":"GangPlaced","at":1795300000.1,"data":{}}\n\n'
)


def router(backend: QueryBackend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["events"])
    feed = EventFeed(backend)

    @routes.get(
        "/events",
        **documented_stream("text/event-stream", "An event for each fact.", FRAME),
        **needs(Need.KNOWN),
    )
    async def events(
        stream: CurrentStream,
        job: Annotated[str | None, Query(description="Only what is about this job.")] = None,
        last_event_id: Annotated[int | None, Header(ge=0, le=LARGEST_SEQ)] = None,
    ) -> StreamingResponse:
        """Each fact as it is recorded, for ever; after Last-Event-ID where it is given, so that nothing is missed."""
        only = None

        async def named(caller: Caller) -> str:
            return await backend.read_inline(queries.job_id, caller, job or "", Need.SEE)

        if job is not None:
            only = await named(stream.caller)
            stream.add_check(named)
        after = await feed.place(last_event_id)
        frames = feed.frames(after, only, stream)
        return AuthorizedStreamingResponse(frames, stream, media_type="text/event-stream")

    return routes
