"""Which variables of the caller's environment a job gets; the same words as `gantree submit --export`.

    ALL            every variable, but those that say where the caller itself runs
    NONE           nothing: the job has what the daemon gives it
    NAME           that variable, beside those of the default
    NAME=VALUE     a variable of this value, beside those of the default

The default is what makes a program be the same in the job as at the caller: search paths and the active environment.
A job's variables are kept in the daemon's journal, and anybody who may see the job may read them there.
"""

import os
import re
from collections.abc import Mapping

from gantree_client.errors import ApiError

DEFAULT = (
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LANG", "LC_ALL",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_PLACE = re.compile(
    r"(GANTREE|SLURM|SLURMD|PMI|PMIX|OMPI)_.*|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|NCCL_IB_HCA|_|PWD|OLDPWD|SHLVL"
    r"|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE|NODE_RANK|MASTER_ADDR|MASTER_PORT"
)


def inherited(own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Every variable that ALL passes."""
    return {name: value for name, value in own.items() if _is_exportable(name, value)}


def exported(words: str | None = None, own: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that words name of the caller's; None: the default. Raises ApiError."""
    found = {name: own[name] for name in DEFAULT if name in own and _is_exportable(name, own[name])}
    for word in filter(None, (each.strip() for each in (words or "").split(","))):
        if word.upper() == "ALL":
            found |= inherited(own)
        elif word.upper() == "NONE":
            found = {}
        else:
            name, equals, value = word.partition("=")
            if not _NAME.fullmatch(name) or not (equals or name in own):
                allowed = "ALL, NONE, NAME=VALUE, or the NAME of a variable that is set"
                raise ApiError(f"export: found {word!r}; allowed: {allowed}")
            found[name] = value if equals else own[name]
    return found


def _is_exportable(name: str, value: str) -> bool:
    is_text = value.isascii() or value.encode(errors="replace").decode() == value
    return is_text and _NAME.fullmatch(name) is not None and _OF_A_PLACE.fullmatch(name) is None
