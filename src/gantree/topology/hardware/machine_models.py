"""Machine models of the catalogue: GPUs, links, NUMA nodes and NICs. `catalog` is the interface.

Where the numbers are from. GPU count, GPU memory, sockets, cores and NIC counts and rates of DGX systems: NVIDIA's
data sheets and user guides. Link matrices, NUMA nodes and nearest NICs: `nvidia-smi topo -m` prints that others
published: DGX A100 as in NVIDIA/nccl issue 1505 (four NUMA nodes a socket, so GPU order is not NUMA order); V100
hybrid cube mesh as in Oneflow-Inc/DLPerf; DGX-2 as in NVIDIA/nccl-tests issue 78 for GPUs 0-3, the others by its
symmetry; GB200 tray as in NVIDIA/k8s-test-infra issue 371; T4 as in NVIDIA/nccl issue 428; RTX 4090 as in NVIDIA/nccl
issue 1086; RTX A6000 bridge pairs as on the UniGe HPC forum; A100 PCIe pairs as in Azure's NCCL topology file for NC
A100 v4; HGX A100 with four GPUs as on a Booster-type node; one NIC a GPU behind its switch (PIX) as on an 8 x H100
server with 8 ConnectX. `hgx-*` are the same boards in other vendors' servers: their CPUs, memory and NIC rates
differ, so these are not told (None). `l40s-8` is the common two-socket server, whose classes are assumed.

Clouds: NCCL topology files of aws/aws-ofi-nccl (p4d; p5, which gives one CPU, and EC2 two sockets) and
Azure/azhpc-images (ND v4, ND v5; its GPUs and NICs are numbered by PCI bus, so ND v4's NUMA nodes run 1, 0, 3, 2);
NIC counts and rates: stas00/ml-engineering (network); vCPUs and memory: the providers' pages. Nearest NICs of p5en,
p6-b200 and A3 are shared out evenly and their classes not told; names of NICs that no file gave are efa0, efa1...
and eth1, eth2..., in order.

AMD: MI300X as in RCCL's topo_8p_940.xml, one vendor's server with a NIC two switches away from each GPU; MI300A as in
its topo_4p_940.xml (numbered as there: NUMA 2, 3, 0, 1); MI250X as in its topo_8p_90a.xml, where three links leave
each die, one to each of three others, and the rest is reached over them (AMD's packages bond more of them between
their two dies); MI308X as in a `rocm-smi --showtopo` print of ms-swift's guide. MI325X, MI350X and MI355X platforms
are drop-in successors of MI300X's: its mesh and NUMA nodes, NICs not told.

TPU hosts: chips per host and NICs from docs.cloud.google.com/tpu/docs; chips of a host form a 2 x 2 or 2 x 4 mesh,
neighbours have a link, the others a path over neighbours. NUMA nodes are told for 7x only: two, and everything of the
host is split evenly between them.

cpus are hardware threads, as Linux and Kubernetes count them; memory_GiB is what the smallest model has.
"""

from collections.abc import Sequence
from dataclasses import replace

from gantree.model.cluster import NO_LINK, Machine, Nic
from gantree.topology.hardware.link_classes import SELF

_400G, _800G = 50.0, 100.0
_200G, _100G = 25.0, 12.5
"""GB/s of a NIC in one direction, by its Gb/s."""
_TWO_SOCKETS_OF_4 = (0,) * 4 + (1,) * 4


def _all_to_all(gpus: int, link: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(SELF if a == b else link for b in range(gpus)) for a in range(gpus))


def _nested(gpus: int, *levels: tuple[int, str], beyond: str) -> tuple[tuple[str, ...], ...]:
    """Return the matrix in which GPUs of one run of `size` are joined by `link`, narrowest level first."""

    def link(a: int, b: int) -> str:
        if a == b:
            return SELF
        return next((link for size, link in levels if a // size == b // size), beyond)

    return tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus))


