"""Constants of the cost model, each with its source. Formulas are in `collectives` and `intra_node`.

Kinds, kept apart. *Spec*: what a vendor states. *Model*: what NCCL itself counts with when it chooses between its
algorithms (NVIDIA/nccl, src/graph, version 2.30.7; described here, not copied). *Fitted*: numbers that no vendor
states: three that hold over many measured rows on different machines, and one, of xGMI, over its two; `docs/cost.md`
shows these rows, those that miss included. What rests on a single report or is assumed says so where it stands. What
a site measured itself (`calibration.Calibration`) takes the place of them.

GB/s is 1e9 bytes per second in one direction. Latencies are microseconds, in the order of NCCL's three protocols: LL
(each 8 bytes carry a flag), LL128 (each 128 bytes do; needs NVLink) and Simple (large chunks, then a flag).
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from types import MappingProxyType

from gantree.topology.hardware.gpu_models import GpuModel, gpu_model

LL, LL128, SIMPLE = 0, 1, 2
"""NCCL's protocols, as indices."""


class Generation(IntEnum):
    """What NCCL tells apart: Volta and older (and Turing), Ampere (and Ada), Hopper, Blackwell."""

    VOLTA = 0
    AMPERE = 1
    HOPPER = 2
    BLACKWELL = 3


@dataclass(frozen=True, slots=True)
class Traits:
    """What traffic and computing cost on a GPU model.

    link_GBps is what one NVLink or xGMI link carries of a ring, links how many a GPU has; in_switch_share the share
    of its links that an all-reduce inside the switches reaches (0: the switches cannot add); nic_GBps the card that
    systems with this GPU have for each GPU, where the site says nothing; peak_TFLOPS dense 16 bit matrix arithmetic
    (0: not known here).
    """

    generation: Generation
    link_GBps: float
    links: int
    in_switch_share: float
    nic_GBps: float
    peak_TFLOPS: float


XGMI_SHARE = 0.72
"""Fitted: of xGMI's 64 GB/s a link a ring of MI300X reaches 47.7 with one link (75 %) and 312.9 with seven (70 %)."""
_LINK_GBps = MappingProxyType(
    {"NVLink1": 18.0, "NVLink2": 20.0, "NVLink3": 20.0, "NVLink4": 20.6, "NVLink5": 40.1}
)
_BRIDGED_BOARD_GBps = 12.0
_UNKNOWN_LINK_SHARE = 0.8
"""Model: NCCL's figure of one NVLink by generation, of boards with bridges (compute capability 8.6) 12; and of links
that NCCL does not know the share of the vendor's figure that it grants NVLink (20 of 25)."""
_UNKNOWN_LINKS = 18

IN_SWITCH_SHARE = (0.0, 0.0, 0.85, 0.74)
"""Model: NVLS, by generation. Measured: 480 GB/s busbw on 8 H200, 838 on 8 B200; these shares give 490 and 831."""

DEFAULT_NIC_GBps = 50.0
_NIC_GBps = MappingProxyType(
    {"P100": 12.5, "V100": 12.5, "T4": 12.5, "L4": 12.5, "A10": 25.0, "A10G": 25.0, "A30": 25.0, "A40": 25.0,
     "A100": 25.0, "A800": 25.0, "A6000": 25.0, "L40": 25.0, "L40S": 25.0, "RTX4090": 25.0, "MI210": 25.0,
     "MI250X": 25.0, "B300": 100.0, "GB300": 100.0}
)  # fmt: skip
"""Spec: the NIC for each GPU in the vendors' own systems: DGX-1 EDR, DGX A100 HDR, DGX H100 to GB200 NDR (the default),
DGX B300 XDR; of boards without such a system an assumption. Counted only where the site tells no rate."""
_PEAK_TFLOPS = MappingProxyType(
    {"P100": 21.2, "V100": 125.0, "T4": 65.0, "A100": 312.0, "A800": 312.0, "A30": 165.0, "A10": 125.0, "A10G": 70.0,
     "A40": 149.7, "A6000": 154.8, "A5000": 111.1, "RTX3090": 71.0, "L4": 121.0, "L40": 181.0, "L40S": 362.0,
     "RTX4090": 165.2, "H100": 989.4, "H800": 989.4, "H20": 148.0, "H200": 989.4, "GH200": 989.4, "B100": 1750.0,
     "B200": 2250.0, "B300": 2250.0, "GB200": 2500.0, "GB300": 2500.0, "MI210": 181.0, "MI250X": 191.5,
     "MI300A": 980.6, "MI300X": 1307.4, "MI325X": 1307.4, "MI350X": 2300.0, "MI355X": 2500.0, "TPUV4": 275.0,
     "TPUV5E": 197.0, "TPUV5P": 459.0, "TPUV6E": 918.0, "TPU7X": 2307.0}
)  # fmt: skip
"""Spec: vendors' data sheets, dense (half of what is stated with sparsity), bf16 or fp16 with fp32 sums; of an MI250X
one of its two dies."""


@lru_cache(maxsize=256)
def traits(gpu: str | None) -> Traits:
    """Return what is known of a GPU model by its name, with or without memory ("A100-80GB", "A100")."""
    model = gpu_model(gpu)
    family = (gpu or "").upper().partition("-")[0].replace(" ", "")
    nic, peak = _NIC_GBps.get(family, DEFAULT_NIC_GBps), _PEAK_TFLOPS.get(family, 0.0)
    if model is None:
        return Traits(Generation.AMPERE, _LINK_GBps["NVLink3"], _UNKNOWN_LINKS, 0.0, nic, peak)
    generation = _generation(model.architecture)
    share = IN_SWITCH_SHARE[generation] if model.link.startswith("NVLink") else 0.0
    links = _UNKNOWN_LINKS if model.links is None else model.links
    return Traits(generation, _carried_GBps(model), links, share, nic, peak)


