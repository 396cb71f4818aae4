"""All figures ever measured, one a row of `benchmarks/history.csv`; docs/benchmarks.md has the current ones.

    python benchmarks/history.py add FIGURE VALUE [--unit ms] [--load 0.5] [--command TEXT] [--note TEXT]
    gantree bench queue --json | python benchmarks/history.py append bench.queue [--command TEXT] [--note TEXT]
    python benchmarks/history.py show [FIGURE]

`add` writes one figure. `append` reads JSON from standard input and writes each number in it, named FIGURE.KEY; the
unit is the end of the key (`_ms`). Date, commit, machine and load average are filled in. `show` prints the rows of
FIGURE and of all figures below it (`show bench.queue`), oldest first.
"""

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gantree.cli.output.printing import columns

HISTORY = Path(__file__).with_name("history.csv")
UNITS = ("us", "ms", "s", "percent")


class Row(NamedTuple):
    """One measurement. `load` is the load average, or what else the machine did, in words."""

    date: str
    commit: str
    machine: str
    figure: str
    value: str
    unit: str
    load: str
    command: str
    note: str


def named_numbers(document: Mapping[str, Any], figure: str) -> Iterator[tuple[str, str, str]]:
    """(figure, value, unit) of each number in a JSON object, those of nested objects too."""
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from named_numbers(value, f"{figure}.{key}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            name, _, unit = key.rpartition("_")
            yield (
                (f"{figure}.{name}", f"{value:g}", unit)
                if name and unit in UNITS
                else (f"{figure}.{key}", f"{value:g}", "")
            )


def this_commit() -> str:
    """The short name of the commit that is checked out; "+" behind it if files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
        cwd=HISTORY.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return described.stdout.strip()


def this_machine() -> str:
    """Cores, processor, memory and Python."""
    cpuinfo = Path("/proc/cpuinfo")
    text = cpuinfo.read_text(encoding="utf-8") if cpuinfo.exists() else ""
    models = [line.partition(":")[2] for line in text.splitlines() if line.startswith("model name")]
    model = models[0].strip() if models else platform.machine()
    memory_GiB = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} x {model}, {memory_GiB:.0f} GiB, Python {platform.python_version()}"


def append(rows: list[Row], history: Path) -> None:
    """Write rows at the end of the table."""
    with history.open("a", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def rows_of(figure: str, history: Path) -> list[Row]:
    """Rows of a figure and of all below it, oldest first; all rows for ""."""
    with history.open(newline="", encoding="utf-8") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    return [row for row in rows if not figure or f"{row.figure}.".startswith(f"{figure}.")]


def arguments(given: Sequence[str] | None) -> argparse.Namespace:
    """What the caller asks for; None stands for the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    add = verbs.add_parser("add", help="write one figure")
    read = verbs.add_parser("append", help="write each number of a JSON object from standard input")
    show = verbs.add_parser("show", help="print rows")
    for verb in (add, read):
        verb.add_argument("figure")
        for option in ("--load", "--command", "--note"):
            verb.add_argument(option, default="")
    add.add_argument("value")
    add.add_argument("--unit", default="")
    show.add_argument("figure", nargs="?", default="")
    for verb in (add, read, show):
        verb.add_argument("--history", type=Path, default=HISTORY, help="another table")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    """Run one verb."""
    wanted = arguments(given)
    if wanted.verb == "show":
        rows = rows_of(wanted.figure, wanted.history)
        print(columns(("DATE", "COMMIT", "FIGURE", "VALUE", "UNIT", "LOAD", "NOTE"), [
            (row.date, row.commit, row.figure, row.value, row.unit, row.load, row.note) for row in rows
        ]))  # fmt: skip
        return
    figures = (
        [(wanted.figure, wanted.value, wanted.unit)]
        if wanted.verb == "add"
        else list(named_numbers(json.load(sys.stdin), wanted.figure))
    )
    load = wanted.load or f"{os.getloadavg()[0]:.1f}"
    date, commit, machine = f"{datetime.now(UTC):%Y-%m-%d}", this_commit(), this_machine()
    append(
        [
            Row(date, commit, machine, figure, value, unit, load, wanted.command, wanted.note)
            for figure, value, unit in figures
        ],
        wanted.history,
    )


if __name__ == "__main__":
    main()
