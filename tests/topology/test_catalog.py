"""The machines of the catalogue are well-formed, and can be asked for by name or made from counts."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.model.errors import BadInput
from gantree.topology.catalog import (
    MACHINES,
    PATH_CLASSES,
    SELF,
    bonded_links,
    is_link_class,
    link_GBps,
    machine,
    plain,
    weakness,
)


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
    ],
)
def test_known_machines_have_their_gpus_and_links(
    name: str, gpus: int, gpu: str, link: str
) -> None:
    model = machine(name)
    assert (model.gpus, model.gpu, model.links[0][1]) == (gpus, gpu, link)


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


@pytest.mark.parametrize(
    "gpu", ["H100-80GB", "A100-40GB", "V100-16GB", "B200-180GB", "RTX4090-24GB", None]
)
def test_a_stronger_class_never_has_less_bandwidth(gpu: str | None) -> None:
    classes = [f"NV{width}" for width in (18, 12, 6, 4, 2)] + list(PATH_CLASSES) + [""]
    assert sorted(classes, key=weakness) == classes
    rates = [link_GBps(link, gpu) for link in classes]
    nvlinks, paths = rates[:5], rates[5:]
    assert nvlinks == sorted(nvlinks, reverse=True)
    assert paths == sorted(paths, reverse=True)
    assert paths[-1] == link_GBps("SYS", gpu)


@pytest.mark.parametrize(
    ("link", "gpu", "GBps"),
    [
        ("NV18", "H100-80GB", 450),
        ("NV12", "A100-80GB", 300),
        ("NV6", "V100-32GB", 150),
        ("NV18", "B200-180GB", 900),
        ("NV4", "A6000-48GB", 56.25),
        ("PIX", "H100-80GB", 48),
        ("SYS", "V100-16GB", 10),
    ],
)
def test_link_rates_are_those_of_the_vendor_and_of_nccl(link: str, gpu: str, GBps: float) -> None:
    assert link_GBps(link, gpu) == pytest.approx(GBps)


@pytest.mark.parametrize("word", ["NV0", "NV", "nv4", "X", "", "OK", "NV1234", "SOC"])
def test_other_words_are_no_link_classes(word: str) -> None:
    assert not is_link_class(word)
