"""Follows a job from its submission to its end, for `gantree run`.

The daemon may end and start again meanwhile: the gang goes on running, and so does the watching.
"""

import secrets
import signal
import sys
import time

import typer

from gantree.api.client.client import Client, Json
from gantree.cli.jobs.log_follow import RETRY_S, Output
from gantree.cli.output.errors import FAILURE, warn
from gantree.model.errors import Conflict, JournalError, Unreachable
from gantree.model.phases import ENDED, Phase

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""Blocked until the job's id is known, because an earlier interrupt would leave the job running."""
INTERRUPTED = 128 + signal.SIGINT
TIMED_OUT = 124
"""As `timeout` of the GNU coreutils ends."""
ASK_AGAIN_S = 60.0
"""How long one question for the job's end may hang."""
GONE_S = 60.0
"""How long a daemon that went away is waited for."""


def watch(daemon: Client, text: str, processes: int) -> int:
    """Hand in the text of a job file, print what its one job writes, and return the exit code to end with.

    That is the job's own code where it ended by itself, 124 for a time limit, 130 for a cancelled job. Ctrl-C
    and SIGTERM cancel the job the first time; after the second the job is left as it is, and the code is 130.
    Raises Unreachable where no daemon answers, or has not for GONE_S.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        return _watch(daemon, text, processes)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        signal.signal(signal.SIGTERM, before)


def _watch(daemon: Client, text: str, processes: int) -> int:
    answer = daemon.submit(text, "the command line", idempotency_key=secrets.token_hex(16))
    job: str = answer["jobs"][0]["job"]
    for warning in answer["warnings"]:
        warn(warning)
    output = Output(daemon, job, only_rank=0 if processes == 1 else None)
    try:
        ended = _end_of(daemon, job)
        output.finish()
    except KeyboardInterrupt:
        _say(f"{job} continues; see gantree why {job}")
        return INTERRUPTED
    return _code(job, ended)


def _end_of(daemon: Client, job: str) -> Json:
    """The job once it has ended; the first interrupt cancels it, the second is the caller's."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
        return _wait(daemon, job)
    except KeyboardInterrupt:
        _say(f"cancelling {job}; Ctrl-C again exits at once")
    try:
        daemon.cancel(job)
    except Conflict as ended_meanwhile:
        _say(str(ended_meanwhile))
    except Unreachable:
        _say(
            f"{job} could not be cancelled and continues; run gantree cancel {job} once the daemon is back"
        )
        raise
    return _wait(daemon, job)


def _wait(daemon: Client, job: str) -> Json:
    gone_at: float | None = None
    while True:
        try:
            state = daemon.job(job, wait_s=ASK_AGAIN_S)
        except (Unreachable, JournalError):
            if gone_at is None:
                gone_at = time.monotonic()
                _say(f"the daemon does not answer; {job} continues; waiting for the daemon")
            elif time.monotonic() - gone_at > GONE_S:
                raise
            time.sleep(RETRY_S)
            continue
        gone_at = None
        if state["phase"] in ENDED:
            return state


def _code(job: str, ended: Json) -> int:
    """The exit code to end with; says what happened where the job did not succeed."""
    phase, reason = ended["phase"], ended["reason"]
    if phase == Phase.SUCCEEDED:
        return 0
    _say(f"{job} {phase}: {reason}" if reason else f"{job} {phase}")
    if phase == Phase.CANCELLED:
        return INTERRUPTED
    if phase == Phase.TIMED_OUT:
        return TIMED_OUT
    return ended["exit_code"] or FAILURE


def _say(sentence: str) -> None:
    sys.stdout.flush()
    typer.echo(f"gantree: {sentence}", err=True)
