"""`gantree doctor`: runs all checks and prints what they found."""

import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from gantree.cli.daemon_client import client
from gantree.cli.doctor import daemon, directory, journal, machine
from gantree.cli.doctor.finding import Daemon, Finding, Level, Subject
from gantree.cli.options import DatabaseOption, JsonOption, StateOption, database_url, state_dir
from gantree.cli.output.errors import FAILURE
from gantree.cli.output.printing import print_json
from gantree.text.words import plural


def doctor(
    state: StateOption = None,
    database: DatabaseOption = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Also check this address for gantree up --listen."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Check the machine, the state directory and the daemon, and say what to do."""
    found = daemon.daemon_at(client(state))
    subject = Subject(
        state_dir(state),
        time.time(),
        database_url(database),
        listen,
        found if isinstance(found, Daemon) else None,
        dict(os.environ),
    )
    findings = list(findings_of(subject, "" if isinstance(found, Daemon) else found))
    failures = sum(finding.level is Level.FAIL for finding in findings)
    if as_json:
        print_json({"failed": failures, "findings": [asdict(finding) for finding in findings]})
    else:
        typer.echo("\n".join(_lines(findings)))
    if failures:
        raise typer.Exit(FAILURE)


def findings_of(subject: Subject, absent: str) -> Iterator[Finding]:
    """What all checks found. absent: why no daemon answers."""
    yield from directory.check_directory(subject)
    yield from directory.check_disk(subject)
    yield from directory.check_file_system(subject)
    yield from directory.check_permissions(subject)
    yield from journal.check_journal(subject)
    yield from daemon.check_daemon(subject, absent)
    yield from daemon.check_port(subject)
    yield from machine.check_limits(subject)
    yield from machine.check_driver(subject)
    yield from machine.check_synchronised(subject)
    yield from machine.check_versions(subject)


def _lines(findings: list[Finding]) -> Iterator[str]:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        yield f"{finding.level:<4}  {finding.check:<{width}}  {finding.found}"
        if finding.fix:
            yield f"{'':<4}  {'':<{width}}  -> {finding.fix}"
    counts = {level: sum(each.level is level for each in findings) for level in Level}
    failed, warned = plural(counts[Level.FAIL], "failure"), plural(counts[Level.WARN], "warning")
    yield f"\n{failed}, {warned}, {counts[Level.OK]} ok"
