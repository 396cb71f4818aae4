"""The way to the daemon for the commands that need one."""

import os
from collections import deque
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from gantree.api.client import Client
from gantree.api.requests import Request
from gantree.api.target import SERVER_VARIABLE, token_from_environment
from gantree.cli.options import state_dir
from gantree.model.errors import GantreeError, Unreachable

T = TypeVar("T")
_heard: deque[tuple[Request[Any], Any]] = deque(maxlen=4)
"""The latest questions of this process and what was answered, as it came."""


class _Listening(Client):
    """A client that keeps what it heard last, for `blame`."""

    def ask(self, request: Request[T]) -> T:
        """Send any request and read its answer."""
        answer: Any = super().ask(replace(request, read=lambda told: told))
        _heard.append((request, answer))
        return request.read(answer)


def client(chosen_state_dir: Path | None) -> Client:
    """A client for the daemon: that of the state directory if one is chosen, else that of --server, if there is one."""
    server = os.environ.get(SERVER_VARIABLE)
    if chosen_state_dir is None and server:
        return _Listening(server, token_from_environment())
    return _Listening(state_dir(chosen_state_dir))


def blame() -> Unreachable | None:
    """Where a command stumbled: the answer that is at fault, None where no answer is, so that it was our own bug."""
    if not _heard:
        return None
    from gantree.api.promises import broken_promise  # noqa: PLC0415 - takes a second

    found = (broken_promise(request, answer) for request, answer in reversed(_heard))
    return next((Unreachable(told) for told in found if told is not None), None)


def known_jobs(ctx: typer.Context, incomplete: str) -> list[str]:
    """The ids that a shell may complete a word to; none without a daemon."""
    chosen = ctx.params.get("state")
    try:
        rows = client(None if chosen is None else Path(chosen)).jobs()
    except GantreeError:
        return []
    return [row["job"] for row in rows if row["job"].startswith(incomplete)]


JobArgument = Annotated[str, typer.Argument(help="Job id or name.", autocompletion=known_jobs)]
JobsArgument = Annotated[
    list[str],
    typer.Argument(metavar="JOB...", help="Job ids or names.", autocompletion=known_jobs),
]
