"""The path prefix under which a proxy serves the daemon. The application answers with and without it.

So it does not matter whether the proxy takes the prefix away. It is what `gantree up --root-path` says; a header that a
client writes (X-Forwarded-Prefix) is not believed.
"""

from starlette.types import ASGIApp, Receive, Scope, Send


class PathPrefixMiddleware:
    """The middleware. root_path is "/gantree", or "" where there is none."""

    def __init__(self, app: ASGIApp, root_path: str) -> None:
        self._app, self._root_path = app, root_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        await self._app({**scope, "root_path": self._root_path}, receive, send)
