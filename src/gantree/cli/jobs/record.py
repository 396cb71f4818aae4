"""`gantree record` and `gantree rerun`: what ran in an attempt of a job, and a rerun on an equal placement."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import JobArgument, client, job_named
from gantree.cli.options import JsonOption, StateOption
from gantree.cli.output.check_figures import figure_line
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import columns, print_json

HEAD = ("RANKS", "ROLE", "NODE", "MACHINE", "GPUS", "NICS", "PLACE")
SHORT = 12
"""Digits of a digest that are shown."""


def record(
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt to show. [default: the last]")
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what ran in an attempt: commands, placement and versions."""
    daemon = client(state)
    attempt_record = daemon.record(job_named(daemon, job), attempt=attempt)
    if as_json:
        print_json(attempt_record)
        return
    for line in _lines(attempt_record):
        typer.echo(line)
    typer.echo(columns(HEAD, [_cells(member) for member in attempt_record["members"]]))


def rerun(
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Attempt to run again. [default: the last]")
    ] = None,
    anyhow: Annotated[
        bool,
        typer.Option("--anyhow", help="Accept any placement if the cluster has no equivalent one."),
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a job again on an equivalent placement.

    A placement is equivalent if machines, GPUs of each member and shared domains are equal. Prints a warning for each
    version that has changed.
    """
    daemon = client(state)
    taken = daemon.rerun(job_named(daemon, job), attempt=attempt, anyhow=anyhow)
    if as_json:
        print_json(taken)
        return
    for each in taken["jobs"]:
        typer.echo(each["job"])
    for warning in taken["warnings"]:
        warn(warning)


def _lines(attempt_record: Mapping[str, Any]) -> Iterator[str]:
    domain = attempt_record["domain"]
    place = "" if domain is None else f" in {domain['tier']} {domain['name']}".rstrip()
    yield f"{attempt_record['job']}, attempt {attempt_record['attempt']}: {attempt_record['world_size']} ranks{place}"
    if not attempt_record["found"]:
        yield "versions are not recorded yet"
    yield from _pairs(
        {
            "gantree": attempt_record.get("gantree"),
            "policy": attempt_record.get("policy"),
            **_drivers(attempt_record),
        }
    )
    yield from _check(attempt_record.get("check"))
    for need in attempt_record["data"]:
        yield f"data      {need['path'] or need['name']}: {need['version'] or 'no version declared'}"
    for name, role in attempt_record["roles"].items():
        yield f"role {name}"
        yield from (f"  {line}" for line in _role(role))


def _check(report: Mapping[str, Any] | None) -> Iterator[str]:
    """The verdict of the check before the start, and what was measured."""
    if report is None:
        return
    yield f"check     {report['state']} over {report['backend'] or 'nothing'}: {report['sentence']}"
    yield from (f"  {warning}" for warning in report["warnings"])
    yield from (f"  {figure_line(each)}" for each in report["figures"])


def _drivers(attempt_record: Mapping[str, Any]) -> dict[str, str]:
    found = [versions for versions in attempt_record["nodes"].values() if versions]
    return {
        name: ", ".join(sorted({each[name] for each in found if name in each}))
        for name in ("driver", "cuda")
    }


def _pairs(fields: Mapping[str, str | None]) -> Iterator[str]:
    return (f"{name:<9} {value}" for name, value in fields.items() if value)


def _role(role: Mapping[str, Any]) -> Iterator[str]:
    python, git = role["python"], role["git"]
    yield from _pairs(
        {
            "command": shlex.join(role["command"]),
            "workdir": role["workdir"],
            "image": role["image"],
            "git": git
            and f"{(git['revision'] or 'unknown')[:SHORT]} {git['branch'] or ''}".strip(),
            "program": _file(role["executable"]),
            "script": _file(role["script"]),
            "python": python
            and f"{python['version']}, {len(python['distributions'])} distributions "
            f"{python['distributions_sha256'][:SHORT]}",
            "nccl": role["nccl"],
            "torch": role["torch"],
        }
    )
    yield from (f"env       {name}={value}" for name, value in role["env"].items())


def _file(found: Mapping[str, Any] | None) -> str | None:
    return None if found is None else f"{found['path']} {(found['sha256'] or 'too large')[:SHORT]}"


def _cells(member: Mapping[str, Any]) -> tuple[str, ...]:
    ranks, gpus = member["ranks"], ",".join(map(str, member["gpus"])) or " ".join(member["mig"])
    span = str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
    in_a_row = ranks == list(range(ranks[0], ranks[-1] + 1))
    outer = [name for tier, name in member["domains"].items() if tier != "node"]
    return (
        span if in_a_row else ",".join(map(str, ranks)),
        f"{member['role']} {member['member']}",
        member["node"],
        member["machine"],
        gpus,
        ",".join(member["nics"]),
        outer[-1] if outer else "",
    )
