"""What the counters of a GPU say of work, of waiting and of nothing: the figures behind `gantree.telemetry.activity`.

    python benchmarks/gpu_activity.py [--seconds 4]

Needs a GPU from Hopper on, PyTorch and CuPy. Each state runs for some seconds on the first GPU while NVML's performance
counters (GPM) are read at the beginning and at the end. "hang" is a kernel of 24 blocks of 544 threads that poll a
flag, as NCCL's kernels do while they wait for a rank. Prints one line of JSON for each state. No setting of the GPU is
changed.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable

import cupy
import pynvml
import torch

from gantree.telemetry.activity import computes
from gantree.telemetry.nvml.activity import METRIC_OF_FIGURE

METRICS = {**METRIC_OF_FIGURE, "SM": pynvml.NVML_GPM_METRIC_SM_UTIL}
SPIN = r"""
extern "C" __global__ void spin(long long cycles, volatile int* flag) {
    long long begun = clock64();
    while (clock64() - begun < cycles) if (*flag) break;
}
"""
CYCLES = 170_000_000


def read(gpu: object, seconds: float) -> dict[str, float]:
    """The averages of a span of time: shares from 0 to 1, utilisation in percent, watts."""
    samples = [pynvml.nvmlGpmSampleAlloc() for _ in range(2)]
    pynvml.nvmlGpmSampleGet(gpu, samples[0])
    utilisation, watts = [], []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.25)
        utilisation.append(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu)
        watts.append(pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000)
    pynvml.nvmlGpmSampleGet(gpu, samples[1])
    asked = pynvml.c_nvmlGpmMetricsGet_t()
    asked.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    asked.numMetrics = len(METRICS)
    asked.sample1, asked.sample2 = samples
    for place, metric in enumerate(METRICS.values()):
        asked.metrics[place].metricId = metric
    pynvml.nvmlGpmMetricsGet(asked)
    found = {name: asked.metrics[place].value / 100 for place, name in enumerate(METRICS)}
    for sample in samples:
        pynvml.nvmlGpmSampleFree(sample)
    found["DCGM_FI_DEV_GPU_UTIL"] = sum(utilisation) / len(utilisation)
    return {**found, "watts": round(sum(watts) / len(watts))}


def during(work: Callable[[], object], gpu: object, seconds: float) -> dict[str, float]:
    """What counters say while work is done again and again."""
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.is_set():
            work()
            torch.cuda.synchronize()

    worker = threading.Thread(target=go_on)
    worker.start()
    time.sleep(1.0)
    found = read(gpu, seconds)
    is_over.set()
    worker.join()
    return found


def states() -> dict[str, Callable[[], object]]:
    """What the GPU is made to do, by name."""
    bf16 = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    fp32 = torch.randn(4096, 4096, device="cuda")
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).cuda().bfloat16()
    few = torch.randn(8, 1024, device="cuda", dtype=torch.bfloat16)
    spin, flag = cupy.RawKernel(SPIN, "spin"), cupy.zeros(1, dtype=cupy.int32)

    def hang() -> None:
        spin((24,), (544,), (CYCLES, flag))
        cupy.cuda.Stream.null.synchronize()

    return {
        "matrix product, bf16": lambda: [bf16 @ bf16 for _ in range(20)],
        "matrix product, fp32": lambda: [fp32 @ fp32 for _ in range(10)],
        "copy within memory": lambda: [target.copy_(source) for _ in range(50)],
        "hang": hang,
        "one block spins": lambda: torch.cuda._sleep(CYCLES),
        "small layers, batch 8": lambda: [layers(few) for _ in range(50)],
        "nothing": lambda: time.sleep(0.1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="of each state")
    options = parser.parse_args()
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    for name, work in states().items():
        found = during(work, gpu, options.seconds)
        told = {figure: round(value, 5) for figure, value in found.items()}
        print(json.dumps({"state": name, "computes": computes(found), **told}), flush=True)


if __name__ == "__main__":
    main()
