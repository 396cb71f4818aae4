"""Machine models by name, and the link classes that join GPUs inside a machine.

What a site writes itself is read by `formats`; what a driver prints is read by `topology.discovery`. Prices of
traffic are `topology.cost`.

Where the numbers are from. GPU count, GPU memory, sockets, cores and NIC counts of DGX systems: NVIDIA's data sheets
and user guides. Link matrices, NUMA nodes and nearest NICs: `nvidia-smi topo -m` prints that others published:
DGX A100 as in NVIDIA/nccl issue 1505 (four NUMA nodes a socket, so GPU order is not NUMA order); V100 hybrid cube
mesh as in Oneflow-Inc/DLPerf; DGX-2 as in NVIDIA/nccl-tests issue 78 for GPUs 0-3, the others by its symmetry;
GB200 tray as in NVIDIA/k8s-test-infra issue 371; T4 as in NVIDIA/nccl issue 428; RTX 4090 as in NVIDIA/nccl issue
1086; RTX A6000 bridge pairs as on the UniGe HPC forum; A100 PCIe pairs as in Azure's NCCL topology file for NC A100
v4; HGX A100 with four GPUs as on a Booster-type node. `hgx-*` are the same boards in other vendors' servers: their
CPUs and memory differ, so these are not counted (None). `l40s-8` is the common two-socket server, whose classes are
assumed. cpus are hardware threads, as Linux and Kubernetes count them; memory_GiB is what the smallest model has.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType

from gantree.model.cluster import Machine, Nic
from gantree.model.errors import BadInput

SELF = "X"
"""What stands on the diagonal of a link matrix."""
PATH_CLASSES = ("NVB", "PIX", "PXB", "PHB", "NODE", "SYS")
"""Paths that are no link of their own, best first: over the links of another GPU (as NCCL names it), one PCIe switch,
several switches, a host bridge, several of them on one NUMA node, and the link between NUMA nodes. NV1, NV2... and
XGMI1, XGMI2... (that many NVLinks or AMD xGMI links, straight or over NVSwitches) are better than all."""

_BONDED = re.compile(r"(?:NV|XGMI)([1-9][0-9]{0,2})")


def bonded_links(link: str) -> int:
    """Return how many NVLinks or xGMI links a link class bonds ("NV12" -> 12, "XGMI1" -> 1); 0 for other classes."""
    match = _BONDED.fullmatch(link)
    return int(match[1]) if match else 0


def is_link_class(link: str) -> bool:
    """Tell whether a word is a class that a path between two devices may have."""
    return link in PATH_CLASSES or bonded_links(link) > 0


def weakness(link: str) -> int:
    """Order link classes: a larger number is a weaker path, and one that is not known the weakest."""
    width = bonded_links(link)
    if width:
        return -width
    return 1 + PATH_CLASSES.index(link) if link in PATH_CLASSES else 1 + len(PATH_CLASSES)


_GBPS_OF_NVLINK = {"P100": 20.0, "V100": 25.0, "A100": 25.0, "A800": 25.0, "A30": 25.0, "H100": 25.0,
                   "H800": 25.0, "H20": 25.0, "H200": 25.0, "GH200": 25.0, "B100": 50.0, "B200": 50.0,
                   "B300": 50.0, "GB200": 50.0, "GB300": 50.0, "A6000": 14.0625, "A5000": 14.0625,
                   "A40": 14.0625, "RTX3090": 14.0625}  # fmt: skip
"""GB/s per direction of one NVLink. Data centre boards: NVIDIA's figures per GPU (160, 300, 600, 900, 1800 GB/s both
ways) over their links (4, 6, 12, 18, 18). Boards with a bridge: 112.5 GB/s both ways over 4 links."""
_PCIE_GENERATION = {"K80": 3, "M60": 3, "P100": 3, "P40": 3, "P4": 3, "V100": 3, "T4": 3, "TITANX": 3, "RTX2080": 3,
                    "RTX2080TI": 3, "RTX8000": 3, "H100": 5, "H800": 5, "H20": 5, "H200": 5, "GH200": 5,
                    "B100": 5, "B200": 5, "B300": 5, "GB200": 5, "GB300": 5, "RTX5090": 5, "RTXPRO6000": 5}  # fmt: skip
"""PCI Express generation by GPU model; 4 (Ampere and Ada) for those not named."""
_GBPS_OF_PCIE_X16 = {3: 12.0, 4: 24.0, 5: 48.0}
_GBPS_BETWEEN_SOCKETS = {3: 10.0, 4: 16.0, 5: 22.0}
_HOST_BRIDGE_FACTOR = 1 / 1.2
"""The last three as NCCL (src/graph, 2.30.7) counts them: 16 lanes after protocol overhead; between sockets the CPUs
of the time (Skylake 10, AMD Rome 16, Sapphire Rapids 22); GPU to GPU through a CPU's host bridge costs a fifth more."""


