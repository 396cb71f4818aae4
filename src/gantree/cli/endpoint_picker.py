"""`gantree endpoint-picker`: the endpoint picker of the Gateway API inference extension."""

import asyncio
import os
import signal
import socket
from pathlib import Path
from typing import Annotated, Any

import typer

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
from gantree.model.errors import BadInput
from gantree.routing.addresses import split_address
from gantree.routing.cache_events.opening import CacheIndexes
from gantree.routing.endpoint_picker.picker import MOST_ENDPOINTS, Picker
from gantree.routing.table import RouteTable
from gantree.routing.table_file import read_table

NEEDS = "gantree endpoint-picker needs gRPC: pip install 'gantree[endpoint-picker]'"


def endpoint_picker(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on, for gRPC.")
    ] = "127.0.0.1:9002",
    service: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Service of all requests. [default: that of their model]"
        ),
    ] = "",
    at: AtOption = "",
    endpoints: Annotated[
        int,
        typer.Option(
            min=1,
            max=10,
            metavar="N",
            help="Replicas that an answer names at most. 1 for a gateway that takes one address.",
        ),
    ] = MOST_ENDPOINTS,
    table: TableOption = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS certificate chain, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="TLS private key, PEM.")
    ] = None,
    name: NameOption = None,
    tokenizers: TokenizersOption = None,
    drain: DrainOption = "30s",
    state: StateOption = None,
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.INFO,
) -> None:
    """Tell a gateway which replica each request goes to.

    Serves the endpoint picker protocol of the Gateway API inference extension (Envoy's ext_proc, over gRPC) until
    SIGTERM or Ctrl-C, with the table of replicas that the daemon keeps and the rule of gantree route. Needs grpcio
    and grpcio-health-checking.
    """
    try:
        from gantree.routing.endpoint_picker.server import EndpointPicker  # noqa: PLC0415 - few have it
    except ModuleNotFoundError as error:
        raise BadInput(NEEDS) from error
    split_address(listen, "--listen")
    set_up(log_level, log_format)
    known = RouteTable() if table is None else read_table(read_text(table), source_of(table))
    drain_s = seconds_of("--drain", drain)
    credentials = _credentials(tls_cert, tls_key)
    source = None if table is not None else source_chosen(state)
    picker = Picker(service, at, endpoints, CacheIndexes(tokenizers), known)
    running = EndpointPicker(name or f"{socket.gethostname()}-{os.getpid()}", picker, source)
    asyncio.run(_run(running, listen, credentials, drain_s))


async def _run(running: Any, listen: str, credentials: Any, drain_s: float) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    host = listen.rpartition(":")[0]

    def ready(port: int) -> None:
        typer.echo(f"gantree endpoint-picker listens at {host}:{port}")

    await running.run(listen, credentials, stop, drain_s, ready)


def _credentials(certificate: Path | None, key: Path | None) -> Any:
    """What gRPC serves TLS with; None without. Raises BadInput."""
    if (certificate is None) != (key is None):
        raise BadInput("--tls-cert and --tls-key belong together")
    if certificate is None or key is None:
        return None
    import grpc  # noqa: PLC0415 - few have it

    return grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
