"""A simulation of NVML's partitioning, for virtual nodes: the same calls, the same refusals.

The state of a node's GPUs is one file, which outlives the daemon as hardware does:

    {"gpus": {"0": {"mode": true, "pending": true, "needs_reset": false,
                    "instances": [{"profile": "1g.10gb", "start": 6, "uuid": "MIG-..."}]}},
     "created": 7,
     "fail": [{"call": "create", "fault": "insufficient_resources", "times": 1}]}

A GPU that is not in it is out of MIG mode. `fail` makes the next calls of a name fail. Which instances fit beside which
is in the tables of `topology.hardware.mig`; where a profile is a mode of the whole GPU, its instances are made and
destroyed together. An instance is in use while a process has its UUID in CUDA_VISIBLE_DEVICES or
ROCR_VISIBLE_DEVICES. Every call reads the file and writes it under a lock, since several may use the hardware.
"""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from gantree.model.errors import BadInput
from gantree.model.gpu_partitions import PartitionError, PartitionFault, by_amd_smi, by_nvidia_smi
from gantree.model.placements import MigPart
from gantree.topology.hardware.mig import MigInstance, MigTable

_VISIBLE = (b"CUDA_VISIBLE_DEVICES=", b"ROCR_VISIBLE_DEVICES=")
_WAY_OUT = {
    PartitionFault.IN_USE: "A process uses it: end the process.",
    PartitionFault.RESET_REQUIRED: "The GPU needs a reset.",
    PartitionFault.NO_PERMISSION: "Only root may do it.",
    PartitionFault.INSUFFICIENT_RESOURCES: "Other instances leave no room.",
}


