"""Link classes: names of paths between two devices of one machine, their order, and their bandwidth.

Machines made of them are in `machine_models`, the GPUs' own figures in `gpu_models`.
"""

import re

from gantree.topology.hardware.gpu_models import GpuModel, gpu_model

SELF = "X"
"""What stands on the diagonal of a link matrix."""
PATH_CLASSES = ("NVB", "PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths that are no link of their own, best first: over the links of another GPU (as NCCL names it), one PCIe switch,
several switches, a host bridge, several of them on one NUMA node, and the link between NUMA nodes. NV1, NV2...,
XGMI1, XGMI2... and ICI1 (that many NVLinks, AMD xGMI links or TPU links, straight or over NVSwitches) are better than
all."""

_BONDED = re.compile(r"(NV|XGMI|ICI)([1-9][0-9]{0,2})")
_KIND_OF_LINK = {"NV": "NVLink", "XGMI": "xGMI", "ICI": "ICI"}
_DEFAULT_GBPS = {"NV": 25.0, "XGMI": 50.0, "ICI": 50.0}
"""GB/s, one direction, of one link where the model is not known or has no links of that kind: NVLink 2 to 4, xGMI of
MI250X, ICI of TPU v5e."""

_DEFAULT_PCIE_GENERATION = 4
_GBPS_OF_PCIE_X16 = {3: 12.0, 4: 24.0, 5: 48.0, 6: 96.0}
_GBPS_BETWEEN_SOCKETS = {3: 10.0, 4: 16.0, 5: 22.0, 6: 40.0}
_HOST_BRIDGE_FACTOR = 1 / 1.2
"""The last three as NCCL (src/graph, 2.30.7) counts them: 16 lanes after protocol overhead; between sockets the CPUs
of the time (Skylake 10, AMD Rome 16, Sapphire Rapids 22, Emerald Rapids 40); GPU to GPU through a CPU's host bridge
costs a fifth more."""


def bonded_links(link: str) -> int:
    """Return how many links of the GPU's own a link class bonds ("NV12" -> 12, "XGMI1" -> 1); 0 for other classes."""
    match = _BONDED.fullmatch(link)
    return int(match[2]) if match else 0


def is_link_class(link: str) -> bool:
    """Tell whether a word is a class that a path between two devices may have."""
    return link in PATH_CLASSES or bonded_links(link) > 0


def weakness(link: str) -> int:
    """Order link classes: a larger number is a weaker path, and one that is not known the weakest."""
    width = bonded_links(link)
    if width:
        return -width
    return 1 + PATH_CLASSES.index(link) if link in PATH_CLASSES else 1 + len(PATH_CLASSES)


def link_GBps(link: str, gpu: str | None) -> float:
    """Return GB/s (1e9 bytes, one direction) of a path of a class between two GPUs of a model ("A100-80GB").

    Figures of the vendor or of NCCL's model, not measured ones. A path over another GPU (NVB) has at least one link
    on each hop, and is only taken where that is no slower than PCI Express. A class that is not known counts as SYS.
    """
    model = gpu_model(gpu)
    match = _BONDED.fullmatch(link)
    if match:
        return int(match[2]) * _one_link_GBps(match[1], model)
    behind_switch = _behind_switch_GBps(model)
    if link == "NVB":
        return max(behind_switch, _own_link_GBps(model))
    if link in {"PIX", "PXB"}:
        return behind_switch
    through_host = behind_switch * _HOST_BRIDGE_FACTOR
    if link in {"PHB", "NODE"}:
        return through_host
    return min(through_host, _GBPS_BETWEEN_SOCKETS[_pcie_generation(model)])


def _one_link_GBps(prefix: str, model: GpuModel | None) -> float:
    own = model is not None and model.link.startswith(_KIND_OF_LINK[prefix])
    return (model.link_GBps if model and own else None) or _DEFAULT_GBPS[prefix]


def _own_link_GBps(model: GpuModel | None) -> float:
    return (model.link_GBps if model else None) or 0.0


def _pcie_generation(model: GpuModel | None) -> int:
    return (model.pcie_generation if model else None) or _DEFAULT_PCIE_GENERATION


def _behind_switch_GBps(model: GpuModel | None) -> float:
    lanes = (model.pcie_lanes if model else None) or 16
    return _GBPS_OF_PCIE_X16[_pcie_generation(model)] * lanes / 16
