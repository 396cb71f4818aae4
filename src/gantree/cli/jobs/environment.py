"""The options that say which environment variables a job gets, the same for `run` and `submit`."""

import os
from collections.abc import Sequence
from typing import Annotated

import typer

from gantree.cli.input.files import check_utf8, read_text, source_of
from gantree.text.exported_variables import ExportedVariables, exported, variable, variables_in

ExportOption = Annotated[
    str | None,
    typer.Option(
        metavar="ALL|NONE|NAME,NAME=VALUE,...",
        help="Your variables that the job gets, as with sbatch. [default: PATH]",
    ),
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="Environment variable of the job; NAME alone passes your own value.",
    ),
]
EnvFileOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="File with variables of the job, NAME=VALUE in each line."),
]


def exported_variables(
    export: str | None, env: Sequence[str], env_file: str | None
) -> ExportedVariables:
    """What the options pass on; of one variable that several name the value of --env. Raises BadInput."""
    for word in (*env, export or ""):
        check_utf8(word, "the command line")
    own = os.environ
    text = "" if env_file is None else read_text(env_file)
    in_file = list(variables_in(text, source_of(env_file or ""), own))
    found = exported(export, own, in_file)
    found.named.update(variable(word, own, "--env") for word in env)
    for name, value in (*found.named.items(), *found.inherited.items()):
        check_utf8(value, f"the value of {name}")
    return found
