"""OpenID Connect: verification of tokens, and the browser login (authorization code with PKCE).

A token is checked here alone: its signature by a key of the provider, an algorithm of a fixed list that the provider's
word does not widen, issuer, audience and expiry; at a log-in also that it was issued to us (`azp`). Keys are fetched
when the first token comes, again every hour, and when a token names one that is not known, at most every ten seconds.
Where that fails, those that are known count for some hours more. Nothing here waits for the provider but the request
that needs it.
"""

import asyncio
import logging
import math
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import jwt

from gantree.api.access.access_file import AccessFile
from gantree.formats.access.form import LONGEST_USER
from gantree.formats.access.reader import OidcRules
from gantree.model.errors import BadInput, Unauthenticated, Unreachable

ALGORITHMS = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures with a public key. None with a shared secret, and never "none"."""
LEEWAY_S = 30.0
"""How far the provider's clock may be off."""
KEYS_FOR_S = 3600.0
KEYS_AT_MOST_S = 6 * 3600.0
"""So long keys count while the provider does not answer; it may have withdrawn one."""
ASK_AGAIN_S = 10.0
ANSWER_WITHIN_S = 5.0
LONGEST_ANSWER = 1 << 20
LONGEST_TOKEN = 16_384
MOST_GROUPS = 1000
DISCOVERY = "/.well-known/openid-configuration"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a provider vouches for, and the groups that it says he is in."""

    user: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LogIn:
    """A log-in that has begun: what the browser keeps, to show that it is the one that began it."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(slots=True)
class _Known:
    """What the provider said of itself, and its keys by id."""

    endpoints: Mapping[str, Any]
    keys: Mapping[str | None, jwt.PyJWK]
    fetched_at: float


class Providers:
    """The provider that an access file names; another one from the moment on that the file does."""

    def __init__(self, file: AccessFile) -> None:
        self._file = file
        self._now: Oidc | None = None

    @property
    def now(self) -> "Oidc | None":
        """None where the file names none."""
        rules = self._file.rules.oidc
        if rules is None:
            self._now = None
        elif self._now is None or self._now.rules != rules:
            self._now = Oidc(rules)
        return self._now


