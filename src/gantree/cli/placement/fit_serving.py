"""`gantree fit --serve`: what a served model needs on each kind of device of a cluster, for people and for programs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from gantree.cli.input.durations import seconds_of
from gantree.cli.input.files import read_text, source_of
from gantree.cli.output.figures import digits, dollars
from gantree.cli.output.printing import columns, print_json
from gantree.formats import read_job
from gantree.model.errors import BadInput
from gantree.model.jobs import COMPUTE_PARTITIONS, Job, Transformer
from gantree.model.served_models import ServedModel, ServingDemand
from gantree.planning.rightsizing.serving.known_models import known_model
from gantree.planning.rightsizing.serving.memory import USED_SHARE
from gantree.planning.rightsizing.serving.served_by_command import QUANTIZED_BYTES
from gantree.planning.rightsizing.serving.sizing import (
    ServingOption,
    best_of_kind,
    serving_options,
)
from gantree.text.words import plural
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import PriceList

REFUSED = 3
WEIGHT_BYTES = {"bf16": 2.0, **QUANTIZED_BYTES}
"""Bytes of a parameter."""
CACHE_BYTES = {"bf16": 2.0, "fp8": 1.0}
CONTEXT = 4096
HEAD = ("", "DEVICE", "COPIES", "REQUESTS", "MEMORY", "FIRST TOKEN", "TOKEN", "LIMIT", "PRICE")


@dataclass(frozen=True, slots=True)
class ServingWords:
    """What the command line says of a service; None for what it does not."""

    context: int | None = None
    answer: int | None = None
    requests: int | None = None
    first_token: str | None = None
    token: str | None = None
    weights: str | None = None
    cache: str | None = None
    output: str | None = None
    all_ways: bool = False

    def refuse_unless_serving(self) -> None:
        """Raise BadInput if any of them is there, for who does not serve."""
        if self != ServingWords():
            raise BadInput(
                "options of a service need --serve: gantree fit CLUSTER MODEL --serve ..."
            )


def fit_serving(
    fabric: Fabric, what: str, words: ServingWords, prices: PriceList, *, as_json: bool
) -> None:
    """Print the ways to serve a known model, or that of a job file. Exit status 3 if none meets the demand.

    Raises BadInput and BadFields.
    """
    model, value_bytes = _model(what)
    demand = _demand(model, words, value_bytes)
    ways = serving_options(model, demand, fabric, prices)
    best = next((way for way in ways if way.does), None)
    if best is not None and words.output is not None:
        Path(words.output).write_text(
            job_text(model, demand, best, words.weights), encoding="utf-8"
        )
    if as_json:
        print_json(_json(model, demand, ways))
    else:
        shown = ways if words.all_ways else best_of_kind(ways)
        typer.echo("\n".join(_lines(model, demand, shown, best)))
    if best is None:
        raise typer.Exit(REFUSED)


def _model(what: str) -> tuple[ServedModel, float]:
    """(the model, bytes of its values): a known one by name, or that which a job file describes."""
    if what != "-" and not Path(what).exists():
        return known_model(what), 2.0
    jobs = read_job(read_text(what), source_of(what))
    described = jobs[0].trains or (jobs[0].serving.model if jobs[0].serving else None)
    if described is None:
        raise BadInput(f"{source_of(what)}: job {jobs[0].name} has no `model`, so nothing to size")
    return _described(jobs[0], described), described.value_bytes


def _described(job: Job, model: Transformer) -> ServedModel:
    kv_width = round(model.hidden * model.kv_share)
    return ServedModel(
        job.name, model.parameters, model.layers, model.hidden, kv_width, experts=model.experts,
        experts_per_token=model.experts_per_token, expert_parameters=model.expert_parameters,
    )  # fmt: skip


def _demand(model: ServedModel, words: ServingWords, value_bytes: float) -> ServingDemand:
    context = words.context or min(CONTEXT, model.longest or CONTEXT)
    if model.longest is not None and context > model.longest:
        raise BadInput(
            f"--context: found {context}; {model.name} is made for at most {model.longest} tokens"
        )
    answer = words.answer or max(1, context // 4)
    if answer >= context:
        raise BadInput(
            f"--answer: found {answer}; allowed: less than the context of {context} tokens, which has the prompt too"
        )
    return ServingDemand(
        prompt=context - answer,
        answer=answer,
        context=context,
        requests=words.requests or 16,
        first_token_s=seconds_of("--ttft", words.first_token or "2s"),
        token_s=seconds_of("--tpot", words.token or "100ms"),
        weight_bytes=_bytes("--weights", words.weights, WEIGHT_BYTES, value_bytes),
        cache_bytes=_bytes("--kv-cache", words.cache, CACHE_BYTES, 2.0),
    )


def _bytes(option: str, word: str | None, known: dict[str, float], default: float) -> float:
    if word is None:
        return default
    if word not in known:
        raise BadInput(f"{option}: found {word!r}; allowed: {', '.join(known)}")
    return known[word]


# ----- for people


def _lines(
    model: ServedModel,
    demand: ServingDemand,
    ways: Sequence[ServingOption],
    best: ServingOption | None,
) -> Iterator[str]:
    tokens = f"{demand.prompt} tokens of prompt and {demand.answer} of answer"
    yield f"{model.name}: {plural(demand.requests, 'request')} at once, each of {tokens}"
    target = f"{_ms(demand.first_token_s)} to the first token, {_ms(demand.token_s)} between tokens"
    yield f"target: {target}, with nobody waiting"
    yield columns(HEAD, (_row(number, way) for number, way in enumerate(ways, 1)))
    for way in ways:
        if way.why_not:
            yield f"excluded: {way.why_not}"
    unpriced = dict.fromkeys(
        way.device.gpu for way in ways if way.does and way.USD_per_hour is None
    )
    for gpu in unpriced:
        yield f"note: the price of {gpu} is not known; --prices FILE gives it"
    if best is None:
        yield "No device of this cluster meets the target."
    else:
        yield f"{_superlative(best)}: {_each(best)}"


def _superlative(best: ServingOption) -> str:
    return "fewest GPUs" if best.USD_per_hour is None else "cheapest"


def _row(number: int, way: ServingOption) -> tuple[str, ...]:
    memory = way.memory
    needs = memory.weights + memory.activations + memory.reserve + memory.request
    used = f"{digits(needs)} of {digits(memory.usable)} GiB"
    if not way.does:
        return ("-", way.device.words, "", "", used, "", "", way.limit, "")
    assert way.first_token_s is not None and way.token_s is not None, "measured where it does"
    price = "?" if way.USD_per_hour is None else f"{dollars(way.USD_per_hour)}/h"
    return (
        str(number), way.device.words, str(way.copies), str(way.requests_of_copy), used,
        _ms(way.first_token_s), _ms(way.token_s), way.limit, price,
    )  # fmt: skip


def _ms(seconds: float) -> str:
    return f"{digits(seconds)} s" if seconds >= 1.0 else f"{digits(seconds * 1e3)} ms"


# ----- the job file


def _each(way: ServingOption) -> str:
    """What a job file says of the device."""
    shape = way.device.shape
    if shape.mig:
        field = "compute_partition" if shape.mig in COMPUTE_PARTITIONS else "mig"
        each = f"{field}: {shape.mig}"
    elif shape.gpu_share:
        each = f"gpu_share: {shape.gpu_share:g}, gpu_memory_GiB: {shape.gpu_memory_GiB:g}"
    else:
        each = f"gpus: {shape.gpus}"
    return f"each: {{{each}}}, gpu: [{way.device.gpu}]"


def job_text(
    model: ServedModel, demand: ServingDemand, way: ServingOption, weights: str | None = None
) -> str:
    """A job file of one copy of the model, or of an array of them. weights is their format, None as published."""
    device = way.device
    options: dict[str, int | str] = {
        "--tensor-parallel-size": device.gpus,
        "--max-model-len": demand.context,
        "--max-num-seqs": way.requests_of_copy,
    }
    if demand.cache_bytes == CACHE_BYTES["fp8"]:
        options["--kv-cache-dtype"] = "fp8"
    if device.kind == "share":
        options["--gpu-memory-utilization"] = f"{USED_SHARE * device.billed:.3f}"
    words = ["vllm", "serve", model.source or model.name]
    words += [str(word) for option in options.items() for word in option]
    run = ", ".join(f'"{word}"' if word[0] in "-0123456789" else word for word in words)
    lines = [
        f"# {demand.requests} requests at once of {demand.context} tokens, sized by `gantree fit --serve`.",
        *_weights_note(weights),
        f"name: {model.name}",
        "gang:",
        f"  - {{role: server, members: 1, {_each(way)},",
        f"     run: [{run}]}}",
    ]
    if way.job is not None and way.job.topology.slices:
        lines.append(f"topology: {{required: {way.job.topology.slices[0].required}}}")
    if way.copies > 1:
        lines.append(f"array: 0-{way.copies - 1}")
    return "\n".join(lines) + "\n"


def _weights_note(weights: str | None) -> Iterator[str]:
    if weights not in (None, "bf16"):
        yield f"# Sized for weights of {weights}: name a repository that has such weights in `run`."


# ----- for programs


def _json(
    model: ServedModel, demand: ServingDemand, ways: Sequence[ServingOption]
) -> dict[str, Any]:
    return {
        "model": model.name,
        "parameters": model.parameters,
        "prompt_tokens": demand.prompt,
        "answer_tokens": demand.answer,
        "requests": demand.requests,
        "first_token_s": demand.first_token_s,
        "token_s": demand.token_s,
        "options": [_option_json(way) for way in ways],
    }


def _option_json(way: ServingOption) -> dict[str, Any]:
    device, memory = way.device, way.memory
    return {
        "gpu": device.gpu,
        "gpus": device.shape.gpus,
        "mig": device.shape.mig,
        "gpu_share": device.shape.gpu_share,
        "gpu_memory_GiB": device.shape.gpu_memory_GiB,
        "nvlink": bool(way.job and way.job.topology.slices),
        "meets_target": way.does,
        "limit": way.limit,
        "why_not": way.why_not or None,
        "copies": way.copies,
        "requests_of_copy": way.requests_of_copy,
        "first_token_s": way.first_token_s,
        "token_s": way.token_s,
        "tokens_per_s": way.tokens_per_s,
        "USD_per_hour": way.USD_per_hour,
        "memory_GiB": {
            "usable": memory.usable,
            "weights": memory.weights,
            "activations": memory.activations,
            "reserve": memory.reserve,
            "of_a_request": memory.request,
        },
    }
