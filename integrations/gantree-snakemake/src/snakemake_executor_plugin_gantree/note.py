"""Which job of gantree makes what a job of a workflow makes, noted below .snakemake until it is known to be over.

Snakemake keeps such a mark too, but the Snakemake within a job overwrites it when it starts.
"""

import hashlib
from pathlib import Path

from snakemake_interface_executor_plugins.jobs import JobExecutorInterface

FOLDER = Path(".snakemake/gantree_jobs")


class Note:
    """One file, named after what the job makes."""

    def __init__(self, job: JobExecutorInterface) -> None:
        """Nothing is written yet."""
        made = sorted(map(str, job.output)) or [str(job.get_target_spec())]
        digest = hashlib.sha256("\0".join(made).encode()).hexdigest()
        self._path = (FOLDER / digest[:32]).absolute()

    def read(self) -> str:
        """The id of the job; empty if there is none."""
        try:
            return self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def write(self, job: str) -> None:
        """Note it, whole or not at all."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        beside = self._path.with_suffix(".new")
        beside.write_text(job + "\n", encoding="ascii")
        beside.replace(self._path)

    def remove(self) -> None:
        """It is over."""
        self._path.unlink(missing_ok=True)