class SimulatedPartitioner:
    """Partitions the simulated GPUs of one node. table: their MIG table. Raises OSError for a file it cannot use."""

    def __init__(self, file: Path, node: str, table: MigTable) -> None:
        self._file, self._node, self._table = file, node, table

    def made_with(self, part: MigPart) -> tuple[MigPart, ...]:
        """An instance alone, or all of a GPU whose profile is its mode."""
        together = self._table.filled([MigInstance(part.profile, part.start)])
        return tuple(MigPart(part.gpu, one.profile, one.start) for one in together)

    def by_hand(self, gpu: int) -> str:
        """How to have a GPU whole again, on real hardware."""
        return by_amd_smi(gpu) if self._table.uniform else by_nvidia_smi(gpu)

    def instances(self, gpu: int) -> Mapping[MigPart, str]:
        """UUID of each instance of a GPU."""
        there = _gpu_of(_read(self._file), gpu)["instances"]
        return {MigPart(gpu, one["profile"], one["start"]): one["uuid"] for one in there}

    def create(self, gpu: int, profile: str, start: int) -> str:
        """Create an instance; its UUID. One that is there stays as it is."""
        with self._changing("create", gpu, f"create {profile} at slice {start}") as state:
            here = _gpu_of(state, gpu)
            found = _find(here, profile, start)
            if found is not None:
                return str(found["uuid"])
            self._check_room(here, profile, start)
            for one in self._table.filled([MigInstance(profile, start)]):
                state["created"] = state.get("created", 0) + 1
                uuid = self._uuid(f"{self._node}/{gpu}/{state['created']}")
                row = {"profile": one.profile, "start": one.start, "uuid": uuid}
                here["instances"].append(row)
            return str(_find(here, profile, start)["uuid"])  # type: ignore[index]  # just made

    def destroy(self, gpu: int, profile: str, start: int) -> None:
        """Destroy an instance that no process uses."""
        with self._changing("destroy", gpu, f"destroy {profile} at slice {start}") as state:
            here = _gpu_of(state, gpu)
            found = _find(here, profile, start)
            if found is None:
                return
            together = here["instances"] if self._table.uniform else [found]
            if any(_is_visible(one["uuid"]) for one in together):
                raise _Refusal(PartitionFault.IN_USE)
            here["instances"] = [one for one in here["instances"] if one not in together]

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        """MIG mode now and after the next reset."""
        here = _gpu_of(_read(self._file), gpu)
        return here["mode"], here["pending"]

    def set_mig_mode(self, gpu: int, *, on: bool) -> None:
        """Switch MIG mode; pending while instances are there or the GPU needs a reset."""
        what = f"switch MIG mode {'on' if on else 'off'}"
        with self._changing("set_mig_mode", gpu, what) as state:
            here = _gpu_of(state, gpu)
            here["pending"] = on
            if here["needs_reset"] and here["mode"] != on:
                raise _Refusal(PartitionFault.RESET_REQUIRED)
            if here["instances"] and not on:
                raise _Refusal(PartitionFault.IN_USE)
            here["mode"] = on

    def reset(self, gpu: int) -> None:
        """Reset an idle GPU, as nvidia-smi --gpu-reset does: its instances are gone, the pending mode is on."""
        with self._changing("reset", gpu, "reset") as state:
            here = _gpu_of(state, gpu)
            if any(_is_visible(one["uuid"]) for one in here["instances"]):
                raise _Refusal(PartitionFault.IN_USE)
            here |= {"mode": here["pending"], "needs_reset": False, "instances": []}

    def require_reset(self, gpu: int) -> None:
        """From now on MIG mode changes with a reset alone, as on Ampere behind a hypervisor."""
        with self._changing("require_reset", gpu, "mark") as state:
            _gpu_of(state, gpu)["needs_reset"] = True

    def fail_next(self, call: str, fault: PartitionFault, times: int = 1) -> None:
        """Make the next calls of a name ("create", "destroy", "set_mig_mode") fail."""
        with self._changing("fail_next", 0, "set faults") as state:
            state.setdefault("fail", []).append({"call": call, "fault": fault, "times": times})

    def _uuid(self, name: str) -> str:
        """As the runtimes of NVIDIA and AMD write it."""
        made = uuid5(NAMESPACE_OID, name)
        return f"GPU-{made.hex[:16]}" if self._table.uniform else f"MIG-{made}"

    def _check_room(self, here: dict[str, Any], profile: str, start: int) -> None:
        if not here["mode"]:
            raise _Refusal(PartitionFault.NOT_SUPPORTED)
        there = [MigInstance(one["profile"], one["start"]) for one in here["instances"]]
        try:
            self._table.slices(MigInstance(profile, start))
        except BadInput as error:
            raise PartitionError(PartitionFault.INVALID_ARGUMENT, str(error)) from error
        if start not in self._table.fits(there, profile):
            raise _Refusal(PartitionFault.INSUFFICIENT_RESOURCES)

    @contextmanager
    def _changing(self, call: str, gpu: int, what: str) -> Iterator[dict[str, Any]]:
        """The state, which is written whatever happens; a refusal is put into words."""
        with _locked(self._file):
            state = _read(self._file)
            try:
                _fail_if_told(state, call)
                yield state
            except _Refusal as refusal:
                way_out = _WAY_OUT.get(refusal.fault, "")
                words = refusal.fault.words
                sentence = f"NVML (simulated) could not {what} on GPU {gpu}: {words}. {way_out}"
                raise PartitionError(refusal.fault, sentence.rstrip()) from refusal
            finally:
                _write(self._file, state)


class _Refusal(Exception):
    def __init__(self, fault: PartitionFault) -> None:
        self.fault = fault
        super().__init__(fault)


def _fail_if_told(state: dict[str, Any], call: str) -> None:
    for told in state.get("fail", []):
        if told["call"] == call and told["times"] > 0:
            told["times"] -= 1
            raise _Refusal(PartitionFault(told["fault"]))


def _gpu_of(state: dict[str, Any], gpu: int) -> dict[str, Any]:
    fresh = {"mode": False, "pending": False, "needs_reset": False, "instances": []}
    found: dict[str, Any] = state.setdefault("gpus", {}).setdefault(str(gpu), fresh)
    return found


def _find(here: dict[str, Any], profile: str, start: int) -> dict[str, Any] | None:
    instances: list[dict[str, Any]] = here["instances"]
    for one in instances:
        if (one["profile"], one["start"]) == (profile, start):
            return one
    return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(file: Path) -> dict[str, Any]:
    try:
        state: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return state


def _write(file: Path, state: dict[str, Any]) -> None:
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(state))
    draft.replace(file)


def _is_visible(uuid: str) -> bool:
    """Whether a live process has an instance among the devices that its runtime shows it."""
    mark = uuid.encode()
    for process in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = process.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(each.startswith(_VISIBLE) and mark in each for each in variables):
            return True
    return False
