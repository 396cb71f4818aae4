"""The program of one member of a check: `python -m gantree.telemetry.checking.member SPEC.json`, started by its shim.

It starts the ranks of its devices and waits for them. The first member's judges what all ranks wrote into the shared
folder and writes the report; the others wait for it. Exit status: 0 to start the command, else NOT_STARTED. What it
prints goes to the log of the member's first rank.
"""

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gantree.model.errors import Unreachable
from gantree.telemetry.checking.judge import Fault, Verdict, judge
from gantree.telemetry.checking.rank_files import RankFindings, findings, rank_file
from gantree.telemetry.checking.report import START, Found, Rules, report_json
from gantree.telemetry.checking.spec import CheckSpec, read_spec
from gantree.telemetry.measuring.lifetime import end_with_parent
from gantree.telemetry.measuring.ranks import rank_environment, run_ranks
from gantree.topology.discovery.logs.nccl_transports import NcclTransports, read_transports

NOT_STARTED = 10
REPORT, PROGRESS = "report.json", "progress.json"
RANK_PROGRAM = "gantree.telemetry.checking.rank"
RESERVED_SHARE, RESERVED_S = 0.25, 3.0
"""Of the time, at the end, in which no further measurement is begun: the smaller of both."""
LATE_S = 10.0
"""Seconds after the end in which the report may come."""
POLL_S = 0.05
MAX_LOG_BYTES = 4 << 20
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
        for line in _lines(report):
            _say(line)
    return 0 if report["outcome"] == START else NOT_STARTED


def _say(line: str) -> None:
    """Write to the log of the member's first rank, which standard output is."""
    sys.stdout.write(f"gantree: check: {line}\n")
    sys.stdout.flush()


def _checked(spec: CheckSpec, until_s: float) -> Found:
    """Run the ranks of this member; on the first member all that was found, on others their own faults."""
    why = ""
    with TemporaryDirectory(prefix="gantree-check-") as name:
        folder = Path(name)
        told = _told(spec, until_s)
        try:
            run_ranks(
                RANK_PROGRAM,
                told,
                folder,
                spec.processes[spec.index],
                _environment(spec),
                told["seconds"],
                lambda done, total: _advance(spec, done, total),
            )
        except Unreachable as error:
            is_over = time.monotonic() >= until_s
            why = f"{spec.seconds:g} s were not enough" if is_over else str(error)
    read = findings(spec, time.monotonic())
    own = [each for each in read.faults if each[0] == spec.index]
    if spec.index > 0 or own:
        faults = tuple(_local_fault(spec, *each) for each in own)
        return Found(_backend(spec), Verdict(faults, (), hung=False), why=why)
    return _judged(spec, read, why)


def _judged(spec: CheckSpec, read: RankFindings, why: str) -> Found:
    if not why and read.done < read.total:
        why = f"{spec.seconds:g} s were enough for {read.done} of {read.total} measurements"
    transports = transports_of(spec)
    verdict = judge(spec.members, read.figures)
    return Found(_backend(spec), verdict, read.figures, warnings_of(spec, transports), why)


def _local_fault(spec: CheckSpec, member: int, gpu: int, words: str) -> Fault:
    checked = spec.members[member]
    index = checked.gpus[gpu] if gpu < len(checked.gpus) else None
    name = "" if index is None else f"GPU {index}: "
    return Fault(checked.node, index, None, 0.0, f"{name}it cannot compute: {words}")


def _told(spec: CheckSpec, until_s: float) -> dict[str, Any]:
    reserved_s = min(RESERVED_S, RESERVED_SHARE * spec.seconds)
    return {
        "check": sys.argv[1],
        "seconds": max(1.0, until_s - time.monotonic()),
        "until_steady_s": until_s - reserved_s,
        "out": str(rank_file(spec, spec.first_rank)),
    }


def _environment(spec: CheckSpec) -> dict[str, str]:
    logs = {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_FILE": f"{spec.folder}/nccl-{spec.index}.%p.log",
    }
    if spec.on_loopback:
        logs["GLOO_SOCKET_IFNAME"] = "lo"
    return rank_environment(logs)


def _backend(spec: CheckSpec) -> str:
    return "nccl" if spec.cuda else "gloo"


def transports_of(spec: CheckSpec) -> NcclTransports:
    """What NCCL moved data over, by the logs of all ranks."""
    texts = []
    for log in sorted(spec.folder.glob("nccl-*.log")):
        with log.open("rb") as file:
            texts.append(file.read(MAX_LOG_BYTES).decode(errors="replace"))
    return read_transports("\n".join(texts))


def warnings_of(spec: CheckSpec, transports: NcclTransports) -> tuple[str, ...]:
    """A fallback is one where the members were given NICs, or NCCL found RDMA devices."""
    has_rdma = transports.ib_devices or any(member.nics for member in spec.members)
    if not transports.is_over_sockets or len(spec.members) < 2 or not has_rdma:
        return ()
    cause = "; NCCL found no RDMA device" if transports.no_ib_device else ""
    return (f"NCCL fell back from RDMA to sockets ({transports.sentence}){cause}",)


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


def _lines(report: Mapping[str, Any]) -> Iterator[str]:
    """What the log of the first rank has."""
    for each in report["figures"]:
        measured = "did not end" if each["measured"] is None else f"{each['measured']:g}"
        expected = f" of {each['expected']:g} expected" if each["expected"] else ""
        unit = "TFLOPS" if each["kind"] == "compute" else "GB/s"
        yield f"{each['name']} {each['kind']}: {measured}{expected} {unit}"
    yield from report["warnings"]
    yield report["sentence"]


if __name__ == "__main__":
    sys.exit(main())