def _meshed(columns: int, gpus: int) -> tuple[tuple[str, ...], ...]:
    """Return the matrix of chips on a grid, row by row: neighbours have a link, the others go over them."""

    def link(a: int, b: int) -> str:
        apart = abs(a // columns - b // columns) + abs(a % columns - b % columns)
        return SELF if apart == 0 else "ICI1" if apart == 1 else "NVB"

    return tuple(tuple(link(a, b) for b in range(gpus)) for a in range(gpus))


def _linked(gpus: int, link: str, *joined: Sequence[int]) -> tuple[tuple[str, ...], ...]:
    """Return the matrix in which joined[gpu] are reached over a link, and the other GPUs over those."""
    return tuple(
        tuple(SELF if a == b else link if b in joined[a] else "NVB" for b in range(gpus))
        for a in range(gpus)
    )


def _written(*rows: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(row.split()) for row in rows)


def _nics(
    path: str, GBps: float | None, *near: Sequence[int], names: Sequence[str] = ()
) -> tuple[Nic, ...]:
    """Name NICs in order; those near to some GPU get a rail and the path each, the others (storage) none."""
    rails = [sum(bool(gpus) for gpus in near[:nic]) for nic in range(len(near))]
    return tuple(
        Nic(
            names[nic] if names else f"mlx5_{nic}",
            tuple(gpus),
            rail=rails[nic] if gpus else None,
            bandwidth_GBps=GBps,
            path=path if gpus else NO_LINK,
        )
        for nic, gpus in enumerate(near)
    )


def _each(gpus: int, nics_each: int = 1) -> list[tuple[int]]:
    """Near of NICs of which each GPU has so many of its own."""
    return [(gpu,) for gpu in range(gpus) for _ in range(nics_each)]


_PAIRS_OF_8 = ((0, 1), (2, 3), (4, 5), (6, 7))


def _hgx8(
    name: str, gpu: str, cpus: float | None = None, memory_GiB: float | None = None,
    nic_GBps: float | None = None,
) -> Machine:  # fmt: skip
    """Eight GPUs on NVSwitches, four a socket, each with a NIC behind its own PCIe switch."""
    return Machine(
        name, 8, gpu, _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4, _nics("PIX", nic_GBps, *_each(8)),
        cpus=cpus, memory_GiB=memory_GiB,
    )  # fmt: skip


def _mi8(name: str, gpu: str, nics: tuple[Nic, ...] = ()) -> Machine:
    """Eight GPUs that xGMI links join all to all, four a socket."""
    return Machine(
        name, 8, gpu, _all_to_all(8, "XGMI1"), _TWO_SOCKETS_OF_4, nics, nics_counted=bool(nics)
    )


def _tpu_host(
    name: str, gpu: str, chips: int, *, columns: int = 2, nics: int | None = None,
    nic_GBps: float | None = None, memory_GiB: float | None = None,
) -> Machine:  # fmt: skip
    """Chips of one TPU host; nics None where not told."""
    cards = tuple(
        Nic(f"eth{nic}", bandwidth_GBps=nic_GBps) for nic in range(nics or 0)
    )  # near to no chip in particular
    return Machine(
        name, chips, gpu, _meshed(columns, chips), (None,) * chips, cards,
        memory_GiB=memory_GiB, nics_counted=nics is not None,
    )  # fmt: skip


_DGX_A100 = Machine(
    "dgx-a100", 8, "A100-80GB", _all_to_all(8, "NV12"), numa=(3, 3, 1, 1, 7, 7, 5, 5),
    nics=_nics("PXB", _200G, (0, 1), (0, 1), (2, 3), (2, 3), (4, 5), (4, 5), (6, 7), (6, 7), (), ()),
    cpus=256, memory_GiB=2048,
)  # fmt: skip

_HGX_A100 = replace(
    _DGX_A100,
    name="hgx-a100",
    nics=tuple(replace(nic, bandwidth_GBps=None) for nic in _DGX_A100.nics),
    cpus=None,
    memory_GiB=None,
)

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
    numa=_TWO_SOCKETS_OF_4, nics=_nics("PIX", _100G, *_PAIRS_OF_8), cpus=80, memory_GiB=512,
)  # fmt: skip

