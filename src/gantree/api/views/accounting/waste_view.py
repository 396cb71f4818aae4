"""Waste as plain JSON values: jobs, or sums of them, with what they wasted, why, and what to do about it. No HTTP here.

What a job is charged with is decided in `accounting.waste`; its figures are put together here: of the ledger for the
jobs in it, else of the history. An answer has the jobs that its caller may see, and their sum.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal, Protocol

from gantree.accounting.ended_jobs import EndedJob, JobSearch
from gantree.accounting.waste import (
    HOUR_S,
    LEAST_CPUS,
    GpusNow,
    JobFigures,
    LEAST_MEMORY_GiB,
    ModelUse,
    SmallerDevice,
    WasteRow,
    summed,
    total,
    waste_of,
)
from gantree.api.access.access import Caller
from gantree.api.access.permissions import sees
from gantree.api.views.accounting.history_view import scopes_of
from gantree.api.views.accounting.site_prices import cost_of, dearest_first
from gantree.api.views.accounting.usage_view import Period
from gantree.api.views.gpu_use_view import gpus_of
from gantree.control.requests.read_view import ReadView
from gantree.core.ledger.state import JobState
from gantree.core.ledger.usage import life_of
from gantree.model.host_use import HostUse
from gantree.planning.rightsizing.serving.smaller import smaller_way
from gantree.telemetry.gpu_use import GpuUse, UseOfGpu
from gantree.topology.hardware.prices import LIST_PRICES, PriceList

By = Literal["job", "user", "queue", "project"]
Json = dict[str, Any]
MOST_ENDED = 10_000
"""Jobs of the history that are looked at, the last that ended first."""
BUSY = 0.01
"""Share of the last moments from which a GPU computes (`telemetry.activity`)."""
Gpu = tuple[str, int]


@dataclass(frozen=True, slots=True)
class WasteFigures:
    """The jobs that a caller may see, and the GPUs of those that run of which he may know how busy they are.

    attempt_of_job are attempts whose use of CPUs and memory matters.
    """

    since: float
    until: float
    nodes: tuple[str, ...]
    jobs: tuple[JobFigures, ...]
    gpus_of_job: Mapping[str, tuple[Gpu, ...]]
    attempt_of_job: Mapping[str, int]


class KnowsHostUse(Protocol):
    """A source of what attempts use of their hosts."""

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory, None where that is not measured. Raises OSError."""
        ...


def figures(
    view: ReadView,
    caller: Caller,
    since: float | None,
    until: float | None = None,
    prices: PriceList = LIST_PRICES,
) -> WasteFigures:
    """The figures of all jobs that were there in the days of a span of time, each of its whole life."""
    period = Period.around(since, until, view.now)
    ledger = view.ledger
    known = [state for state in ledger.jobs.values() if period.meets(state) and sees(caller, state)]
    hidden = {
        gpu
        for state in ledger.holding.values()
        if not sees(caller, state)
        for gpu in gpus_of(state)
    }
    jobs = [_of_state(view, state, prices) for state in known]
    ended = [each for each in _ended(view, caller, period) if each.job not in ledger.jobs]
    fabric = ledger.fabric
    return WasteFigures(
        since=period.since,
        until=min(float(period.until), view.now),
        nodes=() if fabric is None else tuple(node.name for node in fabric.cluster.nodes),
        jobs=(*jobs, *map(of_ended, ended)),
        gpus_of_job={
            state.job: tuple(gpu for gpu in dict.fromkeys(gpus_of(state)) if gpu not in hidden)
            for state in known
            if state.job in ledger.holding
        },
        attempt_of_job={
            job.job: ledger.jobs[job.job].attempt
            for job in jobs
            if job.cpus >= LEAST_CPUS or job.memory_GiB >= LEAST_MEMORY_GiB
        },
    )


def host_use_of(found: WasteFigures, source: KnowsHostUse) -> dict[str, HostUse]:
    """What jobs use of their hosts, as far as it is measured; files are read."""
    use = {}
    for job, attempt in found.attempt_of_job.items():
        with suppress(OSError):
            of_job = source.host_use(job, attempt) if attempt else None
            if of_job is not None:
                use[job] = of_job
    return use


def answer(
    found: WasteFigures,
    use: Mapping[str, UseOfGpu],
    hosts: Mapping[str, HostUse],
    by: By,
    limit: int,
    prices: PriceList = LIST_PRICES,
) -> Json:
    """The rows, the dearest first; the sum is of all jobs, also of those below the thresholds."""
    jobs = [
        replace(each, now=_now(found.gpus_of_job.get(each.job, ()), use), host=hosts.get(each.job))
        for each in found.jobs
    ]
    of_jobs = [waste_of(job) for job in jobs]
    listed = [row for row in of_jobs if row.kind]
    if by != "job":
        listed = [row for row in summed(of_jobs, attrgetter(by)) if row.kind]
    rows = sorted((_row(row, prices) for row in listed), key=dearest_first)
    whole = _row(total(of_jobs), prices)
    return {
        "by": by,
        "since": found.since,
        "until": found.until,
        "rows": rows[:limit],
        "left_out": max(0, len(rows) - limit),
        "sum": {name: whole[name] for name in SUMMED},
    }


