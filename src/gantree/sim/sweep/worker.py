"""Runs one simulation of a sweep. Its directory appears under its name in one step, once all files are in it."""

import json
import os
import shutil
import traceback
from pathlib import Path

from gantree.formats import read_cluster, read_trace
from gantree.formats.sweep import policy_with
from gantree.model.errors import GantreeError
from gantree.sim import files
from gantree.sim.inputs import CountedTrace, inputs_of, name_of
from gantree.sim.overheads import Overheads
from gantree.sim.run import simulate
from gantree.sim.sweep.plan import PlannedRun, running_model

KEY_FILE = "key.json"
UNFINISHED = ".unfinished-"
"""Begins the name of a directory whose simulation has not ended. Such ones count for nothing and are removed."""


def is_finished(planned: PlannedRun, out: Path) -> bool:
    """Whether the simulation's directory is there and was made of the same files, options and version."""
    try:
        kept = json.loads((out / planned.name / KEY_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(kept, dict) and kept.get("key") == planned.key


def run_planned(planned: PlannedRun, out: Path, report: bool) -> str | None:
    """Run a simulation into its directory below `out`. None, or why it failed."""
    unfinished = out / f"{UNFINISHED}{planned.name}-{os.getpid()}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        _simulate(planned, unfinished, report)
        shutil.rmtree(out / planned.name, ignore_errors=True)  # of other files, options or version
        os.rename(unfinished, out / planned.name)  # noqa: PTH104 - one step, whatever Path.rename becomes
    except (GantreeError, OSError) as error:
        return str(error)
    except Exception:  # one simulation's failure is not that of the others
        return traceback.format_exc().strip()
    return None


def _simulate(planned: PlannedRun, directory: Path, report: bool) -> None:
    cluster = read_cluster(planned.cluster_text, planned.cluster)
    policy = policy_with(planned.policy_text, planned.policy, planned.override)
    trace = CountedTrace(read_trace(planned.trace_file))
    running = running_model(planned.running, planned.running_text, cluster)
    result = simulate(
        cluster,
        trace,
        policy,
        overheads=Overheads(*planned.overheads),
        running=running,
        seed=planned.seed or 0,
        limit=planned.limit,
    )
    overheads = dict(zip(("start_s", "stop_s", "save_s"), planned.overheads, strict=True))
    inputs = inputs_of(
        cluster,
        trace,
        policy,
        trace_name=name_of(planned.trace),
        policy_name=planned.policy_name,
        seed=planned.seed,
        options={name: value for name, value in overheads.items() if value} | running.stated(),
    )
    files.write(result, directory, inputs, report=report)
    (directory / KEY_FILE).write_text(json.dumps({"key": planned.key}) + "\n", encoding="utf-8")
