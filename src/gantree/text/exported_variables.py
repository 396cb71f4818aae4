"""Which variables of a caller's environment a job gets: `--export` as sbatch has it, and files of NAME=VALUE lines.

    ALL            every variable that a job may get
    NONE           nothing: the job has what the daemon gives it
    NAME           that variable
    NAME=VALUE     a variable of this value

PATH goes along by default and with a list of names; NONE alone leaves it out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gantree.model.errors import BadInput

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_PLACE = re.compile(
    r"(GANTREE|SLURM|SLURMD|PMI|PMIX|OMPI)_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NCCL_IB_HCA|_|PWD|OLDPWD|SHLVL"
)
"""Variables that say where a process is. They would override what gantree says of the job's own place."""
_ALLOWED = "NAME=VALUE, or the NAME of a variable that is set"


@dataclass(frozen=True, slots=True)
class ExportedVariables:
    """named were asked for by name, and override a job file's; inherited yield to it."""

    named: dict[str, str] = field(default_factory=dict)
    inherited: dict[str, str] = field(default_factory=dict)


def all_exportable(own: Mapping[str, str]) -> dict[str, str]:
    """Every variable that ALL passes: with a plain name, text, and not of the caller's own place in a job."""
    return {name: value for name, value in own.items() if _is_exportable(name, value)}


def exported(
    export: str | None, own: Mapping[str, str], file: Iterable[tuple[str, str]] = ()
) -> ExportedVariables:
    """What the words of `--export` pass on of a caller's environment; None: the default.

    file is what stands in a file of variables; the words override it. Raises BadInput.
    """
    path = {"PATH": own["PATH"]} if "PATH" in own else {}
    result = ExportedVariables(dict(file), path)
    for word in filter(None, (export or "").split(",")):
        if word.upper() == "ALL":
            result.inherited.update(all_exportable(own))
        elif word.upper() in ("NONE", "NIL"):
            result.inherited.clear()
        else:
            name, value = variable(word, own, "--export")
            result.named[name] = value
    return result


def variable(word: str, own: Mapping[str, str], where: str) -> tuple[str, str]:
    """The variable that NAME or NAME=VALUE means. Raises BadInput."""
    name, equals, value = word.partition("=")
    if not _NAME.fullmatch(name) or not (equals or name in own):
        raise BadInput(f"{where} {word}: allowed: {_ALLOWED}")
    return name, value if equals else own[name]


def variables_in(text: str, source: str, own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Those of a file: a line each, or with a NUL after each, as `env -0` prints them; values as they stand there.

    Empty lines and lines that begin with # are passed over. Raises BadInput with the line.
    """
    for number, line in enumerate(text.split("\0" if "\0" in text else "\n"), 1):
        if line.strip() and not line.startswith("#"):
            yield variable(line.removesuffix("\r"), own, f"{source}:{number}:")


def _is_exportable(name: str, value: str) -> bool:
    is_text = value.isascii() or value.encode(errors="replace").decode() == value
    return is_text and _NAME.fullmatch(name) is not None and _OF_A_PLACE.fullmatch(name) is None
