"""A batch script with a header to the text of a job file, with warnings about options without effect.

A member stands for a node of the request, or for a task where no nodes are named. The script itself is the command of
every process: what srun would start, not what sbatch would run once.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gantree.formats.job.reader import read_job
from gantree.formats.slurm import values
from gantree.formats.slurm.header import SLURM, Option, last_of_each, read_header
from gantree.formats.slurm.header_values import HeaderValues
from gantree.formats.slurm.job_size import Sizes, sizes_of
from gantree.formats.slurm.options import KNOWN, REFUSED, WITHOUT_EFFECT
from gantree.formats.slurm.topology import topology_of
from gantree.formats.validation.forms import refuse
from gantree.model.errors import BadFields, Problem
from gantree.text.exported_variables import all_exportable
from gantree.text.words import shortened
from gantree.topology.hardware.gpu_models import GPU_MODELS

RESTARTS_OF_REQUEUE = 3
_NUMBER = re.compile(r"-?\d{1,10}", re.ASCII)

_FIELD_OF_OPTION = {
    "job-name": "name", "partition": "queue", "queue": "queue", "priority": "priority", "time": "time_limit",
    "dependency": "after", "array": "array", "elastic": "elastic", "restarts": "restarts", "constraint": "node_labels",
    "checkpoint-every": "checkpoint", "checkpoint-path": "checkpoint", "signal": "checkpoint", "chdir": "workdir",
    "workdir": "workdir", "required": "topology", "preferred": "topology", "switches": "topology", "export": "env",
    "env": "env", "members": "members", "processes": "processes", "nodes": "members", "ntasks": "processes",
}  # fmt: skip
"""The option that sets a field of the job file, for problems found in that file."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script as a job: the text of its job file, and warnings about header lines that have no effect."""

    text: str
    warnings: tuple[str, ...]


def read_script(
    text: str,
    source: str,
    command: Sequence[str],
    *,
    name: str = "script",
    environment: Mapping[str, str] | None = None,
    queue_of_partition: Mapping[str, str] | None = None,
) -> Script:
    """Read the header of a script. Raises BadFields with file, line and option.

    command is the script's path and its arguments, name the job's where no header says one, environment what
    `--export` may pass on (PATH always is). queue_of_partition maps partitions; others are queues of the same name.
    """
    header, problems = read_header(text, KNOWN)
    options = last_of_each(header.options)
    values_read = HeaderValues(options, problems)
    writer = _JobWriter(values_read, environment or {}, queue_of_partition or {})
    document = writer.document(name, [*header.interpreter, *command])
    problems += [
        option.problem("an unsupported option", f"instead: {REFUSED[option.name][1]}")
        for option in header.options
        if option.name in REFUSED
    ]
    refuse(problems, source)
    job_text = json.dumps(document)
    _check(job_text, source, options)
    warnings = [*values_read.warnings, *_without_effect(options.values())]
    warnings += [(line, f"{mark} after the first command is ignored") for line, mark in header.late]
    if writer.processes > 1:
        warnings += [
            (
                line,
                f"{program}: the script already runs in every process; start the program directly",
            )
            for line, program in header.launchers
        ]
    return Script(job_text, tuple(f"{source}:{line}: {text}" for line, text in sorted(warnings)))


def _without_effect(options: Iterable[Option]) -> list[tuple[int, str]]:
    return [
        (option.line, f"{option.mark} --{option.name} has no effect here" + (f": {text}" if text else ""))
        for option in options
        if option.name in WITHOUT_EFFECT
        for text in [WITHOUT_EFFECT[option.name][1]]
    ]  # fmt: skip


def _check(job_text: str, source: str, options: Mapping[str, Option]) -> None:
    """What job files are held to beyond this; problems name the option that the field came from."""
    try:
        read_job(job_text, source)
    except BadFields as error:
        problems = [_from_option(each, options) for each in error.problems]
        raise BadFields(sorted(problems, key=lambda problem: problem.line or 0)) from None


def _from_option(problem: Problem, options: Mapping[str, Option]) -> Problem:
    for name, option in options.items():
        field = _FIELD_OF_OPTION.get(name)
        if field is not None and field in problem.field.replace("[", ".").split("."):
            named = option.problem(problem.found, problem.allowed, problem.hint)
            return Problem(problem.source, named.line, named.field, named.found, named.allowed, named.hint)  # fmt: skip
    return Problem(
        problem.source, None, problem.field, problem.found, problem.allowed, problem.hint
    )