class Oidc:
    """One provider. For one event loop."""

    def __init__(self, rules: OidcRules) -> None:
        self.rules = rules
        self._known: _Known | None = None
        self._asked_at = -ASK_AGAIN_S
        self._asking = asyncio.Lock()

    async def bearer(self, token: str) -> Identity:
        """Whose token this is. Raises Unauthenticated, and Unreachable where the provider does not answer."""
        return self._identity(await self._claims(token, self.rules.audience))

    async def begin(self, redirect_uri: str) -> tuple[str, LogIn]:
        """Where to send a browser that is to log in, and what it must keep. Raises BadInput, Unreachable."""
        begun = LogIn(*(secrets.token_urlsafe(32) for _ in range(3)))
        digest = sha256(begun.verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id(),
            "redirect_uri": redirect_uri,
            "scope": " ".join(self.rules.scopes),
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
        }
        endpoint = await self._endpoint("authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}", begun

    async def finish(self, code: str, begun: LogIn, redirect_uri: str) -> Identity:
        """Who has logged in. Raises Unauthenticated, BadInput and Unreachable."""
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self._client_id(),
            "code_verifier": begun.verifier,
        }
        answer = await _asked(
            "POST", await self._endpoint("token_endpoint"), form, await self._secret()
        )
        claims = await self._claims(str(answer.get("id_token", "")), self._client_id())
        _check_party(claims, self._client_id())
        if not secrets.compare_digest(str(claims.get("nonce", "")), begun.nonce):
            raise Unauthenticated("the log-in is not the one that this browser began: try again")
        return self._identity(claims)

    def _client_id(self) -> str:
        if self.rules.client_id is None:
            raise BadInput("oidc.client_id is not in the access file, so no browser can log in")
        return self.rules.client_id

    async def _secret(self) -> tuple[str, str] | None:
        """What a client that is no public one shows beside its id; it is read anew each time."""
        if self.rules.client_secret_file is None:
            return None
        try:
            text = await asyncio.to_thread(Path(self.rules.client_secret_file).read_text, "ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"oidc.client_secret_file cannot be read: {error}") from None
        return quote(self._client_id(), safe=""), quote(text.strip(), safe="")

    async def _claims(self, token: str, audience: str) -> Mapping[str, Any]:
        if len(token) > LONGEST_TOKEN:
            raise Unauthenticated("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise Unauthenticated(f"the token is signed by {header.get('alg')!r:.40}")
            claims: Mapping[str, Any] = jwt.decode(
                token,
                await self._key(header.get("kid")),
                algorithms=ALGORITHMS,
                audience=audience,
                issuer=self.rules.issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the token is not good: {error}") from None
        return claims

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        claim = self.rules.username_claim
        user = claims.get(claim)
        if not isinstance(user, str) or not 0 < len(user) <= LONGEST_USER or not user.isprintable():
            raise Unauthenticated(f"the token names nobody: its claim {claim!r} is no name")
        if claim == "email" and claims.get("email_verified") is not True:
            raise Unauthenticated("the provider has not verified the token's e-mail address")
        told = claims.get(self.rules.groups_claim, [])
        groups: Sequence[Any] = [told] if isinstance(told, str) else told
        if not isinstance(groups, list):
            groups = []
        return Identity(user, tuple(each for each in groups if isinstance(each, str))[:MOST_GROUPS])

    async def _endpoint(self, name: str) -> str:
        known = await self._fresh(lambda known: name in known.endpoints)
        endpoint = known.endpoints.get(name)
        if not isinstance(endpoint, str):
            raise Unreachable(f"{self.rules.issuer} names no {name}")
        return endpoint

    async def _key(self, key_id: str | None) -> jwt.PyJWK:
        known = await self._fresh(lambda known: key_id in known.keys)
        key = known.keys.get(key_id)
        if key is None and key_id is None and len(known.keys) == 1:
            (key,) = known.keys.values()
        if key is None:
            raise Unauthenticated("the token is signed by a key that its issuer does not have")
        return key

    async def _fresh(self, has: Any) -> _Known:
        """What is known of the provider, fetched anew where it is old or lacks something. Raises Unreachable."""
        if self._suits(has):
            assert self._known is not None
            return self._known
        async with self._asking:
            now = time.monotonic()
            if not self._suits(has) and now - self._asked_at >= ASK_AGAIN_S:
                self._asked_at = now
                try:
                    self._known = await self._fetched()
                except Unreachable as error:
                    log.error("%s", error)
                    if not self._is_kept():
                        raise
        if not self._is_kept():
            raise Unreachable(f"{self.rules.issuer} did not answer a moment ago")
        assert self._known is not None
        return self._known

    def _suits(self, has: Any) -> bool:
        return self._age_s() < KEYS_FOR_S and has(self._known)

    def _is_kept(self) -> bool:
        """Whether what is known still counts where nothing newer is to be had."""
        return self._age_s() < KEYS_AT_MOST_S

    def _age_s(self) -> float:
        return math.inf if self._known is None else time.monotonic() - self._known.fetched_at

    async def _fetched(self) -> _Known:
        issuer = self.rules.issuer
        endpoints = await _asked("GET", issuer.rstrip("/") + DISCOVERY)
        if endpoints.get("issuer") != issuer:
            found = str(endpoints.get("issuer"))[:200]
            raise Unreachable(f"{issuer} calls itself {found!r}; write that as oidc.issuer")
        told = await _asked("GET", str(endpoints.get("jwks_uri")))
        try:
            keys = jwt.PyJWKSet.from_dict(dict(told)).keys
        except jwt.PyJWTError as error:
            raise Unreachable(f"the keys of {issuer} cannot be read: {error}") from None
        usable = [key for key in keys if key.public_key_use in (None, "sig")]
        return _Known(endpoints, {key.key_id: key for key in usable}, time.monotonic())


def _check_party(claims: Mapping[str, Any], client_id: str) -> None:
    """Raise Unauthenticated for an ID token that was issued to somebody else (OpenID Connect Core, 3.1.3.7, 3 to 5).

    Tokens that callers bring themselves are not held to it: there `azp` is the program that fetched the token for the
    caller, and any may, as long as it is for our audience.
    """
    audience, party = claims["aud"], claims.get("azp")
    if party is None and isinstance(audience, list) and len(audience) > 1:
        raise Unauthenticated("the log-in is for several audiences, and names no authorized party")
    if party not in (None, client_id):
        raise Unauthenticated("the log-in was made for another client of its provider")


async def _asked(
    method: str, url: str, form: Mapping[str, str] | None = None, auth: Any = None
) -> Mapping[str, Any]:
    """The JSON object that a provider answers. Raises Unreachable, and Unauthenticated where it refuses a form."""
    try:
        async with (
            httpx.AsyncClient(timeout=ANSWER_WITHIN_S, auth=auth) as client,
            asyncio.timeout(2 * ANSWER_WITHIN_S),
            client.stream(method, url, data=form) as response,
        ):
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > LONGEST_ANSWER:
                    raise Unreachable(f"{url} answers with too much")
            if form is not None and 400 <= response.status_code < 500:
                raise Unauthenticated("the log-in was not accepted by its provider: try again")
            response.raise_for_status()
            told = httpx.Response(200, content=content).json()
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        raise Unreachable(f"{url} does not answer as a provider should: {error}") from None
    if not isinstance(told, dict):
        raise Unreachable(f"{url} does not answer as a provider should")
    return told
