"""The machines of the catalogue are well-formed, and can be asked for by name or made from counts."""

import re
from pathlib import Path
from xml.etree.ElementTree import Element, parse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.topology.hardware.catalog import (
    MACHINES,
    PATH_CLASSES,
    SELF,
    bonded_links,
    is_link_class,
    machine,
    plain,
    weakness,
)
from gantree.topology.hardware.gpu_models import GPU_MODELS

XML = Path(__file__).parents[2] / ".." / "shared" / "data" / "topology"


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_machine_of_the_catalogue_is_well_formed(name: str) -> None:
    model = machine(name)
    gpus = range(model.gpus)
    assert model.name == name
    assert len(model.links) == len(model.numa) == model.gpus
    for a in gpus:
        assert len(model.links[a]) == model.gpus
        assert model.links[a][a] == SELF
        assert all(is_link_class(model.links[a][b]) for b in gpus if b != a)
        assert all(model.links[a][b] == model.links[b][a] for b in gpus)
    assert all(set(nic.near) <= set(gpus) for nic in model.nics)
    assert len({nic.name for nic in model.nics}) == len(model.nics)
    rails = [nic.rail for nic in model.nics if nic.near]
    assert rails == list(range(len(rails)))
    if model.gpus:
        assert re.fullmatch(r"[A-Z0-9]+-[0-9]+GB", model.gpu or "")


@pytest.mark.parametrize(
    ("name", "gpus", "gpu", "link"),
    [
        ("dgx-h100", 8, "H100-80GB", "NV18"),
        ("dgx-h200", 8, "H200-141GB", "NV18"),
        ("dgx-b200", 8, "B200-180GB", "NV18"),
        ("dgx-a100", 8, "A100-80GB", "NV12"),
        ("dgx-a100-40", 8, "A100-40GB", "NV12"),
        ("dgx-2", 16, "V100-32GB", "NV6"),
        ("hgx-h100", 8, "H100-80GB", "NV18"),
        ("hgx-h200", 8, "H200-141GB", "NV18"),
        ("hgx-a100-4", 4, "A100-40GB", "NV4"),
        ("gb200-nvl72-tray", 4, "GB200-186GB", "NV18"),
        ("l40s-8", 8, "L40S-48GB", "NODE"),
        ("t4-4", 4, "T4-16GB", "SYS"),
        ("dgx-b300", 8, "B300-288GB", "NV18"),
        ("gb300-nvl72-tray", 4, "GB300-288GB", "NV18"),
        ("aws-p4d", 8, "A100-40GB", "NV12"),
        ("aws-p5", 8, "H100-80GB", "NV18"),
        ("azure-ndv4", 8, "A100-40GB", "NV12"),
        ("gcp-a3-mega", 8, "H100-80GB", "NV18"),
        ("mi300x-8", 8, "MI300X-192GB", "XGMI1"),
        ("mi250x-8", 8, "MI250X-64GB", "XGMI1"),
        ("tpu-v5e-host", 8, "TPUV5E-16GB", "ICI1"),
    ],
)
def test_known_machines_have_their_gpus_and_links(
    name: str, gpus: int, gpu: str, link: str
) -> None:
    model = machine(name)
    assert (model.gpus, model.gpu, model.links[0][1]) == (gpus, gpu, link)


@pytest.mark.parametrize(
    ("name", "nics", "GBps", "path"),
    [
        # Node totals: stas00/ml-engineering, network; one direction.
        ("dgx-h100", 8, 400, "PIX"),
        ("dgx-b300", 8, 800, "PIX"),
        ("dgx-a100", 8, 200, "PXB"),
        ("aws-p4d", 4, 50, "PIX"),
        ("aws-p5", 32, 400, "PIX"),
        ("aws-p5en", 16, 400, ""),
        ("aws-p6-b200", 8, 400, ""),
        ("gcp-a3-high", 4, 100, ""),
        ("gcp-a3-mega", 8, 200, ""),
        ("azure-ndv4", 8, 200, "PIX"),
        ("azure-ndv5", 8, 400, "PIX"),
        ("gb200-nvl72-tray", 4, 200, ""),
        ("mi300x-8", 8, 400, "PXB"),
    ],
)
def test_nics_near_gpus_add_up_to_what_the_node_has(
    name: str, nics: int, GBps: float, path: str
) -> None:
    near = [nic for nic in machine(name).nics if nic.near]
    assert (len(near), sum(nic.bandwidth_GBps or 0 for nic in near)) == (nics, GBps)
    assert {nic.path for nic in near} == {path}


