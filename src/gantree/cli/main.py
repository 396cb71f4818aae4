"""The program `gantree`: its list of commands, and how an error ends it. No command is implemented here."""

import os
import sys
from collections.abc import Sequence
from typing import Annotated, ClassVar

import typer

from gantree import __version__
from gantree.cli.daemon_client import malformed_answer
from gantree.cli.lazy import LazyGroup, Listed
from gantree.cli.output.errors import BROKEN_PIPE, FAILURE, error_text, exit_code_of, os_error_text
from gantree.model.errors import GantreeError


class Commands(LazyGroup):
    """All commands; those for the daemon first."""

    LISTED: ClassVar = {
        "up": Listed("gantree.cli.daemon.up:up", "Run the daemon in the foreground."),
        "kubernetes": Listed(
            "gantree.cli.kubernetes.commands:app", "Run as a scheduler of a Kubernetes cluster."
        ),
        "submit": Listed(
            "gantree.cli.jobs.submit:submit", "Submit job files and print the ids of the jobs."
        ),
        "run": Listed("gantree.cli.jobs.run:app", "Run a command as a job and follow its output."),
        "jobs": Listed("gantree.cli.jobs.list:app", "List pending and running jobs."),
        "services": Listed(
            "gantree.cli.services.list:app", "List services, or show one with its replicas."
        ),
        "top": Listed(
            "gantree.cli.top.command:top", "Show the cluster, queues and jobs in a live view."
        ),
        "why": Listed("gantree.cli.explain.why:why", "Explain why a job is in its state."),
        "when": Listed("gantree.cli.explain.when:when", "Show when a pending job starts."),
        "route": Listed(
            "gantree.cli.route:route",
            "Send requests of services to the closest replica that has room.",
        ),
        "endpoint-picker": Listed(
            "gantree.cli.endpoint_picker:endpoint_picker",
            "Tell a gateway which replica each request goes to.",
        ),
        "queues": Listed(
            "gantree.cli.queues.queues:queues",
            "List queues with their guarantees, usage and loans.",
        ),
        "usage": Listed(
            "gantree.cli.queues.usage:usage", "Report what GPU-hours were used for, and their cost."
        ),
        "waste": Listed(
            "gantree.cli.queues.waste:waste",
            "List jobs by what they waste, why, and what to do about it.",
        ),
        "report": Listed(
            "gantree.cli.weekly.command:report",
            "Report a week of the fleet: what GPU time was for, budgets, waste, sick nodes.",
        ),
        "history": Listed(
            "gantree.cli.history.commands:app",
            "Show ended jobs, use, waits, preemptions and signs of nodes over time.",
        ),
        "seff": Listed(
            "gantree.cli.history.efficiency:seff", "Show what a job that has ended used."
        ),
        "logs": Listed(
            "gantree.cli.jobs.logs:logs",
            "Print the output of a job, all ranks in the order of time.",
        ),
        "curve": Listed(
            "gantree.cli.jobs.curve:curve",
            "Show step time and loss of a job over time, an attempt a line.",
        ),
        "attach": Listed(
            "gantree.cli.jobs.attach:app",
            "Run a shell next to a process of a job, or forward a port.",
        ),
        "record": Listed(
            "gantree.cli.jobs.record:record",
            "Show what ran in an attempt: commands, placement and versions.",
        ),
        "rerun": Listed(
            "gantree.cli.jobs.record:rerun", "Run a job again on an equivalent placement."
        ),
        "cancel": Listed(
            "gantree.cli.jobs.control:cancel", "Cancel pending or running jobs, or services."
        ),
        "hold": Listed(
            "gantree.cli.jobs.control:hold", "Hold pending jobs, so that they do not start."
        ),
        "release": Listed(
            "gantree.cli.jobs.control:release", "Release held jobs, so that they may start."
        ),
        "suspend": Listed(
            "gantree.cli.jobs.control:suspend", "Stop jobs and hold them until they are resumed."
        ),
        "resume": Listed(
            "gantree.cli.jobs.control:resume", "Resume suspended jobs; the same as gantree release."
        ),
        "scale": Listed(
            "gantree.cli.jobs.control:scale",
            "Change the number of members of elastic jobs, or of replicas of services.",
        ),
        "reprioritise": Listed(
            "gantree.cli.jobs.control:reprioritise",
            "Change the priority of pending or running jobs.",
        ),
        "extend": Listed(
            "gantree.cli.jobs.extend:extend", "Keep idle jobs: for so long they are not reclaimed."
        ),
        "nodes": Listed("gantree.cli.nodes:nodes", "List nodes with their state and jobs."),
        "cordon": Listed(
            "gantree.cli.nodes:cordon", "Mark nodes unschedulable; running jobs stay."
        ),
        "uncordon": Listed(
            "gantree.cli.nodes:uncordon", "Mark cordoned or drained nodes schedulable again."
        ),
        "burn-in": Listed(
            "gantree.cli.burn_in:burn_in", "Check GPUs and links of cordoned, empty nodes."
        ),
        "drain": Listed("gantree.cli.nodes:drain", "Cordon nodes and move their jobs away."),
        "label": Listed(
            "gantree.cli.nodes:label", "Set or remove labels of a node; running jobs stay."
        ),
        "node-fault": Listed(
            "gantree.cli.node_fault:node_fault",
            "Report a fault of a GPU: nothing new starts on its node.",
        ),
        "repair": Listed(
            "gantree.cli.nodes:repair",
            "Start the repair of nodes again from its first step, or stop it.",
        ),
        "links": Listed(
            "gantree.cli.links:links", "List links that carry less than their rate, or are busy."
        ),
        "degrade": Listed(
            "gantree.cli.links:degrade",
            "Report links that carry less than their rate; running jobs stay.",
        ),
        "restore": Listed(
            "gantree.cli.links:restore",
            "Count links as whole again, until a source reports something else.",
        ),
        "policy": Listed(
            "gantree.cli.queues.policy:app", "Show, check, apply or roll back the policy."
        ),
        "access": Listed(
            "gantree.cli.daemon.access:app", "Check an access file: users, groups and their roles."
        ),
        "token": Listed("gantree.cli.daemon.token:app", "Create, list and revoke tokens of users."),
        "audit": Listed(
            "gantree.cli.daemon.audit:audit", "Print the audit log: changes and denied requests."
        ),
        "defragment": Listed(
            "gantree.cli.explain.defragment:defragment",
            "Plan moves of running gangs so that a job can start.",
        ),
        "place": Listed(
            "gantree.cli.placement.place:place", "Show where jobs would be placed on a cluster."
        ),
        "what-if": Listed(
            "gantree.cli.explain.what_if:app",
            "Show where or when jobs would start under other conditions.",
        ),
        "ranks": Listed(
            "gantree.cli.placement.ranks:ranks", "Show which GPU each rank of a job gets."
        ),
        "cost": Listed(
            "gantree.cli.placement.cost:cost",
            "Show what the communication of a job costs on a cluster.",
        ),
        "fit": Listed(
            "gantree.cli.placement.fit:fit",
            "Compare the GPU models that a job can run on: memory, time and price.",
        ),
        "topo": Listed(
            "gantree.cli.topo.commands:app", "Draw, export, import and measure topologies."
        ),
        "simulate": Listed(
            "gantree.cli.simulation.simulate:simulate",
            "Replay a trace of jobs through the scheduler.",
        ),
        "compare": Listed(
            "gantree.cli.simulation.compare:compare",
            "Compare results of simulations of one trace on one cluster.",
        ),
        "sweep": Listed(
            "gantree.cli.simulation.sweep:sweep",
            "Simulate a grid of clusters, traces, policies and seeds.",
        ),
        "experiment": Listed(
            "gantree.cli.simulation.experiment:experiment",
            "Run an experiment: its claim, set-up, result and verdict.",
        ),
        "replay": Listed(
            "gantree.cli.simulation.replay:replay",
            "Simulate the recorded jobs of a daemon under another policy.",
        ),
        "trace": Listed(
            "gantree.cli.traces.commands:app",
            "Describe, import, cut, scale and synthesize traces of jobs.",
        ),
        "journal": Listed(
            "gantree.cli.daemon.journal:app",
            "Verify, export, back up, compact or correct a journal.",
        ),
        "federation": Listed(
            "gantree.cli.federation:app", "Run several clusters behind one front, and show them."
        ),
        "doctor": Listed(
            "gantree.cli.doctor.command:doctor",
            "Check the machine, the state directory and the daemon, and say what to do.",
        ),
        "bench": Listed(
            "gantree.cli.simulation.bench:app", "Benchmark the scheduler on this machine."
        ),
        "help": Listed("gantree.cli.manual.help:help_command", "Explain a topic or a command."),
    }


app = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"gantree {__version__}")
        raise typer.Exit


@app.callback()
def gantree(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            envvar="GANTREE_SERVER",
            metavar="URL[,URL...]",
            help="URL of the daemon, or of all replicas. The token is in GANTREE_TOKEN, or in the file that"
            " GANTREE_TOKEN_FILE names.",
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
            sys.exit(BROKEN_PIPE)
        raise
    except GantreeError as error:
        typer.echo(error_text(error), err=True)
        sys.exit(exit_code_of(error))
    except OSError as error:
        typer.echo(os_error_text(error), err=True)
        _drop_output()
        sys.exit(FAILURE)
    except Exception:
        at_fault = malformed_answer()
        if at_fault is None:
            raise
        typer.echo(error_text(at_fault), err=True)
        sys.exit(FAILURE)


def _drop_output() -> None:
    """Let what could not be printed go, or Python would try once more at its end and complain on its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