def link_GBps(link: str, gpu: str | None) -> float:
    """Return GB/s (1e9 bytes, one direction) of a path of a class between two GPUs of a model ("A100-80GB").

    Figures of the vendor or of NCCL's model, not measured ones. A class that is not known counts as SYS.
    """
    model = (gpu or "").upper().partition("-")[0].replace(" ", "")
    width = bonded_links(link)
    if width:
        return width * _GBPS_OF_NVLINK.get(model, 25.0)
    generation = _PCIE_GENERATION.get(model, 4)
    if link in {"PIX", "PXB"}:
        return _GBPS_OF_PCIE_X16[generation]
    if link in {"PHB", "NODE"}:
        return _GBPS_OF_PCIE_X16[generation] * _HOST_BRIDGE_FACTOR
    return _GBPS_BETWEEN_SOCKETS[generation]


def machine(name: str) -> Machine:
    """Return the machine model of that name. BadInput names the nearest ones."""
    if name in MACHINES:
        return MACHINES[name]
    near = get_close_matches(name.lower(), MACHINES, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(sorted(MACHINES))}"
    raise BadInput(f"no machine model {name!r}; {hint}")


def plain(
    name: str,
    gpus: int,
    gpu: str | None = None,
    cpus: float | None = None,
    memory_GiB: float | None = None,
    nics: int = 0,
) -> Machine:
    """Return a machine of which only counts are known. BadInput for negative ones.

    Its links are unknown and therefore equal; its NICs are mlx5_0, mlx5_1... on rails of their own, spread evenly
    over the GPUs.
    """
    if min(gpus, nics, cpus or 0, memory_GiB or 0) < 0:
        raise BadInput(f"machine {name!r} has a negative count")
    return Machine(
        name,
        gpus,
        gpu if gpus else None,
        nics=_spread(nics, gpus),
        cpus=cpus,
        memory_GiB=memory_GiB,
    )


def _spread(nics: int, gpus: int) -> tuple[Nic, ...]:
    """Name NICs and share the GPUs out among them, or, where there are more NICs, the NICs among the GPUs."""

    def near(nic: int) -> tuple[int, ...]:
        return tuple(g for g in range(gpus) if g * nics // gpus == nic or nic * gpus // nics == g)

    return tuple(Nic(f"mlx5_{nic}", near(nic), rail=nic) for nic in range(nics))


def _all_to_all(gpus: int, link: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(SELF if a == b else link for b in range(gpus)) for a in range(gpus))


def _nested(gpus: int, *levels: tuple[int, str], beyond: str) -> tuple[tuple[str, ...], ...]:
    """Return the matrix in which GPUs of one run of `size` are joined by `link`, narrowest level first."""

    def link(a: int, b: int) -> str:
        if a == b:
            return SELF
        return next((link for size, link in levels if a // size == b // size), beyond)

    return tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus))


def _written(*rows: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row.split()) for row in rows)


def _nics_near(*near: Sequence[int]) -> tuple[Nic, ...]:
    """Name NICs in order; those near to some GPU get a rail each, the others (storage) none."""
    rails = [sum(bool(gpus) for gpus in near[:nic]) for nic in range(len(near))]
    return tuple(
        Nic(f"mlx5_{nic}", tuple(gpus), rail=rails[nic] if gpus else None)
        for nic, gpus in enumerate(near)
    )


def _hgx8(
    name: str, gpu: str, cpus: float | None = None, memory_GiB: float | None = None
) -> Machine:
    """Eight GPUs on NVSwitches, four a socket, each with a NIC behind its own PCIe switch."""
    return Machine(
        name, 8, gpu, _all_to_all(8, "NV18"), numa=(0,) * 4 + (1,) * 4,
        nics=_nics_near(*([gpu] for gpu in range(8))), cpus=cpus, memory_GiB=memory_GiB,
    )  # fmt: skip


