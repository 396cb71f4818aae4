"""Power of GPUs: the board's limit of each model, and a model of what it draws when idle and when in use.

Limits are thermal design power (NVIDIA: TDP or total board power, AMD: TBP or peak TDP) of the vendors' data sheets, of
the SXM or OAM board where there are several; two GPUs of one board (K80, M60, MI250X) have half each, and the four of
an A16 a quarter. A model that is not in the table has no figure, and none is guessed.

A GPU in use draws BUSY_SHARE of its limit: AI training took at most 76 % of the rated power of nodes with eight H100
(Newkirk et al., "Empirically-Calibrated H100 Node Power Models for Reducing Uncertainty in AI Training Energy
Estimation", arXiv:2506.14551). An idle one draws IDLE_SHARE: 73.65 W of 700 W on an H200 by nvidia-smi
(conservemode.com/case-studies.html); a rule of thumb is 15 % (nemulai.com, June 2026). CPUs, memory, network and
cooling are in neither.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gantree.topology.hardware.gpu_models import gpu_model

BUSY_SHARE = 0.76
IDLE_SHARE = 73.65 / 700

LIMIT_W: Mapping[str, float] = MappingProxyType(
    {
        "K80-12GB": 150, "M60-8GB": 150, "TITANX-12GB": 250, "P4-8GB": 75, "P40-24GB": 250,
        "P100-16GB": 300, "V100-16GB": 300, "V100-32GB": 300, "T4-16GB": 70, "RTX2080-8GB": 215,
        "RTX2080Ti-11GB": 250, "RTX8000-48GB": 260, "A2-16GB": 60, "A10-24GB": 150,
        "A16-16GB": 62.5, "A30-24GB": 165, "A40-48GB": 300, "A4000-16GB": 140, "A5000-24GB": 230,
        "A6000-48GB": 300, "RTX3090-24GB": 350, "A100-40GB": 400, "A100-80GB": 400,
        "A800-40GB": 400, "A800-80GB": 400, "L4-24GB": 72, "L40-48GB": 300, "L40S-48GB": 350,
        "RTX4090-24GB": 450, "RTX6000Ada-48GB": 300, "H20-96GB": 400, "H100-80GB": 700,
        "H100-94GB": 400, "H800-80GB": 700, "H200-141GB": 700, "B200-180GB": 1000,
        "B300-288GB": 1100, "GB200-186GB": 1200, "GB300-288GB": 1400, "RTX5090-32GB": 575,
        "RTXPRO6000-96GB": 600, "MI210-64GB": 300, "MI250X-64GB": 280, "MI300X-192GB": 750,
        "MI325X-256GB": 1000, "MI350X-288GB": 1000, "MI355X-288GB": 1400,
    }
)  # fmt: skip
"""Watts that the board of a GPU model takes at most."""


@dataclass(frozen=True, slots=True)
class GpuPower:
    """Watts of one GPU, idle and in use."""

    idle_W: float
    busy_W: float


def limit_W_of(gpu: str | None) -> float | None:
    """Watts that the board of a GPU model takes at most; None where that is not known."""
    model = gpu_model(gpu)
    return LIMIT_W.get(model.name) if model else None


def power_of(gpu: str | None) -> GpuPower | None:
    """What a GPU of this model draws by the model above; None where its limit is not known."""
    limit_W = limit_W_of(gpu)
    return None if limit_W is None else GpuPower(IDLE_SHARE * limit_W, BUSY_SHARE * limit_W)