@pytest.mark.skipif(not XML.exists(), reason="the topology samples are not at hand")
@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("aws-p4d", "nccl-xml/aws-p4d-24xl-topo.xml"),
        ("aws-p5", "nccl-xml/aws-p5.48xl-topo.xml"),
        ("azure-ndv4", "nccl-xml/azure-ndv4-topo.xml"),
        ("mi300x-8", "rccl-xml/topo_8p_940.xml"),
        ("mi300a-4", "rccl-xml/topo_4p_940.xml"),
    ],
)
def test_machines_of_clouds_are_as_the_topology_files_of_their_libraries(
    name: str, sample: str
) -> None:
    """A NIC is near the GPUs of its outermost PCI switch (or CPU); GPUs and NICs count by PCI bus or by dev."""
    root = parse(XML / sample).getroot()
    gpu_number, nic_number = (
        _numbers(root, {"0x0302", "0x1200"}),
        _numbers(root, {"0x0200", "0x0207"}),
    )
    near: dict[int, tuple[int, ...]] = {}
    numa: dict[int, int] = {}
    for cpu in root.iter("cpu"):
        branches = [cpu] if name == "mi300a-4" else list(cpu)
        for branch in branches:
            gpus = sorted(gpu_number[pci] for pci in branch.iter("pci") if pci in gpu_number)
            near |= {nic_number[p]: tuple(gpus) for p in branch.iter("pci") if p in nic_number}
            numa |= dict.fromkeys(gpus, int(cpu.get("numaid", "")))
    model = machine(name)
    assert [nic.near for nic in model.nics] == [near[nic] for nic in sorted(near)]
    if name != "aws-p5":  # its file gives one CPU where EC2 has two sockets
        assert model.numa == tuple(numa[gpu] for gpu in sorted(numa))


def _numbers(root: Element, kinds: set[str]) -> dict[Element, int]:
    """Number the PCI devices of some classes: by the dev of what is inside them, or else by bus id."""
    found = [pci for pci in root.iter("pci") if (pci.get("class") or "")[:6] in kinds]
    inside = {pci: next((e for e in pci.iter() if e.get("dev")), None) for pci in found}
    if all(each is not None for each in inside.values()):
        return {pci: int(each.get("dev", "")) for pci, each in inside.items() if each is not None}
    return {pci: at for at, pci in enumerate(sorted(found, key=lambda p: p.get("busid", "")))}


@pytest.mark.skipif(not XML.exists(), reason="the topology samples are not at hand")
def test_the_links_of_mi250x_are_those_of_rccl() -> None:
    root = parse(XML / "rccl-xml/topo_8p_90a.xml").getroot()
    gpus = [pci for pci in root.iter("pci") if pci.find("gpu") is not None]
    number = {pci.get("busid"): at for at, pci in enumerate(gpus)}
    for a, pci in enumerate(gpus):
        joined = {number[link.get("target")] for link in pci.iter("xgmi")}
        row = machine("mi250x-8").links[a]
        assert {b for b, link in enumerate(row) if link == "XGMI1"} == joined


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_gpu_of_a_machine_has_a_model(name: str) -> None:
    gpu = machine(name).gpu
    assert gpu is None or gpu in GPU_MODELS


def test_six_nvlinks_leave_every_gpu_of_the_hybrid_cube_mesh() -> None:
    for row in machine("dgx-1-v100").links:
        assert sum(bonded_links(link) for link in row) == 6


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("dgx-h10", "did you mean dgx-h100"),
        ("DGX-H100", "did you mean dgx-h100"),
        ("?", "known: .*cpu-only"),
    ],
)
def test_an_unknown_machine_is_refused_with_the_nearest_names(name: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        machine(name)


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_plain_machine_shares_its_nics_out_evenly(gpus: int, nics: int) -> None:
    model = plain("m", gpus, "H100-80GB", 96, 1024, nics)
    assert [nic.name for nic in model.nics] == [f"mlx5_{i}" for i in range(nics)]
    assert (model.links, model.numa, model.cpus, model.memory_GiB) == ((), (), 96, 1024)
    if gpus and nics:
        nics_of_gpu = [sum(gpu in nic.near for nic in model.nics) for gpu in range(gpus)]
        gpus_of_nic = [len(nic.near) for nic in model.nics]
        assert min(nics_of_gpu) >= 1 and min(gpus_of_nic) >= 1
        assert max(nics_of_gpu) - min(nics_of_gpu) <= 1
        assert max(gpus_of_nic) - min(gpus_of_nic) <= 1


def test_a_plain_machine_refuses_negative_counts() -> None:
    with pytest.raises(BadInput, match="negative"):
        plain("m", 4, nics=-1)


@pytest.mark.parametrize("word", ["NV0", "NV", "nv4", "X", "", "OK", "NV1234", "SOC"])
def test_other_words_are_no_link_classes(word: str) -> None:
    assert not is_link_class(word)


def test_link_classes_are_ordered_from_the_widest_to_the_unknown() -> None:
    classes = ["NV18", "NV4", "XGMI2", "NV1", *PATH_CLASSES, ""]
    assert sorted(classes, key=weakness) == classes
    assert weakness("NV1") == weakness("XGMI1") == weakness("ICI1")
