"""GPU models: memory, architecture, links and PCI Express of each, by the names that jobs use.

A name is the model, "-" and the memory that the vendor names ("H100-80GB"). What holds GPUs is in `machine_models`,
what a link class is worth in `link_classes`, MIG profiles in `mig`, prices in `prices`. None is what could not be
confirmed.

Where the numbers are from. memory_GiB is the figure of the name: vendors count HBM in units of 2^30 bytes and keep up
to 7 % back for ECC and the driver ("180GB" shows as 179.1 GiB, "288GB" of a B300 as 268.6). NVLink of data centre
boards: NVIDIA's figure per GPU in both directions (160, 300, 600, 900, 1800 GB/s) over its links (4, 6, 12, 18, 18);
A800 and H800 have 400 GB/s of the same links, A30 and H100 NVL what their bridges join (200 and 600 GB/s). A40,
RTX A5000, RTX A6000 and RTX 3090: a bridge of 4 links, 112.5 GB/s both ways. Turing boards: 50 GB/s both ways a link.
xGMI: AMD's figures for one link in one direction, 50 (MI210, MI250X), 64 (MI300X, MI308X, MI325X) and 76.5 GB/s
(MI350X, MI355X), over 3 (MI210) or 7 links; how many links leave one die of an MI250X (a "GPU" of 64 GB, as ROCm
counts them) or an MI300A is not confirmed. ICI: docs.cloud.google.com/tpu/docs: 400 (v5e), 800 (v6e), 1200 GB/s
(v5p, 7x) a chip in both directions over 4 or 6 ports; the rate of v4 is not published there. Architectures: NVIDIA's
compute capabilities, AMD's LLVM targets. PCI Express: data sheets; of TPUs only what Google tells (v6e: generation
5). Four GPUs of an A16 share one slot. B100 was announced with several sizes of memory. B300 and GB300 link at
generation 5 at least.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One GPU model, as jobs name it.

    architecture is "sm90" (NVIDIA), "gfx942" (AMD) or "tpu-v5p". link is the kind of its own links and their
    generation ("NVLink4", "xGMI", "ICI", "" for none), links how many leave the GPU, link_GBps what one carries in one
    direction. mig names its table of `mig.TABLES`: of MIG, or of compute partition modes.
    """

    name: str
    memory_GiB: float | None
    architecture: str
    link: str = ""
    links: int | None = 0
    link_GBps: float | None = None
    pcie_generation: int | None = None
    pcie_lanes: int | None = 16
    mig: str | None = None

    @property
    def family(self) -> str:
        """The model without its memory: "H100"."""
        return self.name.partition("-")[0]


def _nvidia(
    name: str,
    architecture: str,
    pcie: int,
    nvlink: tuple[int, int, float] | None = None,
    *,
    mig: str | None = None,
    lanes: int | None = 16,
) -> GpuModel:
    """A GPU of NVIDIA; nvlink is (generation, links, GB/s of one link)."""
    memory = name.partition("-")[2].removesuffix("GB")
    generation, links, GBps = nvlink or (0, 0, None)
    return GpuModel(
        name, float(memory) if memory else None, architecture,
        f"NVLink{generation}" if links else "", links, GBps, pcie, lanes, mig,
    )  # fmt: skip


def _amd(
    name: str,
    architecture: str,
    pcie: int,
    links: int | None,
    GBps: float,
    *,
    modes: str | None = None,
) -> GpuModel:
    """A GPU of AMD; modes names the table of its compute partition modes."""
    memory = float(name.partition("-")[2].removesuffix("GB"))
    return GpuModel(name, memory, architecture, "xGMI", links, GBps, pcie, mig=modes)


def _tpu(
    name: str, version: str, ports: int, port_GBps: float | None, pcie: int | None = None
) -> GpuModel:
    memory = float(name.partition("-")[2].removesuffix("GB"))
    return GpuModel(name, memory, f"tpu-{version}", "ICI", ports, port_GBps, pcie, None)


_BRIDGE = (3, 4, 14.0625)
_MI300X = "MI300X-192GB"
_NVLINK3, _NVLINK4, _NVLINK5 = (3, 12, 25.0), (4, 18, 25.0), (5, 18, 50.0)

