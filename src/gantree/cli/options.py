"""Options and Typer settings that commands share."""

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.model.errors import BadInput


def new_app(**settings: Any) -> typer.Typer:
    """A Typer application with plain help and errors, which start fast and read well in logs."""
    return typer.Typer(
        rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False, **settings
    )


MOST_LEVELS = 256
"""Of a folder that may have to be made."""
NUMBER = re.compile(r"-?[0-9]{1,18}")


def _one_format(context: typer.Context, value: bool) -> bool:
    """--csv and --json are two formats of one output. Called for each of them; the other may be read already."""
    if value and (context.params.get("as_json") or context.params.get("as_csv")):
        raise BadInput("--csv and --json: choose one")
    return value


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs.", callback=_one_format)
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV.", callback=_one_format)]
ListPricesOption = Annotated[
    str | None,
    typer.Option(
        "--prices", metavar="FILE", help="Prices of the site, used instead of list prices."
    ),
]
DaemonPricesOption = Annotated[
    str | None,
    typer.Option("--prices", metavar="FILE", help="Prices used instead of the daemon's."),
]

StateOption = Annotated[
    Path | None,
    typer.Option(
        "--state",
        envvar="GANTREE_STATE",
        metavar="DIR",
        help="State directory of the daemon. [default: ~/.local/state/gantree]",
    ),
]

DATABASE_VARIABLE = "GANTREE_DATABASE"
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--database",
        metavar="URL",
        help="PostgreSQL database of the journal: postgresql://USER@HOST/NAME, without a password."
        f" [env: {DATABASE_VARIABLE}]",
    ),
]

PRESETS = (
    "gantree", "fifo", "backfill", "fair", "least-attained-service", "srsf", "least-stretch", "cells",
    "first-fit", "blind-first-fit", "blind-best-fit", "blind-random",
)  # fmt: skip
"""As `formats.policies.PRESET_NAMES`, which takes long to import; a test holds the two equal."""

PolicyOption = Annotated[
    str | None,
    typer.Option(
        "--policy",
        metavar="NAME|FILE",
        help=f"Preset ({', '.join(PRESETS)}) or policy file. [default: {PRESETS[0]}]",
    ),
]


PartitionsOption = Annotated[
    str | None,
    typer.Option(
        "--partitions",
        envvar="GANTREE_PARTITIONS",
        metavar="NAME=QUEUE,...",
        help="Queue of each partition in #SBATCH lines. [default: the queue of the same name]",
    ),
]


def shallow(folder: Path, option: str) -> Path:
    """A folder that an option names.

    Raises BadInput for too many levels: Python makes each inside the making of the next, and there is an end to that.
    """
    levels = len(folder.absolute().parts)
    if levels > MOST_LEVELS:
        raise BadInput(
            f"{option}: found a directory {levels} levels deep; allowed: at most {MOST_LEVELS}"
        )
    return folder


def state_dir(chosen: Path | None) -> Path:
    """The state directory: the one chosen, else `gantree` under $XDG_STATE_HOME or ~/.local/state.

    Raises BadInput for one that is too deep.
    """
    if chosen is not None:
        return shallow(chosen.absolute(), "--state")
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "gantree"


def database_url(chosen: str | None) -> str | None:
    """The database of the journal: the one chosen, else that of the environment; None for a state directory.

    Raises BadInput for a password on the command line, where everybody on the machine can read it.
    """
    if chosen is None:
        return os.environ.get(DATABASE_VARIABLE) or None
    user = chosen.partition("://")[2].rpartition("@")[0]
    if ":" in user or "password=" in chosen:
        raise BadInput(
            f"--database: a password on the command line is visible to other users; put the URL into"
            f" {DATABASE_VARIABLE}, or the password into ~/.pgpass"
        )
    return chosen


def class_or_number(priority: str | None) -> str | int | None:
    """A priority on the command line as a job file would hold it."""
    if priority is None or NUMBER.fullmatch(priority) is None:
        return priority
    return int(priority)
