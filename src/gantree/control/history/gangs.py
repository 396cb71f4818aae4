"""Gangs that hold a place: for which purpose their GPUs are counted, and what becomes of it when they end."""

from collections.abc import Iterator
from dataclasses import dataclass

from gantree.accounting.buckets import pieces
from gantree.accounting.meter import (
    ALLOCATED,
    CHECKPOINT,
    CPU,
    MEMORY,
    RESTART,
    SLOWER,
    STARTING,
    USED,
    UsageMeter,
)
from gantree.accounting.usage import NO_MODEL, UsageKey
from gantree.control.history.site_use import gang_gpus
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.measured_attempt import LATE_S, NOT_MEASURED, MeasuredAttempt, Span
from gantree.core.ledger.state import JobState
from gantree.model.facts import Fact, GangPlaced, GpuUseNoted
from gantree.model.gpu_activity import MeasuredUse
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, Phase

Devices = tuple[tuple[str, str, float], ...]
"""(GPU model, device, GPUs)."""
Hosts = tuple[tuple[str, float, float], ...]
"""(GPU model of the nodes, cores, GiB of memory)."""


@dataclass(slots=True)
class Gang:
    """A gang that holds a place, or has held it. ended_at: when nothing was left of it.

    slower is the part of its time that it would be without at its best place.
    """

    queue: str
    user: str
    project: str
    devices: Devices
    attempt: int
    phase: Phase = Phase.STARTING
    runs: bool = False
    suspended: bool = False
    measured: MeasuredAttempt = NOT_MEASURED
    hosts: Hosts = ()
    slower: float = 0.0
    ended_at: float | None = None

    @property
    def keys(self) -> Iterator[tuple[UsageKey, float]]:
        """Under which keys it is counted, and with how many GPUs."""
        for model, device, gpus in self.devices:
            yield UsageKey(self.queue, self.user, model, self.project, device), gpus

    @property
    def beside(self) -> Iterator[tuple[UsageKey, dict[str, float]]]:
        """What is counted as long as its GPUs are allocated, by key and column."""
        for model, cpus, memory_GiB in self.hosts:
            key = UsageKey(self.queue, self.user, model, self.project)
            yield key, {CPU: cpus, MEMORY: memory_GiB}
        for key, gpus in self.keys if self.slower else ():
            yield key, {SLOWER: gpus * self.slower}

    @property
    def now(self) -> Iterator[tuple[UsageKey, dict[str, float]]]:
        """What it has now, by key and column."""
        columns = self.columns
        for key, gpus in self.keys:
            yield key, dict.fromkeys(columns, gpus)
        if self.holds:
            yield from self.beside

    @property
    def holds(self) -> bool:
        """Whether what it has is allocated: it rests while it is suspended."""
        return not self.suspended and self.ended_at is None

    @property
    def key(self) -> UsageKey:
        """The key under which what happens to it is counted."""
        key = next((key for key, _ in self.keys), None)
        return key or UsageKey(self.queue, self.user, NO_MODEL, self.project)

    @property
    def columns(self) -> tuple[str, ...]:
        """What its GPUs are counted as now."""
        if not self.holds:
            return ()
        used = (USED,) if self.runs else ()
        match self.phase:
            case Phase.STARTING:
                purpose = STARTING if self.attempt <= 1 else RESTART
            case Phase.SAVING:
                purpose = CHECKPOINT
            case Phase.STOPPING:
                purpose = RESTART
            case _:
                return (ALLOCATED, *used)
        return (ALLOCATED, *used, purpose)


