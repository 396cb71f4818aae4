"""Shared by all pages: navigation, templates, headers, and error pages."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined

from gantree import __version__
from gantree.api.access.access import Caller
from gantree.api.access.permissions import Need, check_need, permitted
from gantree.api.http.problems import problem_of
from gantree.control.engine.leadership import Leader, Leadership
from gantree.model.errors import BadInput, Forbidden, GantreeError, Unauthenticated
from gantree.web.pages.assets import asset_path
from gantree.web.pages.formatting import WORDS

CONTENT_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the navigation: its path below the base, its name, and what it needs."""

    path: str
    title: str
    need: Need = Need.KNOWN


NAVIGATION: Final = (
    Entry("/", "Overview"),
    Entry("/queue", "Jobs"),
    Entry("/services", "Services"),
    Entry("/cluster", "Cluster"),
    Entry("/gantt", "Gantt"),
    Entry("/queues", "Queues"),
    Entry("/history", "History"),
    Entry("/nodes", "Nodes"),
    Entry("/fleet", "Fleet"),
    Entry("/submit", "Submit", Need.SUBMIT),
)


class PageRoute(APIRoute):
    """A route whose errors are pages, and whose callers without a session are shown where to log in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler with ours around it."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Unauthenticated:
                return _to_log_in(request)
            except RequestValidationError:
                return _error_page(request, BadInput("the address is not valid for this page"))
            except GantreeError as error:
                return _error_page(request, error)

        return handled


def page_router() -> APIRouter:
    """A router for pages; each of its routes says by `needs` who may see it, as those of the API do."""
    return APIRouter(route_class=PageRoute, dependencies=[Depends(permitted)])


def render(
    request: Request, caller: Caller | None, template: str, status: int = 200, **context: object
) -> Response:
    """A page; context holds the template's variables. may_submit and may_operate are False on a standby."""
    base, standby = base_of(request), standby_of(request)
    leads = standby is None
    html = (
        environment()
        .get_template(template)
        .render(
            context,
            base=base,
            caller=caller,
            standby=standby,
            navigation=[entry for entry in NAVIGATION if _may(caller, entry.need)],
            may_submit=leads and _may(caller, Need.SUBMIT),
            may_operate=leads and caller is not None and caller.is_operator,
            version=__version__,
            asset=lambda name: base + asset_path(name),
        )
    )
    return HTMLResponse(html, status, {"Content-Security-Policy": CONTENT_POLICY})


def base_of(request: Request) -> str:
    """The prefix that links need: where `gantree up --root-path` says that the daemon is served, else nothing."""
    return str(request.scope.get("root_path", "")).rstrip("/")


@dataclass(frozen=True, slots=True)
class Standby:
    """A daemon that does not lead: its name, and the leader if known."""

    name: str
    leader: Leader | None


def standby_of(request: Request) -> Standby | None:
    """The daemon that answers, where it only stands by; None where it leads."""
    leadership: Leadership | None = getattr(request.app.state, "leadership", None)
    if leadership is None:
        return None
    known = leadership.known
    is_other = known is not None and (known.name, known.url) != (leadership.name, leadership.url)
    return Standby(leadership.name, known if is_other else None)


def _may(caller: Caller | None, need: Need) -> bool:
    """Whether to offer a page to a caller."""
    try:
        if caller is not None:
            check_need(caller, need)
    except Forbidden:
        return False
    return caller is not None


def redirect(request: Request, path: str) -> Response:
    """Go to another page, by its path below the base."""
    return RedirectResponse(base_of(request) + path, 303)


def local_path(path: str) -> str:
    """A path below the base to go back to, as a browser sent it; "/" for anything that could lead elsewhere."""
    is_path = path.startswith("/") and not path.startswith(("//", "/\\"))
    return path if is_path and path.isprintable() and "\\" not in path else "/"


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Jinja, which escapes all that it writes and does not let a name be wrong silently."""
    made = Environment(
        loader=PackageLoader("gantree.web", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(WORDS)
    return made


def _to_log_in(request: Request) -> Response:
    path = request.scope["path"].removeprefix(base_of(request)) or "/"
    address = f"{path}?{request.url.query}" if request.url.query else path
    return redirect(request, f"/login?{urlencode({'next': address})}")


def _error_page(request: Request, error: GantreeError) -> Response:
    status, problem = problem_of(error)
    caller = request.scope.get("state", {}).get("caller")
    return render(request, caller, "error.html", status, problem=problem)
