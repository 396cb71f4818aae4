"""What gantree does on a machine with an NVIDIA GPU and PyTorch, on its first GPU. No setting of a GPU is changed.

    python benchmarks/gpu_machine.py [--seconds 10]

* detection: the model, and the MIG profiles with their positions as the driver tells them beside gantree's table;
* XID events: whether the driver lets this process hear of them;
* MPS: two jobs with half of the GPU and 20 GiB each, side by side: SMs and memory that each gets, their arithmetic, and
  what is left of MPS when they have ended;
* a slow rank: four ranks of DistributedDataParallel over gloo, on the GPU, of which one computes 1.3 times as long, and
  the step at which the daemon names it.

Prints one line for each as JSON, exits 1 if one of them is not as it should be.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_uint
from pathlib import Path
from typing import Any

import pynvml

from gantree.model.errors import Unreachable
from gantree.telemetry.nvml import driver as nvml
from gantree.telemetry.nvml.events import XidEvents
from gantree.telemetry.partitions.nvml import NvmlPartitioner
from gantree.topology.hardware.mig import mig_table

HALF = """
import json, sys, time, torch
gpu = torch.cuda.get_device_properties(0)
held = []
try:
    while True:
        held.append(torch.empty(2**30, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    GiB = len(held)
del held
torch.cuda.empty_cache()
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
began, products = time.time(), 0
while time.time() - began < float(sys.argv[1]):
    for _ in range(20):
        b = a @ a
    torch.cuda.synchronize()
    products += 20
TFLOPS = products * 2 * 8192**3 / (time.time() - began) / 1e12
print(json.dumps({"SMs": gpu.multi_processor_count, "GiB": GiB, "TFLOPS": round(TFLOPS)}))
"""
SLOW = """
import time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from gantree import training
from gantree.training import ddp
dist.init_process_group("gloo")
torch.cuda.set_device(0)
model = DistributedDataParallel(torch.nn.Linear(256, 256).cuda())
assert ddp.watch(model)
for step in range(2000):
    time.sleep(0.04)
    torch.cuda._sleep(int(1.7e9 * (0.018 if training.rank() == 2 else 0.002)))
    model(torch.ones(8, 256, device="cuda")).sum().backward()
    model.zero_grad()
"""
NAMED_WITHIN_S = 60.0


class Daemon:
    """`gantree up` on this machine, with a state directory of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, "GANTREE_STATE": str(folder / "state")}
        self.environment.pop("GANTREE_SERVER", None)

    def says(self, *words: str) -> str:
        """What a command of gantree prints."""
        command = [sys.executable, "-m", "gantree", *words]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def submit(self, name: str, role: Mapping[str, Any], **fields: Any) -> None:
        """Submit a job of one role; JSON is YAML."""
        passed = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        roles = [{"role": "w", "members": 1, "workdir": str(self.folder), "env": passed, **role}]
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps({"name": name, "gang": roles, **fields}), encoding="utf-8")
        self.says("submit", str(file))

    def job(self, name: str) -> dict[str, Any]:
        """The row of a job."""
        rows: list[dict[str, Any]] = json.loads(self.says("jobs", "--all", "--json"))["jobs"]
        return next(row for row in rows if row["job"] == name)

    def script(self, name: str, text: str) -> str:
        """Write a script for jobs."""
        file = self.folder / name
        file.write_text(text, encoding="utf-8")
        return str(file)


@contextmanager
def daemon() -> Iterator[Daemon]:
    """Run one, and stop it at the end."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found = Daemon(Path(folder))
        command = [sys.executable, "-m", "gantree", "up"]
        with subprocess.Popen(command, env=found.environment) as process:
            try:
                wait(lambda: answers(found), 60)
                yield found
            finally:
                process.terminate()


def answers(found: Daemon) -> bool:
    """Whether the daemon answers."""
    try:
        return bool(found.says("nodes"))
    except subprocess.CalledProcessError:
        return False


def wait(is_so: Callable[[], bool], seconds: float) -> bool:
    """Ask until it is so; False if it is not after so many seconds."""
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.3)
    return True


def detection() -> tuple[bool, dict[str, Any]]:
    """The machine, and whether its MIG profiles are those of gantree's table (True without MIG)."""
    machine = nvml.detect().machine
    table = mig_table(machine.gpu) if machine.gpu else None
    ours = (
        {each.name: (each.starts, each.memory_slices) for each in table.profiles} if table else {}
    )
    theirs = driver_profiles()
    mode = NvmlPartitioner().mig_mode(0)
    versions = nvml.versions()
    found = {"gpus": machine.gpus, "gpu": machine.gpu, **versions, "mig_mode": mode, "mig": theirs}
    return not theirs or ours == theirs, found


