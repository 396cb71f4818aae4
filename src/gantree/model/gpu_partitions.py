"""Who partitions the GPUs of one node, and how that fails, in the words of NVML.

`telemetry.partitions` has what implements it: NVML itself, amd-smi for the compute partitions of AMD, and a simulation.
Who decides what is partitioned is `placement.machine.mig`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

from gantree.model.errors import GantreeError
from gantree.model.placements import MigPart


class PartitionFault(StrEnum):
    """Why a driver refused; the values are the names of NVML's errors, without NVML_ERROR_, in lower case."""

    IN_USE = "in_use"
    RESET_REQUIRED = "reset_required"
    NO_PERMISSION = "no_permission"
    INSUFFICIENT_RESOURCES = "insufficient_resources"
    INVALID_ARGUMENT = "invalid_argument"
    NOT_SUPPORTED = "not_supported"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"

    @property
    def words(self) -> str:
        """For people: "In use"."""
        return self.value.replace("_", " ").capitalize()


LASTING_FAULTS = frozenset(
    {PartitionFault.NO_PERMISSION, PartitionFault.INVALID_ARGUMENT, PartitionFault.NOT_SUPPORTED}
)
"""Another try meets the same."""


def by_nvidia_smi(gpu: int) -> str:
    """The commands that destroy all MIG instances of a GPU."""
    return f"nvidia-smi mig -i {gpu} -dci; nvidia-smi mig -i {gpu} -dgi"


def by_amd_smi(gpu: int) -> str:
    """The command that has a GPU of AMD whole; gpu is its number in `amd-smi list`."""
    return f"amd-smi set --gpu {gpu} --compute-partition SPX"


class PartitionError(GantreeError):
    """The driver refused to change a GPU. fault says why; the sentence names GPU, instance and the way out."""

    def __init__(self, fault: PartitionFault, sentence: str) -> None:
        self.fault = fault
        super().__init__(sentence)


class GpuPartitioner(Protocol):
    """Partitions the GPUs of one node. Each method takes a GPU by index and raises PartitionError.

    Calls may take seconds (MIG mode: up to 10 s), and are made from one thread at a time.
    """

    def made_with(self, part: MigPart) -> tuple[MigPart, ...]:
        """The instances that are made, and destroyed, together with one: all of a GPU whose profile is its mode."""

    def instances(self, gpu: int) -> Mapping[MigPart, str]:
        """UUID of each GPU instance; "" for one that no compute instance fills, which CUDA cannot use."""

    def create(self, gpu: int, profile: str, start: int) -> str:
        """Create an instance with one compute instance that fills it; its UUID. One that is there is completed.

        start is a memory slice.
        """

    def destroy(self, gpu: int, profile: str, start: int) -> None:
        """Destroy an instance and what is in it; IN_USE while a process runs on it. One that is gone is no error."""

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        """MIG mode as it is (current), and as it will be after the next reset (pending)."""

    def set_mig_mode(self, gpu: int, *, on: bool) -> None:
        """Switch MIG mode. Where that must wait for an idle GPU or a reset, it is pending, and an error says so.

        A GPU without MIG is in it while it is divided; switched on, it stays whole until an instance is created.
        """

    def by_hand(self, gpu: int) -> str:
        """The command with which an operator has a GPU whole again."""
