"""Compute partitions of AMD GPUs by `amd-smi`: what the GPUs of this machine are divided into, and other modes.

The program takes half a second, and the daemon decides nothing while it starts a gang, so what it printed is kept:
while the driver's own files show the same modes, or else for a moment. It prints a refusal in words and may still exit
with 0, so a change counts as made when the mode is the one wanted. Modes of the memory are never changed: that needs a
reload of the driver.

Processes find their partition by the UUID that ROCm's runtime gives it, which is its own since ROCm 7.0.
"""

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import monotonic

from gantree.model.errors import BadInput, Unreachable
from gantree.model.gpu_partitions import PartitionError, PartitionFault, by_amd_smi
from gantree.model.placements import MigPart
from gantree.text.words import shortened
from gantree.topology.discovery.machines.rocm.partition_modes import (
    WHOLE,
    DividedGpu,
    Partition,
    divided,
    parse,
)
from gantree.topology.hardware.mig import TABLES, MigInstance, MigTable

PROGRAM = "amd-smi"
WITHIN_S = 60.0
KEPT_S = 1.0
"""What was read is good for so long where the driver has no files, unless a mode is changed here."""
DRIVER = Path("/sys/module/amdgpu/drivers/pci:amdgpu")
_PRINTS = (("static", "--partition"), ("list", "-e"))
_FAULTS = (
    (re.compile(r"busy|in use", re.I), PartitionFault.IN_USE, "End the processes that use the GPU."),
    (re.compile(r"elevation|permission|NO_PERM", re.I), PartitionFault.NO_PERMISSION, "Only root may do it."),
    (re.compile(r"not.?supported|INVAL|setting_unavailable|unavailable", re.I), PartitionFault.NOT_SUPPORTED,
     "`amd-smi partition --accelerator` lists the modes that the GPU has."),
)  # fmt: skip
"""What of the program's words means which fault, and the way out."""


