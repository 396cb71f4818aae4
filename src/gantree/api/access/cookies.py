"""Session cookies, and the origin check for requests that carry one: browsers add cookies to requests of other sites.

So a cookie counts for a change only with an Origin header that names this daemon. Whoever shows a token in a header is
not asked: no other site can make a browser do that.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request

from gantree.model.errors import Forbidden

SESSION, LOG_IN = "gantree_session", "gantree_login"
_SAFE = ("GET", "HEAD", "OPTIONS")


def is_secure(connection: HTTPConnection, url: str | None) -> bool:
    """Whether browsers reach the daemon over TLS; url is its own address as the access file gives it."""
    if url is not None:
        return url.startswith("https:")
    return connection.url.scheme in ("https", "wss")


@dataclass(frozen=True, slots=True)
class Cookie:
    """A cookie of ours: what it is called, for which paths browsers send it, and whether over TLS alone.

    Over TLS its name has a prefix that no other site, nor anybody on the way, can make a browser keep a cookie under:
    `__Host-`, or behind a prefix of a shared host, whose other services get none of ours, `__Secure-`.
    """

    name: str
    path: str
    secure: bool


def cookie_named(connection: HTTPConnection, name: str) -> Cookie:
    """The cookie of a name as it is on the way that a connection came. One by another name is not ours."""
    secure = is_secure(connection, connection.app.state.access.url)
    prefix = connection.scope.get("root_path", "")
    if not secure:
        return Cookie(name, prefix or "/", secure=False)
    return Cookie(f"{'__Secure-' if prefix else '__Host-'}{name}", prefix or "/", secure=True)


def cookie_of(connection: HTTPConnection, name: str = SESSION) -> str:
    """What is in a cookie, the session's if nothing else is said; "" without one."""
    if (
        "cookie" not in connection.headers
    ):  # of most who ask; to find out which it would be takes longer
        return ""
    return connection.cookies.get(cookie_named(connection, name).name, "")


def check_origin(connection: HTTPConnection, url: str | None) -> None:
    """Raise Forbidden where what another site may have made a browser send would change something.

    A WebSocket is asked for by GET, and counts as a change.
    """
    if isinstance(connection, Request) and connection.method in _SAFE:
        return
    origin = connection.headers.get("origin", "")
    if not is_same_origin(connection, origin, url):
        raise Forbidden(
            "a change with a session's cookie needs an Origin header that names this daemon;"
            " programs send `Authorization: Bearer TOKEN` instead"
        )


def is_same_origin(connection: HTTPConnection, origin: str, url: str | None) -> bool:
    """Whether an Origin is this daemon, as it is asked or as the access file calls it."""
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    if url is not None:
        own = urlsplit(url)
        return (parts.scheme, parts.netloc) == (own.scheme, own.netloc)
    host = connection.headers.get("host", "")
    scheme = "https" if connection.url.scheme in ("https", "wss") else "http"
    return bool(host) and parts.netloc == host and parts.scheme in (scheme, "https")
