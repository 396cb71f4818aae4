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
Instances of MIG have figures of their own (labels GPU_I_PROFILE and GPU_I_ID). An id names no slice, so instances of
one profile on a GPU are known where all of them compute, or none does.
https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/feature-overview.html (profiling metrics)
"""

from collections.abc import Mapping

UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
TENSOR, MEMORY = "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
FP64, FP32, FP16 = (f"DCGM_FI_PROF_PIPE_FP{bits}_ACTIVE" for bits in (64, 32, 16))
UNITS = (TENSOR, MEMORY, FP64, FP32, FP16)
ACTIVITY_FIGURES = frozenset({UTILISATION, *UNITS})
INSTANCE_LABEL, PROFILE_LABEL = "GPU_I_ID", "GPU_I_PROFILE"
APART = "#"
"""Between profile and id of an instance."""
COMPUTES = 0.01
"""The least share of the time in which a unit of a GPU that computes is active."""
IDLE_PERCENT = 1.0


def computes(figures: Mapping[str, float]) -> bool | None:
    """Whether a GPU computes; None if its figures do not tell. Shares are from 0 to 1, utilisation in percent."""
    if TENSOR in figures and MEMORY in figures:
        return any(figures.get(name, 0.0) >= COMPUTES for name in UNITS)
    utilisation = figures.get(UTILISATION)
    return None if utilisation is None else utilisation >= IDLE_PERCENT


def share_computing(figures: Mapping[str, float]) -> float | None:
    """Share of the time in which a GPU computes, from 0 to 1: its utilisation, else its busiest unit; None: untold."""
    utilisation = figures.get(UTILISATION)
    if utilisation is not None:
        return min(1.0, utilisation / 100)
    return max((min(1.0, figures[name]) for name in UNITS if name in figures), default=None)


def instance_of(labels: Mapping[str, str]) -> str | None:
    """What stands behind the name of a figure of an instance of MIG: its profile and id; None for one of a GPU."""
    number = labels.get(INSTANCE_LABEL)
    return f"{labels.get(PROFILE_LABEL, '')}{APART}{number}" if number else None


def profiles_compute(figures: Mapping[str, float]) -> Mapping[str, bool]:
    """By profile whether the instances of a GPU compute, where all of them do or none does."""
    of_instance: dict[tuple[str, str], dict[str, float]] = {}
    for sign, value in figures.items():
        name, slash, instance = sign.partition("/")
        profile, _, number = instance.partition(APART)
        if slash and name in UNITS and profile:
            of_instance.setdefault((profile, number), {})[name] = value
    found: dict[str, set[bool | None]] = {}
    for (profile, _), of in of_instance.items():
        found.setdefault(profile, set()).add(computes(of))
    return {
        profile: True in does
        for profile, does in found.items()
        if len(does) == 1 and None not in does
    }
