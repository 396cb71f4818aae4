"""A soak: a GPU (or CPU) multiplies matrices and copies memory for a while, and compares every result with the first.

A product that differs from the first one of the same matrices, or a copy that differs from its source, is a fault of
the device. Programs of ranks import this; it imports torch, so nothing else may.
"""

import re
import time
from dataclasses import dataclass
from statistics import median

import torch

GPU_SIDE, CPU_SIDE = 8192, 512
"""Rows of the square matrices."""
GPU_COPY_BYTES, CPU_COPY_BYTES = 4 << 30, 32 << 20
FREE_SHARE = 0.2
"""Of the free memory of a GPU, for each of the two buffers at most."""
PRODUCTS, COPIES = 8, 4
"""In one round."""


class Faulty(Exception):
    """The device computed or copied wrongly."""


_BROKEN = re.compile(
    r"uncorrectable|\becc\b|hardware|fallen off|gpu is lost|device is lost|unspecified launch failure|"
    r"illegal (?:memory access|instruction)|misaligned|unknown error",
    re.IGNORECASE,
)
"""In the words of CUDA and HIP for a device that is broken. Others are of memory, drivers and builds of PyTorch."""


def is_device_fault(error: Exception) -> bool:
    """Return whether an error means that the device is broken: by a wrong result, or in the words of the driver."""
    return isinstance(error, Faulty) or bool(_BROKEN.search(str(error)))


@dataclass(frozen=True, slots=True)
class Soaked:
    """The median rates over all rounds."""

    TFLOPS: float
    memory_GBps: float


def soak(device: torch.device, seconds: float) -> Soaked:
    """Work for so many seconds, at least one round. Raises Faulty, and RuntimeError of the driver."""
    side = GPU_SIDE if device.type == "cuda" else CPU_SIDE
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    torch.manual_seed(1)
    left, right = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    first = left @ right
    source = _buffer(device)
    target = torch.empty_like(source)
    rates: list[float] = []
    copies: list[float] = []
    until_s = time.monotonic() + seconds
    while not rates or time.monotonic() < until_s:
        rates.append(_multiply(left, right, first, device))
        copies.append(_copy(source, target, device))
    return Soaked(median(rates) * 2 * side**3 * 1e-12, median(copies) * 2 * source.nbytes * 1e-9)


def _buffer(device: torch.device) -> torch.Tensor:
    size = CPU_COPY_BYTES
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        size = min(GPU_COPY_BYTES, int(free * FREE_SHARE))
    return torch.arange(size // 4, device=device, dtype=torch.int32)


def _multiply(
    left: torch.Tensor, right: torch.Tensor, first: torch.Tensor, device: torch.device
) -> float:
    """Products a second."""
    _finish(device)
    began = time.perf_counter()
    for _ in range(PRODUCTS):
        product = left @ right
    _finish(device)
    took_s = time.perf_counter() - began
    if not torch.equal(product, first):
        raise Faulty("a product of the same matrices came out otherwise than before")
    return PRODUCTS / took_s


def _copy(source: torch.Tensor, target: torch.Tensor, device: torch.device) -> float:
    """Copies a second."""
    target.zero_()
    _finish(device)
    began = time.perf_counter()
    for _ in range(COPIES):
        target.copy_(source)
    _finish(device)
    took_s = time.perf_counter() - began
    if not torch.equal(source, target):
        raise Faulty("a copy in memory differs from its source")
    return COPIES / took_s


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
