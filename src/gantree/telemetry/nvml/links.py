"""What this machine's GPUs say of their links, through NVML: figures of DCGM's exporter by name (`dcgm.links`).

What a GPU or a driver does not tell is left out.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pynvml

from gantree.telemetry.dcgm.links import (
    GEN,
    MAX_GEN,
    MAX_WIDTH,
    NVLINK_ERRORS,
    REPLAYS,
    STATES,
    UTIL,
    WIDTH,
)
from gantree.telemetry.nvml.driver import NO_ANSWER, driver, gpu_handles

_NOT_TOLD = (*NO_ANSWER, pynvml.NVMLError_NoPermission, pynvml.NVMLError_InvalidArgument)
_ASK: dict[str, Callable[[Any], Any]] = {
    WIDTH: pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    MAX_WIDTH: pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    GEN: pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
    MAX_GEN: pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    REPLAYS: pynvml.nvmlDeviceGetPcieReplayCounter,
    UTIL: lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
}
_ERRORS = (
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_DATA,
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
)
"""NVML's counters in the order of `NVLINK_ERRORS`."""


def links_here() -> dict[int, dict[str, float]]:
    """The figures of each GPU by index. Unreachable where no NVIDIA driver answers."""
    with driver():
        return {index: dict(_figures(gpu)) for index, gpu in enumerate(gpu_handles())}


def _figures(gpu: Any) -> Iterator[tuple[str, float]]:
    for name, ask in _ASK.items():
        value = _value_or_none(ask, gpu)
        if value is not None:
            yield name, float(value)
    up = dict(_nvlinks(gpu))
    for link, state in up.items():
        yield f"{STATES[0]}/{link}", state
    for name, counter in zip(NVLINK_ERRORS, _ERRORS, strict=True):
        errors = [_errors(gpu, link, counter) for link, state in up.items() if state]
        known = [each for each in errors if each is not None]
        if known:
            yield name, sum(known)


def _nvlinks(gpu: Any) -> Iterator[tuple[int, float]]:
    """(link, 1 if it is up) of each NVLink that the GPU has."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _value_or_none(lambda of, link=link: pynvml.nvmlDeviceGetNvLinkState(of, link), gpu)
        if state is None:
            return
        yield link, float(state == pynvml.NVML_FEATURE_ENABLED)


def _errors(gpu: Any, link: int, counter: int) -> float | None:
    value = _value_or_none(
        lambda of: pynvml.nvmlDeviceGetNvLinkErrorCounter(of, link, counter), gpu
    )
    return None if value is None else float(value)


def _value_or_none(ask: Callable[..., Any], gpu: Any) -> Any:
    try:
        return ask(gpu)
    except _NOT_TOLD:
        return None
