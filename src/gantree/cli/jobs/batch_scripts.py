"""Batch scripts on the command line: a file with `#SBATCH` or `#GANTREE` lines becomes a job file."""

import os
from collections.abc import Sequence
from pathlib import Path

from gantree.cli.input.files import MAX_BYTES, STDIN, check_utf8
from gantree.cli.output.errors import warn
from gantree.formats import Script, read_script
from gantree.formats.slurm.header import is_script
from gantree.model.errors import BadInput
from gantree.text.exported_variables import exported

__all__ = ["is_script", "job_text_of", "script_at"]


def script_at(word: str) -> str | None:
    """The text of the script that a command's first word is the path of; None where it is something else."""
    try:
        path = Path(word)
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return None
        raw = path.read_bytes()
        text = raw.decode() if raw.startswith(b"#!") else ""
    except (OSError, ValueError):
        return None
    return text if is_script(text) else None


def job_text_of(
    text: str,
    command: Sequence[str],
    source: str,
    name: str,
    partitions: str | None,
    export: str | None = None,
) -> str:
    """The job file of a script, which is command[0]; prints warnings for lines without effect. Raises BadFields.

    export is what the command line says; NONE there leaves PATH out, whatever the script says.
    """
    if command[0] == STDIN:
        raise BadInput("a script must be a file, because each process runs it by its path")
    path = str(Path(command[0]).absolute())
    check_utf8(path, "the path of the script")
    script: Script = read_script(
        text,
        source,
        [path, *command[1:]],
        name=name,
        environment=_environment(export),
        queue_of_partition=queues_of(partitions),
    )
    for warning in script.warnings:
        warn(warning)
    return script.text


def _environment(export: str | None) -> dict[str, str]:
    """The caller's, without a PATH that the command line does not pass on."""
    passes_path = "PATH" in exported(export, os.environ).inherited
    return {name: value for name, value in os.environ.items() if passes_path or name != "PATH"}


def queues_of(partitions: str | None) -> dict[str, str]:
    """The queue of each partition, of `gpu=research/nlp,debug=default`. Raises BadInput."""
    queues: dict[str, str] = {}
    for pair in filter(None, (partitions or "").split(",")):
        partition, equals, queue = (part.strip() for part in pair.partition("="))
        if not (partition and equals and queue):
            raise BadInput(f"--partitions: found {pair!r}; allowed: NAME=QUEUE,...")
        queues[partition] = queue
    return queues
