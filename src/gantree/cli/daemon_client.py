"""The client of the daemon that commands use, and arguments that name its jobs."""

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gantree.api.client.client import Client
from gantree.api.client.request import Request
from gantree.api.client.target import SERVER_VARIABLE, token_from_environment
from gantree.cli.options import state_dir
from gantree.cli.output.errors import FAILURE, error_text
from gantree.cli.output.printing import print_json
from gantree.model.errors import Conflict, GantreeError, NotFound, Unreachable

T = TypeVar("T")
_latest_answers: deque[tuple[Request[Any], Any]] = deque(maxlen=4)
"""The latest requests of this process, each with its answer before it was parsed."""


class _RecordingClient(Client):
    """A client that records its latest answers, for `malformed_answer`, and says what it waits for."""

    def _say(self, sentence: str) -> None:
        """Say it beside what is printed."""
        typer.echo(f"gantree: {sentence}", err=True)

    def send(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        answer: Any = super().send(replace(request, read=lambda body: body))
        _latest_answers.append((request, answer))
        return request.read(answer)


def client(chosen_state_dir: Path | None) -> Client:
    """A client for the daemon: that of the state directory if one is chosen, else that of --server, if there is one."""
    server = os.environ.get(SERVER_VARIABLE)
    if chosen_state_dir is None and server:
        return _RecordingClient(server, token_from_environment())
    return _RecordingClient(state_dir(chosen_state_dir))


BY_ID = "id:"
"""What a job is named by its id with, though a live job has that id as its name."""


def job_named(daemon: Client, word: str) -> str:
    """The id of the job that a user means: a live one of this name before one that has ended; after "id:" its id.

    Raises Conflict where several live jobs have this name, and NotFound for a name with a slash that no job has: gangs
    of Kubernetes have such, and they are no part of a path.
    """
    if word.startswith(BY_ID):
        return word.removeprefix(BY_ID)
    if not word or not word.isprintable():
        return word
    try:
        found = daemon.job_id(word)
    except NotFound:
        if "/" in word:
            raise NotFound(f"there is no job {word!r}") from None
        return word  # perhaps it is history; or the daemon is older, and the word is an id
    job: str = found["job"]
    if found["instead_of"] is not None:
        typer.echo(
            f"gantree: job {word} has ended; {job} has the same name and is meant. For the ended one: {BY_ID}{word}",
            err=True,
        )
    return job


def malformed_answer() -> Unreachable | None:
    """An error for the latest answer that breaks the API's schema; None if all are valid, so the bug is ours."""
    if not _latest_answers:
        return None
    from gantree.api.server.response_check import mismatch_in  # noqa: PLC0415 - takes a second

    found = (mismatch_in(request, answer) for request, answer in reversed(_latest_answers))
    return next((Unreachable(text) for text in found if text is not None), None)


def change_jobs(
    daemon: Client,
    words: Sequence[str],
    change: Callable[[str], dict[str, Any]],
    done: str,
    *,
    as_json: bool,
    sentence: str = "",
) -> list[str]:
    """Change jobs by id or name (`job_named`) as `change_each`."""
    return change_each(
        "job",
        words,
        lambda word: change(job_named(daemon, word)),
        done,
        as_json=as_json,
        sentence=sentence,
    )


def change_each(
    kind: str,
    names: Sequence[str],
    change: Callable[[str], dict[str, Any]],
    done: str,
    *,
    as_json: bool,
    sentence: str = "",
) -> list[str]:
    """Change jobs or nodes one by one and print which were `done` ("held"). Returns their names.

    An error about one is printed, and the others are changed all the same; then the command exits with FAILURE.
    """
    changed: list[str] = []
    failed = False
    for name in names:
        try:
            changed.append(change(name)[kind])
        except (NotFound, Conflict) as error:
            failed = True
            typer.echo(error_text(error), err=True)
    if as_json:
        print_json({done: changed})
    else:
        for name in changed:
            typer.echo((sentence or f"{{}} is {done}").format(name))
    if failed:
        raise typer.Exit(FAILURE)
    return changed


def known_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids that a shell may complete a word to; none without a daemon."""
    chosen = ctx.params.get("state")
    try:
        rows = client(None if chosen is None else Path(chosen)).jobs()
    except GantreeError:
        return []
    return [row["job"] for row in rows if row["job"].startswith(incomplete)]


def known_services(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of services that a shell may complete a word to; none without a daemon."""
    chosen = ctx.params.get("state")
    try:
        rows = client(None if chosen is None else Path(chosen)).services()
    except GantreeError:
        return []
    return [row["service"] for row in rows if row["service"].startswith(incomplete)]


JobArgument = Annotated[str, typer.Argument(help="Job id or name.", autocompletion=known_jobs)]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Job ids or names.", autocompletion=known_jobs),
]
