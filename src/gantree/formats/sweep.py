"""sweep.yaml: a grid of simulations. Every cluster, trace, policy, override and seed is combined.

clusters: [cluster.yaml]
traces: [jobs.csv.gz]
policies: [fifo, gantree, mine.yaml]
overrides:
  - {name: deep, policy: {backfill: {depth: 64}}}
running: realistic
seeds: [1, 2, 3]
"""

import json
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import Field

from gantree.formats.policy.form import PRESET_NAMES, RulesForm
from gantree.formats.policy.reader import read_policy
from gantree.formats.validation.fields import Count, CountFromOne, Duration, Name, Text
from gantree.formats.validation.forms import (
    Form,
    Listed,
    empty,
    only_document,
    read_form,
    refuse,
)
from gantree.model.errors import BadFields, BadInput, Problem
from gantree.policy.rules import Policy
from gantree.text.document import Rows, Table, Truth, read_documents, written

MAX_FILE_BYTES = 1024 * 1024
MOST_RUNS = 100_000


class OverheadsForm(Form):
    """Seconds of a start, a stop and a save; as `gantree.sim.overheads`."""

    start_s: Duration = 0.0
    stop_s: Duration = 0.0
    save_s: Duration = 0.0


class OverrideForm(Form):
    """Fields laid over each policy, under a name."""

    name: Name
    policy: RulesForm


class SweepForm(Form):
    """sweep.yaml; files are relative to it."""

    clusters: Annotated[Listed[Text], Field(min_length=1)]
    traces: Annotated[Listed[Text], Field(min_length=1)]
    policies: Annotated[Listed[Text], Field(min_length=1)]
    overrides: list[OverrideForm] = empty(list)
    running: Text | None = None
    seeds: Listed[Count] = empty(list)
    limit: CountFromOne | None = None
    overheads: OverheadsForm = OverheadsForm()


@dataclass(frozen=True, slots=True)
class Override:
    """Fields laid over a policy: a text of YAML. The policy as it is has the name "" and no fields."""

    name: str = ""
    fields: str = "{}"


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid. Files are as written, relative to the file of the sweep; overrides begin with the policy as it is.

    running is a model of running by its name or file. seeds are those of what it draws; (None,) where it draws nothing.
    """

    clusters: tuple[str, ...]
    traces: tuple[str, ...]
    policies: tuple[str, ...]
    overrides: tuple[Override, ...]
    running: str | None
    seeds: tuple[int | None, ...]
    limit: int | None
    start_s: float
    stop_s: float
    save_s: float


def read_sweep(text: str, source: str) -> Sweep:
    """Read the text of a sweep file. source names it in errors. Raises BadFields for all that is wrong in it."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(SweepForm, documents, problems)
    form = read_form(SweepForm, document, problems) if document else None
    if form is not None:
        problems += _problems(form)
    refuse(problems, source)
    assert form is not None
    return Sweep(
        tuple(form.clusters),
        tuple(form.traces),
        tuple(form.policies),
        (Override(), *(Override(each.name, _yaml(each.policy.origin)) for each in form.overrides)),
        form.running,
        tuple(form.seeds) or (None if form.running is None else 0,),
        form.limit,
        form.overheads.start_s,
        form.overheads.stop_s,
        form.overheads.save_s,
    )


def policy_with(text: str, source: str, override: Override) -> Policy:
    """The policy of a file's text with an override laid over it.

    Raises BadFields for what is wrong in the file, BadInput where the two do not go together.
    """
    if not override.name:
        return read_policy(text, source)
    problems: list[Problem] = []
    read_policy(text, source)
    (below,) = read_documents(text, source, problems)
    (above,) = read_documents(override.fields, override.name, problems)
    merged = _laid_over(below.value, above.value)
    try:
        return read_policy(_yaml(merged), source)
    except BadFields as error:
        told = "; ".join(
            f"{each.field}: found {each.found}; allowed: {each.allowed}" for each in error.problems
        )
        raise BadInput(f"{source} with override {override.name}: {told}") from None


def short_name(file: str) -> str:
    """What a sweep calls a file or a preset: its name without directories and endings."""
    if file in PRESET_NAMES:
        return file
    return PurePath(file).name.partition(".")[0]


def _problems(form: SweepForm) -> list[Problem]:
    problems = []
    for field in ("clusters", "traces", "policies"):
        problems += _repeated(
            form, field, [short_name(file) for file in getattr(form, field)], "file name"
        )
    problems += _repeated(form, "overrides", [each.name for each in form.overrides], "name")
    problems += _repeated(form, "seeds", [str(seed) for seed in form.seeds], "seed")
    if form.seeds and form.running is None and "running" not in form.lost:
        allowed = "none, or a model of running (`running`) that draws with them"
        problems.append(form.problem("seeds", "seeds", allowed))
    dimensions = (form.clusters, form.traces, form.policies, form.seeds or [0])
    runs = 1 + len(form.overrides)
    for dimension in dimensions:
        runs *= len(dimension)
    if runs > MOST_RUNS:
        problems.append(
            form.problem("policies", f"a grid of {runs} simulations", f"at most {MOST_RUNS}")
        )
    return problems


def _repeated(form: SweepForm, field: str, names: list[str], what: str) -> list[Problem]:
    return [
        form.problem(field, f"{name} twice", f"each {what} once", at=(number,))
        for number, name in enumerate(names)
        if name in names[:number]
    ]


def _laid_over(below: Any, above: Any) -> Any:
    """The value above; of two mappings, both, entry by entry."""
    if not isinstance(below, Table) or not isinstance(above, Table):
        return above
    merged = Table("", 1)
    merged.update(below)
    for key, value in above.items():
        merged[key] = _laid_over(below[key], value) if key in below else value
    return merged


def _yaml(value: Any) -> str:
    """A value that was read, as YAML on one line."""
    if isinstance(value, Table):
        return (
            "{"
            + ", ".join(f"{json.dumps(key)}: {_yaml(each)}" for key, each in value.items())
            + "}"
        )
    if isinstance(value, Rows):
        return "[" + ", ".join(map(_yaml, value)) + "]"
    if isinstance(value, Truth) or (isinstance(value, int | float) and not isinstance(value, bool)):
        return str(written(value))
    return "null" if value is None else json.dumps(str(value))
