"""The length of time slices of GPUs that gangs share in turns, on nodes whose cluster file gives one.

It is a setting of the driver for a whole GPU, by `nvidia-smi compute-policy`, which takes root and lasts until the
driver is loaded anew. So it is written for each gang that starts, and set back to the driver's default once nobody
shares the GPU any more. GPUs that are to be set back are on record before they are set.
"""

import os
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

from gantree.executors.local.launch.environment import inherited
from gantree.executors.local.launch.visible_gpus import GpuIds
from gantree.executors.local.sharing.shared_gpus import SharedGpu, shared_gpus
from gantree.executors.local.shim.shim import read_json, write_json
from gantree.model.cluster import TIME_SLICES
from gantree.model.errors import Unreachable, Unsupported
from gantree.model.jobs import ISOLATIONS
from gantree.model.orders import StartGang

RECORD = "time-slices.json"
WITHIN_S = 60.0
DEFAULT = 0
"""As the driver numbers them: the default, and then those of TIME_SLICES."""
TIME_SLICING = ISOLATIONS[0]
TimeSliceOf = Callable[[str], tuple[str, str] | None]
"""nvidia-smi of a node, and the time slice (of TIME_SLICES) that its shared GPUs are to have; None: as they are."""


def no_time_slice(node: str) -> tuple[str, str] | None:
    """Time slices of no node are changed."""
    return None


class TimeSlices:
    """Sets time slices, with a record below state_dir. One thread at a time may call it.

    Raises OSError for a record that cannot be read.
    """

    def __init__(self, state_dir: Path, slice_of: TimeSliceOf, gpu_ids: GpuIds) -> None:
        self._slice_of, self._gpu_ids, self._record = slice_of, gpu_ids, str(state_dir / RECORD)
        self._set: dict[tuple[str, int], tuple[str, str]] = {
            (node, gpu): (program, device)
            for node, gpu, program, device in read_json(self._record) or []
        }

    @property
    def has_any(self) -> bool:
        """Whether any GPU is on record."""
        return bool(self._set)

    def concerns(self, order: StartGang) -> bool:
        """Whether the time slice of any GPU of an order is to be set."""
        return any(self._slice_of(node) for node, _, _ in shared_gpus(order, TIME_SLICING))

    def provide(self, order: StartGang) -> None:
        """Set the time slice of the GPUs that an order shares in turns.

        Raises Unsupported without nvidia-smi, Unreachable where it refuses, and OSError.
        """
        for node, gpu, _ in sorted(shared_gpus(order, TIME_SLICING)):
            wanted = self._slice_of(node)
            if wanted is not None:
                program, word = wanted
                device = self._gpu_ids(node, (gpu,))
                self._write({**self._set, (node, gpu): (program, device)})
                _set(program, device, TIME_SLICES.index(word) + 1)

    def end_unused(self, shared: Collection[SharedGpu]) -> None:
        """Set GPUs back that nobody shares in turns any more. Raises Unsupported, Unreachable and OSError."""
        for (node, gpu), (program, device) in sorted(self._set.items()):
            if (node, gpu, TIME_SLICING) not in shared:
                _set(program, device, DEFAULT)
                self._write({key: each for key, each in self._set.items() if key != (node, gpu)})

    def _write(self, told: dict[tuple[str, int], tuple[str, str]]) -> None:
        if told != self._set:
            write_json(self._record, [(*gpu, *how) for gpu, how in told.items()])
            self._set = told


def _set(program: str, device: str, number: int) -> None:
    words = [program, "compute-policy", "-i", device, "--set-timeslice", str(number)]
    try:
        done = subprocess.run(
            words, env=inherited(os.environ), stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=WITHIN_S, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise Unsupported(f"a time slice needs {program}, which is not installed here") from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"{program} did not set a time slice within {WITHIN_S:g} s") from error
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())
        raise Unreachable(
            f"the time slice of GPU {device} cannot be set: {said or 'no reason given'}"
        )
