"""The process of a job: `python -m gantree_submitit.task FOLDER`.

Output goes to submitit's log files. A second process copies it to gantree's log meanwhile, so that `gantree logs` and
the pages show it too. A job that started again after it had a result, because it was stopped just then, keeps that.
"""

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from submitit.core import submission, utils

from gantree_submitit.job_environment import GantreeJobEnvironment

COPY_EVERY_S = 0.2
COPIED_WITHIN_S = 5.0
CHUNK_BYTES = 1 << 16
STDOUT, STDERR = 1, 2


def main(folder: str) -> int:
    """The exit code of the job."""
    os.environ["SUBMITIT_FOLDER"] = folder
    paths = GantreeJobEnvironment().paths
    paths.folder.mkdir(parents=True, exist_ok=True)
    if paths.result_pickle.exists():
        return _exit_code_of(paths.result_pickle)
    copier = _Copier(_opened(paths))
    try:
        submission.process_job(folder)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        copier.finish()
    return 0


def _exit_code_of(result: Path) -> int:
    with result.open("rb") as file:
        outcome, _ = pickle.load(file)  # noqa: S301 - submitit wrote it, in the folder of the job
    print(f"This job has a result already: {outcome}.")  # noqa: T201 - the log of the job
    return 0 if outcome == "success" else 1


def _opened(paths: utils.JobPaths) -> list[Path]:
    """Turn stdout and stderr to the files of submitit."""
    files = [paths.stdout]
    if not os.environ.get("SUBMITIT_GANTREE_STDERR_TO_STDOUT"):
        files.append(paths.stderr)
    return files


class _Copier:
    """A child that copies what is appended to files to the standard output of before."""

    def __init__(self, files: Sequence[Path]) -> None:
        opened = [os.open(each, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666) for each in files]
        starts = [os.fstat(each).st_size for each in opened]
        lives, self._life = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            os.close(self._life)
            _copy(files, starts, lives)
        os.close(lives)
        os.dup2(opened[0], STDOUT)
        os.dup2(opened[-1], STDERR)
        for each in opened:
            os.close(each)

    def finish(self) -> None:
        """Let it copy the rest."""
        os.close(self._life)
        until = time.monotonic() + COPIED_WITHIN_S
        with suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
                time.sleep(0.005)


def _copy(files: Sequence[Path], offsets: list[int], lives: int) -> None:
    """Copy until nobody holds the other end of lives; never returns."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, signal.SIG_IGN)
    with suppress(Exception):
        over = False
        while not over:
            over = bool(select.select([lives], [], [], COPY_EVERY_S)[0])
            for place, path in enumerate(files):
                offsets[place] += _copied(path, offsets[place])
    os._exit(0)


def _copied(path: Path, offset: int) -> int:
    copied = 0
    with suppress(FileNotFoundError), path.open("rb") as file:
        file.seek(offset)
        while chunk := file.read(CHUNK_BYTES):
            os.write(STDOUT, chunk)
            copied += len(chunk)
    return copied


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