_ALL = (
    _nvidia("K80-12GB", "sm37", 3),
    _nvidia("M60-8GB", "sm52", 3),
    _nvidia("TITANX-12GB", "sm61", 3),
    _nvidia("P4-8GB", "sm61", 3),
    _nvidia("P40-24GB", "sm61", 3),
    _nvidia("P100-16GB", "sm60", 3, (1, 4, 20.0)),
    _nvidia("V100-16GB", "sm70", 3, (2, 6, 25.0)),
    _nvidia("V100-32GB", "sm70", 3, (2, 6, 25.0)),
    _nvidia("T4-16GB", "sm75", 3),
    _nvidia("RTX2080-8GB", "sm75", 3, (2, 1, 25.0)),
    _nvidia("RTX2080Ti-11GB", "sm75", 3, (2, 2, 25.0)),
    _nvidia("RTX8000-48GB", "sm75", 3, (2, 2, 25.0)),
    _nvidia("A2-16GB", "sm86", 4, lanes=8),
    _nvidia("A10-24GB", "sm86", 4),
    _nvidia("A10G-24GB", "sm86", 4),
    _nvidia("A16-16GB", "sm86", 4, lanes=None),
    _nvidia("A30-24GB", "sm80", 4, (3, 4, 25.0), mig="A30-24GB"),
    _nvidia("A40-48GB", "sm86", 4, _BRIDGE),
    _nvidia("A4000-16GB", "sm86", 4),
    _nvidia("A5000-24GB", "sm86", 4, _BRIDGE),
    _nvidia("A6000-48GB", "sm86", 4, _BRIDGE),
    _nvidia("RTX3090-24GB", "sm86", 4, _BRIDGE),
    _nvidia("A100-40GB", "sm80", 4, _NVLINK3, mig="A100-40GB"),
    _nvidia("A100-80GB", "sm80", 4, _NVLINK3, mig="A100-80GB"),
    _nvidia("A800-40GB", "sm80", 4, (3, 8, 25.0), mig="A100-40GB"),
    _nvidia("A800-80GB", "sm80", 4, (3, 8, 25.0), mig="A100-80GB"),
    _nvidia("L4-24GB", "sm89", 4),
    _nvidia("L40-48GB", "sm89", 4),
    _nvidia("L40S-48GB", "sm89", 4),
    _nvidia("RTX4090-24GB", "sm89", 4),
    _nvidia("RTX6000Ada-48GB", "sm89", 4),
    _nvidia("H20-96GB", "sm90", 5, _NVLINK4, mig="H100-96GB"),
    _nvidia("H100-80GB", "sm90", 5, _NVLINK4, mig="H100-80GB"),
    _nvidia("H100-94GB", "sm90", 5, (4, 12, 25.0), mig="H100-94GB"),
    _nvidia("H100-96GB", "sm90", 5, _NVLINK4, mig="H100-96GB"),
    _nvidia("H800-80GB", "sm90", 5, (4, 8, 25.0), mig="H100-80GB"),
    _nvidia("H200-141GB", "sm90", 5, _NVLINK4, mig="H200-141GB"),
    _nvidia("GH200-96GB", "sm90", 5, _NVLINK4, mig="H100-96GB"),
    _nvidia("GH200-144GB", "sm90", 5, _NVLINK4, mig="GH200-144GB"),
    _nvidia("B100", "sm100", 5, _NVLINK5),
    _nvidia("B200-180GB", "sm100", 5, _NVLINK5, mig="B200-180GB"),
    _nvidia("B300-288GB", "sm103", 5, _NVLINK5, mig="B300-288GB"),
    _nvidia("GB200-186GB", "sm100", 5, _NVLINK5, mig="GB200-186GB"),
    _nvidia("GB300-288GB", "sm103", 5, _NVLINK5, mig="GB300-288GB"),
    _nvidia("RTX5090-32GB", "sm120", 5),
    _nvidia("RTXPRO4500-32GB", "sm120", 5, mig="RTXPRO4500-32GB"),
    _nvidia("RTXPRO5000-48GB", "sm120", 5, mig="RTXPRO5000-48GB"),
    _nvidia("RTXPRO6000-96GB", "sm120", 5, mig="RTXPRO6000-96GB"),
    _amd("MI210-64GB", "gfx90a", 4, 3, 50.0),
    _amd("MI250X-64GB", "gfx90a", 4, None, 50.0),
    _amd("MI300A-128GB", "gfx942", 5, None, 64.0, modes="MI300A-128GB"),
    _amd("MI300X-192GB", "gfx942", 5, 7, 64.0, modes=_MI300X),
    _amd("MI308X-192GB", "gfx942", 5, 7, 64.0),
    _amd("MI325X-256GB", "gfx942", 5, 7, 64.0, modes=_MI300X),
    _amd("MI350X-288GB", "gfx950", 5, 7, 76.5, modes=_MI300X),
    _amd("MI355X-288GB", "gfx950", 5, 7, 76.5, modes=_MI300X),
    _tpu("TPUV4-32GB", "v4", 6, None),
    _tpu("TPUV5E-16GB", "v5e", 4, 50.0),
    _tpu("TPUV5P-95GB", "v5p", 6, 100.0),
    _tpu("TPUV6E-32GB", "v6e", 4, 100.0, pcie=5),
    _tpu("TPU7X-192GB", "7x", 6, 100.0),
)

GPU_MODELS: Mapping[str, GpuModel] = MappingProxyType({model.name: model for model in _ALL})
"""All GPU models by name."""

_BY_KEY = {model.name.upper(): model for model in _ALL}
_OF_FAMILY = {model.family.upper(): model for model in reversed(_ALL)}


def gpu_model(gpu: str | None) -> GpuModel | None:
    """Return the model of a name, None where the catalogue has none.

    Case and spaces do not matter. A name with a memory that the catalogue does not know ("V100-24GB"), or without
    one ("V100"), is the first of its family, whose links and PCI Express are alike, but without a memory and MIG.
    """
    key = (gpu or "").upper().replace(" ", "")
    if key in _BY_KEY:
        return _BY_KEY[key]
    relative = _OF_FAMILY.get(key.partition("-")[0])
    return relative and GpuModel(
        gpu or "", None, relative.architecture, relative.link, relative.links, relative.link_GBps,
        relative.pcie_generation, relative.pcie_lanes,
    )  # fmt: skip
