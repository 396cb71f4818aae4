"""Routes of tokens: create, list, revoke. Operators manage the tokens of all users, users their own."""

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, field_validator

from gantree.api.access.access import Access, Caller, CurrentCaller
from gantree.api.access.audit import note_what
from gantree.api.access.permissions import Need, needs
from gantree.api.access.tokens import Tokens, TokenSpec, exceeds
from gantree.api.backend import Backend
from gantree.api.http.request_body import WITHOUT_FIELDS, Body
from gantree.api.http.response_models.base import OpenModel
from gantree.api.http.responses import documented, json_response
from gantree.journal.access_store import TokenRow
from gantree.model.access import narrowed, scope_of
from gantree.model.errors import Conflict, Forbidden, NotFound

LONGEST_S = 10 * 365 * 86_400.0
QUEUE = r"^$|^[A-Za-z0-9][A-Za-z0-9._-]{0,62}(/[A-Za-z0-9][A-Za-z0-9._-]{0,62}){0,15}$"
RoleWord = Literal["", "viewer", "user", "queue_admin", "operator", "router"]


class TokenRequest(Body):
    """A token to make: never more than its user may do, and of that what role over queue allows."""

    user: str = Field("", max_length=256, description="Whose it is; the caller's where empty.")
    role: RoleWord = Field("", description="Empty: all that the user may do.")
    queue: str = Field("", pattern=QUEUE, description="That queue and all below it; empty: all.")
    expires_s: float | None = Field(
        None,
        strict=True,
        gt=0,
        le=LONGEST_S,
        examples=[2592000],
        description="Seconds; null: never.",
    )

    @field_validator("user")
    @classmethod
    def _is_name(cls, user: str) -> str:
        if not user.isprintable() or user != user.strip():
            raise ValueError("a name of printable characters")
        return user


class TokenResponse(OpenModel):
    """A token, without its secret."""

    id: str = Field(examples=["3f2a90b1c4d5"])
    user: str = Field(examples=["alice"])
    role: str = Field(examples=["user"])
    queue: str = Field(examples=["research"])
    created_at: float
    created_by: str
    expires_at: float | None
    revoked_at: float | None


class NewTokenResponse(TokenResponse):
    """A new token with its secret, which is told this once."""

    token: str = Field(examples=["gantree_..."])


class TokensResponse(BaseModel):
    """Tokens, oldest first."""

    tokens: list[TokenResponse]


def router(backend: Backend) -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1/tokens", tags=["access"])

    @routes.post("", **documented(NewTokenResponse, "The token.", 201), **needs(Need.KNOWN))
    async def make(body: TokenRequest, caller: CurrentCaller, request: Request) -> Response:
        """Make a token. Its secret is in this answer and nowhere else."""
        access: Access = request.app.state.access
        spec = _spec_of(access, caller, body)
        note_what(request.scope, f"for {spec.user} role {spec.role or 'all'} {spec.queue}")
        made = await _tokens(access).issue(await _ending_with(_tokens(access), caller, spec))
        note_what(request.scope, f"token {made.row.id} for {spec.user}")
        return json_response({**_token_json(made.row), "token": made.secret}, 201)

    @routes.get("", **documented(TokensResponse, "The tokens."), **needs(Need.KNOWN))
    async def tokens(
        caller: CurrentCaller,
        request: Request,
        user: Annotated[str | None, Query(max_length=256)] = None,
    ) -> Response:
        """The tokens of all users, or of one; who is no operator is told his own."""
        if not caller.is_operator:
            user = caller.name
        rows = await _tokens(request.app.state.access).all(user)
        return json_response({"tokens": [_token_json(row) for row in rows]})

    @routes.delete(
        "/{token}",
        **documented(TokenResponse, "It is good for nothing."),
        **needs(Need.KNOWN),
        dependencies=WITHOUT_FIELDS,
    )
    async def revoke(token: str, caller: CurrentCaller, request: Request) -> Response:
        """Revoke a token, and end the sessions that were opened with it. Twice is the same as once."""
        book = _tokens(request.app.state.access)
        row = await book.one(token)
        if row.kind != "token" or not (caller.is_operator or row.user == caller.name):
            raise NotFound(f"there is no token {token}")
        await book.revoke(token)
        return json_response(_token_json(await book.one(token)))

    return routes


def _tokens(access: Access) -> Tokens:
    if access.tokens is None or access.file is None:
        raise Conflict("there are no users to give tokens to; start with: gantree up --access FILE")
    return access.tokens


def _spec_of(access: Access, caller: Caller, body: TokenRequest) -> TokenSpec:
    """Raises Forbidden for tokens of other users, and for more permissions than the caller's token has."""
    tokens, user = _tokens(access), body.user or caller.name
    if not caller.is_operator:
        if user != caller.name:
            raise Forbidden(f"{caller.name} may make no tokens for {user}")
        scope = scope_of(body.role, body.queue)
        if exceeds(narrowed(access.grants(user), scope), caller.grants):
            raise Forbidden("the token would allow more than the one that you show")
    elif not body.user and not caller.is_person:
        raise Conflict("user: the daemon's own token is nobody's; say whose the new one is")
    expires_at = None if body.expires_s is None else tokens.now + body.expires_s
    return TokenSpec(user, body.role, body.queue, caller.name, expires_at)


async def _ending_with(tokens: Tokens, caller: Caller, spec: TokenSpec) -> TokenSpec:
    """The same, for oneself, ending with the token that is shown: one that leaked makes none that lives on."""
    shown = await tokens.known(caller.credential) if spec.user == caller.name else None
    if shown is not None and shown.kind == "session":
        shown = None if shown.parent is None else await tokens.known(shown.parent)
    if shown is None:
        return spec
    ends = [each for each in (spec.expires_at, shown.expires_at) if each is not None]
    return replace(spec, parent=shown.id, expires_at=min(ends, default=None))


def _token_json(row: TokenRow) -> dict[str, object]:
    return {
        "id": row.id,
        "user": row.user,
        "role": row.role,
        "queue": row.queue,
        "created_at": row.created_at,
        "created_by": row.created_by,
        "expires_at": row.expires_at,
        "revoked_at": row.revoked_at,
    }
