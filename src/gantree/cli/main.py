"""The program `gantree`: its list of commands, and what becomes of an error. What a command does is not here."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, ClassVar

import typer

from gantree import __version__
from gantree.cli.daemon import blame
from gantree.cli.errors import FAILURE, UNREAD, exit_code_of, told, told_by_system
from gantree.cli.lazy import LazyGroup, Listed
from gantree.model.errors import GantreeError


class Commands(LazyGroup):
    """All commands; those for the daemon first."""

    LISTED: ClassVar = {
        "up": Listed(
            "gantree.cli.up", "Run the daemon in the foreground until it is told to stop."
        ),
        "kubernetes": Listed(
            "gantree.cli.kubernetes",
            "Schedule the pods of a Kubernetes cluster that name gantree as their scheduler.",
        ),
        "submit": Listed("gantree.cli.submit", "Hand in jobs; prints the id of each."),
        "run": Listed("gantree.cli.run", "Run a command as a gang and follow it to its end."),
        "jobs": Listed("gantree.cli.jobs", "List the jobs that wait or run."),
        "why": Listed("gantree.cli.why", "Explain why a job is where it is."),
        "when": Listed(
            "gantree.cli.when", "Say when a job starts: what was promised, or an estimate."
        ),
        "queues": Listed(
            "gantree.cli.queues", "List the queues with what each is owed, uses, borrows and lends."
        ),
        "usage": Listed(
            "gantree.cli.usage", "Say who held how many GPU-hours, and what they cost."
        ),
        "logs": Listed("gantree.cli.logs", "Print what the processes of a job wrote."),
        "attach": Listed(
            "gantree.cli.attach", "Run a shell beside a process of a job, or reach a port of it."
        ),
        "record": Listed("gantree.cli.record", "Show what ran: program, place and versions."),
        "rerun": Listed("gantree.cli.rerun", "Run a job again on an equal place."),
        "cancel": Listed("gantree.cli.cancel", "Cancel jobs, whether they wait or run."),
        "hold": Listed("gantree.cli.hold", "Keep waiting jobs from being started."),
        "release": Listed("gantree.cli.release", "Let held jobs go."),
        "suspend": Listed(
            "gantree.cli.suspend",
            "Stop jobs and keep them from being started until they are resumed.",
        ),
        "resume": Listed("gantree.cli.resume", "Let suspended jobs go on."),
        "scale": Listed("gantree.cli.scale", "Give elastic jobs another number of members."),
        "reprioritise": Listed(
            "gantree.cli.reprioritise", "Give jobs another priority, whether they wait or run."
        ),
        "nodes": Listed(
            "gantree.cli.nodes", "List the nodes: whether they may be used, what runs there."
        ),
        "cordon": Listed(
            "gantree.cli.cordon", "Let nothing new start on nodes; what runs there stays."
        ),
        "uncordon": Listed(
            "gantree.cli.uncordon", "Let nodes be used again that were cordoned or drained."
        ),
        "drain": Listed(
            "gantree.cli.drain", "Let everybody leave nodes, and nothing new start there."
        ),
        "label": Listed(
            "gantree.cli.label", "Set labels of a node, or take them away; what runs there stays."
        ),
        "policy": Listed(
            "gantree.cli.policy",
            "Look at the policy in force, change it while jobs run, go back to an older one.",
        ),
        "access": Listed("gantree.cli.access", "Check the file that says who may do what."),
        "token": Listed("gantree.cli.token", "Make tokens for users, list them, revoke them."),
        "audit": Listed("gantree.cli.audit", "Print who changed what, and who was refused."),
        "defragment": Listed(
            "gantree.cli.defragment", "Say which gangs would move so that a job starts."
        ),
        "place": Listed(
            "gantree.cli.place", "Say where jobs would go on a cluster; start nothing."
        ),
        "what-if": Listed(
            "gantree.cli.what_if",
            "Say where jobs would go, or when one would start, if things were otherwise.",
        ),
        "ranks": Listed("gantree.cli.ranks", "Say which rank of a job runs on which GPU."),
        "cost": Listed("gantree.cli.cost", "Say what a job's traffic costs where it would run."),
        "fit": Listed(
            "gantree.cli.rightsize", "Say on which GPUs a job may run: memory, time, money."
        ),
        "topo": Listed("gantree.cli.topo", "Draw a cluster, or import a machine's topology."),
        "simulate": Listed(
            "gantree.cli.simulate", "Replay a trace of jobs through the real scheduler."
        ),
        "journal": Listed(
            "gantree.cli.journal", "Look after a journal: verify, export, backup, compact."
        ),
        "bench": Listed("gantree.cli.bench", "Measure this program on this machine."),
    }


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gantree {__version__}")
        raise typer.Exit


@app.callback()
def gantree(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and leave."
        ),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            envvar="GANTREE_SERVER",
            metavar="URL[,URL...]",
            help="A daemon elsewhere, or several of which one leads; its token in GANTREE_TOKEN or the file"
            " GANTREE_TOKEN_FILE.",
        ),
    ] = None,
) -> None:
    """Schedule gangs of GPU processes onto a topology tree, and explain every decision."""
    if server is not None:
        os.environ["GANTREE_SERVER"] = server  # where `cli.daemon.client` looks; commands load late
        typed = context.get_parameter_source("server")
        if typed is not None and typed.name == "COMMANDLINE":  # wins over an exported directory
            os.environ.pop("GANTREE_STATE", None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command line (the process's own if None) and exit.

    Exit status: 0 success, 2 bad input, 1 any other error, 130 Ctrl-C, 141 nobody reads what is printed; `place` and
    `run` add their own. A traceback is printed only for our own bugs.
    """
    try:
        app(arguments, prog_name="gantree")
    except SystemExit as left:
        if isinstance(
            left.__context__, BrokenPipeError
        ):  # Typer has caught it and would end with 1
            sys.exit(UNREAD)
        raise
    except GantreeError as error:
        typer.echo(told(error), err=True)
        sys.exit(exit_code_of(error))
    except OSError as error:
        typer.echo(told_by_system(error), err=True)
        _drop_output()
        sys.exit(FAILURE)
    except Exception:
        at_fault = blame()
        if at_fault is None:
            raise
        typer.echo(told(at_fault), err=True)
        sys.exit(FAILURE)


def _drop_output() -> None:
    """Let what could not be printed go, or Python would try once more at its end and complain on its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
