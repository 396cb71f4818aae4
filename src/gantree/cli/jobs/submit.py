"""`gantree submit`: submit job files, with jobs and services.

Files are read before the first is handed in. A file that the daemon refuses ends the command: what was handed in
before it stays handed in, and has been printed.
"""

import secrets
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.files import STDIN, base_dir_of, read_text, source_of
from gantree.cli.jobs.environment import (
    EnvFileOption,
    EnvOption,
    ExportOption,
    exported_variables,
)
from gantree.cli.jobs.job_names import name_of
from gantree.cli.options import (
    JsonOption,
    PartitionsOption,
    StateOption,
    class_or_number,
)
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import print_json


def submit(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help='Job files, or scripts with #SBATCH lines; "-" is stdin.'
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Job name; overrides the file.")] = None,
    queue: Annotated[str | None, typer.Option(help="Queue; overrides the file.")] = None,
    priority: Annotated[
        str | None, typer.Option(help="Priority class or number; overrides the file.")
    ] = None,
    export: ExportOption = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    partitions: PartitionsOption = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit job files and print the ids of the jobs.

    Of services the names are printed. A service that is live already is updated.
    """
    given = {"name": name, "queue": queue, "priority": class_or_number(priority)}
    overrides = {field: value for field, value in given.items() if value is not None}
    variables = exported_variables(export, env or [], env_file)
    texts = [_job_file(file, read_text(file), partitions, export) for file in files]
    daemon = client(state)
    taken: dict[str, list[Any]] = {"jobs": [], "services": [], "warnings": []}
    try:
        for text, source, base_dir, is_script in texts:
            answer = daemon.submit(
                text,
                source,
                base_dir=base_dir,
                overrides=overrides,
                env=variables.named,
                default_env=variables.inherited if export is not None or not is_script else {},
                idempotency_key=secrets.token_hex(16),  # sent again, it is still taken once
            )
            taken["jobs"] += answer["jobs"]
            taken["services"] += answer.get("services", [])
            taken["warnings"] += answer["warnings"]
    finally:
        _print(taken, as_json)


def _job_file(
    file: str, text: str, partitions: str | None, export: str | None
) -> tuple[str, str, str, bool]:
    """The text of a job file, how messages name it, where relative paths in it start, and whether it is a script's.

    Those of a script start here, and it says itself which variables it wants.
    """
    source = source_of(file)
    if not text.startswith("#!"):
        return text, source, str(base_dir_of(file)), False
    from gantree.cli.jobs import batch_scripts as scripts  # noqa: PLC0415 - takes as long to import as all else together

    if not scripts.is_script(text):
        return text, source, str(base_dir_of(file)), False
    job_text = scripts.job_text_of(text, [file], source, name_of([file]), partitions, export)
    return job_text, source, str(base_dir_of(STDIN)), True


def _print(taken: dict[str, list[Any]], as_json: bool) -> None:
    if as_json:
        print_json(taken)
        return
    for job in taken["jobs"]:
        typer.echo(job["job"])
    for service in taken["services"]:
        typer.echo(service["service"])
    for warning in taken["warnings"]:
        warn(warning)
