"""Partitions the GPUs of this machine over NVML, which takes root as a rule.

A MIG instance is a *GPU instance* (memory and compute slices) with one *compute instance* that fills it. Profiles are
found by the name that NVML gives them ("MIG 1g.10gb+me"), never by number.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlMultiInstanceGPU.html
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ctypes import byref, c_uint
from functools import partial
from typing import Any

import pynvml

from gantree.model.gpu_partitions import PartitionError, PartitionFault, by_nvidia_smi
from gantree.model.placements import MigPart
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, text

_FAULT_OF_CODE = {
    pynvml.NVML_ERROR_IN_USE: PartitionFault.IN_USE,
    pynvml.NVML_ERROR_RESET_REQUIRED: PartitionFault.RESET_REQUIRED,
    pynvml.NVML_ERROR_NO_PERMISSION: PartitionFault.NO_PERMISSION,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES: PartitionFault.INSUFFICIENT_RESOURCES,
    pynvml.NVML_ERROR_INVALID_ARGUMENT: PartitionFault.INVALID_ARGUMENT,
    pynvml.NVML_ERROR_NOT_SUPPORTED: PartitionFault.NOT_SUPPORTED,
    pynvml.NVML_ERROR_NOT_FOUND: PartitionFault.NOT_FOUND,
}
_WAY_OUT = {
    PartitionFault.IN_USE: "A process uses it: end the process (nvidia-smi lists it).",
    PartitionFault.RESET_REQUIRED: "The GPU needs a reset: nvidia-smi --gpu-reset -i {gpu}, while it is idle.",
    PartitionFault.NO_PERMISSION: "Only root may do it: start the daemon as root.",
    PartitionFault.NOT_SUPPORTED: "The GPU or its driver cannot do it.",
}


class NvmlPartitioner:
    """Partitions the GPUs of this machine. Each call opens NVML and closes it again, and raises Unreachable without."""

    def made_with(self, part: MigPart) -> tuple[MigPart, ...]:
        """An instance alone."""
        return (part,)

    def by_hand(self, gpu: int) -> str:
        """How to destroy the instances of a GPU."""
        return by_nvidia_smi(gpu)

    def instances(self, gpu: int) -> Mapping[MigPart, str]:
        """UUID of each GPU instance, "" for one that no compute instance fills."""
        with _device(gpu, "list the MIG instances") as device:
            uuids = _uuid_of_instance(device)
            return {
                MigPart(gpu, profile, int(info.placement.start)): uuids.get(int(info.id), "")
                for profile, info, _ in _gpu_instances(device)
            }

    def create(self, gpu: int, profile: str, start: int) -> str:
        """Create an instance, or complete one that is there; its UUID."""
        with _device(gpu, f"create {profile} at slice {start}") as device:
            found = _find(device, profile, start)
            instance = found or _create_gpu_instance(device, gpu, profile, start)
            if not any(_compute_instances(instance)):
                _fill(device, instance, profile, destroy_on_error=found is None)
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            return _uuid_of_instance(device).get(int(info.id), "")

    def destroy(self, gpu: int, profile: str, start: int) -> None:
        """Destroy an instance and the compute instances in it."""
        with _device(gpu, f"destroy {profile} at slice {start}") as device:
            instance = _find(device, profile, start)
            if instance is None:
                return
            for compute in list(_compute_instances(instance)):
                pynvml.nvmlComputeInstanceDestroy(compute)
            pynvml.nvmlGpuInstanceDestroy(instance)

    def mig_mode(self, gpu: int) -> tuple[bool, bool]:
        """MIG mode now and after the next reset; off for a GPU without MIG."""
        with _device(gpu, "read the MIG mode") as device:
            try:
                current, pending = pynvml.nvmlDeviceGetMigMode(device)
            except NO_ANSWER:
                return False, False
            return bool(current), bool(pending)

    def set_mig_mode(self, gpu: int, *, on: bool) -> None:
        """Switch MIG mode; NVML resets the GPU for it where that is needed and the GPU is idle."""
        what = f"switch MIG mode {'on' if on else 'off'}"
        with _device(gpu, what) as device:
            code = pynvml.nvmlDeviceSetMigMode(device, int(on))
            if code != pynvml.NVML_SUCCESS:
                raise pynvml.NVMLError(code)
            current, _ = pynvml.nvmlDeviceGetMigMode(device)
            if bool(current) != on:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_RESET_REQUIRED)


@contextmanager
def _device(gpu: int, what: str) -> Iterator[Any]:
    """The handle of a GPU. What NVML refuses becomes a PartitionError, with the way out."""
    with driver():
        try:
            yield pynvml.nvmlDeviceGetHandleByIndex(gpu)
        except pynvml.NVMLError as error:
            fault = _FAULT_OF_CODE.get(error.value, PartitionFault.UNKNOWN)
            words = str(error) if fault is PartitionFault.UNKNOWN else fault.words
            way_out = _WAY_OUT.get(fault, "").format(gpu=gpu)
            sentence = f"NVML could not {what} on GPU {gpu}: {words}. {way_out}".rstrip()
            raise PartitionError(fault, sentence) from error


def _profiles(device: Any) -> Iterator[Any]:
    """Every GPU instance profile of a GPU."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device, number)
        except NO_ANSWER:
            continue


