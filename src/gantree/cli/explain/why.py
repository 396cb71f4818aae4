"""`gantree why`: why a job is in its state."""

import time
from contextlib import suppress
from typing import Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.explain.start_lines import start_line
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.ended_job import end_line
from gantree.cli.output.printing import print_json
from gantree.cli.output.refusals import refusal_lines
from gantree.model.errors import Conflict, GantreeError, NotFound, Unsupported
from gantree.model.phases import ENDED
from gantree.text.preemption_blockers import PREEMPTION_BLOCKERS


def why(
    job: JobArgument,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a job is in its state."""
    daemon = client(state)
    answer = daemon.why(_meant(daemon, job))
    if as_json:
        print_json(answer)
        return
    typer.echo(answer["sentence"])
    for line in _details(answer):
        typer.echo(f"  {line}")
    if answer["phase"] in ENDED:
        _print_use(daemon, answer["job"])


def _meant(daemon: Client, word: str) -> str:
    """The live service of this name, else the job that the word means."""
    with suppress(GantreeError):  # there is none, or nobody there knows of services
        if daemon.service(word)["ended_at"] is None:
            return word
    return job_named(daemon, word)


def _print_use(daemon: Client, job: str) -> None:
    """What an ended job used, where that is on record: not of one that was rejected."""
    try:
        typer.echo(f"  {end_line(daemon.ended_job(job))}")
    except (Conflict, NotFound, Unsupported):
        return


def _details(answer: dict[str, Any]) -> list[str]:
    """The numbers behind the sentence."""
    lines = [] if answer["refused"] is None else refusal_lines(answer["refused"])
    if answer["ahead_count"]:
        more = answer["ahead_count"] - len(answer["ahead"])
        names = ", ".join(answer["ahead"]) + (f" and {more} more" if more else "")
        lines.append(f"ahead in the queue: {names}")
    lines += [
        f"blocked by: {each['job']} ({PREEMPTION_BLOCKERS.get(each['because'], each['because'])})"
        for each in answer["in_the_way"]
    ]
    lines += [] if answer.get("check") is None else [answer["check"]["sentence"]]
    lines += [each["sentence"] for each in answer.get("stragglers", ())]
    if answer["start"] is not None:
        lines.append(start_line(answer["start"], time.time()))
    return lines