def _generation(architecture: str) -> Generation:
    if not architecture.startswith("sm"):
        return Generation.AMPERE
    capability = int(architecture[2:])
    if capability < 80:
        return Generation.VOLTA
    if capability < 90:
        return Generation.AMPERE
    return Generation.HOPPER if capability < 100 else Generation.BLACKWELL


def _carried_GBps(model: GpuModel) -> float:
    """What one link of a model carries of a ring."""
    if model.architecture == "sm86" and model.links:
        return _BRIDGED_BOARD_GBps
    if model.link in _LINK_GBps:
        return _LINK_GBps[model.link]
    share = XGMI_SHARE if model.link == "xGMI" else _UNKNOWN_LINK_SHARE
    return share * (model.link_GBps or 0.0)


# ----- fitted

LAUNCH_US = 25.0
"""Fitted: what every measured collective takes beyond NCCL's own latency model, as nccl-tests time it. The mean error
over the measured series is least between 23 and 28: that of 8 x A100 ends at 34-36 us for a few bytes, of which the
model explains 15; that of 16 GPUs on two H100 nodes at 54, of 24."""
FILL = 0.6
"""Fitted: how much of the geometric mean of latency and transfer a pipeline loses to filling and draining.

A message that is cut into chunks takes (sqrt(latency) + sqrt(transfer))^2 at the best chunk, which is 2 here. NCCL's
fixed chunks overlap better than that. From 0.6 to 1 the mean error over the measured rows is nearly the same (0 and 2
are half as much again); the least of these keeps rings and trees of large messages in NCCL's order."""
NVLINK_DOMAIN_EGRESS_GBps = 432.0
"""Fitted: what rings and trees use of the NICs of an NVLink domain that spans nodes: nine NICs' worth at NCCL's 48.

Twelve rows at 144 GPUs (one up-going copy) and 1440 (two) of GB200 NVL72 with NCCL 2.26.2 agree on it, where 72 NICs
of 50 GB/s are there. All-to-all and send/recv use each GPU's own NIC and are not held to it."""

# ----- model: latencies

BASE_RING_US = (6.6, 14.0, 8.4)
BASE_TREE_US = (6.8, 14.0, 8.4)
NVLINK_RING_US = (0.6, 1.9, 3.4)
NVLINK_TREE_US = (0.6, 1.25, 4.0)
PCI_RING_US = (1.0, 2.5, 5.7)
PCI_TREE_US = (1.0, 1.9, 4.0)
NET_US = 2.7 + 0.6
"""One step of a ring over a network, LL: NCCL's 2.7 and 0.6 of an HDR port. A site's `latency_us` takes its place."""
NET_RING_MORE_US = (0.0, 1.3, 11.9)
NET_TREE_MORE_US = (2.3, 5.8, 11.9)
"""What protocols add to it: NCCL's 2.7, 4.0 and 14 for rings, 5.0, 8.5 and 14 for trees; Simple pays the port twice."""
NET_OVERHEAD_US = (1.0, 1.0, 3.0)
"""Least a step inside a node takes once the collective spans nodes."""
IN_SWITCH_US = 25.0
IN_SWITCH_GPUS = 8
"""In-switch all-reduce of the eight GPUs of an HGX board. Each GPU owns a share of the message and the loop over the
shares grows with them, so more GPUs take in proportion longer (8 x B200 and 72 x GB200 bear that out)."""
IN_SWITCH_TREE_US = 20.9
COLLNET_US = 30.0
COLLNET_GPU_US = 0.4

# ----- model: bandwidths

LL_MOST_GBps = ((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0))
"""Most that LL carries, by generation, on one, two, and more nodes."""
RING_LL_SHARE, RING_LL128_SHARE = 0.5, 0.92
TREE_LL_SHARE, TREE_SIMPLE_SHARE = 1 / 3.8, 0.92
TREE_LL128_SHARE_ONE_NODE, TREE_LL128_SHARE = 0.92 * 7 / 9, 0.92 * 0.9375
COLLNET_SHARE = 0.85

# ----- inside a host

NIC_ON_CPU_SHARE = 2 / 3
"""What a NIC reaches that hangs off the CPU instead of the GPU's PCIe switch: NVIDIA staff expect 16 instead of
24 GB/s (NVIDIA/nccl issue 412), as NCCL then copies through host memory."""
HOST_STAGING_GBps = 96.0
"""What the memory of one NUMA node takes of copies between GPUs that cannot reach each other (P2P switched off): four
in one node get 24 GB/s each; two on each of two are held by their PCIe links (NVIDIA/nccl issue 1130: 24 and 35)."""

# ----- conditions and computing

LEAST_RESIDUAL = 0.01
"""What is counted of a link that is broken or full, so that prices stay numbers."""
DEFAULT_MFU = 0.4
"""Share of the peak that training reaches where the job does not say: 38-43 % on Llama 3's 16,384 H100 (The Llama 3
Herd of Models, 2024, table 4), up to 55 % on 12,288 A100 (MegaScale, 2024)."""
BACKWARD_SHARE = 2 / 3
"""Part of a step's computing that is the backward pass: twice the forward pass, one for each operand's gradient."""
