"""The executor: pickles functions and submits a job for one, an array for several.

The id of a job is chosen here, before it is submitted: all its files are in place when it starts, and a submission
that broke off is sent again with the same key without being accepted twice.
"""

import json
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from submitit.core import core, utils

from gantree_client import ApiError, Client, exported, job_name
from gantree_submitit.job import GantreeJob
from gantree_submitit.job_file import DEFAULT_TIMEOUT_MIN, PARAMETERS, job_of

_GIB = 1024**3


class GantreeExecutor(core.PicklingExecutor):
    """Runs functions as jobs of gantree.

    folder must be visible where jobs run. max_num_timeout: how often a checkpointable function starts again after its
    time was up. python: the command that starts Python in a job, split as a shell would.
    """

    job_class = GantreeJob

    def __init__(
        self,
        folder: str | Path,
        max_num_timeout: int = 3,
        max_pickle_size_gb: float = 1.0,
        python: str | None = None,
    ) -> None:
        """As the executors of submitit. Raises ValueError."""
        super().__init__(
            folder, max_num_timeout=max_num_timeout, max_pickle_size_gb=max_pickle_size_gb
        )
        for tag in ("%A", "%a", "%t"):
            if tag in str(folder):
                raise ValueError(
                    f"folder: found {tag} in {folder}; allowed: %j, the id of each job"
                )
        self.python = [sys.executable] if python is None else shlex.split(python)

    @classmethod
    def affinity(cls) -> int:
        """2, as a cluster, where the environment names a daemon; else 0: it can be chosen by name."""
        return 2 if {"GANTREE_STATE", "GANTREE_SERVER"} & set(os.environ) else 0

    @classmethod
    def _valid_parameters(cls) -> set[str]:
        return set(PARAMETERS)

    def _internal_update_parameters(self, **kwargs: Any) -> None:
        """Raises ValueError for a parameter that is unknown, or that does not fit the others."""
        unknown = sorted(set(kwargs) - set(PARAMETERS))
        if unknown:
            known = "\n  - ".join(f"{name}: {text}" for name, text in sorted(PARAMETERS.items()))
            raise ValueError(
                f"Unavailable parameter(s): {unknown}\nValid parameters are:\n  - {known}"
            )
        parameters = {**self.parameters, **kwargs}
        job_of(parameters, "check", self._command(parameters))
        super()._internal_update_parameters(**kwargs)

    def _internal_process_submissions(
        self, delayed_submissions: list[utils.DelayedSubmission]
    ) -> list[core.Job[Any]]:
        count = len(delayed_submissions)
        name = job_name(self.parameters.get("name", "submitit"), is_array=count > 1)
        ids = [name] if count == 1 else [f"{name}-{index}" for index in range(count)]
        pickles = self._pickled(delayed_submissions, ids)
        try:
            self._submit(name, ids, delayed_submissions)
        except ApiError as error:
            for pickle in pickles:
                pickle.unlink(missing_ok=True)
            raise utils.FailedSubmissionError(f"gantree did not accept the job: {error}") from error
        return [self.job_class(self.folder, each, range(self._num_tasks())) for each in ids]

    def _pickled(
        self, submissions: Sequence[utils.DelayedSubmission], ids: Sequence[str]
    ) -> list[Path]:
        """Write what each job runs where it will look for it."""
        timeout_min = self.parameters.get("timeout_min", DEFAULT_TIMEOUT_MIN)
        paths = []
        for delayed, each in zip(submissions, ids, strict=True):
            path = utils.JobPaths(self.folder, each).submitted_pickle
            path.parent.mkdir(parents=True, exist_ok=True)
            delayed.set_timeout(timeout_min, self.max_num_timeout)
            delayed.dump(path)
            paths.append(path)
            self._check_size(paths[0], len(submissions))
        return paths

    def _check_size(self, first: Path, count: int) -> None:
        size_gb = first.stat().st_size / _GIB
        if count * size_gb > self.max_pickle_size_gb:
            first.unlink()
            raise RuntimeError(
                f"Submitting an estimated {count} x {size_gb:.2f} > {self.max_pickle_size_gb}GB of objects (function "
                "and arguments) through pickle; if that is intended, raise executor.max_pickle_size_gb"
            )

    def _submit(
        self, name: str, ids: Sequence[str], submissions: Sequence[utils.DelayedSubmission]
    ) -> None:
        saves = any(hasattr(each.function, "checkpoint") for each in submissions)
        job = job_of(
            self.parameters,
            name,
            self._command(self.parameters),
            elements=len(ids),
            restarts=self.max_num_timeout if saves else None,
        )
        record = utils.JobPaths.get_first_id_independent_folder(self.folder)
        (record / f"{name}_submission.json").write_text(json.dumps(job, indent=2) + "\n")
        client = Client()
        accepted = client.submit(
            [job],
            base_dir=Path.cwd(),
            default_env=exported(self.parameters.get("export")),
            key=name,
        )
        if accepted != list(ids):  # 2^40 to 1: another job has that name
            for each in accepted:
                client.cancel(each)
            raise ApiError(f"the name {name} is taken; submit again")

    def _command(self, parameters: dict[str, Any]) -> list[str]:
        command = [*self.python, "-u", "-m", "gantree_submitit.task", str(self.folder)]
        setup = parameters.get("setup")
        if not setup:
            return command
        return ["/bin/sh", "-c", "\n".join(["set -e", *setup, 'exec "$@"']), "sh", *command]

    def _num_tasks(self) -> int:
        nodes: int = self.parameters.get("nodes", 1)
        return nodes * int(self.parameters.get("tasks_per_node", 1))

    def _make_submission_file_text(self, command: str, uid: str) -> str:
        raise NotImplementedError("jobs are submitted through the HTTP API")

    def _make_submission_command(self, submission_file_path: Path) -> list[str]:
        raise NotImplementedError("jobs are submitted through the HTTP API")

    @staticmethod
    def _get_job_id_from_submission_command(string: bytes | str) -> str:
        raise NotImplementedError("jobs are submitted through the HTTP API")
