"""XIDs of this machine's GPUs as NVML tells them, at the moment when they happen.

NVML has no XID for a GPU that is gone before it could tell one: then waiting fails, and the GPUs that answer nothing
are those that have fallen off the bus. Whoever listens keeps the driver's devices open, and a GPU that is open is not
reset: so `close` as soon as a fault was found.
"""

from ctypes import c_void_p, cast
from dataclasses import dataclass
from typing import Any

import pynvml

from gantree.model.errors import Unreachable
from gantree.telemetry.nvml.driver import NO_ANSWER, gpu_handles
from gantree.topology.hardware.xids import OFF_THE_BUS

MS_PER_S = 1000


@dataclass(frozen=True, slots=True)
class Xid:
    """An XID of a GPU, by its index."""

    gpu: int
    xid: int


class XidEvents:
    """The GPUs of this machine, listened to until `close`. Unreachable where no NVIDIA driver answers.

    gpus is how many of them tell XIDs: older GPUs, and virtual ones, may not.
    """

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise Unreachable(f"no NVIDIA driver answers here ({error})") from error
        try:
            self._handles = gpu_handles()
            self._set = pynvml.nvmlEventSetCreate()
            self.gpus = sum(self._registered(handle) for handle in self._handles)
        except pynvml.NVMLError as error:
            pynvml.nvmlShutdown()
            raise Unreachable(f"the NVIDIA driver tells no events: {error}") from error

    def wait(self, timeout_s: float) -> list[Xid]:
        """The next XID, or the GPUs that are gone; none after timeout_s. Unreachable where the driver fails."""
        try:
            event = pynvml.nvmlEventSetWait_v2(self._set, int(timeout_s * MS_PER_S))
        except pynvml.NVMLError_Timeout:
            return []
        except pynvml.NVMLError_GpuIsLost:
            return [Xid(gpu, OFF_THE_BUS) for gpu in self._gone()]
        except pynvml.NVMLError as error:
            raise Unreachable(f"the NVIDIA driver tells no events: {error}") from error
        address = _address(event.device)
        found = (gpu for gpu, handle in enumerate(self._handles) if _address(handle) == address)
        return [Xid(gpu, int(event.eventData)) for gpu in found]

    def close(self) -> None:
        """Listen no more, and let go of the devices."""
        pynvml.nvmlEventSetFree(self._set)
        pynvml.nvmlShutdown()

    def _registered(self, handle: Any) -> bool:
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
        except NO_ANSWER:
            return False
        return True

    def _gone(self) -> list[int]:
        return [gpu for gpu, handle in enumerate(self._handles) if _is_gone(handle)]


def _is_gone(handle: Any) -> bool:
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError_GpuIsLost:
        return True
    except pynvml.NVMLError:
        return False
    return False


def _address(handle: Any) -> int | None:
    return cast(handle, c_void_p).value
