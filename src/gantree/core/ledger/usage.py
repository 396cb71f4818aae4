"""Metering of jobs: GPU-seconds held, wasted, useful and idle by GPU model, and seconds waited, of each job's life.

It is fed by facts alone: `meter` is called with each fact that changes what a job uses, before it is applied, and books
what the job has used since the last one. `life_of` adds what it uses since, up to a moment. What queues, users and
projects used over time is in the roll-ups of the journal (`control.history`), which follow the same facts.

Held is a GPU from `GangPlaced` to `AttemptEnded`, a part of a GPU as that part (as quotas count), but not while its
gang is suspended in turns. Wasted is what of it must be done again: the time in which an attempt that was stopped or
failed ran since its last checkpoint. Waiting is a job that is pending and not held back by somebody.

Useful and idle is what counters of the GPUs told of a gang that ran (`GpuUseNoted`). No second is in two of wasted,
useful and idle: work that turns out to be wasted is taken out of the others. What is in none of them was not measured,
or was the time to start, to save and to stop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from gantree.core.ledger.accounts.share_corrections import correct_for_idle, correct_for_lost
from gantree.core.ledger.measured_attempt import NOT_MEASURED
from gantree.core.ledger.state import JobState
from gantree.model.facts import (
    AttemptEnded,
    CheckpointRequested,
    Fact,
    GangPlaced,
    GangResumed,
    GangRunning,
    GangSuspended,
    GpuUseNoted,
    JobEnded,
    JobHeld,
    JobReleased,
    JobRequeued,
    StopDecided,
)
from gantree.model.phases import HOLDING, Phase
from gantree.policy.amounts import MODEL
from gantree.policy.rules import Amounts

if TYPE_CHECKING:
    from gantree.core.ledger.ledger import Ledger

NO_MODEL = ""
"""The model of GPUs whose model nobody knows, and of waiting, which is for no model yet."""

AMOUNTS_KEPT = 1024
"""Amounts of which it is remembered how many GPUs of each model they are."""
METERED: frozenset[type[Fact]] = frozenset(
    {GangPlaced, GangSuspended, GangResumed, AttemptEnded, JobRequeued, JobEnded, JobHeld, JobReleased}
)  # fmt: skip
"""Facts after which a job uses something else than before."""
RUN_CHANGES: frozenset[type[Fact]] = frozenset(
    {GangRunning, GangSuspended, GangResumed, CheckpointRequested, StopDecided}
)
"""Facts after which a gang runs, or no longer does; an attempt that ends is among METERED."""


@dataclass(frozen=True, slots=True)
class Used:
    """An amount of usage."""

    held_gpu_s: float = 0.0
    wasted_gpu_s: float = 0.0
    waited_s: float = 0.0
    useful_gpu_s: float = 0.0
    idle_gpu_s: float = 0.0

    def __add__(self, other: "Used") -> "Used":
        return Used(
            self.held_gpu_s + other.held_gpu_s,
            self.wasted_gpu_s + other.wasted_gpu_s,
            self.waited_s + other.waited_s,
            self.useful_gpu_s + other.useful_gpu_s,
            self.idle_gpu_s + other.idle_gpu_s,
        )


NOTHING = Used()


def meter(ledger: "Ledger", fact: Fact) -> None:
    """Book what the job of a metered fact has used until now; the fact is not applied yet."""
    state = ledger.jobs[fact.job]  # type: ignore[attr-defined]  # METERED are facts about jobs
    for model, used in _since_metered(state, fact.at):
        _book(state, model, used)
    if isinstance(fact, AttemptEnded):
        _meter_end(ledger, state, fact)
    elif isinstance(fact, GangPlaced):
        state.metered = replace(state.metered, measured_attempt=NOT_MEASURED)
    state.metered = replace(state.metered, metered_at=fact.at)


def _meter_end(ledger: "Ledger", state: JobState, fact: AttemptEnded) -> None:
    """Book work that is wasted, and take it out of what was measured of it."""
    attempt, lost = state.metered.measured_attempt.ended(fact.at, fact.lost_s)
    if lost.seconds:
        of_model = _by_model(state, -lost.useful_gpu_s, -lost.idle_gpu_s)
        for (model, gpus), (useful, idle) in zip(
            state.metered.gpus_of_model, of_model, strict=True
        ):
            _book(state, model, Used(0.0, lost.seconds * gpus, 0.0, useful, idle))
        correct_for_lost(ledger.accounts, state, lost.seconds, lost.idle_gpu_s, fact.at)
    state.metered = replace(state.metered, measured_attempt=attempt)


def note_run(ledger: "Ledger", fact: Fact) -> None:
    """Note whether the gang of a fact runs now; the fact is applied."""
    state = ledger.jobs[fact.job]  # type: ignore[attr-defined]  # RUN_CHANGES are facts about jobs
    runs = state.phase is Phase.RUNNING and state.running_at is not None and not state.suspended
    attempt = state.metered.measured_attempt
    if runs != (attempt.runs_since is not None):
        attempt = attempt.running(fact.at, runs=runs)
        state.metered = replace(state.metered, measured_attempt=attempt)


def note_use(ledger: "Ledger", fact: GpuUseNoted) -> None:
    """Book what gangs did with their GPUs."""
    held_at = (min(fact.since, fact.at) + min(fact.until, fact.at)) / 2
    for used in fact.gangs:
        state = ledger.jobs[used.job]
        of_model = _by_model(state, used.useful_gpu_s, used.idle_gpu_s)
        for (model, _), (useful, idle) in zip(state.metered.gpus_of_model, of_model, strict=True):
            _book(state, model, Used(useful_gpu_s=useful, idle_gpu_s=idle))
        correct_for_idle(ledger.accounts, state, used.idle_gpu_s, held_at, fact.at)
        attempt = state.metered.measured_attempt.told(
            fact.spans_of(used), fact.until, used.useful_gpu_s, used.idle_gpu_s
        )
        state.metered = replace(state.metered, measured_attempt=attempt)


def _by_model(state: JobState, useful: float, idle: float) -> list[tuple[float, float]]:
    """Shares of amounts for each model that a gang holds, in proportion to its GPUs."""
    of_model = state.metered.gpus_of_model
    whole = sum(gpus for _, gpus in of_model)
    return [(useful * gpus / whole, idle * gpus / whole) for _, gpus in of_model]


def _book(state: JobState, model: str, used: Used) -> None:
    before = state.metered
    spent = {model: (held, wasted) for model, held, wasted in before.spent}
    if used.held_gpu_s or used.wasted_gpu_s:
        held, wasted = spent.get(model, (0.0, 0.0))
        spent[model] = held + used.held_gpu_s, wasted + used.wasted_gpu_s
    measured = {model: (useful, idle) for model, useful, idle in before.measured}
    if used.useful_gpu_s or used.idle_gpu_s:
        useful, idle = measured.get(model, (0.0, 0.0))
        measured[model] = useful + used.useful_gpu_s, idle + used.idle_gpu_s
    state.metered = replace(
        before,
        spent=tuple((model, *amounts) for model, amounts in spent.items()),
        waited_s=before.waited_s + used.waited_s,
        measured=tuple((model, *amounts) for model, amounts in measured.items()),
    )


def _since_metered(state: JobState, until: float) -> Iterator[tuple[str, Used]]:
    """What a job has used since it was last metered, by GPU model."""
    since = state.metered.metered_at
    if since is None or since >= until:
        return
    if state.phase is Phase.PENDING and not state.held:
        yield NO_MODEL, Used(waited_s=until - since)
    elif state.phase in HOLDING and not state.suspended:
        for model, gpus in state.metered.gpus_of_model:
            yield model, Used(held_gpu_s=gpus * (until - since))


def gpus_of_model(held: Amounts) -> tuple[tuple[str, float], ...]:
    """GPUs by model of what a gang holds, parts as parts; those of no known model last."""
    return _gpus_of_model(tuple(held.items()))


@lru_cache(AMOUNTS_KEPT)
def _gpus_of_model(held: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
    of_models = [
        (resource.removeprefix(MODEL), amount)
        for resource, amount in held
        if resource.startswith(MODEL)
    ]
    rest = dict(held).get("gpus", 0.0) - sum(amount for _, amount in of_models)
    return (*of_models, (NO_MODEL, rest)) if rest > 1e-9 else tuple(of_models)


def life_of(state: JobState, now: float) -> dict[str, Used]:
    """What a job has used in its whole life up to a moment, by GPU model; waiting is under no model."""
    used = {model: Used(held, wasted) for model, held, wasted in state.metered.spent}
    for model, useful, idle in state.metered.measured:
        used[model] = used.get(model, NOTHING) + Used(useful_gpu_s=useful, idle_gpu_s=idle)
    if state.metered.waited_s:
        waited = Used(waited_s=state.metered.waited_s)
        used[NO_MODEL] = used.get(NO_MODEL, NOTHING) + waited
    if state.ended_at is None:
        for model, more in _since_metered(state, now):
            used[model] = used.get(model, NOTHING) + more
    return used
