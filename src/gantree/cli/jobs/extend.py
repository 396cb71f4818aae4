"""`gantree extend`: the lease of an idle job. It reads a duration as files do, and so imports more than `control`."""

from typing import Annotated

import typer

from gantree.cli.daemon_client import JobsArgument, change_jobs, client
from gantree.cli.input.durations import seconds_or_zero_of
from gantree.cli.options import JsonOption, StateOption

FOREVER = "forever"


def extend(
    jobs: JobsArgument,
    duration: Annotated[
        str,
        typer.Argument(
            metavar="DURATION",
            help=f"How long from now on, such as 2h; 0s ends it; {FOREVER} is for operators.",
        ),
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep idle jobs: for so long they are not reclaimed.

    The queue says how long a lease may be at most. Before it ends, the job is warned again.
    """
    daemon = client(state)
    if duration == FOREVER:
        change_jobs(daemon, jobs, daemon.exempt, "exempted", as_json=as_json)
        return
    for_s = seconds_or_zero_of("DURATION", duration)
    done = "extended" if for_s else "kept no longer"
    change_jobs(daemon, jobs, lambda job: daemon.extend(job, for_s), done, as_json=as_json)