class AmdSmiPartitioner:
    """Partitions the GPUs of this machine. table: their modes. GPUs are numbered as amd-smi orders them, whole.

    Each method raises Unreachable where the program is missing, does not answer, or prints what is not known.
    """

    def __init__(self, table: MigTable, program: str = PROGRAM, driver: Path = DRIVER) -> None:
        """driver: the folder of its devices in /sys."""
        self.table, self.program, self._driver = table, program, driver
        self._known: tuple[DividedGpu, ...] = ()
        self._modes: tuple[str, ...] = ()
        """As the driver's files showed them when this was read."""
        self._until_s = 0.0
        """On the monotonic clock: until then what is known is not asked for again."""

    def made_with(self, part: MigPart) -> tuple[MigPart, ...]:
        """All partitions of the GPU."""
        together = self.table.filled([MigInstance(part.profile, part.start)])
        return tuple(MigPart(part.gpu, one.profile, one.start) for one in together)

    def by_hand(self, gpu: int) -> str:
        """The command that has a GPU whole again."""
        return by_amd_smi(self._gpu(gpu).number)

    def instances(self, gpu: int) -> Mapping[MigPart, str]:
        """UUID of each partition; none of a whole GPU. PartitionError where the partitions have none of their own."""
        return self._parts(gpu, self._gpu(gpu))

    def every_instance(self) -> Mapping[MigPart, str]:
        """UUID of each partition of the machine. Unreachable also where they have none of their own."""
        found: dict[MigPart, str] = {}
        try:
            for number, gpu in enumerate(self._gpus()):
                found |= self._parts(number, gpu)
        except PartitionError as error:
            raise Unreachable(str(error)) from error
        return found

    def whole_gpus(self) -> Mapping[int, str]:
        """UUID of each GPU that is whole, by its number among the GPUs."""
        return {
            number: gpu.partitions[0].uuid
            for number, gpu in enumerate(self._gpus())
            if gpu.mode == WHOLE and gpu.partitions[0].uuid
        }

    def create(self, gpu: int, profile: str, start: int) -> str:
        """Divide a whole GPU; the UUID of one partition. One in the mode stays as it is."""
        if all(start not in one.starts for one in self.table.profiles if one.name == profile):
            sentence = f"GPU {gpu} has no partition {profile} at {start}"
            raise PartitionError(PartitionFault.INVALID_ARGUMENT, sentence)
        here = self._gpu(gpu)
        if here.mode not in (WHOLE, profile):
            sentence = f"GPU {gpu} is in mode {here.mode}, and cannot be in {profile}"
            raise PartitionError(PartitionFault.INSUFFICIENT_RESOURCES, sentence)
        if here.mode == WHOLE:
            here = self._set(gpu, here, profile)
        return self._parts(gpu, here)[MigPart(gpu, profile, start)]

    def destroy(self, gpu: int, profile: str, start: int) -> None:
        """Have a GPU whole again that is in this mode."""
        here = self._gpu(gpu)
        if here.mode == profile:
            self._set(gpu, here, WHOLE)

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        """Whether a GPU is divided; nothing is ever pending."""
        is_divided = self._gpu(gpu).mode != WHOLE
        return is_divided, is_divided

    def set_mig_mode(self, gpu: int, *, on: bool) -> None:
        """Have a GPU whole. It is divided by `create`."""
        here = self._gpu(gpu)
        if not on and here.mode != WHOLE:
            self._set(gpu, here, WHOLE)

    def _parts(self, number: int, gpu: DividedGpu) -> dict[MigPart, str]:
        if gpu.mode == WHOLE:
            return {}
        starts = next((one.starts for one in self.table.profiles if one.name == gpu.mode), ())
        if len(starts) != len(gpu.partitions):
            count = len(gpu.partitions)
            sentence = f"GPU {number} has {count} partitions in mode {gpu.mode}, unlike a {self.table.name}"
            raise PartitionError(PartitionFault.NOT_SUPPORTED, sentence)
        uuids = [each.uuid or "" for each in gpu.partitions]
        if len(set(uuids)) < len(uuids) or "" in uuids:
            raise PartitionError(
                PartitionFault.NOT_SUPPORTED,
                f"the partitions of GPU {number} have no UUIDs of their own; ROCm 7.0 or newer gives them some",
            )
        return {MigPart(number, gpu.mode, at): uuid for at, uuid in zip(starts, uuids, strict=True)}

    def _gpu(self, gpu: int) -> DividedGpu:
        gpus = self._gpus()
        if gpu >= len(gpus):
            sentence = f"{self.program} lists {len(gpus)} GPUs, and no GPU {gpu}"
            raise PartitionError(PartitionFault.NOT_FOUND, sentence)
        return gpus[gpu]

    def _gpus(self) -> tuple[DividedGpu, ...]:
        modes = self._modes_by_driver()
        is_same = bool(modes) and modes == self._modes
        if not self._known or not (is_same or (not modes and monotonic() < self._until_s)):
            self._known, self._modes = self._read(), modes
            self._until_s = monotonic() + KEPT_S
        return self._known

    def _modes_by_driver(self) -> tuple[str, ...]:
        """The mode of each GPU as the driver's files have it; () where there are none."""
        try:
            files = sorted(self._driver.glob("*/current_compute_partition"))
            return tuple(f"{file.parent.name} {file.read_text().strip()}" for file in files)
        except OSError:
            return ()

    def _read(self) -> tuple[DividedGpu, ...]:
        try:
            return divided(self._partitions(), self.program)
        except BadInput as error:
            raise Unreachable(f"what amd-smi printed is not known: {error}") from error

    def _partitions(self) -> Iterable[Partition]:
        for words in _PRINTS:
            yield from parse(self._output(*words), f"{self.program} {' '.join(words)}")

    def _set(self, gpu: int, here: DividedGpu, mode: str) -> DividedGpu:
        """The GPU in its new mode. PartitionError with what the program said."""
        told = self._output("set", "--gpu", str(here.number), "--compute-partition", mode.upper())
        self._known = ()
        after = self._gpu(gpu)
        if after.mode == mode:
            return after
        fault, way_out = _fault(told)
        sentence = f"{self.program} could not set GPU {gpu} from {here.mode} to {mode}: {fault.words}. {way_out}"
        raise PartitionError(fault, sentence.rstrip())

    def _output(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self.program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=WITHIN_S,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = f"{self.program} {' '.join(words)} did not answer within {WITHIN_S:g} s"
            raise Unreachable(said) from error
        except OSError as error:
            said = f"{self.program} cannot be started ({error.strerror}); it comes with ROCm"
            raise Unreachable(said) from error
        return done.stdout


def check_amd_smi(program: str = PROGRAM) -> None:
    """Raise Unreachable where amd-smi is missing or lists no GPU."""
    AmdSmiPartitioner(next(each for each in TABLES.values() if each.uniform), program).whole_gpus()


def _fault(told: str) -> tuple[PartitionFault, str]:
    """What a refusal means, and the way out; the program's last words where it is not known."""
    for sign, fault, way_out in _FAULTS:
        if sign.search(told):
            return fault, way_out
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return PartitionFault.UNKNOWN, f"It says: {shortened(lines[-1], 200)}" if lines else ""
