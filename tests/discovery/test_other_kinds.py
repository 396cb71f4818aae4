"""What a text of another kind looks like: each kind by its sign, none of its own kind refused, any text survived."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.topology.discovery.kinds import KINDS
from gantree.topology.discovery.other_kinds import instead_of

SHARED = Path(__file__).parents[3] / "shared" / "data" / "topology"
KIND_OF_FOLDER = {
    "hwloc": {"hwloc"},
    "ibnetdiscover": {"ibnetdiscover"},
    "k8s": {"kubernetes"},
    "nccl-xml": {"nccl-xml"},
    "rccl-xml": {"nccl-xml"},
    "nvidia-smi-topo": {"nvidia-smi", "nvidia-smi-p2p"},
    "nvidia-smi-xml": {"nvidia-smi-xml"},
    "nvlink-status": {"nvlink-status"},
    "rocm": {"rocm-smi"},
    "slurm": {"slurm", "slurm-yaml", "slurmd"},
    "topograph": {"topograph", "slurm", "slurm-yaml", "csv", "lingjun"},
}


@pytest.mark.parametrize("folder", KIND_OF_FOLDER)
def test_a_sample_is_never_taken_for_a_kind_that_it_is_not(folder: str) -> None:
    files = [path for path in (SHARED / folder).glob("**/*") if path.is_file()]
    if not files:
        pytest.skip("needs the shared samples")
    for path in files:
        told = instead_of("none", path.read_text("utf-8", "replace"))
        kind = (told or "").rpartition("import it as ")[2]
        if told and kind in KINDS:
            assert kind in KIND_OF_FOLDER[folder], path.name


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SWITCHNAME=s0 Nodes=n[0-3]\n", "it looks like Slurm's topology.conf; import it as slurm"),
        ("GPU0\tX\tOK\n", "it looks like `nvidia-smi topo -p2p r`; import it as nvidia-smi-p2p"),
        ("node;rack\nn0;r0\n", "it looks like a table of nodes; import it as csv"),
        ("name: c\ntiers: [node]\n", "it looks like a cluster file, which needs no import"),
        ("\ufeff \n", "the text is empty"),
        ("hello\n", None),
    ],
)
def test_a_text_is_called_what_it_looks_like(text: str, told: str | None) -> None:
    assert instead_of("hwloc", text) == told


def test_a_text_that_may_be_of_the_kind_is_its_parsers_to_judge() -> None:
    both = "SwitchName=s0 Nodes=n0\nkind: List\n"
    assert instead_of("slurm", both) is None
    assert instead_of("kubernetes", both) is None


@given(st.text(st.sampled_from("GPU0 X\tNV,=-:\nnodeswitch{}<>\"'"), max_size=400))
def test_any_text_gets_a_kind_that_there_is_or_none(text: str) -> None:
    told = instead_of("slurm", text)
    assert told is None or "import it as slurm\n" not in f"{told}\n"
    assert told is None or "import" not in told or told.split()[-1] in (*KINDS, "import")
