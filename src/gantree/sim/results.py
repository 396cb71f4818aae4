"""Results of a simulation: a row for each job, and the summary.

A job is *finished* if its gang ran to its end. Completion times are over finished jobs, waiting times over jobs
that ever started. Percentiles are by nearest rank: the smallest value that at least p % of the values do not
exceed. Where there is nothing to average, the value is None (null in JSON).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from statistics import geometric_mean
from typing import Any

from gantree.core.explain.explain import why
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.formats.traces import TraceJob
from gantree.model.phases import ENDED, Phase
from gantree.model.placements import FABRIC_TIER, Placement
from gantree.policy.rules import Policy
from gantree.sim.record import Record, Sample, Span, Stop
from gantree.sim.row_figures import RowFigures
from gantree.sim.running.autoscaled import ServiceFigures
from gantree.sim.running.model import RunningModel
from gantree.sim.running.site import FaultCounts
from gantree.sim.work import Work, kept_for_s, stretch_of
from gantree.sim.workload import gpus_of, job_id, row_id
from gantree.topology.fabric.fabric import Fabric

REJECTED = "rejected"
"""Outcome of a job that was not taken into the queue."""

DIGITS = 6
"""Decimal places of every number in the summary."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job. Times are seconds on the trace's time line; domains[i] counts domains of Result.tiers[i].

    placement and domains are of the last attempt; stops name rows of the trace. outcome is the phase at the end of the
    run ("succeeded", "pending", ...) or REJECTED, with the reason in words where it is not "succeeded". work_s is its
    work, or the time for which a replica of a service was wanted, useful_gpu_s is the work that was kept, stretch the
    time that it worked over the work that this did (None: it did none), kept_for_s how long it worked on what was kept,
    failures how often it failed; gpu_s_lost_to_failures is a part of gpu_s_lost. gpus counts parts of GPUs as parts.
    """

    job_id: str
    queue: str
    submit_s: float
    first_start_s: float | None
    end_s: float | None
    attempts: int
    preemptions: int
    members: int
    gpus: float
    gpu_s_lost: float
    outcome: str
    reason: str
    domains: tuple[int, ...] = ()
    placement: Placement | None = None
    stops: tuple[Stop, ...] = ()
    work_s: float = 0.0
    useful_gpu_s: float = 0.0
    stretch: float | None = None
    kept_for_s: float = 0.0
    failures: int = 0
    gpu_s_lost_to_failures: float = 0.0
    gpu_s_held: float = 0.0

    @property
    def finished(self) -> bool:
        """Whether the gang ran to its end."""
        return self.outcome == Phase.SUCCEEDED

    @property
    def wait_s(self) -> float | None:
        """From submission to the first start."""
        return None if self.first_start_s is None else self.first_start_s - self.submit_s

    @property
    def jct_s(self) -> float | None:
        """Job completion time: from submission to the end, however it ended."""
        return None if self.end_s is None else self.end_s - self.submit_s


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run; replicas of services are no jobs of the trace.

    tiers are the cluster's, widest first; gpus are those that the site itself leaves free. spans are all attempts in
    the order in which they were placed, under the scheduler's ids of jobs; none of a bounded run. fabric and policy are
    those at the end.
    """

    cluster: str
    tiers: tuple[str, ...]
    gpus: int
    held_gpu_s: float
    jobs: Sequence[JobRow]
    samples: tuple[Sample, ...]
    spans: tuple[Span, ...]
    fabric: Fabric
    policy: Policy
    replicas: tuple[JobRow, ...] = ()
    running: RunningModel = field(default_factory=RunningModel)
    seed: int = 0
    faults: FaultCounts = field(default_factory=FaultCounts)
    served: Mapping[str, ServiceFigures] = field(default_factory=dict)

    @property
    def makespan_s(self) -> float:
        """From the first submission to the last end."""
        ends_s = [row.end_s for row in self.jobs if row.end_s is not None]
        return max(ends_s) - min(row.submit_s for row in self.jobs) if ends_s else 0.0

    def summary(self) -> dict[str, Any]:
        """The figures of summary.json, rounded to DIGITS places."""
        rows = RowFigures(self.jobs, len(self.tiers))
        capacity_gpu_s = self.gpus * rows.makespan_s
        figures: dict[str, Any] = {
            "jobs": rows.jobs,
            "finished": rows.finished,
            "jct_s": statistics(rows.jcts_s),
            "wait_s": statistics(rows.waits_s),
            "makespan_s": round(rows.makespan_s, DIGITS),
            "gpu_utilisation": (
                round(self.held_gpu_s / capacity_gpu_s, DIGITS) if capacity_gpu_s else 0.0
            ),
            "domains_spanned": dict(zip(self.tiers, map(mean, rows.domains), strict=True)),
            "preemptions": rows.preemptions,
            "gpu_hours_lost": round(fsum(rows.lost_gpu_s) / 3600, DIGITS),
        }
        return figures | (self._of_running(rows, capacity_gpu_s) if self.running.on else {})

    def _of_running(self, rows: RowFigures, capacity_gpu_s: float) -> dict[str, Any]:
        """What the model of running adds to the summary, and what of it was on."""
        useful_gpu_s = fsum(rows.useful_gpu_s)
        lost_gpu_s = fsum(rows.lost_to_failures_gpu_s)
        stretches, ettrs = sorted(rows.stretches), sorted(rows.ettrs)
        return {
            "goodput": round(useful_gpu_s / capacity_gpu_s, DIGITS) if capacity_gpu_s else 0.0,
            "stretch": {
                "mean": round(geometric_mean(stretches), DIGITS) if stretches else None,
                "p99": nearest_rank(stretches, 99),
            },
            "ettr": {"jobs": len(ettrs), "mean": mean(ettrs), "p50": nearest_rank(ettrs, 50)},
            "failures": rows.failures,
            "faults": {
                kind: {"came": came, "gangs": self.faults.gangs[kind]}
                for kind, came in sorted(self.faults.came.items())
            },
            "gpu_hours_of_lost_nodes": round(self.faults.lost_gpu_s / 3600, DIGITS),
            "gpu_hours_lost_to_failures": round(lost_gpu_s / 3600, DIGITS),
            **({"services": self._services()} if self.running.services else {}),
            "running": self.running.stated() | {"seed": self.seed},
        }

    def _services(self) -> dict[str, Any]:
        """Of each service the GPU-hours that were wanted and served; of an autoscaled one what its requests got."""
        hours = {
            service.name: {"wanted_gpu_hours": 0.0, "served_gpu_hours": 0.0}
            for service in self.running.services
        }
        for row in self.replicas:
            of_service = hours[row.job_id.rsplit(".", 2)[0]]
            of_service["wanted_gpu_hours"] += row.work_s * row.gpus / 3600
            of_service["served_gpu_hours"] += row.useful_gpu_s / 3600
        for name, figures in self.served.items():
            hours[name] |= {
                "requests": figures.requests,
                "late_requests": figures.late,
                "shed_requests": figures.shed,
                "steps": figures.steps,
            }
        return {
            name: {key: round(value, DIGITS) for key, value in each.items()}
            for name, each in hours.items()
        }


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None of nothing."""
    return round(fsum(values) / len(values), DIGITS) if values else None


def nearest_rank(ordered: Sequence[float], percent: int) -> float | None:
    """The smallest of the rising values that at least `percent` % of them do not exceed; None of nothing."""
    if not ordered:
        return None
    return round(ordered[max(1, -(-percent * len(ordered) // 100)) - 1], DIGITS)


def statistics(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, median and 99th percentile."""
    ordered = sorted(values)
    return {
        "mean": mean(ordered),
        "p50": nearest_rank(ordered, 50),
        "p99": nearest_rank(ordered, 99),
    }


