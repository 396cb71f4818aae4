"""`gantree simulate`: a trace of jobs on a described cluster, decided by the scheduler that the daemon runs."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.input.policies import policy_on
from gantree.cli.input.running import running_model
from gantree.cli.input.trained_models import trained_jobs
from gantree.cli.options import PRESETS, JsonOption, PolicyOption, shallow
from gantree.cli.output.errors import warn
from gantree.cli.output.printing import print_json, span
from gantree.cli.output.progress import progress
from gantree.formats import TraceJob, open_trace, read_cluster, read_trace
from gantree.model.errors import BadInput, NotFound
from gantree.sim import files
from gantree.sim.inputs import CountedTrace, Inputs, inputs_of, name_of
from gantree.sim.results import Result
from gantree.sim.run import simulate as replay
from gantree.text.words import plural

TraceOption = Annotated[
    Path,
    typer.Option(
        "--trace", metavar="FILE", help="Trace: CSV, gzipped CSV, Parquet, or a public one."
    ),
]
OutOption = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="DIR",
        help="Output directory for summary.json, jobs.csv, timeline.csv and report.html.",
    ),
]
RunningOption = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Model of running: a file, or `realistic`. Without it jobs work at speed 1 and nothing fails.",
    ),
]
ModelsOption = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Models that the column `model` of the trace names."),
]
MixesOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="Mixes of these models, by GPUs of a job.")
]
MixOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Draw the model of each job that names none: a mix of --mixes, or light, measured or heavy.",
    ),
]
BoundedOption = Annotated[
    bool,
    typer.Option(
        "--bounded",
        help="For traces larger than memory: attempts are not kept, no report.html.",
    ),
]


def simulate(
    cluster: Annotated[str, typer.Option("--cluster", metavar="FILE", help="Cluster file.")],
    trace: TraceOption,
    out: OutOption,
    policy: PolicyOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Replay only the first N jobs.")] = None,
    running: RunningOption = None,
    models: ModelsOption = None,
    mixes: MixesOption = None,
    mix: MixOption = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all that is drawn.")] = 0,
    bounded: BoundedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Replay a trace of jobs through the scheduler."""
    site = read_cluster(read_text(cluster), source_of(cluster))
    chosen = policy_on(policy, site)
    _make(out)
    model = running_model(running, site)
    priced = model.step_time or model.contention
    rows = CountedTrace(_rows(trace, needs_models=priced and not (models or mix), bounded=bounded))
    jobs = trained_jobs(models, mixes, mix, site, seed)
    with progress("Simulating") as advance:
        result = replay(
            site,
            rows,
            chosen,
            running=model,
            seed=seed,
            jobs=jobs,
            progress=advance,
            limit=limit,
            bounded=bounded,
        )
    inputs = inputs_of(
        site,
        rows,
        chosen,
        trace_name=name_of(trace),
        policy_name=name_of(policy or PRESETS[0]),
        seed=result.seed if result.running.on or mix is not None else None,
        options=result.running.stated() | _drawn(models, mixes, mix),
    )
    _tell(result, inputs, out, report=not bounded, as_json=as_json)


def _tell(result: Result, inputs: Inputs, out: Path, *, report: bool, as_json: bool) -> None:
    """Write the files, print the summary, and warn of what is missing."""
    no_report = files.write(result, out, inputs, report=report)
    if no_report is not None:
        warn(f"{out / 'report.html'} was not written: {no_report}")
    summary = files.summary(result, inputs)
    if as_json:
        print_json(summary)
    else:
        typer.echo(_text(summary, out))
    if summary["finished"] < summary["jobs"]:
        left = summary["jobs"] - summary["finished"]
        warn(f"{left} of {plural(summary['jobs'], 'job')} did not finish; see {out / 'jobs.csv'}")


def _drawn(models: str | None, mixes: str | None, mix: str | None) -> dict[str, Any]:
    """Files of models and mixes, and the mix, by name."""
    files_named = {"models": models, "mixes": mixes}
    named = {key: name_of(Path(value)) for key, value in files_named.items() if value is not None}
    return named if mix is None else {**named, "mix": mix}


def _rows(trace: Path, *, needs_models: bool, bounded: bool) -> Iterable[TraceJob]:
    """The trace. Raises BadInput where there is none: a file that a command line names is input.

    needs_models: steps are simulated and no models are given, so whoever names some is warned. bounded: its rows are
    read one by one, in the order of submission.
    """
    try:
        rows: Iterable[TraceJob] = open_trace(trace) if bounded else read_trace(trace)
    except NotFound as error:
        raise BadInput(str(error)) from None
    if needs_models and any(row.model is not None for row in rows):
        warn(f"{trace} names models; without --models FILE its jobs have no traffic and speed 1")
    return rows


def _make(out: Path) -> None:
    """Before the work, so that it is not done in vain."""
    try:
        shallow(out, "--out").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from None


def _text(summary: dict[str, Any], out: Path) -> str:
    spanned = ", ".join(
        f"{mean:.2f} {tier}"
        for tier, mean in summary["domains_spanned"].items()
        if mean is not None
    )
    lines = {
        "jobs": f"{summary['finished']} of {summary['jobs']} finished",
        "wait": _times(summary["wait_s"]),
        "completion": _times(summary["jct_s"]),
        "makespan": span(summary["makespan_s"]),
        "GPU utilisation": f"{summary['gpu_utilisation']:.1%}",
        "domains a gang": spanned or "no gang of two or more members",
        "preemptions": f"{summary['preemptions']}, {summary['gpu_hours_lost']:g} GPU hours lost",
        **_of_running(summary),
        "written to": str(out),
    }
    return "\n".join(f"{name:16}{value}" for name, value in lines.items())


def _of_running(summary: dict[str, Any]) -> dict[str, str]:
    """What the model of running adds, and what of it is on."""
    if "running" not in summary:
        return {}
    on = [name for name in summary["running"] if name != "seed"]
    stretch, ettr = summary["stretch"]["mean"], summary["ettr"]
    lines = {
        "goodput": f"{summary['goodput']:.1%}",
        "stretch": "none"
        if stretch is None
        else f"mean {stretch:.2f}, p99 {summary['stretch']['p99']:.2f}",
        "failures": f"{summary['failures']}, {summary['gpu_hours_lost_to_failures']:g} GPU hours lost",
        "running": f"{', '.join(on)}; seed {summary['running']['seed']}",
    }
    if ettr["jobs"]:
        lines["ETTR"] = f"mean {ettr['mean']:.3f} of {plural(ettr['jobs'], 'job')} of a day or more"
    return lines


def _times(seconds: dict[str, float | None]) -> str:
    """Mean, median and 99th percentile, or that there are none."""
    shown = [f"{name} {span(value)}" for name, value in seconds.items() if value is not None]
    return ", ".join(shown) or "none"
