"""`gantree route`: the HTTP front of services, on HAProxy."""

import asyncio
import ipaddress
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import start_http_server

from gantree.api.observability.log_format import Format, Level, set_up
from gantree.cli.daemon.options import LogFormatOption, LogLevelOption
from gantree.cli.input.durations import seconds_of
from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import StateOption
from gantree.cli.route_options import (
    AtOption,
    DrainOption,
    NameOption,
    TableOption,
    TokenizersOption,
    source_chosen,
)
from gantree.model.errors import BadInput, Unreachable
from gantree.routing.addresses import listening_socket, split_address, written_address
from gantree.routing.haproxy.config import Settings, quoted
from gantree.routing.haproxy.proxies import Proxies
from gantree.routing.router import Router
from gantree.routing.table import RouteTable
from gantree.routing.table_file import Tenants, read_table, read_tenants

OLDEST = (2, 6)
TLS_PROTOCOLS = "alpn h2,http/1.1"


ListenOption = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="Address to listen on; HTTP/1.1 and HTTP/2.")
]
PlacesOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Places of callers by network: lines of CIDR and place."),
]
TenantsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Tenants with their keys and limits.")
]
MetricsOption = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics for Prometheus here.")
]
CertificateOption = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="TLS certificate chain, PEM.")
]
KeyOption = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="TLS private key. [default: in --tls-cert]"),
]
ExplainOption = Annotated[
    bool,
    typer.Option("--explain", help="Say in X-Gantree-Chosen and in the log which replica and why."),
]
BodyOption = Annotated[
    int,
    typer.Option(
        "--body",
        metavar="KIB",
        min=16,
        max=8192,
        help="How much of a request is read for its model and prefix; more costs each request.",
    ),
]

CacheWaitOption = Annotated[
    str,
    typer.Option(
        metavar="TIME",
        help="How long a request waits for what replicas hold of its prompt (affinity: cache).",
    ),
]


def route(
    listen: ListenOption = "127.0.0.1:8400",
    at: AtOption = "",
    places: PlacesOption = None,
    tenants: TenantsOption = None,
    table: TableOption = None,
    metrics: MetricsOption = None,
    tls_cert: CertificateOption = None,
    tls_key: KeyOption = None,
    name: NameOption = None,
    explain: ExplainOption = False,
    body: BodyOption = 128,
    tokenizers: TokenizersOption = None,
    cache_wait: CacheWaitOption = "50ms",
    drain: DrainOption = "30s",
    state: StateOption = None,
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.INFO,
) -> None:
    """Send requests of services to the closest replica that has room.

    Runs HAProxy, with the table of replicas that the daemon keeps, until SIGTERM or Ctrl-C; then what has begun is
    finished. The service is the model of an OpenAI request, the path /services/NAME, the header X-Gantree-Service, or
    the host. HAProxy comes from the package haproxy of the distribution.
    """
    program = haproxy_program()
    set_up(log_level, log_format)
    known = RouteTable() if table is None else read_table(read_text(table), source_of(table))
    drain_s = seconds_of("--drain", drain)
    with ExitStack() as opened:
        listening = opened.enter_context(listening_socket(listen, "--listen"))
        directory = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="gantree-route-")))
        tls = _tls_words(directory, tls_cert, tls_key)
        settings = Settings(
            backends=(),
            listeners={listening.fileno(): tls},
            at=at,
            tenants=_tenants(tenants),
            places=_places(places),
            explain=explain,
            body_bytes=body * 1024,
            cache_wait_s=seconds_of("--cache-wait", cache_wait),
        )
        router = Router(
            name or f"{socket.gethostname()}-{os.getpid()}",
            Proxies(program, directory, settings),
            directory,
            None if table is not None else source_chosen(state),
            known,
            explain=explain,
            tokenizers=tokenizers,
        )
        opened.enter_context(_served(router, metrics))
        url = f"{'https' if tls else 'http'}://{written_address(listening)}"
        asyncio.run(_run(router, drain_s, url))


def haproxy_program() -> str:
    """Return the path of HAProxy. Raises Unreachable."""
    found = shutil.which("haproxy", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if found is None:
        raise Unreachable(
            "gantree route needs HAProxy 2.6 or newer with Lua, and finds no haproxy: install the package haproxy"
            " (apt-get install haproxy, dnf install haproxy)"
        )
    told = subprocess.run([found, "-vv"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"version (\d+)\.(\d+)", told)
    if version is None or (int(version[1]), int(version[2])) < OLDEST or "+LUA" not in told:
        raise Unreachable(
            f"gantree route needs HAProxy 2.6 or newer with Lua; {found} is"
            f" {told.partition(chr(10))[0] or 'something else'}"
        )
    return found


async def _run(router: Router, drain_s: float, url: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await router.run(stop, drain_s, lambda: typer.echo(f"gantree route listens at {url}"))


@contextmanager
def _served(router: Router, metrics: str | None) -> Iterator[None]:
    """/metrics while the router runs."""
    if metrics is None:
        yield
        return
    host, port = split_address(metrics, "--metrics")
    try:
        server, thread = start_http_server(port, host, router.metrics.registry)
    except OSError as error:
        raise BadInput(f"--metrics: {metrics}: {error}") from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _tls_words(directory: Path, certificate: Path | None, key: Path | None) -> str:
    """How `bind` is told of TLS. HAProxy wants certificate and key in one file."""
    if certificate is None:
        if key is not None:
            raise BadInput("--tls-key needs --tls-cert")
        return ""
    parts = [read_text(str(certificate)), *([read_text(str(key))] if key else [])]
    joined = directory / "tls.pem"
    joined.touch(mode=0o600)
    joined.write_text("\n".join(parts), encoding="utf-8")
    return f"ssl crt {quoted(joined)} {TLS_PROTOCOLS}"


def _tenants(file: str | None) -> Tenants | None:
    return None if file is None else read_tenants(read_text(file), source_of(file))


def _places(file: str | None) -> tuple[tuple[str, str], ...]:
    """Lines of network and place; # begins a comment. Raises BadInput."""
    rows = []
    for number, line in enumerate(read_text(file).splitlines() if file else (), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            network, place = words
            rows.append((str(ipaddress.ip_network(network)), place))
        except ValueError as error:
            allowed = "a network and a place, such as 10.1.0.0/16 s0/l0"
            raise BadInput(
                f"{file}:{number}: found {line!r} ({error}); allowed: {allowed}"
            ) from None
    return tuple(rows)
