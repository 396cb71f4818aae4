"""The model that a job serves, and how, from its command or its description."""

from collections.abc import Sequence

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
FIRST_TOKEN_S, TOKEN_S = 2.0, 0.1
"""Targets: those of `gantree fit --serve`."""


def served_by(job: Job) -> tuple[ServedModel, ServingDemand] | None:
    """The model that a job serves and the demand on it; None where it serves none that is known.

    A description (`parallelism: {prefill, decode}` with a `model`) goes before the command, in which a server's words
    name a known model and, as vLLM calls them, the longest context and the most requests at once.
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
            return found, _demand(context, _number(role.run, "--max-num-seqs", REQUESTS))
    return None


def _demand(context: int, requests: int) -> ServingDemand:
    answer = max(1, context // 4)
    prompt = max(1, context - answer)
    return ServingDemand(prompt, answer, prompt + answer, requests, FIRST_TOKEN_S, TOKEN_S)


def _named_in(words: Sequence[str]) -> ServedModel | None:
    if not any(word.rpartition("/")[2] in SERVERS for word in words):
        return None
    return next((model for word in words if (model := named_model(word.rpartition("=")[2]))), None)


def _number(words: Sequence[str], option: str, default: int) -> int:
    """The whole number behind an option, in one word with it or in the next."""
    for at, word in enumerate(words):
        name, _, value = word.partition("=")
        if name == option:
            text = value or (words[at + 1] if at + 1 < len(words) else "")
            return max(2, int(text)) if text.isdecimal() else default
    return default
