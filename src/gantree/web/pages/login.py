"""The login page. It sends the token to `POST /v1/session`, which authenticates."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from gantree.api.backend import QueryBackend
from gantree.web.pages.frame import PageRoute, local_path, render


def router(reads: QueryBackend) -> APIRouter:
    """The route of the page."""
    routes = APIRouter(route_class=PageRoute)

    @routes.get("/login")
    async def login(
        request: Request, back: Annotated[str, Query(alias="next", max_length=2000)] = "/"
    ) -> Response:
        """The log-in page; back is the page to return to."""
        access = request.app.state.access
        has_oidc = getattr(access, "oidc", None) is not None
        return render(request, None, "login.html", back=local_path(back), has_oidc=has_oidc)

    return routes
