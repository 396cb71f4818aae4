"""Partitioning over NVML: which calls are made in which order, and what its errors become.

No GPU is touched: the functions of the binding are replaced by ones that keep instances as the driver does.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from ctypes import c_void_p, cast
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from gantree.model.gpu_partitions import PartitionError, PartitionFault
from gantree.model.placements import MigPart
from gantree.telemetry.partitions import nvml
from gantree.telemetry.partitions.nvml import NvmlPartitioner

PROFILES = {
    0: SimpleNamespace(
        id=19, name=b"MIG 1g.10gb", sliceCount=1, instanceCount=7, size=1, starts=range(7)
    ),
    2: SimpleNamespace(
        id=9, name=b"MIG 3g.40gb", sliceCount=3, instanceCount=2, size=4, starts=(0, 4)
    ),
}
COMPUTE = {0: SimpleNamespace(id=0, sliceCount=1), 2: SimpleNamespace(id=2, sliceCount=3)}


class Driver:
    """What the driver keeps of one GPU. fails names the call that fails next, and its error."""

    def __init__(self) -> None:
        self.current, self.pending = 1, 1
        self.instances: dict[int, tuple[int, int, int]] = {}
        self.computes: dict[int, list[int]] = {}
        self.calls: list[str] = []
        self.fails: dict[str, int] = {}

    def functions(self) -> Iterator[tuple[str, Any]]:
        """Our stand-ins for the functions of the binding."""
        for name in dir(self):
            if name.startswith("nvml"):
                yield name, self._noted(name, getattr(self, name))

    def _noted(self, name: str, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            if name in self.fails:
                raise pynvml.NVMLError(self.fails.pop(name))
            return function(*arguments, **named)

        return call

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"gpu {index}"

    def nvmlDeviceGetMigMode(self, gpu: str) -> list[int]:
        return [self.current, self.pending]

    def nvmlDeviceSetMigMode(self, gpu: str, mode: int) -> int:
        self.pending = mode
        if "activation" in self.fails:
            return int(self.fails.pop("activation"))
        self.current = mode
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetGpuInstanceProfileInfo(self, gpu: str, number: int) -> Any:
        if number not in PROFILES:
            raise pynvml.NVMLError_NotSupported
        return PROFILES[number]

    def nvmlDeviceGetGpuInstancePossiblePlacements(
        self, gpu: str, profile: int, array: Any, count: Any
    ) -> None:
        one = next(each for each in PROFILES.values() if each.id == profile)
        count._obj.value = len(one.starts)
        for at, start in enumerate(one.starts if array is not None else ()):
            array[at].start, array[at].size = start, one.size

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, gpu: str, profile: int, place: Any) -> Any:
        number = len(self.instances) + 1
        self.instances[number] = (profile, place._obj.start, place._obj.size)
        self.computes[number] = []
        return handle_of(number)

    def nvmlGpuInstanceGetInfo(self, instance: Any) -> Any:
        number = number_of(instance)
        profile, start, size = self.instances[number]
        place = SimpleNamespace(start=start, size=size)
        return SimpleNamespace(id=number, profileId=profile, placement=place)

    def nvmlDeviceGetGpuInstances(self, gpu: str, profile: int, array: Any, count: Any) -> None:
        found = [number for number, one in self.instances.items() if one[0] == profile]
        count._obj.value = len(found)
        for at, number in enumerate(found):
            array[at] = handle_of(number)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(
        self, instance: Any, number: int, engine: int
    ) -> Any:
        if number not in COMPUTE:
            raise pynvml.NVMLError_NotSupported
        return SimpleNamespace(**vars(COMPUTE[number]), instanceCount=7)

    def nvmlGpuInstanceCreateComputeInstance(self, instance: Any, profile: int) -> Any:
        self.computes[number_of(instance)].append(profile)

    def nvmlGpuInstanceGetComputeInstances(
        self, instance: Any, profile: int, array: Any, count: Any
    ) -> None:
        there = [one for one in self.computes[number_of(instance)] if one == profile]
        count._obj.value = len(there)
        for at in range(len(there)):
            array[at] = cast(c_void_p(number_of(instance)), pynvml.c_nvmlComputeInstance_t)

    def nvmlComputeInstanceDestroy(self, compute: Any) -> None:
        self.computes[number_of(compute)].pop()

    def nvmlGpuInstanceDestroy(self, instance: Any) -> None:
        number = number_of(instance)
        assert not self.computes[number], "compute instances must go first"
        del self.instances[number]

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: str) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: str, number: int) -> int:
        filled = [instance for instance, computes in self.computes.items() if computes]
        if number >= len(filled):
            raise pynvml.NVMLError_NotFound
        return filled[number]

    def nvmlDeviceGetGpuInstanceId(self, device: int) -> int:
        return device

    def nvmlDeviceGetUUID(self, device: int) -> str:
        return f"MIG-{device}"


def handle_of(number: int) -> Any:
    return cast(c_void_p(number), pynvml.c_nvmlGpuInstance_t)


def number_of(handle: Any) -> int:
    number = cast(handle, c_void_p).value
    assert number is not None
    return number


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver()
    monkeypatch.setattr(nvml, "driver", nullcontext)
    for name, function in driver.functions():
        monkeypatch.setattr(pynvml, name, function)
    return driver


def test_an_instance_is_created_with_a_compute_instance_that_fills_it(driver: Driver) -> None:
    gpus = NvmlPartitioner()
    assert gpus.create(0, "3g.40gb", 4) == "MIG-1"
    assert driver.instances == {1: (9, 4, 4)}
    assert driver.computes == {1: [2]}
    assert gpus.instances(0) == {MigPart(0, "3g.40gb", 4): "MIG-1"}


def test_creating_twice_creates_once(driver: Driver) -> None:
    gpus = NvmlPartitioner()
    assert gpus.create(0, "1g.10gb", 6) == gpus.create(0, "1g.10gb", 6)
    assert driver.calls.count("nvmlDeviceCreateGpuInstanceWithPlacement") == 1


def test_an_instance_that_was_left_without_a_compute_instance_is_completed(driver: Driver) -> None:
    driver.instances, driver.computes = {1: (19, 6, 1)}, {1: []}
    gpus = NvmlPartitioner()
    assert gpus.instances(0) == {MigPart(0, "1g.10gb", 6): ""}
    assert gpus.create(0, "1g.10gb", 6) == "MIG-1"
    assert driver.computes == {1: [0]}


def test_a_gpu_instance_whose_compute_instance_cannot_be_made_goes_again(driver: Driver) -> None:
    driver.fails["nvmlGpuInstanceCreateComputeInstance"] = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    with pytest.raises(PartitionError, match="Insufficient"):
        NvmlPartitioner().create(0, "1g.10gb", 6)
    assert driver.instances == {}


def test_an_instance_is_destroyed_with_what_is_in_it(driver: Driver) -> None:
    gpus = NvmlPartitioner()
    gpus.create(0, "3g.40gb", 0)
    gpus.destroy(0, "3g.40gb", 0)
    gpus.destroy(0, "3g.40gb", 0)
    assert driver.instances == {}


@pytest.mark.parametrize(
    ("profile", "start", "words"),
    [("9g.90gb", 0, "no MIG profile 9g.90gb"), ("3g.40gb", 2, "cannot start at slice 2")],
)
def test_what_the_gpu_does_not_have_is_an_invalid_argument(
    driver: Driver, profile: str, start: int, words: str
) -> None:
    with pytest.raises(PartitionError, match=words) as caught:
        NvmlPartitioner().create(0, profile, start)
    assert caught.value.fault is PartitionFault.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("code", "fault", "words"),
    [
        (pynvml.NVML_ERROR_IN_USE, PartitionFault.IN_USE, "end the process"),
        (pynvml.NVML_ERROR_NO_PERMISSION, PartitionFault.NO_PERMISSION, "as root"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, PartitionFault.UNKNOWN, "GPU is lost"),
    ],
)
def test_errors_of_nvml_name_the_way_out(
    driver: Driver, code: int, fault: PartitionFault, words: str
) -> None:
    gpus = NvmlPartitioner()
    gpus.create(0, "1g.10gb", 6)
    driver.fails["nvmlGpuInstanceDestroy"] = code
    with pytest.raises(PartitionError, match=words) as caught:
        gpus.destroy(0, "1g.10gb", 6)
    assert caught.value.fault is fault


def test_mig_mode_that_waits_for_a_reset_is_pending_and_says_so(driver: Driver) -> None:
    gpus = NvmlPartitioner()
    driver.fails["activation"] = pynvml.NVML_ERROR_RESET_REQUIRED
    with pytest.raises(PartitionError, match="nvidia-smi --gpu-reset -i 3"):
        gpus.set_mig_mode(3, on=False)
    assert gpus.mig_mode(3) == (True, False)
    gpus.set_mig_mode(3, on=False)
    assert gpus.mig_mode(3) == (False, False)


def test_a_gpu_without_mig_is_not_in_mig_mode(driver: Driver) -> None:
    driver.fails["nvmlDeviceGetMigMode"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert NvmlPartitioner().mig_mode(0) == (False, False)