class _JobWriter:
    """Writes the job file that a header requests."""

    def __init__(
        self,
        header: HeaderValues,
        environment: Mapping[str, str],
        queue_of_partition: Mapping[str, str],
    ) -> None:
        self._header = header
        self._environment = environment
        self._queue_of_partition = queue_of_partition
        self.processes = 1

    def document(self, name: str, command: Sequence[str]) -> dict[str, Any]:
        """The job file as plain data; what was not said is left out."""
        sizes = sizes_of(self._header.read, self._header.options, self._header.problems)
        self.processes = sizes.members * sizes.processes
        if sizes.nodes_at_most is not None:
            self._header.warn(
                "nodes", f"the job gets {sizes.members} nodes; for a range use #GANTREE --elastic"
            )
        array = self._header.read("array", values.array)
        if array is not None and array[1] is not None:
            self._header.warn("array", "%N is ignored: all jobs of the array may run at once")
        slurm = any(option.mark == SLURM for option in self._header.options.values())
        document = {
            "name": self._header.text("job-name") or name,
            "queue": self._queue(),
            "priority": self._header.read("priority", _priority),
            "time_limit": self._header.read("time", values.seconds),
            "hold": True if "hold" in self._header.options else None,
            "array": array and array[0],
            "after": self._header.read("dependency", values.dependency),
            "restarts": self._restarts(),
            "checkpoint": self._checkpoint(),
            "warn": self._warning(),
            "elastic": self._elastic(),
            "topology": topology_of(self._header, sizes),
            "variables": "slurm" if slurm else None,
            "gang": [_without_none(self._role(sizes, command))],
        }
        for option in ("output", "error"):
            if option in self._header.options:
                self._header.warn(option, "ignored: `gantree logs` prints the output")
        return _without_none(document)

    def _role(self, sizes: Sizes, command: Sequence[str]) -> dict[str, Any]:
        labels = self._header.read("constraint", values.features)
        return {
            "role": "worker",
            "members": sizes.members,
            "processes": sizes.processes,
            "each": _without_none(
                {"gpus": sizes.gpus, "cpus": sizes.cpus, "memory_GiB": sizes.memory_GiB}
            ),
            "gpu": self._models(sizes),
            "node_labels": labels,
            "run": list(command),
            "env": self._env(),
            "workdir": self._header.text("workdir") or self._header.text("chdir"),
        }

    def _queue(self) -> str | None:
        partition = self._header.text("partition")
        if partition is not None and "," in partition:
            self._header.warn(
                "partition", f"only the first partition of {shortened(partition)} is used"
            )
            partition = partition.partition(",")[0]
        mapped = None if partition is None else self._queue_of_partition.get(partition, partition)
        return self._header.text("queue") or mapped

    def _restarts(self) -> int:
        restarts = self._header.read("restarts", _whole)
        if restarts is not None:
            return restarts
        return RESTARTS_OF_REQUEUE if self._header.last("requeue", "no-requeue") == "requeue" else 0

    def _checkpoint(self) -> dict[str, Any] | None:
        warned = self._header.read("signal", values.signal)
        checkpoint = {
            "every": self._header.text("checkpoint-every"),
            "path": self._header.text("checkpoint-path"),
            "signal": warned and warned.signal,
            "grace": warned and warned.seconds,
        }
        return _without_none(checkpoint) or None

    def _warning(self) -> dict[str, Any] | None:
        """The signal before the time limit; a job without a limit gets none."""
        warned, limit_s = (
            self._header.read("signal", values.signal),
            self._header.read("time", values.seconds),
        )
        if warned is None or warned.seconds == 0:
            return None
        if limit_s is None or warned.seconds >= limit_s:
            end = "there is none" if limit_s is None else f"that is {limit_s:g} s"
            self._header.warn("signal", f"is not sent before the time limit: {end}")
            return None
        return {"signal": warned.signal, "before": warned.seconds}

    def _elastic(self) -> dict[str, int] | None:
        span = self._header.read("elastic", values.node_range)
        return None if span is None else {"min": span[0], "max": span[1]}

    def _models(self, sizes: Sizes) -> list[str] | None:
        if sizes.gpu_type is None:
            return None
        option, word = sizes.gpu_type
        models = models_of(word)
        if not models:
            allowed = "a type that is a GPU model of `gantree topo catalog`, such as h100 or a100"
            self._header.problems.append(option.problem(f"`{shortened(word)}`", allowed))
        return models

    def _env(self) -> dict[str, str]:
        """PATH, and what `--export` and `--env` name."""
        env = {"PATH": self._environment["PATH"]} if "PATH" in self._environment else {}
        for option in (self._header.options.get(name) for name in ("export", "env")):
            words = [] if option is None or option.value is None else option.value.split(",")
            for word in words:
                assert option is not None
                self._add_variable(option, word, env)
        return env

    def _add_variable(self, option: Option, word: str, env: dict[str, str]) -> None:
        name, equals, value = word.partition("=")
        if option.name == "export" and word.upper() in ("ALL", "NONE", "NIL"):
            if word.upper() == "ALL":
                env.update(all_exportable(self._environment) | env)
            else:
                env.pop("PATH", None)
        elif equals or name in self._environment:
            env[name] = value if equals else self._environment[name]
        else:
            found, allowed = (
                f"`{shortened(word)}`",
                "NAME=VALUE, or the NAME of a variable that is set",
            )
            self._header.problems.append(option.problem(found, allowed))


def models_of(word: str) -> list[str]:
    """GPU models that Slurm's word for a type may mean: `h100`, `H100-80GB`, `nvidia_h100_80gb_hbm3`."""
    options = word.lower().replace("_", "-")
    exact = [name for name in GPU_MODELS if name.lower() == options]
    parts = options.split("-")
    family = [name for name, model in GPU_MODELS.items() if model.family.lower() in parts]
    sized = [name for name in family if name.lower().rpartition("-")[2] in parts]
    return exact or sized or family


def _priority(text: str) -> str | int:
    if _NUMBER.fullmatch(text):
        return int(text)
    if not text.isascii() or text[:1] in "+-0123456789":
        raise values.BadValue("a priority class, or a whole number of at most 10 digits")
    return text


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 7:
        raise values.BadValue("a whole number of 0 or more")
    return int(text)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
