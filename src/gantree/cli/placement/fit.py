"""`gantree fit`: GPU models and markets of a cluster on which a job may run: memory, speed, time, cost. Offline.

What a model needs that is served (`--serve`) is in `fit_serving`.

Nothing is placed: a way that is open may still have to wait for room. How ways are weighed is
`planning.rightsizing.ranking`; beside them stand, as closed ones, the models that a job lists and no node has.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from gantree.cli.input.files import read_text, source_of
from gantree.cli.options import JsonOption, ListPricesOption
from gantree.cli.output.errors import warn
from gantree.cli.output.figures import digits, dollars
from gantree.cli.output.prices import unknown_gpu_warnings
from gantree.cli.output.printing import columns, print_json, span
from gantree.cli.placement.fit_serving import ServingWords, fit_serving
from gantree.control.requests.unknown_gpu_models import gpu_models_of, models_not_here, no_node_has
from gantree.core.explain.shapes import shape_in_words
from gantree.formats import read_cluster, read_job, read_prices
from gantree.model.errors import BadInput
from gantree.model.jobs import Job
from gantree.model.verdicts import Gate, Refused
from gantree.planning.rightsizing.ranking import Option, options, refused
from gantree.planning.rightsizing.serving.known_models import named_model
from gantree.policy.rules import Policy
from gantree.text.words import plural
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, PriceList
from gantree.topology.traffic.footprint import (
    GIB,
    LEANEST,
    TYPICAL,
    Footprint,
    footprint_of,
    memory_of,
)

REFUSED = 3
HOUR_S = 3600.0
HEAD = ("", "GPU", "market", "memory", "speed", "run", "price", "lost", "with losses")


def fit(
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", help="Cluster file.")],
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help='Job file; "-" is stdin. With --serve also the name of a model.'
        ),
    ],
    prices: ListPricesOption = None,
    serve: Annotated[
        bool, typer.Option("--serve", help="Size the model for inference instead of training.")
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(min=2, help="Tokens of the longest request, with answer. [default: 4096]"),
    ] = None,
    answer: Annotated[
        int | None, typer.Option(min=1, help="Tokens of an answer. [default: a quarter of these]")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Requests at once. [default: 16]")
    ] = None,
    ttft: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Longest time to the first token. [default: 2s]"),
    ] = None,
    tpot: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Longest time between tokens. [default: 100ms]"),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="bf16, fp8, int8 or int4. [default: bf16]")
    ] = None,
    kv_cache: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="bf16 or fp8. [default: bf16]")
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a job file of the best way."),
    ] = None,
    all_ways: Annotated[
        bool, typer.Option("--all", help="Show every device, not only the best of each kind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Compare the GPU models that a job can run on: memory, time and price.

    With --serve: compare devices that serve a model as asked. Exit status: 0 every job can run, 3 some job can run on
    no model, 2 bad input.
    """
    fabric = Fabric.build(read_cluster(read_text(cluster), source_of(cluster)))
    known = read_prices(read_text(prices), source_of(prices)) if prices else LIST_PRICES
    words = ServingWords(
        context, answer, concurrency, ttft, tpot, weights, kv_cache, output, all_ways
    )
    if serve:
        fit_serving(fabric, job, words, known, as_json=as_json)
        return
    words.refuse_unless_serving()
    if named_model(job) is not None and not Path(job).exists():
        raise BadInput(
            f"{job}: no such file; to size the model of that name for inference: --serve"
        )
    _fit_jobs(fabric, job, known, as_json=as_json)


def _fit_jobs(fabric: Fabric, job: str, known: PriceList, *, as_json: bool) -> None:
    jobs = read_job(read_text(job), source_of(job))
    for warning in unknown_gpu_warnings(known, {machine.gpu for machine in fabric.machines}):
        warn(warning)
    answers = [_answer(each, fabric, known) for each in jobs]
    if as_json:
        print_json({"jobs": [_json(answer) for answer in answers]})
    else:
        typer.echo("\n\n".join("\n".join(_lines(alike)) for alike in _alike(answers)))
    if any(answer.refused is not None for answer in answers):
        raise typer.Exit(REFUSED)


class Answer(NamedTuple):
    """All ways of a job, open ones first, and why none of them is open; None where one is."""

    job: Job
    ways: tuple[Option, ...]
    refused: Refused | None


def _answer(job: Job, fabric: Fabric, prices: PriceList) -> Answer:
    here = gpu_models_of(fabric)
    missing = tuple(_not_here(job, model, here) for model in models_not_here(job, fabric))
    lists = [role.shape.models for role in job.roles if role.shape.models]
    if all(any(model in here for model in models) for models in lists):
        ways = options(job, fabric, prices, Policy().restart_s)
        return Answer(job, (*ways, *missing), refused(job, ways))
    why = " ".join(way.why_not for way in missing)  # some role may run nowhere
    return Answer(job, missing, Refused(Gate.SHAPE, f"Never fits: {why}", never=True))


