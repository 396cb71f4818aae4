"""A small OIDC provider: real HTTP on a thread, real RSA keys, the code flow with PKCE. For tests."""

import json
import time
from base64 import urlsafe_b64encode
from contextlib import ExitStack
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

from support.serving import serving

CLIENT = "gantree-web"
AUDIENCE = "gantree"


class Provider:
    """keys by id; those that are published can be others than those that sign. asked counts requests by path."""

    def __init__(self) -> None:
        self.keys: dict[str, rsa.RSAPrivateKey] = {}
        self.published: list[str] = []
        self.asked: dict[str, int] = {}
        self.claims: dict[str, Any] = {"preferred_username": "alice", "groups": ["ml"]}
        self.nonce: str | None = None
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate("k1")
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider._get(self)

            def do_POST(self) -> None:
                provider._post(self)

            def log_message(self, format: str, *args: object) -> None:
                """Be quiet."""

        self._open = ExitStack()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._open.enter_context(serving(self._server))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    def rotate(self, key_id: str) -> None:
        """Sign with a new key from now on, and publish it alone."""
        self.keys[key_id] = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.published = [key_id]

    def token(self, key_id: str | None = None, audience: str = AUDIENCE, **changes: Any) -> str:
        """A token, with some claims other than they should be."""
        now = time.time()
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "iat": now,
            "exp": now + 600,
            **self.claims,
            **changes,
        }
        told = {name: value for name, value in claims.items() if value is not None}
        signer = key_id or self.published[-1]
        return jwt.encode(told, self.keys[signer], "RS256", headers={"kid": signer})

    def _get(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        self.asked[parts.path] = self.asked.get(parts.path, 0) + 1
        if parts.path == "/.well-known/openid-configuration":
            told = {name: f"{self.issuer}/{path}" for name, path in (
                ("authorization_endpoint", "authorize"), ("token_endpoint", "token"), ("jwks_uri", "keys"),
            )}  # fmt: skip
            _answer(request, {"issuer": self.issuer, **told})
        elif parts.path == "/keys":
            _answer(request, {"keys": [self._published(each) for each in self.published]})
        elif parts.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            code = sha256(asked["state"].encode()).hexdigest()
            self._codes[code] = asked
            back = urlencode({"code": code, "state": asked["state"]})
            request.send_response(302)
            request.send_header("Location", f"{asked['redirect_uri']}?{back}")
            request.end_headers()

    def _published(self, key_id: str) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.keys[key_id].public_key()))
        return {**public, "kid": key_id, "use": "sig", "alg": "RS256"}

    def _post(self, request: BaseHTTPRequestHandler) -> None:
        length = int(request.headers["Content-Length"])
        form = {
            name: values[0]
            for name, values in parse_qs(request.rfile.read(length).decode()).items()
        }
        asked = self._codes.pop(form.get("code", ""), None)
        digest = urlsafe_b64encode(sha256(form.get("code_verifier", "").encode()).digest())
        if asked is None or digest.decode().rstrip("=") != asked["code_challenge"]:
            _answer(request, {"error": "invalid_grant"}, 400)
            return
        nonce = self.nonce or asked["nonce"]
        _answer(request, {"id_token": self.token(audience=asked["client_id"], nonce=nonce)})


def _answer(request: BaseHTTPRequestHandler, told: object, status: int = 200) -> None:
    content = json.dumps(told).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(content)))
    request.end_headers()
    request.wfile.write(content)
