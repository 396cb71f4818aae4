"""Waste: GPU-seconds that jobs held for nothing, each job with one reason and one remedy; sums by user and queue.

    wasted = work done again + time in which the GPUs did not compute

No second is in both (`core.ledger.usage`). A job that serves a model for which a smaller device does has wasted at
least what that device would have saved. CPUs and memory of the host that a job asks for and does not use are no
GPU-seconds; they are its reason where no GPU-seconds are wasted. Time that was not measured is never wasted.

The thresholds are the constants here. Which reason a job has is decided by the largest part of its waste.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from gantree.model.host_use import HostUse
from gantree.text.words import plural

HOUR_S = 3600.0
LEAST_GPU_S = 360.0
LEAST_SHARE = 0.05
"""A job is listed if it wasted at least a tenth of a GPU-hour and a twentieth of what it held."""
COMPUTES_NOTHING = 0.02
"""Useful share of the measured time below which a job computes nothing."""
PARTLY_IDLE = 0.75
"""Useful share up to which a gang of several GPUs is one that needs fewer, if it is that of one GPU at least."""
FILLS_MEMORY = 0.5
"""Share of its GPUs' memory from which a job fills it."""
SAVES = 0.5
"""Share of the price that a smaller device must save at least."""
OVERASKED = 0.5
"""Share of its CPUs, or of its memory, below which a job has asked for too much."""
LEAST_CPUS, LEAST_MEMORY_GiB, LEAST_RUN_S = 4.0, 16.0, 600.0
"""CPUs and GiB below which, and seconds of a run before which, nobody minds."""


@dataclass(frozen=True, slots=True)
class ModelUse:
    """GPU-seconds on one GPU model: held, and of these useful, idle and lost (done again)."""

    model: str
    held: float = 0.0
    useful: float = 0.0
    idle: float = 0.0
    lost: float = 0.0


@dataclass(frozen=True, slots=True)
class GpusNow:
    """What the counters of a job's GPUs say at this moment: which compute, which do not; memory in GiB."""

    busy: tuple[str, ...] = ()
    idle: tuple[str, ...] = ()
    memory_GiB: float | None = None
    memory_of_GiB: float | None = None

    @property
    def fills_memory(self) -> bool:
        """Whether most of the memory is taken."""
        if self.memory_GiB is None or not self.memory_of_GiB:
            return False
        return self.memory_GiB >= FILLS_MEMORY * self.memory_of_GiB


@dataclass(frozen=True, slots=True)
class SmallerDevice:
    """A device that would serve the job's model, in words, and the share of the present price that it costs."""

    model: str
    device: str
    cost_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFigures:
    """What is known of one job.

    gpus are those it holds or held last, parts as parts; cpus and memory_GiB those it asked for, over all members (0:
    nothing, or not on record). has_checkpoint is None where that is not on record.
    """

    job: str
    name: str
    queue: str
    user: str
    running: bool
    gpus: float
    used: tuple[ModelUse, ...]
    project: str = ""
    has_checkpoint: bool | None = None
    every_s: float | None = None
    cpus: float = 0.0
    memory_GiB: float = 0.0
    now: GpusNow | None = None
    host: HostUse | None = None
    smaller: SmallerDevice | None = None

    def sum(self, part: Callable[[ModelUse], float]) -> float:
        """A figure over all GPU models."""
        return sum(part(each) for each in self.used)

    @property
    def useful_share(self) -> float | None:
        """Useful of what was measured; None where nothing was."""
        useful, idle = self.sum(lambda each: each.useful), self.sum(lambda each: each.idle)
        return useful / (useful + idle) if useful + idle > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WasteRow:
    """What a job, a user, a queue or a project wasted.

    wasted_of_model are GPU-seconds; cpu_s and memory_GiB what of the hosts was asked for and not used, as far as it is
    measured. kind is the reason in one word; worst the job of which it is, for sums.
    """

    name: str
    queue: str
    user: str
    running: bool
    jobs: int
    held_gpu_s: float
    useful_gpu_s: float
    wasted_of_model: Mapping[str, float]
    cpu_s: float
    memory_GiB: float
    kind: str
    reason: str
    remedy: str
    project: str = ""
    worst: str = ""

    @property
    def wasted_gpu_s(self) -> float:
        """On all GPU models."""
        return sum(self.wasted_of_model.values())


# ----- one job


