"""Devices on which one copy of a model may run: whole GPUs, a MIG instance, or a share, with memory and rates.

Where the numbers are from. Memory bandwidth and arithmetic: `topology.cost.roofline` and `topology.hardware.constants`
(data sheets). 8 bit arithmetic: twice that of 16 bits, by the data sheets of Ada (L4 242 of 121, L40S 733 of 362),
Hopper (H100 1979 of 989), Blackwell and MI300X (2615 of 1307). A MIG instance has its share of memory slices of both
memory and bandwidth, and its share of compute slices of the arithmetic (NVIDIA's MIG user guide). A share of `s` counts
as that part of all three: MPS limits memory and SMs, and nothing limits bandwidth, so beside idle neighbours it is
faster.

Memory that a process sees is less than the name says. VISIBLE_SHARE: 79.2 of 80 GiB of an H100 (vLLM pull request
10511). VISIBLE_SHARE_ECC, of boards with ECC over GDDR6: 22.0 of 24 (A10: zai-org/CogVLM issue 236).
VISIBLE_SHARE_GEFORCE: 23.6 of 24 (RTX 3090: vLLM issue 10517). MIG_SHARE: 9.5 GiB of a 1g.10gb and 4.75 of a 1g.5gb
(NVIDIA's MIG user guide, prints of A100).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gantree.model.jobs import Shape
from gantree.topology.cost.roofline import MEMORY_GBps
from gantree.topology.hardware.constants import traits
from gantree.topology.hardware.gpu_models import GpuModel, gpu_model
from gantree.topology.hardware.mig import MigProfile, MigTable, mig_table

VISIBLE_SHARE = 0.99
VISIBLE_SHARE_ECC = 0.915
VISIBLE_SHARE_GEFORCE = 0.98
MIG_SHARE = 0.96
_ECC_OVER_GDDR = frozenset({"T4", "A2", "A10", "A10G", "A16", "A40", "L4", "L40", "L40S"})
_VISIBLE_GiB = {"B300-288GB": 268.6}

SHARES = (0.125, 0.25, 0.5)
"""Shares of a GPU that are tried."""
WAYS = (1, 2, 4, 8)
"""Ways of tensor parallelism that are tried, inside one node."""
_FIRST_FP8 = 89
"""Compute capability of Ada, the first with 8 bit floating point."""


@dataclass(frozen=True, slots=True)
class Device:
    """What one copy of a model runs on: `gpus` whole GPUs of a model, or a part of one.

    part is the MIG profile or "share 0.25", "" for whole GPUs. memory_GiB (what a process sees), GBps and TFLOPS (16
    bit and 8 bit; 0 where not known) are those of one GPU or of the part. billed is the GPUs that are paid for.
    """

    gpu: str
    gpus: int
    part: str
    shape: Shape
    memory_GiB: float
    GBps: float
    TFLOPS: float
    TFLOPS_8bit: float
    billed: float

    @property
    def kind(self) -> str:
        """gpu, mig or share."""
        return "mig" if self.shape.mig else "share" if self.part else "gpu"

    @property
    def words(self) -> str:
        """For people: `2 x H100-80GB`, `1g.10gb of H100-80GB`."""
        if self.part:
            return f"{self.part} of {self.gpu}"
        return f"{self.gpus} x {self.gpu}"


def devices_of(gpu: str, gpus_of_node: int) -> Iterator[Device]:
    """Devices of a GPU model on nodes of so many GPUs, shares first; none where the model's memory is not known."""
    model = gpu_model(gpu)
    if model is None or model.memory_GiB is None:
        return
    for share in SHARES:
        yield _share(model, gpu, share)
    table = mig_table(gpu)
    for profile in table.profiles if table else ():
        if profile.name.isascii() and not {"+", "-"} & set(profile.name):
            yield _instance(model, gpu, table, profile)
    for ways in WAYS:
        if ways <= gpus_of_node:
            yield _whole(model, gpu, ways)


def visible_GiB(model: GpuModel) -> float:
    """Memory of a GPU as a process sees it."""
    assert model.memory_GiB is not None, "only for models of known memory"
    if model.name in _VISIBLE_GiB:
        return _VISIBLE_GiB[model.name]
    if model.family in _ECC_OVER_GDDR:
        return model.memory_GiB * VISIBLE_SHARE_ECC
    is_geforce = model.family.startswith("RTX") and not model.family.startswith("RTXPRO")
    return model.memory_GiB * (VISIBLE_SHARE_GEFORCE if is_geforce else VISIBLE_SHARE)


def _whole(model: GpuModel, gpu: str, ways: int) -> Device:
    shape = Shape(gpus=ways, models=(gpu,))
    return _device(model, gpu, shape, "", memory=1.0, compute=1.0, billed=float(ways))


def _instance(model: GpuModel, gpu: str, table: MigTable | None, profile: MigProfile) -> Device:
    assert table is not None, "a profile is of a table"
    shape = Shape(mig=profile.name, models=(gpu,))
    memory = profile.memory_slices / table.memory_slices
    compute = profile.compute_slices / table.compute_slices
    return _device(model, gpu, shape, profile.name, memory=memory, compute=compute, billed=compute)


def _share(model: GpuModel, gpu: str, share: float) -> Device:
    memory_GiB = float(int(visible_GiB(model) * share))
    shape = Shape(gpu_share=share, gpu_memory_GiB=memory_GiB, models=(gpu,))
    name = f"share {share:g}"
    return _device(model, gpu, shape, name, memory=share, compute=share, billed=share)


def _device(
    model: GpuModel,
    gpu: str,
    shape: Shape,
    part: str,
    *,
    memory: float,
    compute: float,
    billed: float,
) -> Device:
    """memory and compute are the parts of one GPU."""
    memory_GiB = visible_GiB(model) * memory * (MIG_SHARE if shape.mig else 1.0)
    TFLOPS = traits(gpu).peak_TFLOPS * compute
    return Device(
        gpu=gpu,
        gpus=shape.gpus or 1,
        part=part,
        shape=shape,
        memory_GiB=shape.gpu_memory_GiB or memory_GiB,
        GBps=MEMORY_GBps.get(model.name, 0.0) * memory,
        TFLOPS=TFLOPS,
        TFLOPS_8bit=TFLOPS * (2.0 if _has_8bit(model) else 1.0),
        billed=billed,
    )


def _has_8bit(model: GpuModel) -> bool:
    architecture = model.architecture
    if architecture.startswith("sm"):
        return int(architecture[2:]) >= _FIRST_FP8
    return architecture in {"gfx942", "gfx950"}