_DGX_2_NEAR = ((0, 1), (2, 3), (4, 5), (6, 7), (), (), (8, 9), (10, 11), (12, 13), (14, 15))
_DGX_2 = Machine(
    "dgx-2", 16, "V100-32GB", _all_to_all(16, "NV6"), numa=(0,) * 8 + (1,) * 8,
    nics=_nics("PIX", _100G, *_DGX_2_NEAR), cpus=96, memory_GiB=1536,
)  # fmt: skip

_NVIDIA = (
    _hgx8("dgx-h100", "H100-80GB", cpus=224, memory_GiB=2048, nic_GBps=_400G),
    _hgx8("dgx-h200", "H200-141GB", cpus=224, memory_GiB=2048, nic_GBps=_400G),
    _hgx8("dgx-b200", "B200-180GB", cpus=224, memory_GiB=2048, nic_GBps=_400G),
    _hgx8("dgx-b300", "B300-288GB", nic_GBps=_800G),
    _hgx8("hgx-h100", "H100-80GB"),
    _hgx8("hgx-h200", "H200-141GB"),
    _hgx8("hgx-b200", "B200-180GB"),
    _hgx8("hgx-b300", "B300-288GB"),
    _DGX_A100,
    replace(_DGX_A100, name="dgx-a100-40", gpu="A100-40GB", memory_GiB=1024),
    _HGX_A100,
    Machine("hgx-a100-4", 4, "A100-40GB", _all_to_all(4, "NV4"), (0,) * 4, _nics("PXB", None, *_each(4))),
    Machine("gb200-nvl72-tray", 4, "GB200-186GB", _all_to_all(4, "NV18"), (0, 0, 1, 1),
            _nics(NO_LINK, _400G, *_each(4)), cpus=144, memory_GiB=960),
    Machine("gb300-nvl72-tray", 4, "GB300-288GB", _all_to_all(4, "NV18"), (0, 0, 1, 1),
            _nics(NO_LINK, _800G, *_each(4)), cpus=144, memory_GiB=960),
    _DGX_1,
    replace(_DGX_1, name="dgx-1-v100-16", gpu="V100-16GB"),
    _DGX_2,
    Machine("a100-pcie-pairs-4", 4, "A100-80GB", _nested(4, (2, "NV12"), beyond="SYS"), (0, 1, 2, 3),
            cpus=96, memory_GiB=880),
    Machine("a6000-pairs-8", 8, "A6000-48GB", _nested(8, (2, "NV4"), (4, "NODE"), beyond="SYS"),
            _TWO_SOCKETS_OF_4, _nics("PHB", None, [6], [6]), cpus=128),
    Machine("l40s-8", 8, "L40S-48GB", _nested(8, (4, "NODE"), beyond="SYS"), _TWO_SOCKETS_OF_4),
    Machine("rtx4090-8", 8, "RTX4090-24GB", _nested(8, (4, "PIX"), beyond="SYS"), _TWO_SOCKETS_OF_4,
            _nics("NODE", None, [0, 1, 2, 3]), cpus=112),
    Machine("t4-4", 4, "T4-16GB",
            _written("X SYS SYS SYS", "SYS X NODE NODE", "SYS NODE X NODE", "SYS NODE NODE X"),
            (0, 1, 1, 1), cpus=64),
)  # fmt: skip

_EFA_OF_P4D = ("rdmap16s27", "rdmap32s27", "rdmap144s27", "rdmap160s27")
_EFA_OF_P5 = tuple(f"rdmap{79 + 17 * gpu + nic}s0" for gpu in range(8) for nic in range(4))

