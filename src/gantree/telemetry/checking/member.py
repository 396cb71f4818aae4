"""The program of one member of a check: `python -m gantree.telemetry.checking.member SPEC.json`, started by its shim.

It starts the ranks of its devices and waits for them. The first member's judges what all ranks wrote into the shared
folder and writes the report; the others wait for it. Exit status: 0 to start the command, else NOT_STARTED. What it
prints goes to the log of the member's first rank.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gantree.telemetry.checking.judge import Verdict, judge
from gantree.telemetry.checking.member_ranks import run_member, transports_of, warnings_of
from gantree.telemetry.checking.rank_files import RankFindings, findings
from gantree.telemetry.checking.report import (
    START,
    Found,
    Rules,
    backend_of,
    device_fault,
    report_json,
    report_lines,
)
from gantree.telemetry.checking.spec import CheckSpec, read_spec
from gantree.telemetry.measuring.lifetime import end_with_parent

NOT_STARTED = 10
REPORT, PROGRESS = "report.json", "progress.json"
LATE_S = 10.0
"""Seconds after the end in which the report may come."""
POLL_S = 0.05
NO_TORCH = "PyTorch is not installed beside gantree (pip install 'torch>=2.4' with the Python of the daemon)"
NOTHING = Verdict((), (), hung=False)


def main() -> int:
    """Check as the member that the spec names; 0: the command may start."""
    spec, began_at = read_spec(Path(sys.argv[1])), time.time()
    until_s = time.monotonic() + spec.seconds
    end_with_parent(spec.seconds + 2 * LATE_S, os.getppid())
    if find_spec("torch") is None:
        found = Found("", NOTHING, why=NO_TORCH, skipped=True)
    elif spec.world > 1 or spec.soak_s:
        found = _checked(spec, until_s)
    else:
        found = Found("", NOTHING)
    if spec.index == 0 or found.verdict.faults:
        _write_report(spec, found, began_at)
    report = _report(spec, until_s + LATE_S)
    if report is None:
        _say("no report came in time")
        return NOT_STARTED
    if spec.index == 0:
        for line in report_lines(report):
            _say(line)
    return 0 if report["outcome"] == START else NOT_STARTED


def _say(line: str) -> None:
    """Write to the log of the member's first rank, which standard output is."""
    sys.stdout.write(f"gantree: check: {line}\n")
    sys.stdout.flush()


def _checked(spec: CheckSpec, until_s: float) -> Found:
    """Run the ranks of this member; on the first member all that was found, on others their own faults."""
    file = Path(sys.argv[1])
    why = run_member(spec, file, until_s, lambda done, total: _advance(spec, done, total))
    read = findings(spec, time.monotonic())
    own = [each for each in read.faults if each[0] == spec.index]
    if spec.index > 0 or own:
        faults = tuple(device_fault(spec.members, *each) for each in own)
        return Found(backend_of(cuda=spec.cuda), Verdict(faults, (), hung=False), why=why)
    return _judged(spec, read, why)


def _judged(spec: CheckSpec, read: RankFindings, why: str) -> Found:
    if not why and read.done < read.total:
        why = f"{spec.seconds:g} s were enough for {read.done} of {read.total} measurements"
    verdict, warnings = judge(spec.members, read.figures), warnings_of(spec, transports_of(spec))
    return Found(backend_of(cuda=spec.cuda), verdict, read.figures, warnings, why)


def _advance(spec: CheckSpec, done: int, total: int) -> None:
    if spec.index == 0:
        _write(spec.folder / PROGRESS, {"done": done, "total": total})


def _write_report(spec: CheckSpec, found: Found, began_at: float) -> None:
    """Write the report, unless another member has written that its own device is at fault."""
    rules = Rules(spec.required, spec.may_replace)
    report = report_json(found, spec.members, rules, began_at, time.time())
    path = spec.folder / REPORT
    draft = _write(spec.folder / f"{REPORT}.{spec.index}", report)
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        draft.unlink()


def _write(path: Path, value: Mapping[str, Any]) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    return draft.rename(path)


def _report(spec: CheckSpec, until_s: float) -> dict[str, Any] | None:
    """The report, once it is there; None if it is not in time."""
    path = spec.folder / REPORT
    while not path.exists():
        if time.monotonic() > until_s:
            return None
        time.sleep(POLL_S)
    report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return report


if __name__ == "__main__":
    sys.exit(main())
