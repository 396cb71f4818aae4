"""The server of gantree's mutating webhook: AdmissionReviews over TLS, answered by `admission`.

It allows whatever it is asked about: it only adds, and what is wrong with a pod others say better. It keeps nothing and
asks nobody, so any number of it may run, without any right in the cluster. A certificate that is written anew, as
cert-manager does, is used for the next connections.
"""

import asyncio
import base64
import logging
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from gantree.executors.kubernetes.apiserver.objects import Object
from gantree.executors.kubernetes.tools.admission import Site, patch_of
from gantree.model.errors import BadInput

log = logging.getLogger(__name__)

PATH, HEALTH = "/mutate", "/healthz"
API_VERSION, KIND = "admission.k8s.io/v1", "AdmissionReview"
MOST_BYTES = 16 << 20
"""A pod is 3 MB at most in a server as it is delivered; a review has it once, and what is around it."""
LOOKS_EVERY_S = 10.0
"""So often the certificate's files are looked at."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class _Request(Object, frozen=True):
    """What is asked: about which object."""

    uid: str
    namespace: str = ""
    object: dict[str, Any] | None = None


class _Review(Object, frozen=True):
    """An AdmissionReview as it comes."""

    api_version: str
    kind: str
    request: _Request


def reviewed(body: bytes, site: Site) -> bytes:
    """The answer to an AdmissionReview. Raises BadInput for what is none."""
    try:
        review = msgspec.json.decode(body, type=_Review)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadInput(f"no AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, KIND):
        raise BadInput(
            f"{review.kind} of {review.api_version}; only {KIND} of {API_VERSION} is understood"
        )
    response: dict[str, Any] = {"uid": review.request.uid, "allowed": True}
    patch = patch_of(review.request.object or {}, site)
    if patch:
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": response})


class Webhook:
    """An ASGI application: reviews at PATH, 200 at HEALTH, nothing else."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        status, body = await self._answer(scope["method"], scope["path"], receive)
        kind = b"application/json" if status == 200 and body else b"text/plain"
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(self, method: str, path: str, receive: Receive) -> tuple[int, bytes]:
        if path == HEALTH:
            return 200, b""
        if path != PATH:
            return 404, b"not found"
        if method != "POST":
            return 405, b"POST an AdmissionReview"
        body = await _body(receive)
        if body is None:
            return 413, b"too large"
        try:
            return 200, reviewed(body, self._site)
        except BadInput as error:
            return 400, str(error).encode()


async def _body(receive: Receive) -> bytes | None:
    """The body of a request; None where it is too large."""
    parts: list[bytes] = []
    size, is_more = 0, True
    while is_more:
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        is_more = message.get("more_body", False) and message["type"] == "http.request"
        if size > MOST_BYTES:
            return None
    return b"".join(parts)


async def serve(site: Site, host: str, port: int, cert: Path, key: Path | None) -> None:
    """Serve until the process is terminated."""
    config = uvicorn.Config(
        Webhook(site),
        host=host,
        port=port,
        ssl_certfile=cert,
        ssl_keyfile=key,
        log_level="warning",
        lifespan="off",
        ws="none",
    )
    config.load()
    assert config.ssl is not None, "it is served over TLS alone"
    renewing = asyncio.create_task(_renew(config.ssl, cert, key))
    try:
        await uvicorn.Server(config).serve()
    finally:
        renewing.cancel()


async def _renew(trust: ssl.SSLContext, cert: Path, key: Path | None) -> None:
    """Load the certificate anew whenever its files are others."""
    loaded = _stamps(cert, key)
    while True:
        await asyncio.sleep(LOOKS_EVERY_S)
        now = _stamps(cert, key)
        if now == loaded:
            continue
        try:
            trust.load_cert_chain(cert, key)
        except (OSError, ssl.SSLError) as error:
            log.warning("the new certificate %s is not used: %s", cert, error)
        else:
            loaded = now


def _stamps(*files: Path | None) -> tuple[int, ...]:
    """When files were written; 0 for one that is not there at the moment."""
    return tuple(_stamp(each) for each in files if each is not None)


def _stamp(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
