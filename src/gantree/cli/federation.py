"""`gantree federation`: several clusters behind one front."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.api.access.access import TOKEN_FILE
from gantree.api.client.request import Request
from gantree.api.observability.log_format import Format, Level
from gantree.cli.daemon.options import (
    InsecureOption,
    ListenOption,
    LogFormatOption,
    LogLevelOption,
    TlsCertOption,
    TlsKeyOption,
    TokenFileOption,
    log_settings,
)
from gantree.cli.daemon_client import client
from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, StateOption, new_app, state_dir
from gantree.cli.output.printing import columns, print_json
from gantree.model.errors import BadInput
from gantree.text.words import span

app = new_app(no_args_is_help=True)

ClusterArgument = Annotated[str, typer.Argument(metavar="CLUSTER", help="Name of a cluster.")]


@app.callback()
def federation() -> None:
    """Run several clusters behind one front, and show them."""


@app.command()
def up(
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="Federation file: the clusters.")
    ],
    listen: ListenOption = None,
    token_file: TokenFileOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    insecure: InsecureOption = False,
    log_format: LogFormatOption = Format.AUTO,
    log_level: LogLevelOption = Level.WARNING,
    state: StateOption = None,
) -> None:
    """Run the front of a federation in the foreground."""
    from gantree.api.server.listeners import listen_of  # noqa: PLC0415 - imports take a second
    from gantree.federation.daemon import FrontSettings, run_front  # noqa: PLC0415 - the same
    from gantree.formats.federation import read_federation  # noqa: PLC0415 - the same

    folder = Path(config).absolute().parent
    told = read_federation(read_text(config), source_of(config), folder)
    where = state_dir(state)
    address = None
    if listen is None and (token_file or tls_cert or tls_key or insecure):
        raise BadInput("--tls-cert, --tls-key, --token-file and --insecure need --listen")
    if listen is not None:
        token = token_file or where / TOKEN_FILE
        address = listen_of(listen, token, tls_cert, tls_key, insecure=insecure)
    run_front(FrontSettings(told, where, address, **log_settings(log_level, log_format)))


@app.command()
def status(state: StateOption = None, as_json: JsonOption = False) -> None:
    """List the clusters: whether they answer, their leases and their jobs."""
    asked: Request[dict[str, Any]] = Request("GET", "/v1/federation")
    told = client(state).send(asked)
    if as_json:
        print_json(told)
        return
    head = ("CLUSTER", "REGION", "STATE", "LEASE", "JOBS", "SERVICES", "TROUBLE")
    cells = [
        (
            row["cluster"], row["region"], row["state"], str(row["lease"]), str(row["jobs"]),
            str(row["services"]), _trouble(row),
        )
        for row in told["clusters"]
    ]  # fmt: skip
    typer.echo(columns(head, cells))
    if told["without_cluster"]:
        typer.echo(f"{told['without_cluster']} without a cluster")


def _trouble(row: dict[str, Any]) -> str:
    """What is wrong with a cluster, or worth knowing, and what follows."""
    parts = [row["trouble"]] if row["trouble"] else []
    if row["silent_s"] is not None:
        parts.append(f"no answer for {span(row['silent_s'])}")
    if row["moves_in_s"] is not None:
        is_asked = row["enforced_by"] == "daemon"
        after = f"after: gantree federation lost {row['cluster']}"
        parts.append(f"jobs move {after if is_asked else 'in ' + span(row['moves_in_s'])}")
    return "; ".join(parts) or "-"


@app.command()
def lost(cluster: ClusterArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Declare that nothing runs in a cluster any more: its jobs are started elsewhere at once.

    Use it only if that is so: machines that are switched off, or a cluster that was deleted.
    """
    path = "/v1/federation/clusters/{cluster}/lost"
    asked: Request[dict[str, Any]] = Request("POST", path, {"cluster": cluster})
    told = client(state).send(asked)
    if as_json:
        print_json(told)
    else:
        typer.echo(f"{told['cluster']} is confirmed lost")
