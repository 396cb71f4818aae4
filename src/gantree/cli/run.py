"""`gantree run`: a command line becomes a job file, goes the way of every job file, and is watched to its end.

The job runs where the caller stands and with the caller's PATH, so that `python` means what it means in the
caller's shell. The first Ctrl-C (or SIGTERM) cancels the job, and its output is printed on until it has ended;
the second leaves at once.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from gantree.cli.daemon import client
from gantree.cli.options import StateOption, class_or_number, new_app
from gantree.cli.reading import check_utf8
from gantree.cli.watching import watch
from gantree.model.errors import BadInput

app = new_app()

INTERPRETER = re.compile(r"(python|pypy|bash|sh|perl|ruby|node)[0-9.]*")
NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 63

CommandArgument = Annotated[
    list[str], typer.Argument(metavar="COMMAND...", help="What each process runs.")
]
MembersOption = Annotated[
    int, typer.Option("--members", "-n", min=1, help="Launches, each on one node.")
]
RequiredOption = Annotated[
    str | None, typer.Option(metavar="TIER", help="All members in one domain of this tier.")
]
TimeLimitOption = Annotated[
    str | None, typer.Option(metavar="1h30m", help="Stop the job after this long.")
]
EnvOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="A variable for the job; NAME alone: as you have it."),
]


@app.command(context_settings={"allow_interspersed_args": False})
def run(
    command: CommandArgument,
    members: MembersOption = 1,
    gpus: Annotated[int, typer.Option(min=0, help="GPUs per member.")] = 0,
    processes: Annotated[int, typer.Option(min=1, help="Processes per member.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. [default: the script's]")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Queue to wait in.")] = None,
    priority: Annotated[str | None, typer.Option(help="Priority class or number.")] = None,
    required: RequiredOption = None,
    time_limit: TimeLimitOption = None,
    restarts: Annotated[int, typer.Option(min=0, help="Start again after so many failures.")] = 0,
    env: EnvOption = None,
    state: StateOption = None,
) -> None:
    """Run a command as a gang and follow it to its end.

    Prints what its processes write and ends with the job's exit code. Ctrl-C cancels the job.
    """
    for word in (*command, *(env or []), name or "", str(Path.cwd())):
        check_utf8(word, "the command line")
    role = {
        "role": "worker",
        "members": members,
        "processes": processes,
        "each": {"gpus": gpus},
        "run": command,
        "env": environment(env or [], os.environ),
        "workdir": str(Path.cwd()),
    }
    document = {
        "name": name or name_of(command),
        "queue": queue,
        "priority": class_or_number(priority),
        "time_limit": time_limit,
        "topology": None if required is None else {"required": required},
        "restarts": restarts,
        "gang": [role],
    }
    raise typer.Exit(watch(client(state), _job_text(document), members * processes))


def _job_text(document: Mapping[str, Any]) -> str:
    """A job file's text: JSON is YAML. What was not said is left out."""
    return json.dumps({field: value for field, value in document.items() if value is not None})


def name_of(command: Sequence[str]) -> str:
    """A job's name after the script that an interpreter is to run, else after the program."""
    program = PurePath(command[0])
    is_script = (
        len(command) > 1
        and INTERPRETER.fullmatch(program.name) is not None
        and not command[1].startswith("-")
    )
    stem = PurePath(command[1]).stem if is_script else program.stem
    return NOT_IN_A_NAME.sub("-", stem).strip("-._")[:LONGEST_NAME] or "run"


def environment(wanted: Sequence[str], own: Mapping[str, str]) -> dict[str, str]:
    """The caller's PATH and what --env asks for. Raises BadInput for a NAME that the caller has not set."""
    variables = {"PATH": own["PATH"]} if "PATH" in own else {}
    for wish in wanted:
        name, equals, value = wish.partition("=")
        if not name or not (equals or name in own):
            raise BadInput(
                f"--env {wish}: allowed: NAME=VALUE, or the NAME of a variable that is set"
            )
        variables[name] = value if equals else own[name]
    return variables