def _not_here(job: Job, model: str, here: Sequence[str]) -> Option:
    why_not = no_node_has(model, model, here)
    return Option(model, "on_demand", job, None, gate=Gate.SHAPE, why_not=why_not)


# ----- for people


def _alike(answers: Sequence[Answer]) -> Iterator[list[Answer]]:
    """The answers to jobs of one array, which are the same, together; each of the others alone."""
    groups: dict[tuple[str, str], list[Answer]] = {}
    for answer in answers:
        array = _array(answer.job)
        groups.setdefault((array, "" if array else answer.job.name), []).append(answer)
    yield from groups.values()


def _array(job: Job) -> str:
    """The name of the array that a job is of; "" for a job of none."""
    return "" if job.array_index is None else job.name.removesuffix(f"-{job.array_index}")


def _lines(alike: Sequence[Answer]) -> Iterator[str]:
    job, ways, verdict = alike[0]
    usual, leanest = footprint_of(job, TYPICAL), footprint_of(job, LEANEST)
    name = job.name if len(alike) == 1 else f"{_array(job)} (array of {len(alike)}), each"
    yield f"{name}: {plural(job.gpus, 'GPU')}, chosen by {job.choose}"
    if usual is not None and leanest is not None:
        parts = ", ".join(f"{n} {digits(size / GIB)}" for n, size in usual.parts if size)
        yield f"each needs about {digits(usual.GiB)} GiB ({parts}), at least {digits(leanest.GiB)}"
    yield columns(HEAD, (_row(number, job, way) for number, way in enumerate(ways, 1)))
    for way in ways:
        if way.why_not:
            yield f"excluded: {way.why_not}"
    for note in dict.fromkeys(note for way in ways for note in way.notes):
        yield f"note: {note}"
    if verdict is not None:
        yield verdict.sentence


def _row(number: int, job: Job, way: Option) -> tuple[str, ...]:
    lost = way.expected_loss_gpu_s
    return (
        str(number) if way.open else "-",
        f"{way.model or 'any'}{_as_shape(job, way)}",
        way.market.replace("_", "-"),
        _memory(job, way.model),
        "?" if way.speed is None else digits(way.speed),
        "?" if way.run_s is None else span(way.run_s),
        "?" if way.run_USD is None else dollars(way.run_USD),
        "?" if lost is None or math.isinf(lost) else f"{digits(lost / HOUR_S)} GPU h",
        "?"
        if way.expected_USD is None or math.isinf(way.expected_USD)
        else dollars(way.expected_USD),
    )


def _as_shape(job: Job, way: Option) -> str:
    """ ", with 1 GPU": the shape of a way of a job that has alternatives; "" for others."""
    shape = shape_in_words(job, way.job)
    return f", with {shape}" if shape else ""


def _memory(job: Job, model: str | None) -> str:
    usual, leanest = footprint_of(job, TYPICAL), footprint_of(job, LEANEST)
    memory_GiB = memory_of(model)
    if memory_GiB is None or usual is None or leanest is None:
        return "?"
    if usual.GiB <= memory_GiB:
        return f"fits {memory_GiB:g} GiB"
    return f"tight in {memory_GiB:g} GiB" if leanest.GiB <= memory_GiB else "too small"


# ----- for programs


def _json(answer: Answer) -> dict[str, Any]:
    job, ways, verdict = answer
    return {
        "job": job.name,
        "gpus": job.gpus,
        "choose": job.choose,
        "memory": {
            "usual": _footprint_json(footprint_of(job, TYPICAL)),
            "least": _footprint_json(footprint_of(job, LEANEST)),
        },
        "ways": [_way_json(job, way) for way in ways],
        "why": None
        if verdict is None
        else {"gate": verdict.gate.value, "sentence": verdict.sentence},
    }


def _footprint_json(need: Footprint | None) -> dict[str, float] | None:
    """GiB by what for, and in all."""
    if need is None:
        return None
    return {**{name: size / GIB for name, size in need.parts}, "total": need.GiB}


def _way_json(job: Job, way: Option) -> dict[str, Any]:
    return {
        "gpu": way.model,
        "shape": shape_in_words(job, way.job) or None,
        "market": way.market,
        "open": way.open,
        "memory_GiB": memory_of(way.model),
        "speed": way.speed,
        "run_s": way.run_s,
        "run_USD": way.run_USD,
        "expected_loss_gpu_s": _finite(way.expected_loss_gpu_s),
        "expected_USD": _finite(way.expected_USD),
        "why_not": way.why_not or None,
        "notes": list(way.notes),
    }


def _finite(figure: float | None) -> float | None:
    return None if figure is None or math.isinf(figure) else figure
