"""The speed of GPU models for a job before it is placed: the roofline of one step.

    step >= max(arithmetic / (peak x mfu), bytes moved / memory bandwidth)        (Williams et al. 2009, Roofline)

Arithmetic is that of `traffic.flops_of`. Bytes, per GPU: values are read forward, and twice backward, each micro-batch;
activations are written once and read once; the optimizer reads and writes its state and reads the gradients. It is a
lower bound for each model, and what two of them have in common. Traffic between GPUs is left out: it depends on the
place, and the search prices it there.

MEMORY_GBps are vendors' data sheets (SXM or OAM boards where there are several), in GB/s of 1e9 bytes; of an MI250X one
of its two dies. B200 and B300: what DGX systems state for eight (64 TB/s). A model that is not here has no known rate.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gantree.model.jobs import Job
from gantree.topology.hardware.constants import DEFAULT_MFU, traits
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.traffic.footprint import TYPICAL, Footprint, footprint_of
from gantree.topology.traffic.traffic import degrees_of, flops_of, micro_batches

MEMORY_GBps: Mapping[str, float] = MappingProxyType(
    {"P4-8GB": 192, "P40-24GB": 346, "P100-16GB": 732, "V100-16GB": 900, "V100-32GB": 900, "T4-16GB": 320,
     "RTX2080-8GB": 448, "RTX2080Ti-11GB": 616, "RTX8000-48GB": 672, "A2-16GB": 200, "A10-24GB": 600, "A10G-24GB": 600,
     "A16-16GB": 200, "A30-24GB": 933, "A40-48GB": 696, "A4000-16GB": 448, "A5000-24GB": 768, "A6000-48GB": 768,
     "RTX3090-24GB": 936, "A100-40GB": 1555, "A100-80GB": 2039, "A800-40GB": 1555, "A800-80GB": 2039, "L4-24GB": 300,
     "L40-48GB": 864, "L40S-48GB": 864, "RTX4090-24GB": 1008, "RTX6000Ada-48GB": 960, "H20-96GB": 4000,
     "H100-80GB": 3350, "H100-94GB": 3900, "H800-80GB": 3350, "H200-141GB": 4800, "GH200-96GB": 4000,
     "GH200-144GB": 4900, "B200-180GB": 8000, "B300-288GB": 8000, "GB200-186GB": 8000, "GB300-288GB": 8000,
     "RTX5090-32GB": 1792, "MI210-64GB": 1638, "MI250X-64GB": 1638, "MI300A-128GB": 5300, "MI300X-192GB": 5300,
     "MI325X-256GB": 6000, "MI350X-288GB": 8000, "MI355X-288GB": 8000, "TPUV5E-16GB": 819, "TPUV5P-95GB": 2765,
     "TPUV6E-32GB": 1640, "TPU7X-192GB": 7380}
)  # fmt: skip


def least_step_s(job: Job, gpu: str | None) -> float | None:
    """Seconds that a step takes at least on GPUs of a model; None where the job or the catalogue does not tell."""
    peak = traits(gpu).peak_TFLOPS
    need = footprint_of(job, TYPICAL)
    if job.trains is None or need is None or not peak:
        return None
    mfu = job.trains.mfu or DEFAULT_MFU
    arithmetic_s = flops_of(job.trains) / (job.gpus * peak * 1e12 * mfu)
    model = gpu_model(gpu)
    GBps = MEMORY_GBps.get(model.name) if model else None
    return (
        arithmetic_s if GBps is None else max(arithmetic_s, _bytes_moved(job, need) / (GBps * 1e9))
    )


def _bytes_moved(job: Job, need: Footprint) -> float:
    """Bytes that one GPU reads and writes in its memory a step."""
    assert job.trains is not None, "only jobs with a model have a footprint"
    degrees = degrees_of(job, job.gpus)
    micro = micro_batches(job, degrees)
    in_flight = min(degrees.pipeline, micro)
    values = need.parameters * (degrees.replicas if job.trains.sharded == "parameters" else 1)
    return (
        micro * (3 * values + 2 * need.activations / in_flight)
        + 2 * need.optimizer
        + need.gradients
    )
