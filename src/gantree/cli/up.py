"""`gantree up`: the daemon in the foreground.

Which cluster it gets: the file that --cluster names; else as many machines of the catalogue as --virtual asks
for; else the one that the state directory has recorded; else this machine, if it has GPUs.
"""

from pathlib import Path
from typing import Annotated

import typer

from gantree.api.access import TOKEN_FILE
from gantree.api.daemon import run_daemon
from gantree.api.listening import listen_of
from gantree.api.log_lines import Format, Level
from gantree.cli.clusters import this_machine_text, virtual_text
from gantree.cli.options import PolicyOption, StateOption, new_app, state_dir
from gantree.cli.policies import policy_named
from gantree.cli.reading import read_text, source_of
from gantree.journal.sqlite import FILE as JOURNAL_FILE
from gantree.model.errors import BadInput, Unreachable

app = new_app()


@app.command()
def up(
    cluster: Annotated[
        str | None, typer.Option(metavar="FILE", help="Cluster file. [default: as last time]")
    ] = None,
    virtual: Annotated[
        str | None,
        typer.Option(metavar="MACHINE:COUNT", help="Pretend to have machines, like dgx-h100:2."),
    ] = None,
    policy: PolicyOption = None,
    state: StateOption = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Answer there too, beside the Unix socket."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Certificate chain for --listen, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key. [default: in --tls-cert]")
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Token that callers over --listen must show; made if missing. [default: STATE/token]",
        ),
    ] = None,
    requests_per_second: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="N", help="How often a caller may ask. [default: no limit]"),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Let others reach --listen without TLS.")
    ] = False,
    log_format: Annotated[
        Format, typer.Option(help="How the log looks; auto: text on a terminal, else JSON.")
    ] = Format.AUTO,
    log_level: Annotated[Level, typer.Option(help="The least that is logged.")] = Level.WARNING,
) -> None:
    """Run the daemon in the foreground until it is told to stop.

    Ctrl-C and SIGTERM stop it; what runs goes on running and is adopted at the next start.
    """
    if cluster is not None and virtual is not None:
        raise BadInput("--cluster and --virtual exclude each other")
    directory = state_dir(state)
    if listen is None and (tls_cert or tls_key or token_file or insecure):
        raise BadInput("--tls-cert, --tls-key, --token-file and --insecure need --listen")
    token = token_file or directory / TOKEN_FILE
    at = listen and listen_of(listen, token, tls_cert, tls_key, insecure=insecure)
    text, source = _site(cluster, virtual, directory)
    chosen, places, policy_text = policy_named(policy)
    run_daemon(
        directory,
        text,
        source,
        chosen,
        places,
        listen=at or None,
        requests_per_s=requests_per_second,
        log_level=log_level,
        log_format=log_format,
        policy_text=policy_text,
    )


def _site(cluster: str | None, virtual: str | None, directory: Path) -> tuple[str | None, str]:
    """The text of a cluster file and its name in messages; None: the recorded cluster."""
    if cluster is not None:
        return read_text(cluster), source_of(cluster)
    if virtual is not None:
        return virtual_text(virtual), f"--virtual {virtual}"
    if (directory / JOURNAL_FILE).exists():
        return None, "the recorded cluster"
    return _this_machine(), "this machine"


def _this_machine() -> str:
    try:
        return this_machine_text()
    except Unreachable as error:
        raise Unreachable(f"{error}\nOr name a cluster file with --cluster.") from None
