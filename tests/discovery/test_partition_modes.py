"""How AMD GPUs are divided: prints of AMD's tools, with the verdict that each must get, and damage."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.model.errors import BadInput, GantreeError
from gantree.topology.discovery.machines.rocm.partition_modes import Partition, divided, parse
from support.damage import damaged
from support.examples import examples

HEAD = "GPU_ID  MEMORY  ACCELERATOR_TYPE  ACCELERATOR_PROFILE_INDEX  PARTITION_ID\n"


def _static(partitions: int, gpus: int, mode: str) -> str:
    return "\n".join(
        f"GPU: {number}\n    PARTITION:\n        COMPUTE_PARTITION: {mode}\n"
        f"        MEMORY_PARTITION: NPS1\n        PARTITION_ID: {number % partitions}\n"
        for number in range(partitions * gpus)
    )


MI300A = _static(6, 4, "CPX")
"""`amd-smi static --partition` of four MI300A in CPX: galapagos.fluidnumerics.com, "change compute partition"."""
OLD_TABLE = (
    "CURRENT_PARTITION:\n"
    + HEAD
    + "".join(
        f"{number:<8}NPS1    CPX               3                          "
        + ("0,1,2,3,4,5,6,7\n" if number % 8 == 0 else "N/A\n")
        for number in range(16)
    )
)
NEW_TABLE = (
    "CURRENT_PARTITION:\n"
    + HEAD
    + "".join(
        f"{number:<8}NPS1    CPX               3                          {number % 8}\n"
        for number in range(16)
    )
)
"""`amd-smi partition --current` of MI300X in CPX, before and since ROCm 6.4.1: the changelog of amd-smi (MIT)."""
SECONDARY = f"""\
CURRENT_PARTITION:
{HEAD}0       NPS2    DPX               1                          0
1       N/A     N/A               N/A                        1
"""
"""A GPU in DPX and NPS2, whose second partition does not tell: amd-smi's guide to partitioning (MIT)."""
WHOLE = f"""\
CURRENT_PARTITION:
{HEAD}0       NPS1    SPX               0                          0
1       NPS1    SPX               0                          0

MEMORY_PARTITION:
GPU_ID  MEMORY_PARTITION_CAPS  CURRENT_MEMORY_PARTITION
0       N/A                    NPS1
1       N/A                    NPS1

ACCELERATOR_PARTITION_PROFILES:
GPU_ID  PROFILE_INDEX  MEMORY_PARTITION_CAPS  ACCELERATOR_TYPE  PARTITION_ID     NUM_PARTITIONS  NUM_RESOURCES
0       0              N/A                    SPX*              0                1               4
"""
"""`amd-smi partition` of a machine of MI300A: ROCm/ROCm#4477."""
UNTOLD = f"""\
CURRENT_PARTITION:
{HEAD}0            NPS1    N/A               N/A                        N/A
1            NPS1    N/A               N/A                        N/A
GPU: 0
    MEMORY_PARTITION:
        CAPS: N/A
        CURRENT: NPS1
"""
"""The same with an earlier version, which told no mode."""
LIST = """\
GPU: 0
    BDF: 0000:0c:00.0
    UUID: c6ff74a1-0000-1000-80d0-c8f4a2b1e2f3
    KFD_ID: 18421
    NODE_ID: 2
    PARTITION_ID: 0
    RENDER: renderD128
    CARD: card0
    HSA_ID: 2
    HIP_ID: 0
    HIP_UUID: GPU-00000000000000a0

GPU: 1
    BDF: 0000:0c:00.1
    UUID: c6ff74a1-0000-1000-80d0-c8f4a2b1e2f4
    KFD_ID: 48116
    NODE_ID: 3
    PARTITION_ID: 1
    RENDER: renderD129
    CARD: card1
    HSA_ID: 3
    HIP_ID: 1
    HIP_UUID: GPU-00000000000000a1
"""
"""`amd-smi list -e` of the changelog of amd-smi, with UUIDs for those that it leaves out."""
ROCM_SMI = """\
============================ ROCm System Management Interface ============================
=============================== Current Compute Partition ================================
GPU[0]\t\t: Compute Partition: DPX
==========================================================================================
================================ Current Memory Partition ================================
GPU[0]\t\t: Memory Partition: NPS1
==========================================================================================
================================== End of ROCm SMI Log ===================================
"""
"""`rocm-smi --showcomputepartition --showmemorypartition`, a line for each first partition (public logs)."""
JSON_STATIC = json.dumps(
    [
        {"gpu": 0, "partition": {"compute_partition": "DPX", "memory_partition": "NPS1", "partition_id": 0}},
        {"gpu": 1, "partition": {"compute_partition": "N/A", "memory_partition": "N/A", "partition_id": 1}},
    ]
)  # fmt: skip
JSON_TABLE = json.dumps(
    {
        "current_partition": [
            {"gpu_id": number, "memory": "NPS1", "accelerator_type": "SPX",
             "accelerator_profile_index": 0, "partition_id": "0"}
            for number in range(8)
        ]
    }
)  # fmt: skip
JSON_LIST = json.dumps(
    {
        "gpu_data": [
            {"gpu": number, "partition_id": number, "hip_uuid": f"GPU-{number:016x}"}
            for number in (0, 1)
        ]
    }
)


