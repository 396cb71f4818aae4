"""Routes of browser sessions: log in with a token or with the OIDC provider, get the session, log out.

The cookie holds a secret of 256 random bits that scripts cannot read, and the daemon's database its digest. It is
strict (the browser sends it with nothing that another site began), but for a session that began at the provider's
site, where strict would lose it at once; a change needs an Origin header either way (`api.access.cookies`).
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field

from gantree.api.access.access import Access, Caller, CurrentCaller
from gantree.api.access.audit import note_what
from gantree.api.access.cookies import LOG_IN, SESSION, check_origin, cookie_named, cookie_of
from gantree.api.access.permissions import Need, check_need, needs
from gantree.api.access.tokens import SESSION_S, IssuedToken, Tokens, TokenSpec
from gantree.api.backend import Backend
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.model.access import POWERS_OF_ROLE, Grant
from gantree.model.errors import Conflict, Unauthenticated

LOG_IN_S = 600
"""How long a log-in at the provider may take."""
LONGEST_STATE = 2000


class SessionRequest(Body):
    """What opens a session: any token that the API takes."""

    token: str = Field(min_length=1, max_length=16_384)


class GrantRow(BaseModel):
    """A role over a queue and all below it; "" is every queue. A role that a token narrowed is told as "custom"."""

    role: str = Field(examples=["user"])
    queue: str = Field(examples=["research"])


class SessionResponse(OpenModel):
    """Who asks, and what he may do."""

    user: str = Field(examples=["alice"])
    via: str = Field(examples=["tcp"])
    grants: list[GrantRow]
    operator: bool


def login_router(backend: Backend) -> APIRouter:
    """Return the login routes, which need no authentication."""
    routes = APIRouter(prefix="/v1/session", tags=["access"])
    _add_token_login(routes)
    _add_provider_login(routes)
    return routes


def router(backend: Backend) -> APIRouter:
    """Return the routes of the current session."""
    routes = APIRouter(prefix="/v1/session", tags=["access"])

    @routes.get("", **documented(SessionResponse, "Who asks."), **needs(Need.KNOWN))
    async def session(caller: CurrentCaller) -> Response:
        """Who asks, and what he may do."""
        return json_response(_session_json(caller))

    @routes.delete(
        "",
        **documented(SessionResponse, "Who asked; the cookie is gone."),
        **needs(Need.KNOWN),
        dependencies=WITHOUT_FIELDS,
    )
    async def leave(caller: CurrentCaller, request: Request) -> Response:
        """End the session whose cookie is sent."""
        access: Access = request.app.state.access
        secret = cookie_of(request)
        if secret and access.tokens is not None:
            row = await access.tokens.find(secret)
            if row is not None and row.kind != "token":
                await access.tokens.revoke(row.id)
        response = json_response(_session_json(caller))
        _forget(response, request, SESSION)
        return response

    return routes


def _add_token_login(routes: APIRouter) -> None:
    @routes.post(
        "",
        **documented(SessionResponse, "The session; its cookie is set.", 201),
        **needs(Need.OPEN),
    )
    async def enter(body: SessionRequest, request: Request) -> Response:
        """Open a session of twelve hours with a token, for a browser. It ends with the token."""
        access: Access = request.app.state.access
        access.rate_limit_anonymous(request)
        if "origin" in request.headers:
            check_origin(request, access.url)
        caller = await access.of_token(body.token)
        request.scope["state"]["caller"] = caller
        check_need(caller, Need.KNOWN)
        made = await _tokens(access).issue(await _session_of(access, caller, body.token))
        response = json_response(_session_json(caller), 201)
        _keep(response, request, SESSION, made.secret, int(SESSION_S), "strict")
        return response


async def _session_of(access: Access, caller: Caller, token: str) -> TokenSpec:
    """A session that allows what the token does, and ends when that does at the latest."""
    tokens = _tokens(access)
    ends_at = tokens.now + SESSION_S
    if not caller.is_person:
        return TokenSpec(caller.name, "", "", caller.name, ends_at, "daemon-session")
    if caller.credential == "oidc":
        who = await access.oidc.bearer(token) if access.oidc is not None else None
        groups = () if who is None else who.groups
        return TokenSpec(caller.name, "", "", caller.name, ends_at, "session", groups)
    row = await tokens.one(caller.credential)
    ends_at = ends_at if row.expires_at is None else min(ends_at, row.expires_at)
    return TokenSpec(
        row.user, row.role, row.queue, caller.name, ends_at, "session", row.groups, row.id
    )


def _add_provider_login(routes: APIRouter) -> None:
    @routes.get("/oidc", include_in_schema=False, **needs(Need.OPEN))
    async def begin(
        request: Request,
        next: Annotated[str, Query(max_length=1000, description="Where to go then.")] = "/",
    ) -> Response:
        """Send a browser to the OIDC provider."""
        oidc = request.app.state.access.oidc
        request.app.state.access.rate_limit_anonymous(request)
        if oidc is None:
            raise Conflict("no OIDC provider is in the access file")
        where, begun = await oidc.begin(_callback(request))
        kept = {"state": begun.state, "nonce": begun.nonce, "verifier": begun.verifier}
        text = json.dumps({**kept, "next": next if _is_here(next) else "/"})
        response = RedirectResponse(where, 303)
        _keep(response, request, LOG_IN, urlsafe_b64encode(text.encode()).decode(), LOG_IN_S, "lax")
        return response

    @routes.get("/oidc/callback", include_in_schema=False, **needs(Need.OPEN))
    async def finish(
        request: Request,
        code: Annotated[str, Query(max_length=4096)] = "",
        state: Annotated[str, Query(max_length=LONGEST_STATE)] = "",
    ) -> Response:
        """Where the provider sends a browser back to, with a code: opens the session."""
        made, next_path = await _came_back(request, code, state)
        response = RedirectResponse(request.scope.get("root_path", "") + next_path, 303)
        _forget(response, request, LOG_IN)
        _keep(response, request, SESSION, made.secret, int(SESSION_S), "lax")
        return response


async def _came_back(request: Request, code: str, state: str) -> tuple[IssuedToken, str]:
    from gantree.api.access.oidc import LogIn  # noqa: PLC0415 - loaded already: a provider sent the browser here

    access: Access = request.app.state.access
    access.rate_limit_anonymous(request)
    oidc, kept = access.oidc, _kept(request)
    if oidc is None or not code or not kept or kept.get("state") != state:
        raise Unauthenticated("the log-in is not one that this browser began, or took too long")
    begun = LogIn(kept["state"], kept["nonce"], kept["verifier"])
    who = await oidc.finish(code, begun, _callback(request))
    caller = Caller(who.user, access.grants(who.user, who.groups), "tcp", "oidc")
    request.scope["state"]["caller"] = caller
    note_what(request.scope, f"log-in of {who.user}")
    check_need(caller, Need.KNOWN)
    tokens = _tokens(access)
    ends_at = tokens.now + SESSION_S
    wanted = TokenSpec(who.user, "", "", who.user, ends_at, "session", who.groups)
    return await tokens.issue(wanted), kept["next"]


def _kept(request: Request) -> dict[str, str]:
    """Return the login state in the browser's cookie; {} for a foreign cookie."""
    text = cookie_of(request, LOG_IN)
    try:
        kept = json.loads(urlsafe_b64decode(text[:8192]))
    except ValueError:
        return {}
    names = ("state", "nonce", "verifier", "next")
    is_ours = isinstance(kept, dict) and all(isinstance(kept.get(name), str) for name in names)
    return kept if is_ours and _is_here(kept["next"]) else {}