class GangUse:
    """Counts what gangs use. Those that have ended are kept for as long as reports on them are taken in.

    gpus_of_model are the GPUs of all their places, of gangs that rest too.
    """

    def __init__(self, meter: UsageMeter, ledger: Ledger, now: float) -> None:
        self._meter = meter
        self._gangs = {job: gang_of(state) for job, state in ledger.holding.items()}
        self._ended = {state.job: gang_of(state) for state in _just_ended(ledger, now)}
        self.gpus_of_model = gang_gpus(ledger)

    def of(self, job: str) -> Gang:
        """The gang of a job that holds a place."""
        return self._gangs[job]

    def placed(
        self,
        fact: GangPlaced,
        spec: Job,
        devices: Devices,
        hosts: Hosts,
    ) -> Gang:
        """A gang holds a place from now on."""
        gang = Gang(spec.queue, spec.user, spec.project, devices, fact.attempt)
        gang.hosts, gang.slower = hosts, fact.placement.predicted.slower
        self._gangs[fact.job] = gang
        self._ended.pop(fact.job, None)
        self._hold(gang, 1)
        self._count(fact.at, gang, (), was_held=False)
        return gang

    def moves(self, fact: Fact, job: str, **changes: object) -> None:
        """A gang is in another phase, runs, or rests."""
        gang, at = self._gangs[job], fact.at
        before, was_held = gang.columns, gang.holds
        for name, value in changes.items():
            setattr(gang, name, value)
        runs = gang.phase is Phase.RUNNING and gang.runs and not gang.suspended
        gang.measured = gang.measured.running(at, runs=runs)
        if gang.columns != before:
            self._count(at, gang, before, was_held=was_held)

    def saved(self, fact: Fact, job: str) -> None:
        """What a gang has done up to now is kept."""
        gang = self._gangs.get(job)
        if gang is not None:
            gang.measured = gang.measured.saved(fact.at)

    def ended(self, fact: Fact, job: str, lost_s: float) -> None:
        """Nothing is left of a gang. Lost work is counted now, and taken out of what it was counted as."""
        gang, at = self._gangs.pop(job), fact.at
        self._forget(at)
        self._hold(gang, -1)
        before, was_held, gang.ended_at = gang.columns, gang.holds, at
        self._count(at, gang, before, was_held=was_held)
        gang.measured, lost = gang.measured.ended(at, lost_s)
        self._ended[job] = gang
        whole = sum(gpus for _, gpus in gang.keys)
        for key, gpus in gang.keys if lost.seconds else ():
            row = self._meter.amounts(at, key)
            row.lost_gpu_s += lost.seconds * gpus
            row.useful_gpu_s -= lost.useful_gpu_s * gpus / whole
            row.idle_gpu_s -= lost.idle_gpu_s * gpus / whole

    def measured(self, fact: GpuUseNoted) -> None:
        """Count what counters told where the gangs ran, evenly."""
        for used in fact.gangs:
            gang = self._gangs.get(used.job) or self._ended.get(used.job)
            if gang is not None and gang.attempt == used.attempt:
                self._measured(fact, gang, used, fact.spans_of(used))

    def _measured(
        self, fact: GpuUseNoted, gang: Gang, used: MeasuredUse, spans: tuple[Span, ...]
    ) -> None:
        gang.measured = gang.measured.told(spans, fact.until, used.useful_gpu_s, used.idle_gpu_s)
        whole = sum(gpus for _, gpus in gang.keys)
        seconds = sum(end - begin for begin, end in spans)
        for begin, end in spans:
            for bucket, piece_s in pieces(begin, end, self._meter.now_at(fact.at)):
                for key, gpus in gang.keys:
                    part = piece_s / seconds * gpus / whole
                    row = self._meter.row(bucket, key)
                    row.useful_gpu_s += used.useful_gpu_s * part
                    row.idle_gpu_s += used.idle_gpu_s * part
                    for column, amount in used.drawn._asdict().items():
                        setattr(row, column, getattr(row, column) + amount * part)

    def _hold(self, gang: Gang, sign: int) -> None:
        """A gang has a place, or no more."""
        for key, gpus in gang.keys:
            before = self.gpus_of_model.get(key.model, 0.0)
            self.gpus_of_model[key.model] = before + sign * gpus

    def _forget(self, at: float) -> None:
        """Forget gangs of which no report is taken in any more."""
        for job, gang in list(self._ended.items()):
            if gang.ended_at is None or gang.ended_at >= at - LATE_S:
                return
            del self._ended[job]

    def _count(self, at: float, gang: Gang, before: tuple[str, ...], *, was_held: bool) -> None:
        """What a gang has is counted as its columns say from now on, and no longer as before."""
        after = gang.columns
        gone, come = set(before) - set(after), set(after) - set(before)
        for key, gpus in gang.keys:
            change = dict.fromkeys(sorted(gone), -gpus)
            change.update((column, gpus) for column in sorted(come))
            self._meter.add(at, key, change)
        sign = int(gang.holds) - int(was_held)
        for key, amounts in gang.beside if sign else ():
            self._meter.add(at, key, {name: sign * amount for name, amount in amounts.items()})


def gang_of(state: JobState) -> Gang:
    """The gang of a job that holds a place or has held one, as the ledger has it."""
    spec, holds = state.spec, state.phase in HOLDING
    return Gang(
        spec.queue,
        spec.user,
        spec.project,
        state.metered.devices,
        state.attempt,
        state.phase,
        state.running_at is not None,
        state.suspended,
        state.metered.measured_attempt,
        state.metered.hosts_of_model,
        0.0 if state.placement is None else state.placement.predicted.slower,
        None if holds else state.metered.metered_at,
    )


def _just_ended(ledger: Ledger, now: float) -> list[JobState]:
    """The jobs whose last attempt ended so lately that reports on it are still taken in, in order of the ends."""
    ended_at: dict[str, float] = {}
    for state in ledger.jobs.values():
        runs = state.metered.measured_attempt.runs
        if state.phase not in HOLDING and runs and runs[-1][1] >= now - LATE_S:
            ended_at[state.job] = runs[-1][1]
    return [ledger.jobs[job] for job in sorted(ended_at, key=ended_at.__getitem__)]
