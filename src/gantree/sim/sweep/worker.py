"""Runs one cell. Its directory appears under its name in one step, once all files are in it."""

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
from gantree.sim.sweep.cells import Cell, running_model

KEY_FILE = "cell.json"
UNFINISHED = ".unfinished-"
"""Begins the name of a directory whose cell has not ended. What is left of them counts for nothing and is removed."""


def is_finished(cell: Cell, out: Path) -> bool:
    """Whether the cell's directory is there and was made of the same files, options and version."""
    try:
        kept = json.loads((out / cell.name / KEY_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(kept, dict) and kept.get("key") == cell.key


def run_cell(cell: Cell, out: Path, report: bool) -> str | None:
    """Simulate a cell into its directory below `out`. None, or why it failed."""
    unfinished = out / f"{UNFINISHED}{cell.name}-{os.getpid()}"
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        _simulate(cell, unfinished, report)
        shutil.rmtree(out / cell.name, ignore_errors=True)  # of other files, options or version
        os.rename(unfinished, out / cell.name)  # noqa: PTH104 - one step, whatever Path.rename becomes
    except (GantreeError, OSError) as error:
        return str(error)
    except Exception:  # one cell's failure is not that of the others
        return traceback.format_exc().strip()
    return None


def _simulate(cell: Cell, directory: Path, report: bool) -> None:
    cluster = read_cluster(cell.cluster_text, cell.cluster)
    policy = policy_with(cell.policy_text, cell.policy, cell.override)
    trace = CountedTrace(read_trace(cell.trace_file))
    running = running_model(cell.running, cell.running_text, cluster)
    result = simulate(
        cluster,
        trace,
        policy,
        overheads=Overheads(*cell.overheads),
        running=running,
        seed=cell.seed or 0,
        limit=cell.limit,
    )
    overheads = dict(zip(("start_s", "stop_s", "save_s"), cell.overheads, strict=True))
    inputs = inputs_of(
        cluster,
        trace,
        policy,
        trace_name=name_of(cell.trace),
        policy_name=cell.policy_name,
        seed=cell.seed,
        options={name: value for name, value in overheads.items() if value} | running.stated(),
    )
    files.write(result, directory, inputs, report=report)
    (directory / KEY_FILE).write_text(json.dumps({"key": cell.key}) + "\n", encoding="utf-8")
