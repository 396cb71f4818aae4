"""Commands that change jobs of the daemon: cancel, hold, release, suspend, resume, scale and reprioritise."""

from typing import Annotated

import typer

from gantree.cli.daemon_client import JobsArgument, change_jobs, client
from gantree.cli.options import JsonOption, StateOption, class_or_number


def cancel(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Cancel pending or running jobs."""
    daemon = client(state)
    change_jobs(
        daemon,
        jobs,
        daemon.cancel,
        "cancelled",
        as_json=as_json,
        sentence="{} is being cancelled",
    )


def hold(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Hold pending jobs, so that they do not start.

    A held job keeps its position in the queue. gantree release ends the hold.
    """
    daemon = client(state)
    change_jobs(daemon, jobs, daemon.hold, "held", as_json=as_json)


def release(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Release held jobs, so that they may start."""
    daemon = client(state)
    change_jobs(daemon, jobs, daemon.release, "released", as_json=as_json)


def suspend(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Stop jobs and hold them until they are resumed.

    A running job saves a checkpoint if it can, gives up its GPUs and keeps its position in the queue. A pending job
    is held.
    """
    daemon = client(state)
    change_jobs(daemon, jobs, daemon.suspend, "suspended", as_json=as_json)


def resume(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Resume suspended jobs; the same as gantree release."""
    daemon = client(state)
    change_jobs(daemon, jobs, daemon.resume, "resumed", as_json=as_json)


def scale(
    jobs: JobsArgument,
    members: Annotated[int, typer.Option("--members", "-n", min=1, help="New number of members.")],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the number of members of elastic jobs.

    A running job saves a checkpoint if it can and restarts with the new number. It does not grow beyond that number
    on its own.
    """
    daemon = client(state)
    change_jobs(daemon, jobs, lambda job: daemon.scale(job, members), "scaled", as_json=as_json)


def reprioritise(
    jobs: JobsArgument,
    priority: Annotated[
        str,
        typer.Option(
            "--priority", metavar="CLASS|N", help="A priority class of the policy, or a number."
        ),
    ],
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the priority of pending or running jobs."""
    daemon, new_priority = client(state), class_or_number(priority)
    assert new_priority is not None
    change_jobs(
        daemon,
        jobs,
        lambda job: daemon.reprioritise(job, new_priority),
        "reprioritised",
        as_json=as_json,
    )
