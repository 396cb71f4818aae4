"""`gantree when`: the reserved or estimated start of a pending job, and what it depends on."""

from collections.abc import Iterator
from typing import Any

import typer

from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.explain.start_lines import end_line, start_line
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.printing import print_json, span


def when(
    job: JobArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show when a pending job starts."""
    daemon = client(state)
    answer = daemon.when(job_named(daemon, job))
    if as_json:
        print_json(answer)
    else:
        typer.echo("\n".join(_lines(answer)))


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    now, start = answer["asked_at"], answer["start"]
    if answer["phase"] != "pending":
        since = answer["started_at"]
        ago = "" if since is None else f" It started {span(now - since)} ago."
        yield f"{answer['job']} is not pending: it is {answer['phase']}.{ago}"
        return
    if start is None:
        yield f"The start of {answer['job']} cannot be estimated. {answer['why']}"
        return
    yield f"{answer['job']} {start_line(start, now)}."
    yield from (f"  {end_line(end, now)}" for end in answer["hangs_on"])
