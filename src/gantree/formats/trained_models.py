"""models.yaml and mixes.yaml: what the jobs of a trace train.

models:
  vgg16: {source: measured, traffic: {compute: 107ms, data: 553.4MB}}
  llama-7b:
    source: Touvron et al. 2023
    model: {parameters: 6.7B, layers: 32, hidden: 4096, sequence: 4096, sharded: parameters}
    batch_per_replica: 2
    parallelism: {tensor: 8}

mixes:
  heavy:
    "1-7": {vgg16: 1}
    "8-": {vgg16: 1, llama-7b: 3}
"""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.form import ModelForm, OverlapForm, ParallelismForm, TrafficForm
from gantree.formats.job.reader import traffic_of, transformer_of
from gantree.formats.validation.fields import AmountAboveZero, CountFromOne, Name, Text, wrong
from gantree.formats.validation.forms import Form, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.model.trained_models import ModelMix, SizeClass, TrainedModel
from gantree.text.document import read_documents, written
from gantree.text.words import did_you_mean

MAX_FILE_BYTES = 1024 * 1024
_SPAN_PATTERN = r"([1-9][0-9]{0,6})(-([1-9][0-9]{0,6})?)?"
_SPAN = re.compile(_SPAN_PATTERN, re.ASCII)


def _span(value: Any) -> tuple[int, int | None]:
    """GPUs of a size class: "8", "1-7" or "8-"."""
    found = _SPAN.fullmatch(written(value) or "")
    if not found:
        raise wrong("a number of GPUs such as 8, a span such as 1-7, or 8- for 8 and more")
    least = int(found[1])
    most = least if found[2] is None else int(found[3]) if found[3] else None
    if most is not None and most < least:
        raise wrong("a span whose first number is not above its last")
    return least, most


Span = Annotated[
    tuple[int, int | None],
    PlainValidator(_span),
    WithJsonSchema({"type": "string", "pattern": f"^{_SPAN_PATTERN}$"}),
]


class ReplicaModelForm(ModelForm):
    """A model as in a job file; its batch is that of one replica, and written beside it."""

    batch: CountFromOne = 1


class TrainedModelForm(Form):
    """One model: what it computes and sends follows from its size, or both are told.

    batch_per_replica is in micro-batches.
    """

    source: Text
    model: ReplicaModelForm | None = None
    traffic: TrafficForm | None = None
    batch_per_replica: CountFromOne = 1
    parallelism: ParallelismForm = ParallelismForm()
    overlap: OverlapForm = OverlapForm()


class ModelsForm(Form):
    """models.yaml: models by name."""

    models: dict[Name, TrainedModelForm]


class MixesForm(Form):
    """mixes.yaml: by mix and size class the weights of models."""

    mixes: dict[Name, dict[Span, dict[Name, AmountAboveZero]]]


def read_models(text: str, source: str) -> dict[str, TrainedModel]:
    """Read the text of a models file. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(ModelsForm, documents, problems)
    form = read_form(ModelsForm, document, problems) if document else None
    for name, model in form.models.items() if form else ():
        problems += _model_problems(name, model)
    refuse(problems, source)
    assert form is not None
    return {name: _model(name, model) for name, model in form.models.items()}


def _model_problems(name: str, form: TrainedModelForm) -> Iterator[Problem]:
    if {"model", "traffic"} & form.lost:
        return
    if (form.model is None) == (form.traffic is None):
        found = "neither" if form.model is None else "both"
        yield form.problem("model", f"{found} model and traffic", f"one of them for {name}")
    elif form.model is not None and form.model.batch != 1:
        yield form.model.problem("batch", f"`{form.model.batch}`", "batch_per_replica beside model")


def _model(name: str, form: TrainedModelForm) -> TrainedModel:
    trains = None
    if form.model is not None:
        batch = form.batch_per_replica * form.model.micro_batch
        trains = transformer_of(form.model.model_copy(update={"batch": batch}))
    ways = tuple((axis, ways) for axis, ways in form.parallelism.axes() if axis != "data")
    traffic = traffic_of(form.traffic) if form.traffic else None
    return TrainedModel(name, form.source, trains, traffic, ways, form.overlap.axes())


def read_mixes(text: str, source: str, models: Mapping[str, TrainedModel]) -> dict[str, ModelMix]:
    """Read the text of a mixes file, whose models are these. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(MixesForm, documents, problems)
    form = read_form(MixesForm, document, problems) if document else None
    for name, classes in form.mixes.items() if form else ():
        for weights in classes.values():
            problems += _weight_problems(form, name, weights, models)
        problems += _span_problems(form, name, sorted(classes, key=lambda span: span[0]))
    refuse(problems, source)
    assert form is not None
    return {
        name: ModelMix(name, tuple(SizeClass(*span, weights) for span, weights in classes.items()))
        for name, classes in form.mixes.items()
    }


def _weight_problems(
    form: MixesForm | None, mix: str, weights: Mapping[str, float], models: Mapping[str, object]
) -> Iterator[Problem]:
    assert form is not None
    if not weights:
        yield form.problem("mixes", "a class without models", "weights of models", at=(mix,))
    for model in weights:
        if model not in models:
            found, allowed = f"the unknown model `{model}`", f"one of {', '.join(models)}"
            hint = did_you_mean(model, list(models))
            yield form.problem("mixes", found, allowed, hint, at=(mix,))


def _span_problems(
    form: MixesForm | None, mix: str, spans: list[tuple[int, int | None]]
) -> Iterator[Problem]:
    assert form is not None
    for before, after in pairwise(spans):
        if before[1] is None or after[0] <= before[1]:
            found, allowed = f"{after[0]} GPUs in two classes", "classes that do not overlap"
            yield form.problem("mixes", found, allowed, at=(mix,))
