"""The route of the audit log."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gantree.api.access.audit import Audit
from gantree.api.access.permissions import Need, needs
from gantree.api.backend import Backend
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.model.errors import Unsupported

MOST_ROWS = 10_000
LARGEST_SEQ = 2**63 - 1


class AuditEntry(OpenModel):
    """One request: who asked, through which door and by what he was known, for what, what he was answered."""

    seq: int
    at: float
    who: str = Field(examples=["alice"], description="Empty where nobody knows.")
    door: str = Field(examples=["tcp 10.0.0.7 3f2a90b1c4d5"])
    route: str = Field(examples=["POST /v1/jobs/{word}/cancel"])
    what: str = Field(examples=["word llama-7b"])
    status: int = Field(examples=[202])
    request_id: str


class AuditResponse(BaseModel):
    """Rows, oldest first."""

    rows: list[AuditEntry]
    next: int | None = Field(description="Give it as `after` for the next rows; null at the end.")


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["access"])

    @routes.get("/audit", **documented(AuditResponse, "The rows."), **needs(Need.OPERATE))
    async def audit(
        request: Request,
        since: Annotated[float | None, Query(description="Asked then or later.")] = None,
        user: Annotated[str | None, Query(max_length=256)] = None,
        after: Annotated[int, Query(ge=0, le=LARGEST_SEQ)] = 0,
        limit: Annotated[int, Query(ge=1, le=MOST_ROWS)] = 1000,
    ) -> Response:
        """Changes that were asked for, and requests that were refused, oldest first."""
        book: Audit | None = request.app.state.audit
        if book is None:
            raise Unsupported("this daemon keeps no audit log")
        found = await book.read(since, user, after, limit + 1)
        more = len(found) > limit
        rows = [asdict(row) for row in found[:limit]]
        return json_response({"rows": rows, "next": rows[-1]["seq"] if more else None})

    return routes