def _profile_name(info: Any) -> str:
    return text(info.name).removeprefix("MIG ")


def _gpu_instances(device: Any) -> Iterator[tuple[str, Any, Any]]:
    """(profile, info, handle) of each GPU instance."""
    for profile in _profiles(device):
        ask = partial(pynvml.nvmlDeviceGetGpuInstances, device, profile.id)
        for handle in _handles(pynvml.c_nvmlGpuInstance_t, profile.instanceCount, ask):
            yield _profile_name(profile), pynvml.nvmlGpuInstanceGetInfo(handle), handle


def _find(device: Any, profile: str, start: int) -> Any | None:
    for name, info, handle in _gpu_instances(device):
        if name == profile and int(info.placement.start) == start:
            return handle
    return None


def _create_gpu_instance(device: Any, gpu: int, profile: str, start: int) -> Any:
    info = next((one for one in _profiles(device) if _profile_name(one) == profile), None)
    if info is None:
        fault = PartitionFault.INVALID_ARGUMENT
        raise PartitionError(fault, f"GPU {gpu} has no MIG profile {profile}")
    size = _placement_size(device, info, start)
    if size is None:
        fault = PartitionFault.INVALID_ARGUMENT
        raise PartitionError(fault, f"GPU {gpu}: {profile} cannot start at slice {start}")
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(device, info.id, byref(place))


def _placement_size(device: Any, profile: Any, start: int) -> int | None:
    """Memory slices of an instance that starts there; None where none can."""
    count = c_uint()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile.id, None, byref(count))
    array = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(device, profile.id, array, byref(count))
    return next((int(one.size) for one in array[: count.value] if one.start == start), None)


def _fill(device: Any, instance: Any, profile: str, *, destroy_on_error: bool) -> None:
    """Create the compute instance that has all compute slices of a GPU instance."""
    try:
        of_gpu = next(one for one in _profiles(device) if _profile_name(one) == profile)
        whole = next(
            one for one in _compute_profiles(instance) if one.sliceCount == of_gpu.sliceCount
        )
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole.id)
    except (pynvml.NVMLError, StopIteration) as error:
        if destroy_on_error:
            pynvml.nvmlGpuInstanceDestroy(instance)
        if isinstance(error, StopIteration):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED) from error
        raise


def _compute_profiles(instance: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, number, pynvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            )
        except NO_ANSWER:
            continue


def _compute_instances(instance: Any) -> Iterator[Any]:
    for profile in _compute_profiles(instance):
        ask = partial(pynvml.nvmlGpuInstanceGetComputeInstances, instance, profile.id)
        yield from _handles(pynvml.c_nvmlComputeInstance_t, profile.instanceCount, ask)


def _handles(kind: Any, most: int, ask: Callable[[Any, Any], object]) -> list[Any]:
    """Handles that NVML writes into an array, of which there are `most` at most."""
    count, array = c_uint(), (kind * most)()
    ask(array, byref(count))
    return list(array[: count.value])


def _uuid_of_instance(device: Any) -> dict[int, str]:
    """UUID of the MIG device of each GPU instance, by the instance's id."""
    uuids = {}
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(device)):
        try:
            mig = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, number)
        except (*NO_ANSWER, pynvml.NVMLError_NotFound):
            continue
        uuids[int(pynvml.nvmlDeviceGetGpuInstanceId(mig))] = text(pynvml.nvmlDeviceGetUUID(mig))
    return uuids
