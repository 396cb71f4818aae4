"""GPU models: names, memory, links, and what a link class carries between two of them."""

import re
from pathlib import Path
from xml.etree.ElementTree import parse

import pytest

from gantree.topology.discovery.machines.devices.nvidia_names import model_name
from gantree.topology.hardware.gpu_models import GPU_MODELS, gpu_model
from gantree.topology.hardware.link_classes import PATH_CLASSES, link_GBps
from gantree.topology.hardware.mig import TABLES

SAMPLES = Path(__file__).parents[2] / ".." / "shared" / "data" / "topology" / "nvidia-smi-xml"


@pytest.mark.parametrize("name", sorted(GPU_MODELS))
def test_every_model_is_well_formed(name: str) -> None:
    model = GPU_MODELS[name]
    family, _, memory = name.partition("-")
    assert model.family == family
    assert (model.memory_GiB is None) == (not memory)
    assert not memory or model.memory_GiB == float(memory.removesuffix("GB"))
    assert re.fullmatch(r"sm\d+|gfx9[0-9a-f]+|tpu-.+", model.architecture)
    assert (model.link == "") == (model.links == 0)
    assert model.mig is None or model.mig in TABLES


@pytest.mark.parametrize(
    ("name", "GBps"),
    [
        # Vendors' figures for all links of one GPU, in one direction.
        ("P100-16GB", 80),
        ("V100-32GB", 150),
        ("A30-24GB", 100),
        ("A100-80GB", 300),
        ("A800-80GB", 200),
        ("H100-80GB", 450),
        ("H100-94GB", 300),
        ("H20-96GB", 450),
        ("B200-180GB", 900),
        ("GB300-288GB", 900),
        ("A6000-48GB", 56.25),
        ("MI300X-192GB", 448),
        ("MI355X-288GB", 535.5),
        ("TPUV5E-16GB", 200),
        ("TPUV5P-95GB", 600),
        ("TPUV6E-32GB", 400),
        ("TPU7X-192GB", 600),
    ],
)
def test_links_add_up_to_what_the_vendor_says_of_a_gpu(name: str, GBps: float) -> None:
    model = GPU_MODELS[name]
    assert (model.links or 0) * (model.link_GBps or 0) == pytest.approx(GBps)


@pytest.mark.parametrize("written", ["H100-80GB", "h100-80gb", "H100 - 80GB"])
def test_case_and_spaces_of_a_name_do_not_matter(written: str) -> None:
    assert gpu_model(written) is GPU_MODELS["H100-80GB"]


def test_a_name_without_a_known_memory_has_the_links_of_its_family_but_no_memory_and_no_mig() -> (
    None
):
    model = gpu_model("A100")
    assert model is not None
    assert (model.links, model.link_GBps, model.memory_GiB, model.mig) == (12, 25.0, None, None)
    assert gpu_model("Voodoo2-12GB") is None
    assert gpu_model(None) is None


@pytest.mark.skipif(not SAMPLES.exists(), reason="the topology samples are not at hand")
@pytest.mark.parametrize("sample", sorted(SAMPLES.glob("*.xml")), ids=lambda path: path.stem)
def test_what_real_drivers_print_is_a_model_of_the_catalogue(sample: Path) -> None:
    gpu = next(parse(sample).getroot().iter("gpu"))
    memory = (gpu.findtext("fb_memory_usage/total") or "").split()[0]
    name = model_name(gpu.findtext("product_name") or "", int(memory))
    assert name in GPU_MODELS


WIDTHS = {
    "NVLink": ("NV", (18, 12, 6, 4, 2)),
    "xGMI": ("XGMI", (7, 4, 2, 1)),
    "ICI": ("ICI", (2, 1)),
}


@pytest.mark.parametrize("gpu", [*sorted(GPU_MODELS), "RTX4099-99GB", None])
def test_a_stronger_class_never_has_less_bandwidth(gpu: str | None) -> None:
    model = gpu_model(gpu)
    kind = (model.link if model else "").rstrip("0123456789") or "NVLink"
    prefix, widths = WIDTHS[kind]
    classes = [*(f"{prefix}{width}" for width in widths), *PATH_CLASSES, ""]
    rates = [link_GBps(link, gpu) for link in classes]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == link_GBps("SYS", gpu)
    assert rates[-1] > 0


@pytest.mark.parametrize(
    ("link", "gpu", "GBps"),
    [
        ("NV18", "H100-80GB", 450),
        ("NV12", "A100-80GB", 300),
        ("NV6", "V100-32GB", 150),
        ("NV18", "B200-180GB", 900),
        ("NV4", "A6000-48GB", 56.25),
        ("NVB", "V100-16GB", 25),
        ("NVB", "H100-80GB", 48),
        ("XGMI1", "MI300X-192GB", 64),
        ("XGMI1", "MI250X-64GB", 50),
        ("XGMI2", "H100-80GB", 100),
        ("ICI1", "TPUV6E-32GB", 100),
        ("NV4", "T4-16GB", 100),
        ("PIX", "H100-80GB", 48),
        ("PIX", "A2-16GB", 12),
        ("PHB", "A100-80GB", 20),
        ("SYS", "V100-16GB", 10),
        ("", "V100-16GB", 10),
    ],
)
def test_link_rates_are_those_of_the_vendor_and_of_nccl(link: str, gpu: str, GBps: float) -> None:
    assert link_GBps(link, gpu) == pytest.approx(GBps)
