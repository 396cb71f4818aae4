"""The inside of a job: its identity, and what the signals of gantree do to the function that it runs.

before the time limit     SIGUSR2 (SUBMITIT_PREEMPT_SIGNAL): checkpoint, then exit with REQUEUE_EXIT_CODE, upon which
                          gantree starts the job again, as often as submitit's countdown allows
preempted, moved          SIGHUP: checkpoint and answer; gantree stops the job and starts it again when there is room
stopped                   SIGTERM: exit
"""

import json
import os
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

from submitit.core import job_environment, logger, utils

REQUEUE_EXIT_CODE = os.EX_TEMPFAIL
TERMINATED_EXIT_CODE = 143
STOPPED_WITHIN_S = 600.0


def time_limit_signal() -> str:
    """The name of submitit's signal for a time that is nearly up."""
    return "SIG" + os.environ.get("SUBMITIT_PREEMPT_SIGNAL", "USR2")


def checkpoint_signal() -> str:
    """The name of the signal by which gantree requests a checkpoint; never that for the time limit."""
    return "SIGQUIT" if time_limit_signal() == "SIGHUP" else "SIGHUP"


class GantreeJobEnvironment(job_environment.JobEnvironment):
    """What gantree tells a process of its place."""

    _env = {  # noqa: RUF012 - as the class above declares it
        "job_id": "GANTREE_JOB",
        "num_tasks": "WORLD_SIZE",
        "num_nodes": "SUBMITIT_GANTREE_NODES",
        "node": "NODE_RANK",
        "global_rank": "RANK",
        "local_rank": "LOCAL_RANK",
    }

    @property
    def hostnames(self) -> list[str]:
        """The nodes of the job in the order of their ranks; the first as others reach it."""
        if self.num_nodes == 1:
            return [self.hostname]
        ranks = json.loads((Path(os.environ["GANTREE_RUN_DIR"]) / "ranks.json").read_text())
        first, *others = (member["node"] for member in ranks["members"])
        return [os.environ.get("MASTER_ADDR", first), *others]

    def _requeue(self, countdown: int) -> None:
        logger.get_logger().info(f"Requeued job {self.job_id} ({countdown} remaining timeouts)")
        sys.exit(REQUEUE_EXIT_CODE)

    def _handle_signals(self, paths: utils.JobPaths, submission: utils.DelayedSubmission) -> None:
        handler = GantreeSignalHandler(self, paths, submission)
        signal.signal(signal.SIGTERM, handler.terminate)
        signal.signal(getattr(signal, checkpoint_signal()), handler.checkpoint_and_answer)
        signal.signal(self._usr_sig(), handler.checkpoint_and_try_requeue)


class GantreeSignalHandler(job_environment.SignalHandler):
    """Handles signals as submitit does, but for what gantree knows better."""

    def has_timed_out(self) -> bool:
        """gantree sends that signal for nothing else."""
        self._logger.info(
            f"Job has timed out: {self._delayed._timeout_min:g} minutes are nearly up."
        )
        return True

    def terminate(self, signum: int, frame: types.FrameType | None = None) -> None:
        """Leave; blocks of `finally` run."""
        self._logger.info(f"Caught signal {signal.Signals(signum).name}, exiting.")
        sys.exit(TERMINATED_EXIT_CODE)

    def checkpoint_and_answer(self, signum: int, frame: types.FrameType | None = None) -> None:
        """Save what the function is to go on with, say so, and wait to be stopped."""
        if self.env.global_rank:
            return
        self._logger.info(
            f"Caught signal {signal.Signals(signum).name}: gantree wants a checkpoint."
        )
        reason = self._saved()
        if reason:
            self._logger.info(
                f"Nothing saved: {reason}. The function will start from its beginning."
            )
        answer = Path(os.environ["GANTREE_CHECKPOINT_ANSWER"])
        answer.write_text(f"{os.environ.get('GANTREE_ATTEMPT', '1')}\n")
        time.sleep(STOPPED_WITHIN_S)
        self.env._requeue(self._delayed._timeout_countdown)

    def _saved(self) -> str:
        """Why nothing was saved; empty if it was."""
        if not hasattr(self._delayed.function, "checkpoint"):
            return "the function has no method checkpoint"
        save: Any = job_environment._checkpoint
        reason: str = save(
            self._delayed, self._job_paths.submitted_pickle, self._delayed._timeout_countdown
        )
        return reason