_CLOUDS = (
    Machine("aws-p4d", 8, "A100-40GB", _all_to_all(8, "NV12"), _TWO_SOCKETS_OF_4,
            _nics("PIX", _100G, *_PAIRS_OF_8, names=_EFA_OF_P4D), cpus=96, memory_GiB=1152),
    Machine("aws-p4de", 8, "A100-80GB", _all_to_all(8, "NV12"), _TWO_SOCKETS_OF_4,
            _nics("PIX", _100G, *_PAIRS_OF_8, names=_EFA_OF_P4D), cpus=96, memory_GiB=1152),
    Machine("aws-p5", 8, "H100-80GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics("PIX", _100G, *_each(8, 4), names=_EFA_OF_P5), cpus=192, memory_GiB=2048),
    Machine("aws-p5en", 8, "H200-141GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics(NO_LINK, _200G, *_each(8, 2), names=[f"efa{nic}" for nic in range(16)]),
            cpus=192, memory_GiB=2048),
    Machine("aws-p6-b200", 8, "B200-180GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics(NO_LINK, _400G, *_each(8), names=[f"efa{nic}" for nic in range(8)]),
            cpus=192, memory_GiB=2048),
    Machine("gcp-a3-high", 8, "H100-80GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics(NO_LINK, _200G, *_PAIRS_OF_8, names=[f"eth{nic}" for nic in range(1, 5)]),
            cpus=208, memory_GiB=1872),
    Machine("gcp-a3-mega", 8, "H100-80GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics(NO_LINK, _200G, *_each(8), names=[f"eth{nic}" for nic in range(1, 9)]),
            cpus=208, memory_GiB=1872),
    Machine("azure-ndv4", 8, "A100-40GB", _all_to_all(8, "NV12"), (1, 1, 0, 0, 3, 3, 2, 2),
            _nics("PIX", _200G, *(pair for pair in _PAIRS_OF_8 for _ in range(2)),
                  names=[f"mlx5_ib{nic}" for nic in range(8)]), cpus=96, memory_GiB=900),
    Machine("azure-ndv5", 8, "H100-80GB", _all_to_all(8, "NV18"), _TWO_SOCKETS_OF_4,
            _nics("PIX", _400G, *_each(8), names=[f"mlx5_ib{nic}" for nic in range(8)]),
            cpus=96, memory_GiB=1900),
)  # fmt: skip

_AMD = (
    Machine("mi250x-8", 8, "MI250X-64GB",
            _linked(8, "XGMI1", (1, 2, 6), (0, 3, 5), (0, 3, 4), (1, 2, 7), (2, 5, 6), (1, 4, 7),
                    (0, 4, 7), (3, 5, 6)), (0,) * 8, cpus=128, nics_counted=False),
    Machine("mi300a-4", 4, "MI300A-128GB", _all_to_all(4, "XGMI1"), (2, 3, 0, 1),
            _nics("PHB", _200G, *_each(4), names=[f"cxi{nic}" for nic in range(4)])),
    _mi8("mi300x-8", "MI300X-192GB", _nics("PXB", _400G, *_each(8))),
    _mi8("mi308x-8", "MI308X-192GB"),
    _mi8("mi325x-8", "MI325X-256GB"),
    _mi8("mi350x-8", "MI350X-288GB"),
    _mi8("mi355x-8", "MI355X-288GB"),
)  # fmt: skip

_TPUS = (
    _tpu_host("tpu-v4-host", "TPUV4-32GB", 4),
    _tpu_host("tpu-v5e-host", "TPUV5E-16GB", 8, columns=4, nics=2, nic_GBps=_100G, memory_GiB=512),
    _tpu_host("tpu-v5p-host", "TPUV5P-95GB", 4),
    _tpu_host("tpu-v6e-host", "TPUV6E-32GB", 8, columns=4, memory_GiB=1536),
    replace(_tpu_host("tpu-7x-host", "TPU7X-192GB", 4, nics=2), numa=(0, 0, 1, 1)),
)

ALL_MACHINES = (*_NVIDIA, *_CLOUDS, *_AMD, *_TPUS, Machine("cpu-only", 0))
"""All machine models, NVIDIA's first."""
