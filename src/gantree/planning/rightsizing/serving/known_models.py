"""Models that people serve, by name. Models with sliding windows, state spaces or latent caches (MLA) are not here.

Figures are those of each model's published configuration (config.json of `source` on Hugging Face), and its parameters:
layers, width, heads, heads of keys and values, width of a head, size of the vocabulary, and whether the output table is
the input's. `tests/planning/serving` adds the parameters up from these and the width of the feed-forward layers.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gantree.model.errors import BadInput
from gantree.model.served_models import ServedModel
from gantree.text.words import did_you_mean


def _model(
    name: str,
    billions: float,
    layers: int,
    hidden: int,
    heads: tuple[int, int],
    vocabulary: int,
    longest: int,
    source: str,
    *,
    head_width: int = 128,
    tied: bool = False,
    experts: tuple[int, int, float] = (0, 1, 0.0),
) -> ServedModel:
    """heads are (of queries, of keys and values); experts (how many, how many a token meets, billions in them)."""
    count, per_token, of_experts = experts
    return ServedModel(
        name, billions * 1e9, layers, hidden, heads[1] * head_width, heads[0], heads[1], vocabulary, tied,
        count, per_token, of_experts * 1e9, longest, source,
    )  # fmt: skip


_ALL = (
    _model("llama-2-7b", 6.738, 32, 4096, (32, 32), 32000, 4096, "meta-llama/Llama-2-7b-hf"),
    _model("llama-2-13b", 13.016, 40, 5120, (40, 40), 32000, 4096, "meta-llama/Llama-2-13b-hf"),
    _model("llama-2-70b", 68.977, 80, 8192, (64, 8), 32000, 4096, "meta-llama/Llama-2-70b-hf"),
    _model("llama-3-8b", 8.030, 32, 4096, (32, 8), 128256, 8192, "meta-llama/Meta-Llama-3-8B"),
    _model("llama-3-70b", 70.554, 80, 8192, (64, 8), 128256, 8192, "meta-llama/Meta-Llama-3-70B"),
    _model("llama-3.1-8b", 8.030, 32, 4096, (32, 8), 128256, 131072, "meta-llama/Llama-3.1-8B"),
    _model("llama-3.1-70b", 70.554, 80, 8192, (64, 8), 128256, 131072, "meta-llama/Llama-3.1-70B"),
    _model("llama-3.1-405b", 405.853, 126, 16384, (128, 8), 128256, 131072, "meta-llama/Llama-3.1-405B"),
    _model("llama-3.2-1b", 1.236, 16, 2048, (32, 8), 128256, 131072, "meta-llama/Llama-3.2-1B",
        head_width=64, tied=True),
    _model("llama-3.2-3b", 3.213, 28, 3072, (24, 8), 128256, 131072, "meta-llama/Llama-3.2-3B", tied=True),
    _model("llama-3.3-70b", 70.554, 80, 8192, (64, 8), 128256, 131072, "meta-llama/Llama-3.3-70B-Instruct"),
    _model("mistral-7b", 7.248, 32, 4096, (32, 8), 32768, 32768, "mistralai/Mistral-7B-v0.3"),
    _model("mixtral-8x7b", 46.703, 32, 4096, (32, 8), 32000, 32768, "mistralai/Mixtral-8x7B-v0.1",
        experts=(8, 2, 45.097)),
    _model("mixtral-8x22b", 140.630, 56, 6144, (48, 8), 32000, 65536, "mistralai/Mixtral-8x22B-v0.1",
        experts=(8, 2, 135.291)),
    _model("qwen2.5-0.5b", 0.494, 24, 896, (14, 2), 151936, 32768, "Qwen/Qwen2.5-0.5B", head_width=64, tied=True),
    _model("qwen2.5-1.5b", 1.544, 28, 1536, (12, 2), 151936, 32768, "Qwen/Qwen2.5-1.5B", tied=True),
    _model("qwen2.5-3b", 3.086, 36, 2048, (16, 2), 151936, 32768, "Qwen/Qwen2.5-3B", tied=True),
    _model("qwen2.5-7b", 7.616, 28, 3584, (28, 4), 152064, 32768, "Qwen/Qwen2.5-7B"),
    _model("qwen2.5-14b", 14.770, 48, 5120, (40, 8), 152064, 32768, "Qwen/Qwen2.5-14B"),
    _model("qwen2.5-32b", 32.764, 64, 5120, (40, 8), 152064, 32768, "Qwen/Qwen2.5-32B"),
    _model("qwen2.5-72b", 72.706, 80, 8192, (64, 8), 152064, 32768, "Qwen/Qwen2.5-72B"),
    _model("qwen3-8b", 8.191, 36, 4096, (32, 8), 151936, 40960, "Qwen/Qwen3-8B"),
    _model("qwen3-32b", 32.762, 64, 5120, (64, 8), 151936, 40960, "Qwen/Qwen3-32B"),
    _model("qwen3-30b-a3b", 30.532, 48, 2048, (32, 4), 151936, 40960, "Qwen/Qwen3-30B-A3B", experts=(128, 8, 28.991)),
    _model("phi-4", 14.660, 40, 5120, (40, 10), 100352, 16384, "microsoft/phi-4"),
)  # fmt: skip

KNOWN_MODELS: Mapping[str, ServedModel] = MappingProxyType({model.name: model for model in _ALL})
"""All of them, by name."""


VARIANTS = ("-instruct", "-chat", "-hf")
"""What a name says of how a model was trained on, which changes neither its memory nor its speed."""


def known_model(name: str) -> ServedModel:
    """Return the model of a name or repository, whatever its case. Raises BadInput with the nearest one."""
    model = named_model(name)
    if model is None:
        hint = did_you_mean(name.lower(), list(KNOWN_MODELS))
        known = f"Known are {', '.join(KNOWN_MODELS)}; or name a job file with a `model`."
        raise BadInput(f"no model {name!r}. {f'{hint} ' if hint else ''}{known}")
    return model


def named_model(word: str) -> ServedModel | None:
    """The model that a word names: `llama-3.1-8b`, or meta-llama/Llama-3.1-8B-Instruct; None for any other word."""
    return _OF_NAME.get(_plain(word))


def _plain(name: str) -> str:
    plain = name.lower()
    for variant in VARIANTS:
        plain = plain.replace(variant, "")
    return plain


_OF_NAME = {_plain(name): model for model in _ALL for name in (model.source, model.name)}