def read(*prints: str) -> list[tuple[str, str | None, int, int]]:
    """(mode, memory, number by which it is changed, partitions) of each GPU."""
    partitions = [each for text in prints for each in parse(text, "p.txt")]
    gpus = divided(partitions, "p.txt")
    return [(each.mode, each.memory, each.number, len(each.partitions)) for each in gpus]


@pytest.mark.parametrize(
    ("prints", "gpus"),
    [
        ([MI300A], [("cpx", "nps1", number, 6) for number in (0, 6, 12, 18)]),
        ([OLD_TABLE], [("cpx", "nps1", 0, 8), ("cpx", "nps1", 8, 8)]),
        ([NEW_TABLE], [("cpx", "nps1", 0, 8), ("cpx", "nps1", 8, 8)]),
        ([SECONDARY], [("dpx", "nps2", 0, 2)]),
        ([WHOLE], [("spx", "nps1", 0, 1), ("spx", "nps1", 1, 1)]),
        ([LIST, ROCM_SMI], [("dpx", "nps1", 0, 2)]),
        ([JSON_STATIC, JSON_LIST], [("dpx", "nps1", 0, 2)]),
        ([JSON_TABLE], [("spx", "nps1", number, 1) for number in range(8)]),
        (["\n" + _static(4, 2, "QPX").replace("\n", "\r\n")], [("qpx", "nps1", 0, 4), ("qpx", "nps1", 4, 4)]),
    ],
)  # fmt: skip
def test_each_print_gets_its_verdict(
    prints: Sequence[str], gpus: list[tuple[str, str | None, int, int]]
) -> None:
    assert read(*prints) == gpus


def test_the_uuid_is_that_of_the_runtime_where_both_are_printed() -> None:
    assert [each.uuid for each in parse(LIST, "p.txt")] == [
        "GPU-00000000000000a0",
        "GPU-00000000000000a1",
    ]
    assert parse(JSON_LIST, "p.txt")[1] == Partition(1, 1, uuid=f"GPU-{1:016x}")


@pytest.mark.parametrize(
    ("prints", "words"),
    [
        ([""], "no GPU in what should be a print of partitions; give `amd-smi static --partition`"),
        (["GPU0 GPU1\nGPU0 X NV18"], "no GPU in"),
        ([UNTOLD], "GPU 0: no PARTITION_ID"),
        ([LIST], "GPU 0: no mode; allowed: one mode of all its partitions"),
        ([ROCM_SMI], "GPU 0: no PARTITION_ID"),
        ([JSON_STATIC, NEW_TABLE], "GPU 0: mode dpx, and then cpx"),
        ([_static(6, 1, "QPX")], "GPU 0: 6 partitions in mode qpx, which makes 4"),
        ([_static(1, 1, "CPX")], "GPU 0: 1 partitions in mode cpx, which makes more"),
        ([_static(8, 1, "CPX").replace("PARTITION_ID: 3", "PARTITION_ID: 5")], "GPU 3 is partition 5 of a GPU whose"),
        ([_static(2, 1, "XPX")], "mode `XPX`; allowed: spx, dpx, tpx, qpx, cpx"),
        ([_static(2, 1, "DPX").replace("NPS1", "NPS3")], "memory mode `NPS3`"),
        ([_static(2, 1, "DPX").replace("PARTITION_ID: 1", "PARTITION_ID: one")], "partition `one`; allowed: a number"),
        (["GPU: 99999\n    COMPUTE_PARTITION: SPX"], "GPU 99999; allowed: numbers below 1024"),
        (['[{"gpu": 0, "partition": "CPX"}]'], "[0].partition: found `CPX`"),
        (['[{"gpu": "a", "uuid": "x"}]'], "[0].gpu: found `a`"),
        (['[{"gpu": 0'], "p.txt:1"),
    ],
)  # fmt: skip
def test_what_is_no_such_print_is_an_error_that_says_where(
    prints: Sequence[str], words: str
) -> None:
    with pytest.raises(BadInput) as error:
        read(*prints)
    assert words in str(error.value)


PRINTS = [MI300A, OLD_TABLE, SECONDARY, LIST, ROCM_SMI, JSON_STATIC, JSON_TABLE]
WORDS = st.sampled_from(
    ["N/A", "CPX", "0,1", "GPU: 3", "GPU[1]", "{", "[", '"gpu": 7', "99999999999999999999"]
)


@settings(max_examples=examples(300), deadline=None)
@given(damaged(PRINTS, st.one_of(WORDS, st.text(max_size=3))))
def test_damaged_prints_are_read_or_refused_by_name(text: str) -> None:
    try:
        gpus = divided(parse(text, "fuzz"), "fuzz")
    except GantreeError as error:
        assert "fuzz" in str(error)
        return
    numbers = [each.number for gpu in gpus for each in gpu.partitions]
    assert numbers == sorted(set(numbers))