def waste_of(job: JobFigures) -> WasteRow:
    """What a job wasted, why, and what to do about it; kind "" where it is below the thresholds."""
    parts = {
        "redone": job.sum(lambda each: each.lost),
        "idle": job.sum(lambda each: each.idle),
    }
    wasted_of_model = {each.model: max(0.0, each.lost + each.idle) for each in job.used}
    saved = _saved_of_model(job)
    if sum(saved.values()) > sum(wasted_of_model.values()):
        wasted_of_model, parts = saved, {"oversized": sum(saved.values())}
    kind = max(parts, key=lambda part: parts[part])
    if not _is_much(job, sum(wasted_of_model.values())):
        kind = _host_kind(job)
    reason, remedy = _SENTENCES[kind](job) if kind else ("", "")
    unused_cpu_s, unused_GiB = _unused(job)
    return WasteRow(
        name=job.job,
        queue=job.queue,
        user=job.user,
        project=job.project,
        running=job.running,
        jobs=1,
        held_gpu_s=job.sum(lambda each: each.held),
        useful_gpu_s=job.sum(lambda each: each.useful),
        wasted_of_model={model: seconds for model, seconds in wasted_of_model.items() if seconds},
        cpu_s=unused_cpu_s,
        memory_GiB=unused_GiB,
        kind=kind,
        reason=reason,
        remedy=remedy,
    )


def _is_much(job: JobFigures, wasted_gpu_s: float) -> bool:
    held = job.sum(lambda each: each.held)
    return wasted_gpu_s >= LEAST_GPU_S and wasted_gpu_s >= LEAST_SHARE * held


def _saved_of_model(job: JobFigures) -> dict[str, float]:
    """GPU-seconds that a smaller device would have saved."""
    if job.smaller is None or 1.0 - job.smaller.cost_share < SAVES:
        return {}
    return {each.model: each.held * (1.0 - job.smaller.cost_share) for each in job.used}


def _host_kind(job: JobFigures) -> str:
    """Whether the job asked for far more of its hosts than it uses, and of what."""
    host = job.host
    if host is None or host.ran_s < LEAST_RUN_S:
        return ""
    if job.cpus >= LEAST_CPUS and host.cpus < OVERASKED * job.cpus:
        return "cpus"
    if job.memory_GiB >= LEAST_MEMORY_GiB and host.memory_GiB < OVERASKED * job.memory_GiB:
        return "memory"
    return ""


def _unused(job: JobFigures) -> tuple[float, float]:
    """(seconds of CPU, GiB) that were asked for and not used."""
    if job.host is None:
        return 0.0, 0.0
    cpu_s = max(0.0, job.cpus * job.host.ran_s - job.host.cpu_s)
    return cpu_s, max(0.0, job.memory_GiB - job.host.memory_GiB)


# ----- in words: (reason, remedy)


def _redone(job: JobFigures) -> tuple[str, str]:
    hours = _hours(job.sum(lambda each: each.lost))
    if job.has_checkpoint is False:
        remedy = "Declare `checkpoint` in the job: a stop then costs the time since the last save."
        return f"work done again: {hours}, no checkpoint declared", remedy
    if job.every_s is not None:
        every = f"every {_span(job.every_s)}"
        remedy = "Save more often (`checkpoint.every`), or find out why its attempts end."
        return f"work done again: {hours}, saved {every}", remedy
    remedy = "Save more often (`checkpoint.every`), or find out why its attempts end."
    return f"work done again: {hours}", remedy


def _idle(job: JobFigures) -> tuple[str, str]:
    share = job.useful_share or 0.0
    if share < COMPUTES_NOTHING:
        return _nothing(job)
    if share <= PARTLY_IDLE and job.gpus >= 2 and job.gpus * share >= 1:
        return _fewer(job, share)
    remedy = (
        "Let reading data overlap with computing, or ask for a part of a GPU (`gpu_share`, `mig`)."
    )
    return f"idle {1.0 - share:.0%} of its time", remedy


def _nothing(job: JobFigures) -> tuple[str, str]:
    remedy = "Cancel it, or let its queue reclaim idle gangs (`idle` in the policy)."
    if job.now is not None and job.now.fills_memory:
        memory = f"{job.now.memory_GiB:.0f} of {job.now.memory_of_GiB:.0f} GiB"
        return f"fills memory ({memory}), computes nothing", remedy
    return "computes nothing", remedy


def _fewer(job: JobFigures, share: float) -> tuple[str, str]:
    busy = min(round(job.gpus * share), ceil(job.gpus) - 1)
    gpus = f"{job.gpus:g}"
    if job.now is not None and job.now.idle and job.now.busy:
        busy = len(job.now.busy)
        idle = f"idle are {', '.join(job.now.idle)}"
        remedy = f"Ask for {plural(busy, 'GPU')}, or give work to all of them."
        return f"asks for {gpus} GPUs, keeps {busy} busy: {idle}", remedy
    remedy = f"Ask for {plural(busy, 'GPU')}, or give work to all of them."
    return f"asks for {gpus} GPUs, keeps {busy} busy on average", remedy


