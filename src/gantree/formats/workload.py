"""workload.yaml: a distribution of jobs, of which traces are drawn.

jobs: 10000
span: 28d
requests:
  - {weight: 80, members: 1, gpus_per_member: 1, queue: research}
  - {weight: 20, members: 4, gpus_per_member: 8, queue: product, checkpoint_s: 900}
durations:
  - {gpus: 1, seconds: {0: 10, 50: 1200, 99: 86400, 100: 604800}}
  - {gpus: 32, seconds: {0: 60, 50: 7200, 100: 604800}}
arrivals: [1, 1, 1, 1, 1, 1, 2, 4, 8, 9, 9, 9, 8, 9, 9, 9, 8, 6, 4, 3, 2, 2, 1, 1]

A request has columns of a trace. A job's duration is drawn from the entry with the fewest `gpus` that are not less than
its own; `seconds` are at percents of these jobs. arrivals are weights of the 24 hours of a day, or of the 168 of a week
from Monday on.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any

import yaml
from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.traces.columns import COLUMNS, conflict_in
from gantree.formats.traces.job import TraceJob
from gantree.formats.traces.writer import cell_text
from gantree.formats.validation.fields import (
    Amount,
    CountFromOne,
    DurationAboveZero,
    Text,
    TextValue,
    wrong,
)
from gantree.formats.validation.forms import Form, empty, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.text.document import read_documents, written
from gantree.text.words import did_you_mean, shortened

MAX_FILE_BYTES = 32 * 1024 * 1024
HOURS_OF_DAY, HOURS_OF_WEEK = 24, 168
NOT_OF_A_REQUEST = frozenset({"job_id", "submit_s", "duration_s"})
REQUEST_COLUMNS = tuple(column for column in COLUMNS if column not in NOT_OF_A_REQUEST)
EVEN = (1.0,) * HOURS_OF_DAY

Quantiles = tuple[tuple[float, float], ...]
"""(percent, seconds), both rising, from 0 to 100 percent."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A distribution of jobs. requests are (job, weight), whose id and times say nothing.

    durations are (most GPUs, quantiles), by rising GPUs; arrivals the weights of the hours of a day or of a week.
    """

    jobs: int
    span_s: float
    requests: tuple[tuple[TraceJob, float], ...]
    durations: tuple[tuple[float, Quantiles], ...]
    arrivals: tuple[float, ...] = EVEN

    def durations_of(self, gpus: float) -> Quantiles | None:
        """Durations of jobs with so many GPUs; None where there are none."""
        return next((quantiles for most, quantiles in self.durations if gpus <= most), None)


def _percent(value: Any) -> float:
    text = written(value) or ""
    try:
        percent = float(text)
    except ValueError:
        percent = -1.0
    if not 0 <= percent <= 100:
        raise wrong("a percentage from 0 to 100")
    return percent


Percent = Annotated[
    float,
    PlainValidator(_percent),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{1,3}(\.[0-9]+)?$"}),
]


class DurationsForm(Form):
    """Durations of jobs of up to so many GPUs: seconds at percents of these jobs."""

    gpus: Amount
    seconds: dict[Percent, Amount]


class WorkloadForm(Form):
    """workload.yaml."""

    jobs: CountFromOne
    span: DurationAboveZero
    requests: list[dict[Text, TextValue]]
    durations: list[DurationsForm]
    arrivals: list[Amount] = empty(list)


def read_workload(text: str, source: str) -> Workload:
    """Read the text of a workload file. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(WorkloadForm, documents, problems)
    form = read_form(WorkloadForm, document, problems) if document else None
    requests: list[tuple[TraceJob, float]] = []
    if form is not None:
        problems += _rule_problems(form)
        for number in range(len(form.requests)):
            requests += _request(form, number, problems)
    refuse(problems, source)
    assert form is not None
    durations = ((each.gpus, tuple(sorted(each.seconds.items()))) for each in form.durations)
    return Workload(
        form.jobs,
        form.span,
        tuple(requests),
        tuple(sorted(durations)),
        tuple(form.arrivals) or EVEN,
    )