_DGX_A100 = Machine(
    "dgx-a100", 8, "A100-80GB", _all_to_all(8, "NV12"), numa=(3, 3, 1, 1, 7, 7, 5, 5),
    nics=_nics_near((0, 1), (0, 1), (2, 3), (2, 3), (4, 5), (4, 5), (6, 7), (6, 7), (), ()),
    cpus=256, memory_GiB=2048,
)  # fmt: skip

_DGX_1 = Machine(
    "dgx-1-v100", 8, "V100-32GB",
    _written(
        "X   NV1 NV1 NV2 NV2 SYS SYS SYS",
        "NV1 X   NV2 NV1 SYS NV2 SYS SYS",
        "NV1 NV2 X   NV2 SYS SYS NV1 SYS",
        "NV2 NV1 NV2 X   SYS SYS SYS NV1",
        "NV2 SYS SYS SYS X   NV1 NV1 NV2",
        "SYS NV2 SYS SYS NV1 X   NV2 NV1",
        "SYS SYS NV1 SYS NV1 NV2 X   NV2",
        "SYS SYS SYS NV1 NV2 NV1 NV2 X",
    ),
    numa=(0,) * 4 + (1,) * 4, nics=_nics_near((0, 1), (2, 3), (4, 5), (6, 7)), cpus=80, memory_GiB=512,
)  # fmt: skip

_DGX_2 = Machine(
    "dgx-2", 16, "V100-32GB", _all_to_all(16, "NV6"), numa=(0,) * 8 + (1,) * 8,
    nics=_nics_near((0, 1), (2, 3), (4, 5), (6, 7), (), (), (8, 9), (10, 11), (12, 13), (14, 15)),
    cpus=96, memory_GiB=1536,
)  # fmt: skip

_ALL = (
    _hgx8("dgx-h100", "H100-80GB", cpus=224, memory_GiB=2048),
    _hgx8("dgx-h200", "H200-141GB", cpus=224, memory_GiB=2048),
    _hgx8("dgx-b200", "B200-180GB", cpus=224, memory_GiB=2048),
    _hgx8("hgx-h100", "H100-80GB"),
    _hgx8("hgx-h200", "H200-141GB"),
    _hgx8("hgx-b200", "B200-180GB"),
    _DGX_A100,
    replace(_DGX_A100, name="dgx-a100-40", gpu="A100-40GB", memory_GiB=1024),
    replace(_DGX_A100, name="hgx-a100", cpus=None, memory_GiB=None),
    Machine("hgx-a100-4", 4, "A100-40GB", _all_to_all(4, "NV4"), (0,) * 4, _nics_near([0], [1], [2], [3])),
    Machine("gb200-nvl72-tray", 4, "GB200-186GB", _all_to_all(4, "NV18"), (0, 0, 1, 1),
            _nics_near([0], [1], [2], [3]), cpus=144, memory_GiB=960),
    _DGX_1,
    replace(_DGX_1, name="dgx-1-v100-16", gpu="V100-16GB"),
    _DGX_2,
    Machine("a100-pcie-pairs-4", 4, "A100-80GB", _nested(4, (2, "NV12"), beyond="SYS"), (0, 1, 2, 3),
            cpus=96, memory_GiB=880),
    Machine("a6000-pairs-8", 8, "A6000-48GB", _nested(8, (2, "NV4"), (4, "NODE"), beyond="SYS"),
            (0,) * 4 + (1,) * 4, _nics_near([6], [6]), cpus=128),
    Machine("l40s-8", 8, "L40S-48GB", _nested(8, (4, "NODE"), beyond="SYS"), (0,) * 4 + (1,) * 4),
    Machine("rtx4090-8", 8, "RTX4090-24GB", _nested(8, (4, "PIX"), beyond="SYS"), (0,) * 4 + (1,) * 4,
            _nics_near([0, 1, 2, 3]), cpus=112),
    Machine("t4-4", 4, "T4-16GB",
            _written("X SYS SYS SYS", "SYS X NODE NODE", "SYS NODE X NODE", "SYS NODE NODE X"),
            (0, 1, 1, 1), cpus=64),
    Machine("cpu-only", 0),
)  # fmt: skip

MACHINES: Mapping[str, Machine] = MappingProxyType({model.name: model for model in _ALL})
"""All machine models by name."""
