"""The model that a job serves, and how, from its command or its description."""

from collections.abc import Sequence
from dataclasses import replace

from gantree.model.jobs import Job
from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.known_models import named_model

SERVERS = (
    "vllm",
    "sglang",
    "sglang.launch_server",
    "vllm.entrypoints.openai.api_server",
    "trtllm-serve",
)
"""Words of commands that serve a model."""
CONTEXT, REQUESTS = 4096, 256
"""Assumed where the command does not set them: a usual context, and the requests that vLLM admits by default."""
QUANTIZED_BYTES = {"fp8": 1.0, "int8": 1.0, "int4": 0.52}
"""Bytes of a parameter; int4 with a scale of 16 bits and a zero of 4 for each 128 (AWQ, GPTQ)."""
BITS_OF_QUANTIZATION = {
    "fp8": "fp8", "w8a8_fp8": "fp8", "fbgemm_fp8": "fp8", "modelopt": "fp8", "int8": "int8", "w8a8_int8": "int8",
    "experts_int8": "int8", "awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4",
    "bitsandbytes": "int4", "modelopt_fp4": "int4", "mxfp4": "int4",
}  # fmt: skip
"""Names that vLLM and SGLang give to quantization; GPTQ and bitsandbytes have 4 bits as a rule."""
OF_DTYPE = {"float32": 4.0, "float": 4.0}
"""Bytes of a value that the command widens; all others have two."""
FIRST_TOKEN_S, TOKEN_S = 2.0, 0.1
"""Targets: those of `gantree fit --serve`."""


def served_by(job: Job) -> tuple[ServedModel, ServingDemand] | None:
    """The model that a job serves and the demand on it; None where it serves none that is known.

    A description (`parallelism: {prefill, decode}` with a `model`) goes before the command, in which a server's words
    name a known model and, as vLLM calls them, the longest context, the most requests at once, and how weights and
    cache are kept.
    """
    serving = job.serving
    if serving is not None and serving.model is not None:
        model = serving.model
        width = round(model.hidden * model.kv_share)
        own = ServedModel(job.name, model.parameters, model.layers, model.hidden, width)
        return own, _demand(model.sequence + model.sequence // 3, model.batch)
    for role in job.roles:
        found = _named_in(role.run)
        if found is not None:
            context = _number(role.run, "--max-model-len", CONTEXT)
            demand = _demand(context, _number(role.run, "--max-num-seqs", REQUESTS))
            weights, cache = _bytes(role.run)
            return found, replace(demand, weight_bytes=weights, cache_bytes=cache)
    return None


def _demand(context: int, requests: int) -> ServingDemand:
    answer = max(1, context // 4)
    prompt = max(1, context - answer)
    return ServingDemand(prompt, answer, prompt + answer, requests, FIRST_TOKEN_S, TOKEN_S)


def _named_in(words: Sequence[str]) -> ServedModel | None:
    if not any(word.rpartition("/")[2] in SERVERS for word in words):
        return None
    return next((model for word in words if (model := named_model(word.rpartition("=")[2]))), None)


def _bytes(words: Sequence[str]) -> tuple[float, float]:
    """Bytes of a parameter and of a value in the cache, as the command sets them."""
    value = OF_DTYPE.get(_text(words, "--dtype"), 2.0)
    bits = BITS_OF_QUANTIZATION.get(_text(words, "--quantization") or _text(words, "-q"), "")
    has_small_cache = _text(words, "--kv-cache-dtype").startswith("fp8")
    return QUANTIZED_BYTES.get(bits, value), 1.0 if has_small_cache else value


def _number(words: Sequence[str], option: str, default: int) -> int:
    """The whole number behind an option."""
    text = _text(words, option)
    return max(2, int(text)) if text.isdecimal() else default


def _text(words: Sequence[str], option: str) -> str:
    """The word behind an option, in one word with it or the next; "" without it."""
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == option:
            return value or (words[at + 1] if at + 1 < len(words) else "")
    return ""
