"""Whether a GPU computes, from its counters: of DCGM's exporter, or of NVML on this machine.

DCGM_FI_DEV_GPU_UTIL is 100 % whenever any kernel runs, also one that waits: in a collective whose other ranks never
come it says so for hours. So where the profiling counters are exported (DCGM_FI_PROF_*; tensor and memory activity are
among the exporter's defaults) a GPU computes if its tensor cores, its other arithmetic units or its memory are active
for a share COMPUTES of the time. A GPU without them computes if its utilisation is IDLE_PERCENT or more; a hang is not
seen then.

Measured on an H100 (`benchmarks/gpu_activity.py`), in percent of the time:

    state                                   utilisation    SM   tensor   FP32   memory   watts
    a matrix product in bf16                         99    95       93      0       23     699
    a matrix product in fp32                         99    95        0     77        4     695
    copies within its memory                         99    98        0      0       89     398
    24 blocks that poll a flag, as NCCL does        100    18        0      0        0     138
    one block that spins                            100     1        0      0        0     127
    small layers, batch 8, bound by the host         16     1        0      0        0     130
    nothing, with a CUDA context                      0     0        0      0        0     121

How active the SMs are does not tell a hang from work, and how much memory is used says nothing at all.
Instances of MIG (label GPU_I_ID) have figures of their own; they are told apart and not read.
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html (profiling metrics)
"""

from collections.abc import Mapping

UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
TENSOR, MEMORY = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
FP64, FP32, FP16 = (f"DCGM_FI_PROF_PIPE_FP{bits}_ACTIVE" for bits in (64, 32, 16))
UNITS = (TENSOR, MEMORY, FP64, FP32, FP16)
ACTIVITY_FIGURES = frozenset({UTILISATION, *UNITS})
INSTANCE_LABEL = "GPU_I_ID"
COMPUTES = 0.01
"""The least share of the time in which a unit of a GPU that computes is active."""
IDLE_PERCENT = 1.0


def computes(figures: Mapping[str, float]) -> bool | None:
    """Whether a GPU computes; None if its figures do not tell. Shares are from 0 to 1, utilisation in percent."""
    if TENSOR in figures and MEMORY in figures:
        return any(figures.get(name, 0.0) >= COMPUTES for name in UNITS)
    utilisation = figures.get(UTILISATION)
    return None if utilisation is None else utilisation >= IDLE_PERCENT
