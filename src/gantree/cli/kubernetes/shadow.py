"""`gantree kubernetes shadow`: the report of a dry run, while it runs or after its end."""

import json
from pathlib import Path
from typing import Any

import typer

from gantree.cli.options import JsonOption, StateOption, state_dir
from gantree.cli.output.printing import columns, print_json, span
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.text.words import plural

REPORT = "shadow.json"
JOURNAL = "journal.sqlite3"


def shadow(state: StateOption = None, as_json: JsonOption = False) -> None:
    """Print the report of a dry run: what the scheduler did, and what gantree would do."""
    report = newest_report(_dry_run_dir(state))
    if as_json:
        print_json(report)
    else:
        typer.echo(report_text(report))


def state_dir_of(state: Path | None, database: str | None, *, dry_run: bool) -> Path:
    """The state directory of a daemon; that of a dry run is no other's, for what it remembers never was.

    Raises BadInput for a dry run in a database, Conflict for a directory that is of the other kind.
    """
    directory = _dry_run_dir(state) if dry_run else state_dir(state)
    was_dry = (directory / REPORT).exists()
    if dry_run and database is not None:
        raise BadInput(
            "--dry-run cannot be used with --database: a dry run needs its own state directory"
        )
    if dry_run and not was_dry and (directory / JOURNAL).exists():
        raise Conflict(
            f"{directory} has the journal of a real daemon; choose another directory with --state"
        )
    if was_dry and not dry_run:
        raise Conflict(
            f"{directory} belongs to a dry run; choose another directory with --state, or add --dry-run"
        )
    if dry_run:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / REPORT).touch()
    return directory


def newest_report(directory: Path) -> dict[str, Any]:
    """Raises NotFound where no dry run has reported."""
    try:
        report: dict[str, Any] = json.loads((directory / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise NotFound(
            f"{directory} has no report of a dry run; start one with gantree kubernetes --dry-run"
        ) from None
    return report


def report_text(report: dict[str, Any]) -> str:
    """The report for people."""
    totals = report["totals"]
    head = (
        f"{plural(totals['gangs'], 'gang')} of {report['scheduler']} in {span(report['until'] - report['began_at'])};"
        f" of {totals['started_by_both']} that both started, gantree would have started"
        f" {totals['earlier']} earlier and {totals['later']} later. Nothing was written to the cluster."
    )
    rows = [_row(each) for each in report["gangs"]]
    gangs = columns(
        (
            "GANG",
            "PODS",
            "GPUS",
            "WAITED",
            "WOULD WAIT",
            "DOMAINS",
            "WOULD CROSS",
            "NODES THAT GANTREE CHOSE",
        ),
        rows,
    )
    figures = columns(
        ("", report["scheduler"].upper(), "GANTREE"),
        [
            (what, _figure(totals["theirs"][name]), _figure(totals["ours"][name]))
            for name, what in (
                ("started", "gangs started"),
                ("wait_s", "mean wait, s"),
                ("gpu_s_idle", "GPU-seconds idle"),
                ("gpu_s_of_a_part", "GPU-seconds of gangs in part"),
            )
        ],
    )
    return "\n\n".join([head, gangs, figures] if rows else [head, figures])


def _row(gang: dict[str, Any]) -> tuple[str, ...]:
    theirs, ours = gang["theirs"], gang["ours"]
    return (
        gang["gang"],
        str(gang["pods"]),
        str(gang["gpus"]),
        _wait(theirs),
        _wait(ours),
        _domains(theirs),
        _domains(ours),
        ",".join(dict.fromkeys(ours["nodes"])) or "-",
    )


def _wait(side: dict[str, Any]) -> str:
    return "waits" if side["wait_s"] is None else span(side["wait_s"])


def _domains(side: dict[str, Any]) -> str:
    return " ".join(f"{tier}:{count}" for tier, count in side["domains"].items()) or "-"


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _dry_run_dir(state: Path | None) -> Path:
    return state_dir(state) if state is not None else state_dir(None) / "shadow"