def _oversized(job: JobFigures) -> tuple[str, str]:
    assert job.smaller is not None, "the kind says so"
    models = " and ".join(each.model or "GPUs of no known model" for each in job.used if each.held)
    saves = f"at {job.smaller.cost_share:.0%} of the cost"
    reason = (
        f"{job.smaller.model} on {job.gpus:g} x {models}: {job.smaller.device} serves it {saves}"
    )
    return reason, f"Size it with `gantree fit CLUSTER {job.smaller.model} --serve`."


def _cpus(job: JobFigures) -> tuple[str, str]:
    assert job.host is not None, "the kind says so"
    reason = f"asks for {job.cpus:g} CPUs, uses {job.host.cpus:.1f} on average"
    return reason, f"Ask for {_enough(job.host.cpus):g} CPUs over all members (`each.cpus`)."


def _memory(job: JobFigures) -> tuple[str, str]:
    assert job.host is not None, "the kind says so"
    reason = f"asks for {job.memory_GiB:g} GiB of memory, uses {job.host.memory_GiB:.1f} at most"
    enough = _enough(job.host.memory_GiB)
    return reason, f"Ask for {enough:g} GiB over all members (`each.memory_GiB`)."


_SENTENCES: Mapping[str, Callable[[JobFigures], tuple[str, str]]] = {
    "redone": _redone,
    "idle": _idle,
    "oversized": _oversized,
    "cpus": _cpus,
    "memory": _memory,
}
KINDS = tuple(_SENTENCES)
"""The reasons, in one word each."""


def _enough(used: float) -> int:
    """A quarter more than was used, rounded up."""
    return max(1, -int(-used * 1.25 // 1))


def _hours(gpu_s: float) -> str:
    hours = gpu_s / HOUR_S
    return f"{hours:.0f} GPU-hours" if hours >= 10 else f"{hours:.1f} GPU-hours"


def _span(seconds: float) -> str:
    return f"{seconds / HOUR_S:g} h" if seconds >= HOUR_S else f"{seconds / 60:g} min"


# ----- many jobs


def summed(rows: Iterable[WasteRow], key: Callable[[WasteRow], str]) -> Iterator[WasteRow]:
    """Rows by user, queue or project: sums, with the reason of the worst job of the kind that wasted most."""
    groups: dict[str, list[WasteRow]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    for name in sorted(groups):
        yield _summed(name, groups[name])


def _summed(name: str, rows: Sequence[WasteRow]) -> WasteRow:
    of_kind: dict[str, float] = {}
    for row in rows:
        if row.kind:
            of_kind[row.kind] = of_kind.get(row.kind, 0.0) + row.wasted_gpu_s
    kind = max(sorted(of_kind), key=lambda each: of_kind[each], default="")
    of_this = [row for row in rows if row.kind and row.kind == kind]
    worst = max(of_this, key=lambda row: row.wasted_gpu_s, default=None)
    return WasteRow(
        name=name,
        queue=_common(row.queue for row in rows),
        user=_common(row.user for row in rows),
        project=_common(row.project for row in rows),
        running=any(row.running for row in rows),
        jobs=len(rows),
        held_gpu_s=sum(row.held_gpu_s for row in rows),
        useful_gpu_s=sum(row.useful_gpu_s for row in rows),
        wasted_of_model=_models(rows),
        cpu_s=sum(row.cpu_s for row in rows),
        memory_GiB=sum(row.memory_GiB for row in rows),
        kind=kind,
        reason=f"{plural(len(of_this), 'job')}, most in {worst.name}: {worst.reason}"
        if worst
        else "",
        remedy=worst.remedy if worst else "",
        worst=worst.name if worst else "",
    )


def total(rows: Sequence[WasteRow]) -> WasteRow:
    """All rows in one."""
    return _summed("", rows)


def _models(rows: Iterable[WasteRow]) -> dict[str, float]:
    of_model: dict[str, float] = {}
    for row in rows:
        for model, seconds in row.wasted_of_model.items():
            of_model[model] = of_model.get(model, 0.0) + seconds
    return of_model


def _common(values: Iterable[str]) -> str:
    """The value that all have, else ""."""
    found = set(values)
    return found.pop() if len(found) == 1 else ""
