"""Names of GPU models: a name of the catalogue in any case, or a product name.

Names that NVIDIA's driver gives are `machines.nvidia_names`; what a label gives is read by `listings.kubernetes_nodes`.
"""

import re

from gantree.model.errors import BadInput
from gantree.text.words import WORD_PATTERN, did_you_mean, shortened
from gantree.topology.discovery.machines.devices.nvidia_names import model_name
from gantree.topology.hardware.gpu_models import GPU_MODELS

_BY_KEY = {name.upper(): name for name in GPU_MODELS}
_WORD = re.compile(WORD_PATTERN, re.ASCII)
_SIZE = re.compile(r"(?<![0-9])([0-9]{1,3}) ?GB?(?![0-9A-Za-z])", re.IGNORECASE | re.ASCII)
_BRAND = re.compile(r"NVIDIA|Tesla|GeForce|Quadro", re.IGNORECASE)
MOST_CHARS = 200


def model_written(text: str) -> str | None:
    """Return the model that someone wrote: "NVIDIA H100 80GB HBM3" is "H100-80GB"; None where it is no name of one.

    A plain word that the catalogue does not have is a model of its own ("MI999-1GB").
    """
    if text.upper() in _BY_KEY:
        return _BY_KEY[text.upper()]
    product = _BRAND.search(text[:MOST_CHARS]) is not None
    if _WORD.fullmatch(text) and not product:
        return text
    size = _SIZE.search(text[:MOST_CHARS].replace("-", " "))
    if size is None or not int(size[1]) or len(text) > MOST_CHARS:
        return None
    name = model_name(text.replace("-", " "), int(size[1]) * 1024)
    return name if _WORD.fullmatch(name) else None


def known_model(text: str, option: str) -> str:
    """Return the catalogue's model of a name. BadInput, with the likely ones, where there is none."""
    name = model_written(text)
    if name is not None and name in GPU_MODELS:
        return name
    family = [model for model in GPU_MODELS if model.partition("-")[0].upper() == text.upper()]
    hint = f"Did you mean {' or '.join(family)}?" if family else did_you_mean(text, GPU_MODELS)
    allowed = hint or f"known: {', '.join(GPU_MODELS)}"
    raise BadInput(f"{option} {shortened(text)}: no GPU model of the catalogue; {allowed}")
