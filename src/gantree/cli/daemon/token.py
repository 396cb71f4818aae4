"""`gantree token`: tokens of users, for programs and for browsers that log in with one."""

from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.durations import seconds_of
from gantree.cli.options import JsonOption, StateOption, new_app
from gantree.cli.output.printing import columns, moment, print_json

app = new_app()


@app.callback()
def token() -> None:
    """Create, list and revoke tokens of users."""


@app.command()
def create(
    user: Annotated[
        str, typer.Option(metavar="NAME", help="User of the token. [default: you]")
    ] = "",
    role: Annotated[
        str,
        typer.Option(
            metavar="ROLE",
            help="Limit the token to a role: viewer, user, queue_admin, operator or router."
            " [default: all roles of the user]",
        ),
    ] = "",
    queue: Annotated[
        str,
        typer.Option(
            metavar="QUEUE",
            help="Limit the token to this queue and the queues below it. [default: all]",
        ),
    ] = "",
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Lifetime, such as 30d. [default: until revoked]"),
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token and print it once; it cannot be printed again."""
    expires_s = None if expires is None else seconds_of("--expires", expires)
    made = client(state).make_token(user, role=role, queue=queue, expires_s=expires_s)
    if as_json:
        print_json(made)
        return
    typer.echo(made["token"])
    typer.echo(f"token {made['id']} of {made['user']}: {_scope(made)}, {_end(made)}", err=True)


@app.command("list")
def list_(
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="List tokens of this user only.")
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """List tokens, without their secrets, oldest first."""
    rows = client(state).tokens(user)
    if as_json:
        print_json({"tokens": rows})
        return
    head = ("ID", "USER", "SCOPE", "CREATED", "BY", "VALID")
    cells = [
        (
            row["id"],
            row["user"],
            _scope(row),
            moment(row["created_at"]),
            row["created_by"],
            _end(row),
        )
        for row in rows
    ]
    typer.echo(columns(head, cells))


@app.command()
def revoke(
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="Token ids, from `gantree token list`.")
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke tokens and the browser sessions opened with them."""
    daemon = client(state)
    revoked = [daemon.revoke_token(each)["id"] for each in ids]
    if as_json:
        print_json({"revoked": revoked})
    else:
        for each in revoked:
            typer.echo(f"token {each} is revoked")


def _scope(row: dict[str, Any]) -> str:
    """What it allows of what its user may do."""
    role = row["role"] or "all roles"
    return f"{role} in {row['queue']}" if row["queue"] else role


def _end(row: dict[str, Any]) -> str:
    if row["revoked_at"] is not None:
        return f"revoked {moment(row['revoked_at'])}"
    return "until revoked" if row["expires_at"] is None else f"until {moment(row['expires_at'])}"
