"""Times collectives of one node with the programs of nccl-tests (or rccl-tests), and parses their tables.

The programs are started with a list of words and the GPUs by UUID in CUDA_VISIBLE_DEVICES, one process for all GPUs
of a set. Across nodes they need MPI and a build with it; there `ranks` measures.
"""

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from gantree.model.errors import BadInput, Unreachable
from gantree.telemetry.measuring.plan import Together
from gantree.telemetry.measuring.processes import running, wait
from gantree.telemetry.measuring.request import Advance, Found, Task
from gantree.text.words import plural
from gantree.topology.discovery.logs.nccl_log import COLLECTIVE_OF_TEST
from gantree.topology.discovery.logs.nccl_tests import NcclRun, parse
from gantree.topology.fabric.calibration import MeasuredRow

WARM_UP = 5
ITERATIONS = 20
_TEST_OF_COLLECTIVE = {collective: test for test, collective in COLLECTIVE_OF_TEST.items()}


@dataclass(frozen=True, slots=True)
class _Timing:
    rows: tuple[MeasuredRow, ...]
    library: str
    warnings: tuple[str, ...]


def binary(collective: str, folder: Path | None) -> str | None:
    """Return the path of a collective's program in a folder, or on PATH if none is named; None if there is none."""
    return shutil.which(_program(collective), path=None if folder is None else str(folder))


def _program(collective: str) -> str:
    return f"{_TEST_OF_COLLECTIVE[collective]}_perf"


def time_with_binaries(
    task: Task, collectives: Sequence[str], more_env: Mapping[str, str], advance: Advance
) -> Found:
    """Time collectives on each set of GPUs of this node. Collectives without a program are left out, with a warning.

    Raises BadInput where the folder named has no program of any collective; Unreachable where PATH has none, one fails
    or prints no table, and when the time is over.
    """
    deadline = time.monotonic() + task.timeout_s
    programs = {name: binary(name, task.binaries) for name in collectives}
    missing = [
        f"{name}: there is no {_program(name)}" for name, path in programs.items() if path is None
    ]
    if len(missing) == len(programs):
        if task.binaries is not None:
            raise BadInput(
                f"--binary-dir {task.binaries}: no program of nccl-tests is there; {'; '.join(missing)}"
            )
        raise Unreachable(
            f"no program of nccl-tests on PATH; {'; '.join(missing)}; --binary-dir says where they are"
        )
    runs = [
        (group, name, path) for group in task.in_node for name, path in programs.items() if path
    ]
    found = []
    for done, (group, name, path) in enumerate(runs, start=1):
        found.append(_timed(task, group, name, path, more_env, deadline))
        advance(done, len(runs))
    rows = tuple(row for timing in found for row in timing.rows)
    warnings = dict.fromkeys(words for timing in found for words in timing.warnings)
    return Found(found[0].library, (), rows, (*missing, *warnings))


def _timed(
    task: Task,
    group: Together,
    name: str,
    path: str,
    more_env: Mapping[str, str],
    deadline: float,
) -> _Timing:
    count = len(group.ranks)
    step = task.sizes[1] // task.sizes[0] if len(task.sizes) > 1 else 2
    words = {
        "-b": task.sizes[0],
        "-e": task.sizes[-1],
        "-f": step,
        "-g": count,
        "-w": WARM_UP,
        "-n": ITERATIONS,
    }
    command = [path, *(str(word) for pair in words.items() for word in pair)]
    env = {**os.environ, **more_env}
    if task.gpu_uuids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(task.gpu_uuids[gpu] for gpu in group.ranks)
    with TemporaryDirectory(prefix="gantree-measure-") as folder:
        log = Path(folder) / f"{name}.log"
        with running([command], env, [log]) as programs:
            wait(programs, [log], deadline)
        test = parse(log.read_text(encoding="utf-8", errors="replace"), _program(name), name)
    run = test.runs[-1]
    if run.ranks not in (None, count):
        raise Unreachable(
            f"{path}: it ran on {plural(run.ranks, 'GPU')}, not on the {count} it was given"
        )
    warnings = tuple(f"{name} within {group.within}: {words}" for words in test.warnings)
    return _Timing(_rows(run, name, count, group.within), run.library, warnings)


def _rows(run: NcclRun, name: str, ranks: int, within: str) -> tuple[MeasuredRow, ...]:
    """Rows with a size and a time; sizes below one element a rank are printed as 0."""
    return tuple(
        MeasuredRow(name, ranks, 1, row.size_bytes, row.time_us * 1e-6, row.busbw_GBps, within)
        for row in run.rows
        if row.size_bytes and row.time_us
    )