SUMMED = (
    "jobs", "held_gpu_hours", "useful_gpu_hours", "wasted_gpu_hours", "wasted_gpu_hours_of_model", "USD",
    "unpriced_gpu_hours", "unused_cpu_hours", "unused_memory_GiB",
)  # fmt: skip


# ----- figures of a job


def _of_state(view: ReadView, state: JobState, prices: PriceList) -> JobFigures:
    spec, held = state.spec, state.metered.gpus_of_model
    used = life_of(state, view.now).items()
    checkpoint = spec.checkpoint
    is_held = state.job in view.ledger.holding
    return JobFigures(
        job=state.job,
        name=spec.name,
        queue=spec.queue,
        user=spec.user,
        project=spec.project,
        running=is_held,
        gpus=sum(gpus for _, gpus in held),
        used=tuple(
            ModelUse(model, each.held_gpu_s, each.useful_gpu_s, each.idle_gpu_s, each.wasted_gpu_s)
            for model, each in used
            if each.held_gpu_s or each.wasted_gpu_s
        ),
        has_checkpoint=checkpoint is not None,
        every_s=checkpoint.every_s if checkpoint else None,
        cpus=sum(role.members * role.shape.cpus for role in spec.roles),
        memory_GiB=sum(role.members * role.shape.memory_GiB for role in spec.roles),
        smaller=_smaller(view, state, prices) if is_held else None,
    )


def _smaller(view: ReadView, state: JobState, prices: PriceList) -> SmallerDevice | None:
    fabric = view.ledger.fabric
    way = fabric and smaller_way(state.spec, state.metered.gpus_of_model, fabric, prices)
    return SmallerDevice(*way) if way else None


def of_ended(ended: EndedJob) -> JobFigures:
    """Of a job that only the history knows; its GPU models are priced only where it had one."""
    model = "" if "," in ended.gpu_model else ended.gpu_model
    use = ModelUse(model, ended.held_gpu_s, ended.useful_gpu_s, ended.idle_gpu_s, ended.lost_gpu_s)
    return JobFigures(
        job=ended.job,
        name=ended.name,
        queue=ended.queue,
        user=ended.user,
        project=ended.project,
        running=False,
        gpus=ended.gpus,
        used=(use,),
    )


def _ended(view: ReadView, caller: Caller, period: Period) -> Iterator[EndedJob]:
    search = JobSearch(since=period.since, scopes=scopes_of(caller))
    for found in view.journal.history.ended_jobs(search, None, MOST_ENDED):
        if found.ended.submitted_at < period.until:
            yield found.ended


def _now(gpus: tuple[Gpu, ...], use: Mapping[str, UseOfGpu]) -> GpusNow | None:
    """What counters say of a job's GPUs; None where they say nothing."""
    known = [(node, gpu, told) for node, gpu in gpus if (told := use.get(node, {}).get(gpu))]
    of_node: dict[bool, list[tuple[str, int]]] = {True: [], False: []}
    for node, gpu, told in known:
        if told.busy is not None:
            of_node[told.busy >= BUSY].append((node, gpu))
    if not known:
        return None
    return GpusNow(
        tuple(_names(of_node[True])),
        tuple(_names(of_node[False])),
        _memory(known, "memory_GiB"),
        _memory(known, "memory_of_GiB"),
    )


def _names(gpus: list[Gpu]) -> Iterator[str]:
    yield from (f"{node}:{gpu}" for node, gpu in gpus)


def _memory(known: list[tuple[str, int, GpuUse]], name: str) -> float | None:
    told: list[float | None] = [getattr(use, name) for _, _, use in known]
    values = [value for value in told if value is not None]
    return sum(values) if values and len(values) == len(told) else None


# ----- rows


def _row(row: WasteRow, prices: PriceList) -> Json:
    of_model = {model: seconds / HOUR_S for model, seconds in row.wasted_of_model.items()}
    return {
        "name": row.name,
        "user": row.user,
        "queue": row.queue,
        "project": row.project,
        "running": row.running,
        "jobs": row.jobs,
        "held_gpu_hours": row.held_gpu_s / HOUR_S,
        "useful_gpu_hours": row.useful_gpu_s / HOUR_S,
        "wasted_gpu_hours": row.wasted_gpu_s / HOUR_S,
        "wasted_gpu_hours_of_model": of_model,
        **cost_of(of_model, prices),
        "unused_cpu_hours": row.cpu_s / HOUR_S,
        "unused_memory_GiB": row.memory_GiB,
        "kind": row.kind,
        "reason": row.reason,
        "remedy": row.remedy,
        "worst": row.worst,
    }  # fmt: skip
