"""Following a job from hand-in to its end, on behalf of `gantree run`.

The output comes on one long answer of the daemon. It is read by a thread of its own, so that it goes on while
the main thread, where Python raises KeyboardInterrupt, cancels the job.
"""

import signal
import sys
import threading

import typer

from gantree.api.client import Client
from gantree.cli.errors import FAILURE, told, warn
from gantree.cli.logs import pour
from gantree.model.errors import Conflict, GantreeError
from gantree.model.phases import ENDED, Phase

INTERRUPTED = 128 + signal.SIGINT
TIMED_OUT = 124
"""As `timeout` of the GNU coreutils ends."""
ASK_AGAIN_S = 60.0
"""How long one question for the job's end may hang."""
REST_OF_OUTPUT_S = 10.0
"""How long the output may lag behind the job's end."""


def watch(daemon: Client, text: str, source: str) -> int:
    """Hand in a job file with one job, print what it writes, and return the exit code to end with.

    That is the job's own code where it ended by itself, 124 for a time limit, 130 for a cancelled job. Ctrl-C
    and SIGTERM cancel the job the first time; after the second the job is left as it is, and the code is 130.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    answer = daemon.submit(text, source)
    job: str = answer["jobs"][0]["job"]
    for warning in answer["warnings"]:
        warn(warning)
    output = threading.Thread(target=_print_output, args=(daemon, job), daemon=True)
    output.start()
    try:
        code = _end_of(daemon, job)
        output.join(REST_OF_OUTPUT_S)
    except KeyboardInterrupt:
        _say(f"left {job} as it is; see gantree why {job}")
        return INTERRUPTED
    return code


def _end_of(daemon: Client, job: str) -> int:
    """Wait for the end; the first interrupt cancels, the second is the caller's."""
    try:
        return _wait(daemon, job)
    except KeyboardInterrupt:
        _say(f"cancelling {job}; Ctrl-C again leaves without waiting")
        _cancel(daemon, job)
        return _wait(daemon, job)


def _wait(daemon: Client, job: str) -> int:
    while True:
        state = daemon.job(job, wait_s=ASK_AGAIN_S)
        if state["phase"] in ENDED:
            return _code(job, state["phase"], state["exit_code"], state["reason"])


def _cancel(daemon: Client, job: str) -> None:
    try:
        daemon.cancel(job)
    except Conflict as ended_meanwhile:
        _say(str(ended_meanwhile))


def _code(job: str, phase: str, exit_code: int | None, reason: str) -> int:
    """The exit code to end with; says why where it is not the job's own doing."""
    if phase == Phase.SUCCEEDED:
        return 0
    _say(f"{job} {phase}: {reason}" if reason else f"{job} {phase}")
    if phase == Phase.CANCELLED:
        return INTERRUPTED
    if phase == Phase.TIMED_OUT:
        return TIMED_OUT
    return exit_code or FAILURE


def _print_output(daemon: Client, job: str) -> None:
    try:
        pour(daemon.logs(job, follow=True))
    except BrokenPipeError:
        return  # nobody reads any more; the job goes on all the same
    except GantreeError as error:
        typer.echo(told(error), err=True)


def _say(sentence: str) -> None:
    sys.stdout.flush()
    typer.echo(f"gantree: {sentence}", err=True)
