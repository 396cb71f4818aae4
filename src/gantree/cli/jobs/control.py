"""Commands that change jobs and services: cancel, hold, release, suspend, resume, scale and reprioritise."""

from functools import partial
from typing import Annotated, Any

import typer

from gantree.api.client.client import Client
from gantree.cli.daemon_client import JobsArgument, change_each, change_jobs, client, job_named
from gantree.cli.options import JsonOption, StateOption, class_or_number
from gantree.model.errors import BadInput, Conflict, GantreeError, NotFound


def cancel(jobs: JobsArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Cancel pending or running jobs, or services.

    The replicas of a service finish their requests first, for the time that its drain allows.
    """
    change_each(
        "job",
        jobs,
        partial(_cancelled, client(state)),
        "cancelled",
        as_json=as_json,
        sentence="{} is being cancelled",
    )


def _cancelled(daemon: Client, word: str) -> dict[str, Any]:
    """Cancel the live service of this name, else the job that the word means."""
    no_service: GantreeError
    try:
        return {"job": daemon.cancel_service(word)["service"]}
    except (NotFound, Conflict) as error:
        no_service = error
    try:
        return daemon.cancel(job_named(daemon, word))
    except NotFound:
        if isinstance(no_service, Conflict):
            raise no_service from None
        raise


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
    members: Annotated[
        int | None, typer.Option("--members", "-n", min=1, help="New number of members of jobs.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option("--replicas", min=0, help="New number of replicas of services.")
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the number of members of elastic jobs, or of replicas of services.

    A running job saves a checkpoint if it can and restarts with the new number. It does not grow beyond that number
    on its own. Replicas of a service start, or end once they have finished their requests; if the service scales by
    its load, the autoscaler goes on from there.
    """
    if (members is None) == (replicas is None):
        raise BadInput("scale: give --members N for jobs, or --replicas N for services")
    daemon = client(state)
    if members is not None:
        change_jobs(daemon, jobs, lambda job: daemon.scale(job, members), "scaled", as_json=as_json)
    if replicas is not None:
        change_each(
            "service",
            jobs,
            lambda name: daemon.scale_service(name, replicas),
            "scaled",
            as_json=as_json,
        )


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