def driver_profiles() -> dict[str, tuple[tuple[int, ...], int]]:
    """MIG profiles of the first GPU as the driver tells them: where an instance may start, and its memory slices."""
    found = {}
    with nvml.driver():
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
            try:
                info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number)
            except nvml.NO_ANSWER:
                continue
            count = c_uint()
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, None, byref(count))
            places = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
            pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, info.id, places, byref(count))
            at = tuple(sorted(int(place.start) for place in places))
            found[nvml.text(info.name).removeprefix("MIG ")] = (at, int(places[0].size))
    return found


def xid_events() -> tuple[bool, dict[str, Any]]:
    """Whether the daemon can register for the XIDs of all GPUs, and hears of none from healthy ones."""
    try:
        events = XidEvents()
    except Unreachable as error:
        return False, {"registered": 0, "error": str(error)}
    try:
        found = events.wait(0.5)
        return events.gpus == len(nvml.bus_ids()) and not found, {"registered": events.gpus}
    finally:
        events.close()


def mps(found: Daemon, seconds: float) -> tuple[bool, dict[str, Any]]:
    """Two halves of the GPU side by side."""
    script = found.script("half.py", HALF)
    share = {"gpu_share": 0.5, "gpu_memory_GiB": 20, "isolation": "mps", "cpus": 1}
    names = ("half-a", "half-b")
    for name in names:
        role = {"each": share, "run": [sys.executable, script, str(seconds)]}
        found.submit(name, role, communicates=False)
    ended = wait(lambda: all(found.job(name)["phase"] == "succeeded" for name in names), 120)
    said = [json.loads(found.says("logs", name).split("] ", 1)[-1]) for name in names if ended]
    left = wait(lambda: not mps_processes(), 30)
    within = ended and all(19 <= each["GiB"] <= 20 for each in said)
    return within and left, {"jobs": said, "MPS_processes_left": mps_processes()}


def mps_processes() -> list[str]:
    """Control daemons and servers of MPS on this machine."""
    names = subprocess.run(["ps", "-eo", "comm"], capture_output=True, text=True, check=True)
    return [name for name in names.stdout.split() if name.startswith("nvidia-cuda-mps")]


def slow_rank(found: Daemon) -> tuple[bool, dict[str, Any]]:
    """The rank that computes longer is named, and no other."""
    run = [sys.executable, found.script("slow.py", SLOW)]
    found.submit("slow", {"processes": 4, "each": {"gpus": 1, "cpus": 4}, "run": run})
    named: list[dict[str, Any]] = []

    def is_named() -> bool:
        named[:] = found.job("slow")["stragglers"]
        return bool(named)

    wait(is_named, NAMED_WITHIN_S)
    found.says("cancel", "slow")
    told = [{key: row[key] for key in ("rank", "ratio", "steps", "suspect")} for row in named]
    return [row["rank"] for row in named] == [2], {"named": told}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="arithmetic of each half")
    options = parser.parse_args()
    checks: dict[str, Callable[[], tuple[bool, dict[str, Any]]]] = {
        "detection": detection,
        "XID events": xid_events,
    }
    failed = False
    with daemon() as found:
        checks["MPS"] = lambda: mps(found, options.seconds)
        checks["slow rank"] = lambda: slow_rank(found)
        for name, check in checks.items():
            is_right, figures = check()
            failed |= not is_right
            print(json.dumps({"check": name, "as_it_should_be": is_right, **figures}), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
