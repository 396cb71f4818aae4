"""Runs the ranks of one member of a check, and reads what NCCL said while they ran. Nothing is judged here."""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gantree.model.errors import Unreachable
from gantree.telemetry.checking.rank_files import rank_file
from gantree.telemetry.checking.spec import CheckSpec
from gantree.telemetry.measuring.ranks import rank_environment, run_ranks
from gantree.telemetry.measuring.request import Advance
from gantree.topology.discovery.logs.nccl_transports import NcclTransports, read_transports

RANK_PROGRAM = "gantree.telemetry.checking.rank"
RESERVED_SHARE, RESERVED_S = 0.25, 3.0
"""Of the time, at the end, in which no further measurement is begun: the smaller of both."""
MAX_LOG_BYTES = 4 << 20


def run_member(spec: CheckSpec, spec_file: Path, until_s: float, advance: Advance) -> str:
    """Run the ranks of a member to their end; return why they did not reach it, "" if they did.

    until_s is by the steady clock. advance is called with the sets that are done, and all; on the first member alone.
    """
    with TemporaryDirectory(prefix="gantree-check-") as name:
        task = _task(spec, spec_file, until_s)
        processes = spec.processes[spec.index]
        try:
            run_ranks(
                RANK_PROGRAM,
                task,
                Path(name),
                processes,
                _environment(spec),
                task["seconds"],
                advance,
            )
        except Unreachable as error:
            is_over = time.monotonic() >= until_s
            return f"{spec.seconds:g} s were not enough" if is_over else str(error)
    return ""


def _task(spec: CheckSpec, spec_file: Path, until_s: float) -> dict[str, Any]:
    reserved_s = min(RESERVED_S, RESERVED_SHARE * spec.seconds)
    return {
        "check": str(spec_file),
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


def transports_of(spec: CheckSpec) -> NcclTransports:
    """What NCCL moved data over, by the logs of all ranks in the folder."""
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