def _is_here(path: str) -> bool:
    """Whether a path is one of this daemon: no other site, whatever browsers make of slashes."""
    try:
        parts = urlsplit(path)
    except ValueError:
        return False
    is_plain = path.isprintable() and "\\" not in path and path[:2] != "//"
    return is_plain and path.startswith("/") and not parts.scheme and not parts.netloc


def _callback(request: Request) -> str:
    """Return the redirect URI of `finish` that is registered at the provider."""
    url = request.app.state.access.url
    base = url or f"{request.url.scheme}://{request.headers.get('host', '')}"
    root = "" if url is not None else request.scope.get("root_path", "")
    return f"{base}{root}/v1/session/oidc/callback"


def _tokens(access: Access) -> Tokens:
    if access.tokens is None:
        raise Conflict("this daemon opens no sessions")
    return access.tokens


def _keep(
    response: Response,
    request: Request,
    name: str,
    value: str,
    for_s: int,
    same_site: Literal["lax", "strict"],
) -> None:
    cookie = cookie_named(request, name)
    response.set_cookie(
        cookie.name, value, max_age=for_s, path=cookie.path, secure=cookie.secure, httponly=True, samesite=same_site
    )  # fmt: skip


def _forget(response: Response, request: Request, name: str) -> None:
    cookie = cookie_named(request, name)
    response.delete_cookie(cookie.name, path=cookie.path, secure=cookie.secure, httponly=True)


def _session_json(caller: Caller) -> dict[str, Any]:
    grants = [{"role": _role(grant), "queue": grant.queue} for grant in caller.grants]
    return {
        "user": caller.name,
        "via": caller.via,
        "grants": grants,
        "operator": caller.is_operator,
    }


def _role(grant: Grant) -> str:
    found = (role for role, powers in POWERS_OF_ROLE.items() if powers == grant.powers)
    return next(found, "custom")
