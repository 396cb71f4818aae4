"""`gantree access`: check the file of users, groups and roles."""

from typing import Annotated

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, new_app
from gantree.cli.output.printing import print_json
from gantree.text.words import plural

app = new_app()


@app.callback()
def access() -> None:
    """Check an access file: users, groups and their roles."""


@app.command()
def check(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Access file; - is standard input.")],
    as_json: JsonOption = False,
) -> None:
    """Check an access file. Exit status 2 if it is invalid."""
    from gantree.formats.access.reader import read_access  # noqa: PLC0415 - Pydantic takes long to import

    rules = read_access(read_text(file), source_of(file))
    users, groups = len(rules.grants_of_user), len(rules.grants_of_group)
    if as_json:
        print_json({"good": True, "users": users, "groups": groups, "oidc": rules.oidc is not None})
    else:
        provider = "" if rules.oidc is None else f", log-in at {rules.oidc.issuer}"
        typer.echo(f"{plural(users, 'user')}, {plural(groups, 'group')}{provider}")