def _request(
    form: WorkloadForm, number: int, problems: list[Problem]
) -> Iterator[tuple[TraceJob, float]]:
    """The job of a request and its weight; nothing, where problems say why."""
    fields = dict(form.requests[number])
    weight = fields.pop("weight", "1")
    found = [
        *_cell_problems(form, number, fields),
        *(
            []
            if _is_weight(weight)
            else [_wrong(form, number, "weight", weight, "a number above 0")]
        ),
    ]
    problems += found
    if found:
        return
    values = {name: COLUMNS[name].parse(text) for name, text in fields.items()}
    values = {"members": 1, "gpus_per_member": 0, **values}
    job = TraceJob(job_id="", submit_s=0.0, duration_s=0.0, **values)
    conflict = conflict_in(job)
    if conflict is not None:
        at = (number, conflict.column) if conflict.column in fields else (number,)
        problems.append(form.problem("requests", conflict.found, conflict.allowed, at=at))
    yield job, float(weight)


def _cell_problems(form: WorkloadForm, number: int, fields: Mapping[str, str]) -> Iterator[Problem]:
    for name, text in fields.items():
        if name not in REQUEST_COLUMNS:
            allowed = f"weight, {', '.join(REQUEST_COLUMNS)}"
            hint = did_you_mean(name, REQUEST_COLUMNS)
            yield form.problem("requests", "an unknown column", allowed, hint, at=(number, name))
            continue
        try:
            COLUMNS[name].parse(text)
        except (ValueError, OverflowError):
            yield _wrong(form, number, name, text, COLUMNS[name].allowed)


def _wrong(form: WorkloadForm, number: int, name: str, text: str, allowed: str) -> Problem:
    return form.problem("requests", f"`{shortened(text)}`", allowed, at=(number, name))


def _is_weight(text: str) -> bool:
    try:
        return 0 < float(text) < 1e12
    except ValueError:
        return False


def _rule_problems(form: WorkloadForm) -> Iterator[Problem]:
    if not form.requests and not form.any_lost("requests"):
        yield form.problem("requests", "none", "at least one")
    if not form.durations and not form.any_lost("durations"):
        yield form.problem("durations", "none", "at least one")
    if len(form.arrivals) not in (0, HOURS_OF_DAY, HOURS_OF_WEEK) or (
        form.arrivals and not any(form.arrivals)
    ):
        found = f"{len(form.arrivals)} numbers, the largest {max(form.arrivals):g}"
        allowed = f"{HOURS_OF_DAY} or {HOURS_OF_WEEK} weights, one at least above 0"
        yield form.problem("arrivals", found, allowed)
    for each in form.durations:
        points = sorted(each.seconds.items())
        percents = [percent for percent, _ in points]
        if not each.any_lost("seconds") and percents[:1] + percents[-1:] != [0, 100]:
            yield each.problem("seconds", f"{len(points)} percents", "0 and 100 among them")
        elif any(after < before for (_, before), (_, after) in pairwise(points)):
            yield each.problem("seconds", "falling seconds", "seconds that rise with the percents")


def write_workload(workload: Workload) -> str:
    """The text of a workload file, which `read_workload` reads as the same workload."""
    lines = [
        f"jobs: {workload.jobs}",
        f"span: {workload.span_s!r}",
        "requests:",
        *(f"- {_flow(_written_request(*each))}" for each in workload.requests),
        "durations:",
        *(
            f"- {_flow({'gpus': gpus, 'seconds': dict(quantiles)})}"
            for gpus, quantiles in workload.durations
        ),
        f"arrivals: {_flow(list(workload.arrivals))}",
    ]
    return "\n".join(lines) + "\n"


def _written_request(job: TraceJob, weight: float) -> dict[str, Any]:
    usual = TraceJob("", 0.0, 0.0, 0, -1)
    told = {
        name: value if isinstance(value, int | float | str) else cell_text(value)
        for name in REQUEST_COLUMNS
        if (value := getattr(job, name)) != getattr(usual, name)
    }
    return {"weight": weight, **told}


def _flow(value: Mapping[str, Any] | Sequence[float]) -> str:
    """One line of YAML."""
    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=float("inf"))
    return text.strip()
