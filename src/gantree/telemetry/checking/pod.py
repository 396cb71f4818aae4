"""The program of the container in which a pod checks its links: `python3 -m gantree.telemetry.checking.pod`.

The pods of a gang have no folder in common, so each posts what it finds to gantree, which judges all of it:

    POST <GANTREE_REPORT_URL>/v1/checks    Authorization: Bearer <GANTREE_REPORT_TOKEN>
    {"gpus", "done", "result"}    -> {"state", "again_s", "plan", "lines"}

gpus are those that PyTorch sees, done the measurements by now and all of them, result what `pod_result` makes; each is
null before it is known. state is "wait" for the others or the verdict; "measure", with the plan; "start"; "stop", upon
which gantree deletes the pod. Everything is posted again until that is answered: a restart of gantree loses nothing.
Exit status: 0 to start the command, else NOT_STARTED.
"""

import importlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gantree.telemetry.checking.member import NOT_STARTED
from gantree.telemetry.checking.member_ranks import run_member, transports_of, warnings_of
from gantree.telemetry.checking.pod_post import PodPost
from gantree.telemetry.checking.rank_files import findings
from gantree.telemetry.checking.spec import CheckSpec, read_spec

URL, TOKEN = "GANTREE_REPORT_URL", "GANTREE_REPORT_TOKEN"
GPUS, REQUIRED = "GANTREE_GPUS", "GANTREE_CHECK_REQUIRED"
AGAIN_S = 1.0
GIVE_UP_S = 600.0
"""Seconds without an answer of gantree after which the command starts, or, where the check is required, does not."""
LINGER_S = 300.0
"""Seconds in which gantree deletes a pod that may not start."""
NO_TORCH = "PyTorch is not installed in the image of the check"
Json = dict[str, Any]


def main() -> int:
    """Check as the pod that the environment names; 0: the command may start."""
    signal.signal(signal.SIGTERM, _end)
    report = PodPost(os.environ[URL], os.environ[TOKEN], _gpus())
    if report.gpus is None:
        report.result = {"skipped": NO_TORCH}
    heard_at = time.monotonic()
    while True:
        answer = report.post()
        if answer is None:
            if time.monotonic() - heard_at > GIVE_UP_S:
                return _given_up()
            time.sleep(AGAIN_S)
            continue
        heard_at = time.monotonic()
        match answer["state"]:
            case "start" | "stop":
                return _ended(answer)
            case "measure" if report.result is None:
                report.result = _measured(answer["plan"], report, answer["again_s"])
                heard_at = time.monotonic()  # nobody waited for an answer meanwhile
            case _:
                time.sleep(answer["again_s"])


def _end(number: int, _frame: object) -> None:
    """End by a signal, which has no default in the first process of a container."""
    sys.exit(128 + number)


def _say(line: str) -> None:
    sys.stdout.write(f"gantree: check: {line}\n")
    sys.stdout.flush()


def _gpus() -> int | None:
    """The GPUs that PyTorch sees; None without PyTorch. A pod that was given none has none."""
    if find_spec("torch") is None:
        return None
    if not os.environ.get(GPUS):
        return 0
    torch: Any = importlib.import_module("torch")  # an extra
    return int(torch.cuda.device_count())


def _given_up() -> int:
    is_required = os.environ.get(REQUIRED) == "true"
    _say(f"gantree did not answer for {GIVE_UP_S:g} s: the links were not checked")
    return NOT_STARTED if is_required else 0


def _ended(answer: Json) -> int:
    for line in answer["lines"]:
        _say(line)
    if answer["state"] == "start":
        return 0
    time.sleep(LINGER_S)
    return NOT_STARTED


def _measured(plan: Json, report: PodPost, every_s: float) -> Json:
    """Run the ranks of this pod as the plan has it, and return what they found."""
    with TemporaryDirectory(prefix="gantree-check-") as name:
        file, spec = _spec(plan, Path(name))
        until_s = time.monotonic() + spec.seconds
        with _posting(report, every_s):
            why = run_member(spec, file, until_s, lambda done, total: _advance(report, done, total))
        return pod_result(spec, why)


def _advance(report: PodPost, done: int, total: int) -> None:
    report.done = (done, total)


@contextmanager
def _posting(report: PodPost, every_s: float) -> Iterator[None]:
    """Post while the ranks measure, so that gantree knows of them."""
    ended = threading.Event()

    def post() -> None:
        while not ended.wait(every_s):
            report.post()

    thread = threading.Thread(target=post, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _spec(plan: Mapping[str, Any], folder: Path) -> tuple[Path, CheckSpec]:
    """The plan as a file for ranks, with what the pod alone knows: the address of the gang, and a folder."""
    address = os.environ["MASTER_ADDR"]
    told = {
        **plan,
        "address": address,
        "port": int(os.environ["MASTER_PORT"]),
        "folder": str(folder),
        "on_loopback": _is_loopback(address),
    }
    file = folder / "check.json"
    file.write_text(json.dumps(told), encoding="utf-8")
    return file, read_spec(file)


def _is_loopback(address: str) -> bool:
    try:
        return socket.gethostbyname(address).startswith("127.")
    except OSError:  # the name may be known a moment later; ranks try again
        return False


def pod_result(spec: CheckSpec, why: str) -> Json:
    """What the ranks of this pod found: figures, those of groups that did not end without a rate, and own faults."""
    read = findings(spec, time.monotonic())
    return {
        "figures": [each.to_json() for each in read.figures],
        "faults": [[gpu, words] for _, gpu, words in read.faults],
        "done": [read.done, read.total],
        "warnings": list(warnings_of(spec, transports_of(spec))),
        "why": why,
    }


if __name__ == "__main__":
    sys.exit(main())