def _gpus_left_by_site(fabric: Fabric) -> int:
    taken = sum(len(allocation.gpus) for allocation in fabric.cluster.allocations)
    return int(fabric.gpus_of_node.sum()) - taken


class _Reasons:
    """Outcome and reason of every job. Gangs that are alike are refused alike, so each kind is explained once."""

    def __init__(self, ledger: Ledger, now: float) -> None:
        self.ledger = ledger
        self._now = now
        self._sentence_of_signature: dict[Hashable, str] = {}

    def of(self, job: str) -> tuple[str, str]:
        """(outcome, reason); the reason is empty for a job that has succeeded."""
        state = self.ledger.jobs.get(job)
        if state is None:
            return REJECTED, self.ledger.rejected.get(job, "it was not submitted yet")
        if state.phase is Phase.SUCCEEDED:
            return state.phase.value, ""
        if state.phase in ENDED:
            return state.phase.value, state.reason
        if state.phase is Phase.PENDING and not state.spec.after:
            return state.phase.value, self._shared(state)
        return state.phase.value, why(self.ledger, job, self._now).sentence

    def _shared(self, state: JobState) -> str:
        if state.signature not in self._sentence_of_signature:
            sentence = why(self.ledger, state.job, self._now).sentence
            self._sentence_of_signature[state.signature] = sentence
        return self._sentence_of_signature[state.signature]


