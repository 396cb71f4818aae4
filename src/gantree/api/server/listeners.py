"""The TCP address of a daemon: what may be configured, and its listening socket. `http_server` answers there."""

import re
import socket
import ssl
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path
from socket import gethostname

from gantree.api.http.connections import HEAD_WITHIN_S
from gantree.model.errors import BadInput

BACKLOG = 2048
_ROOT_PATH = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?")
_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class Listen:
    """An address of TCP to answer at, how it is secured, and the file with the token that callers must show.

    most_connections are those at once, as far as descriptors allow them; None: as many as they allow. A request's
    headers must be there within header_timeout_s.
    """

    host: str
    port: int
    token_file: Path
    tls_cert: Path | None = None
    tls_key: Path | None = None
    most_connections: int | None = None
    header_timeout_s: float = HEAD_WITHIN_S

    @property
    def scheme(self) -> str:
        """http or https."""
        return "http" if self.tls_cert is None else "https"

    def limited(self, most_connections: int | None, header_timeout_s: float) -> "Listen":
        """The same with these limits."""
        return replace(self, most_connections=most_connections, header_timeout_s=header_timeout_s)


def listen_of(
    address: str,
    token_file: Path,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    *,
    insecure: bool = False,
) -> Listen:
    """What the options of `gantree up` ask for.

    Raises BadInput for what is no address, for an address that others can reach without TLS (unless insecure), and for
    a certificate that cannot be used.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or int(match[3]) > 65535:
        raise BadInput(f"--listen: found {address!r}; allowed: HOST:PORT, [IPv6]:PORT")
    host = match[1] or match[2]
    if tls_cert is None and tls_key is not None:
        raise BadInput("--tls-key needs --tls-cert")
    if tls_cert is None and not insecure and not _is_loopback(host):
        raise BadInput(
            f"--listen {address}: others can reach it, and tokens would cross the network in the open;"
            " give it --tls-cert and --tls-key, or say --insecure"
        )
    if tls_cert is not None:
        _check_certificate(tls_cert, tls_key)
    return Listen(host, int(match[3]), token_file, tls_cert, tls_key)


def root_path_of(text: str) -> str:
    """The prefix that a proxy serves the daemon under, without a slash at its end. Raises BadInput for what is none."""
    if text and _ROOT_PATH.fullmatch(text) is None:
        raise BadInput(f"--root-path: found {text!r}; allowed: a path such as /gantree")
    return text.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_certificate(cert: Path, key: Path | None) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, FileNotFoundError) else error
        raise BadInput(f"--tls-cert {cert}, --tls-key {key}: {reason}") from error


def bind(listen: Listen) -> socket.socket:
    """Return a listening socket. Raises BadInput for an address that cannot be used."""
    try:
        family, kind, proto, _, where = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise BadInput(f"--listen {listen.host}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(f"--listen {listen.host}:{listen.port}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def url_of(listen: Listen, listener: socket.socket) -> str:
    """The URL that a listener answers at, with the port that the system chose where none was."""
    host = f"[{listen.host}]" if ":" in listen.host else listen.host
    return f"{listen.scheme}://{host}:{listener.getsockname()[1]}"


def advertised(listen: Listen, listener: socket.socket) -> str:
    """The URL to tell others: with the name of this machine where the listener takes what comes to any address."""
    shown = replace(listen, host=gethostname()) if listen.host in ("0.0.0.0", "::") else listen  # noqa: S104 - looked for
    return url_of(shown, listener)
