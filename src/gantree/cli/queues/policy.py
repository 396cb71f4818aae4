"""`gantree policy`: the policy in force, its history, apply another one, roll back."""

from typing import Annotated, Any

import typer

from gantree.cli.daemon_client import client
from gantree.cli.input.files import read_policy_text, source_of
from gantree.cli.options import PRESETS, JsonOption, StateOption, new_app
from gantree.cli.output.printing import columns, moment, print_json
from gantree.cli.queues.policy_diff import change_text
from gantree.model.errors import BadInput
from gantree.text.words import did_you_mean

app = new_app()

FileArgument = Annotated[
    str,
    typer.Argument(metavar="NAME|FILE", help='Preset or policy file; "-" is stdin.'),
]


@app.callback()
def policy() -> None:
    """Show, check, apply or roll back the policy."""


@app.command()
def show(
    preset: Annotated[
        str | None, typer.Argument(metavar="PRESET", help="Print the rules of this preset instead.")
    ] = None,
    version: Annotated[
        int | None,
        typer.Option(
            "--version", min=1, metavar="N", help="Version to print. [default: the newest]"
        ),
    ] = None,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the policy in force, a version of it, or a preset."""
    if preset is not None:
        typer.echo(_rules_of(preset, alone=version is None and not as_json).rstrip())
        return
    daemon = client(state)
    answer = daemon.policy() if version is None else daemon.policy_version(version)
    if as_json:
        print_json(answer)
    elif answer["text"] is None:
        typer.echo(f"# no policy was given; this is the default\npreset: {PRESETS[0]}")
    else:
        typer.echo(f"# {_version(answer)}\n{answer['text'].rstrip()}")


@app.command()
def history(state: StateOption = None, as_json: JsonOption = False) -> None:
    """List the versions of the policy, oldest first."""
    rows = client(state).policy_versions()
    if as_json:
        print_json({"versions": rows})
    else:
        cells = [
            (str(row["number"]), moment(row["at"]), row["by"] or "-", row["source"]) for row in rows
        ]
        typer.echo(columns(("VERSION", "WHEN", "WHO", "FILE"), cells))


@app.command()
def check(file: FileArgument, state: StateOption = None, as_json: JsonOption = False) -> None:
    """Check a policy against the cluster and the jobs.

    Exit status 2 if it does not fit.
    """
    change = client(state).policy_what_if(*_text_and_source(file))
    if as_json:
        warnings = change.get("warnings", [])
        print_json({"suits": True, "without_queue": change["without_queue"], "warnings": warnings})
    else:
        typer.echo("The policy fits the cluster and all jobs.")
        _warn(change)


@app.command()
def apply(
    file: FileArgument,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, without changing it.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put a policy in force as a new version."""
    text, source = _text_and_source(file)
    daemon = client(state)
    if dry_run:
        _print_change(daemon.policy_what_if(text, source), as_json=as_json)
    else:
        _print_new_version(daemon.apply_policy(text, source), as_json=as_json)


@app.command()
def rollback(
    version: Annotated[int, typer.Argument(min=1, metavar="N", help="Version number.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, without changing it.")
    ] = False,
    state: StateOption = None,
    as_json: JsonOption = False,
) -> None:
    """Put an older version in force again, as a new version."""
    daemon = client(state)
    if dry_run:
        old = daemon.policy_version(version)
        change = daemon.policy_what_if(old["text"], old["source"])
        _print_change(change, as_json=as_json)
    else:
        _print_new_version(daemon.roll_back_policy(version), as_json=as_json)


def _rules_of(preset: str, *, alone: bool) -> str:
    """The file of a preset. Raises BadInput for another name, or beside an option (not alone)."""
    if preset not in PRESETS:
        hint = did_you_mean(preset, PRESETS)
        raise BadInput(f"PRESET: found `{preset}`; allowed: {', '.join(PRESETS)}. {hint}".rstrip())
    if not alone:
        raise BadInput("PRESET cannot be used with --version or --json")
    from gantree.formats.policy.reader import preset_text  # noqa: PLC0415 - nobody else waits for the formats

    return preset_text(preset)


def _text_and_source(word: str) -> tuple[str, str]:
    """Text and name of what was named: a preset, else a file."""
    if word in PRESETS:
        return f"preset: {word}\n", f"preset {word}"
    return read_policy_text(word), source_of(word)


def _print_change(change: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(change)
    else:
        typer.echo(change_text(change))


def _print_new_version(answer: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        typer.echo(f"{_version(answer['version'])} is in force")
        for warning in answer["warnings"]:
            typer.echo(warning, err=True)


def _version(answer: dict[str, Any]) -> str:
    by = f" by {answer['by']}" if answer["by"] else ""
    return f"version {answer['number']} ({answer['source']}{by}, {moment(answer['at'])})"


def _warn(change: dict[str, Any]) -> None:
    for queue, jobs in change["without_queue"].items():
        typer.echo(f"the policy has no queue {queue}, which has jobs: {', '.join(jobs)}", err=True)
    for warning in change.get("warnings", []):
        typer.echo(warning, err=True)