def _domains(fabric: Fabric, placement: Placement) -> tuple[int, ...]:
    """How many domains of each tier below the fabric the members sit in."""
    nodes = {fabric.index_of_node[member.node] for member in placement.members}
    return tuple(
        len({int(fabric.domain_of_node[tier][node]) for node in nodes})
        for tier in range(1, len(fabric.tiers))
    )


class Gathering:
    """Puts together what the ledger, the record and the cluster know at a moment in seconds."""

    def __init__(
        self, ledger: Ledger, record: Record, work_of_job: Mapping[str, Work], now: float
    ) -> None:
        assert ledger.fabric is not None, "a simulation begins with its cluster"
        self._fabric = ledger.fabric
        self._record = record
        self._work_of_job = work_of_job
        self._reasons = _Reasons(ledger, now)
        self._now = now

    def result(
        self,
        rows: Sequence[JobRow],
        replicas: Sequence[JobRow],
        running: RunningModel,
        seed: int,
        faults: FaultCounts,
        served: Mapping[str, ServiceFigures],
    ) -> Result:
        """The whole run."""
        return Result(
            cluster=self._fabric.cluster.name,
            tiers=tuple(tier for tier in self._fabric.tiers if tier != FABRIC_TIER),
            gpus=_gpus_left_by_site(self._fabric),
            held_gpu_s=self._record.held_gpu_s,
            jobs=rows,
            samples=tuple(self._record.samples),
            replicas=tuple(replicas),
            running=running,
            seed=seed,
            faults=faults,
            served=served,
            spans=self._settled_spans(rows),
            fabric=self._fabric,
            policy=self._reasons.ledger.policy,
        )

    def _settled_spans(self, rows: Iterable[JobRow]) -> tuple[Span, ...]:
        """All attempts, each charged with what it lost."""
        if not self._record.spans:
            return ()
        gpus_of_job = {f"t{row.job_id}": row.gpus for row in rows}
        for span in self._record.spans:
            lost_s = self._work_of_job[span.job].lost_s_of_attempt.get(span.attempt, 0.0)
            span.lost_gpu_s = lost_s * gpus_of_job.get(span.job, span.gpus)
        return tuple(self._record.spans)

    def row(self, row: TraceJob) -> JobRow:
        """One job."""
        job = job_id(row)
        work = self._work_of_job[job]
        state, placement = (
            self._reasons.ledger.jobs.get(job),
            self._record.newest_placement.get(job),
        )
        outcome, reason = self._reasons.of(job)
        gpus = gpus_of(row)
        return JobRow(
            job_id=row.job_id,
            queue=row.queue,
            submit_s=row.submit_s,
            first_start_s=None if state is None else state.started_at,
            end_s=None if state is None else state.ended_at,
            attempts=0 if state is None else state.attempt,
            preemptions=0 if state is None else state.preemptions,
            members=row.members,
            gpus=gpus,
            gpu_s_lost=work.lost_s * gpus,
            gpu_s_held=self._record.held_gpu_s_of(job, self._now),
            outcome=outcome,
            reason=reason,
            domains=() if placement is None else _domains(self._fabric, placement),
            placement=placement,
            stops=tuple(
                replace(stop, by=row_id(stop.by) if stop.by else "")
                for stop in self._record.stops.get(job, ())
            ),
            work_s=row.duration_s,
            useful_gpu_s=work.kept_s * gpus,
            stretch=stretch_of(work),
            kept_for_s=kept_for_s(work),
            failures=work.failures,
            gpu_s_lost_to_failures=work.lost_to_failures_s * gpus,
        )
