"""`gantree run`: makes a job file of a command line, submits it, and follows the job to its end.

The job runs where the caller stands and, as with `submit`, with the caller's PATH, so that `python` means what it
means in the caller's shell. The first Ctrl-C (or SIGTERM) cancels the job, and its output is printed on until it has
ended; the second leaves at once.

A script with `#SBATCH` or `#GANTREE` lines says itself how large it is; what the command line says goes before that.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.files import check_utf8
from gantree.cli.jobs.environment import (
    EnvFileOption,
    EnvOption,
    ExportOption,
    exported_variables,
)
from gantree.cli.jobs.job_names import name_of
from gantree.cli.jobs.watch import watch
from gantree.cli.options import PartitionsOption, StateOption, class_or_number, new_app
from gantree.text.exported_variables import ExportedVariables

app = new_app()


_FIELDS = {"name", "queue", "priority", "time_limit", "restarts"}
"""Fields of the job that an option of the same name sets."""

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="COMMAND...", help="Command that each process runs.")
]
MembersOption = Annotated[
    int, typer.Option("--members", "-n", min=1, help="Number of members; each runs on one node.")
]
RequiredOption = Annotated[
    str | None, typer.Option(metavar="TIER", help="Place all members in one domain of this tier.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(metavar="1h30m", help="Stop the job after this time.")
]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    ctx: typer.Context,
    command: CommandArgument,
    members: MembersOption = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per member.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Processes per member.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. [default: the script's]")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Queue of the job.")] = None,
    priority: Annotated[str | None, typer.Option(help="Priority class or number.")] = None,
    required: RequiredOption = None,
    time_limit: TimeLimitOption = None,
    restarts: Annotated[int, typer.Option(min=0, help="Restarts after failures.")] = 0,
    export: ExportOption = None,
    env: EnvOption = None,
    env_file: EnvFileOption = None,
    partitions: PartitionsOption = None,
    state: StateOption = None,
) -> None:
    """Run a command as a job and follow its output.

    Exits with the exit code of the job. Ctrl-C cancels the job.
    """
    for word in (*command, name or "", str(Path.cwd())):
        check_utf8(word, "the command line")
    variables = exported_variables(export, env or [], env_file)
    role = {
        "role": "worker",
        "members": members,
        "processes": processes,
        "each": {"gpus": gpus},
        "run": command,
        "env": variables.inherited | variables.named,
        "workdir": str(Path.cwd()),
    }
    document: dict[str, Any] = {
        "name": name or name_of(command),
        "queue": queue,
        "priority": class_or_number(priority),
        "time_limit": time_limit,
        "topology": None if required is None else {"required": required},
        "restarts": restarts,
        "gang": [role],
    }
    header = _of_script(command, partitions, export)
    if header is not None:
        document = _over_header(header, document, _given_options(ctx), variables)
        (worker,) = document["gang"]
        members, processes = worker["members"], worker["processes"]
    raise typer.Exit(watch(client(state), _job_text(document), members * processes))


def _of_script(
    command: Sequence[str], partitions: str | None, export: str | None
) -> dict[str, Any] | None:
    """The job that a script's header asks for, as plain data; None where the command is no script with a header."""
    if not Path(command[0]).is_file():
        return None
    from gantree.cli.jobs import batch_scripts as scripts  # noqa: PLC0415 - takes as long to import as all else together

    text = scripts.script_at(command[0])
    if text is None:
        return None
    name = name_of(command)
    found: dict[str, Any] = json.loads(
        scripts.job_text_of(text, command, command[0], name, partitions, export)
    )
    return found


def _given_options(ctx: typer.Context) -> set[str]:
    """The options that the command line says itself."""
    return {
        name
        for name in ctx.params
        if (source := ctx.get_parameter_source(name)) is not None and source.name == "COMMANDLINE"
    }


def _over_header(
    header: dict[str, Any],
    document: Mapping[str, Any],
    given: set[str],
    variables: ExportedVariables,
) -> dict[str, Any]:
    """The job of a header, with what the command line says put over it."""
    ((requested,), (own,)) = (header["gang"], document["gang"])
    fields = {field: document[field] for field in _FIELDS & given}
    topology = {**(header.get("topology") or {}), **(document["topology"] or {})}
    role = {
        **requested,
        **{field: own[field] for field in ("members", "processes") if field in given},
        "each": requested["each"] | (own["each"] if "gpus" in given else {}),
        "env": {
            **(variables.inherited if "export" in given else {}),
            **requested["env"],
            **variables.named,
        },
        "workdir": requested.get("workdir") or own["workdir"],
    }
    return {**header, **fields, "topology": topology or None, "gang": [role]}


def _job_text(document: Mapping[str, Any]) -> str:
    """A job file's text: JSON is YAML. What was not said is left out."""
    return json.dumps({field: value for field, value in document.items() if value is not None})
