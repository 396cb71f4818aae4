"""Styles and scripts of the pages, files of the package. Other names are not found.

They are public: the log-in page needs them too. An address has a digest of what it gives, so browsers keep it for good.
"""

from functools import lru_cache
from hashlib import blake2b
from importlib.resources import files
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from gantree.api.backend import QueryBackend
from gantree.model.errors import NotFound

MEDIA_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
FOR_GOOD = "public, max-age=31536000, immutable"


def router(reads: QueryBackend) -> APIRouter:
    """The route of the files."""
    routes = APIRouter()

    @routes.get("/static/{digest}/{name}")
    async def asset(digest: str, name: str) -> Response:
        """One file."""
        content = contents().get(name)
        if content is None:
            raise NotFound(f"there is no file {name!r}")
        media_type = MEDIA_TYPES[name.rpartition(".")[2]]
        keep = (
            FOR_GOOD if digest == _digest() else "no-cache"
        )  # a page of an older daemon asks for its own
        return Response(content, 200, {"Cache-Control": keep}, media_type)

    return routes


def asset_path(name: str) -> str:
    """Where a file is served, below the base."""
    return f"/static/{_digest()}/{name}"


@lru_cache(maxsize=1)
def contents() -> dict[str, bytes]:
    """The files by name."""
    folder = files("gantree.web").joinpath("static")
    known = (each for each in folder.iterdir() if each.name.rpartition(".")[2] in MEDIA_TYPES)
    return {each.name: each.read_bytes() for each in sorted(known, key=lambda each: each.name)}


@lru_cache(maxsize=1)
def _digest() -> str:
    """One digest for all: scripts import each other by relative names, so they must change together."""
    digest = blake2b(digest_size=8)
    for name, content in contents().items():
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()
