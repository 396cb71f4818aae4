"""What-if for one job: when and where it would start with other requests, and which jobs would be stopped.

The answer is what the scheduler would decide on a copy of the ledger (`core.ledger.ledger_copy`). There the job has the
other request from the start and keeps its place in the order of arrival; reservations behind its own are made again.
Nothing is recorded and nothing is ordered. Other causes to wait are ignored: a hold, a backoff, jobs that it comes
after. A running job counts as if it stopped now and were pending again.

The run time at another placement, size or model follows from predicted steps if the job describes its traffic.
Otherwise it is in inverse proportion to its members and to the speeds that it gives for models, with an assumed share
of communication (`sizes.goodputs`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from gantree.core.explain.explain import why
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.ledger_copy import copy_of
from gantree.core.ledger.state import JobState
from gantree.core.queue.job_variants import open_variants
from gantree.core.reservations.reservations import planned_start
from gantree.core.reservations.start_estimates import Start, domain_in_words, known_start
from gantree.core.scheduler import Scheduler, settled
from gantree.model.arrays import element_name, element_of, index_at
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import Event, JobSubmitted, TimePassed
from gantree.model.facts import (
    AttemptEnded,
    ClaimDropped,
    Fact,
    GangMoving,
    GangPreempted,
    JobAccepted,
    JobEnded,
    JobRequeued,
    PriorityChanged,
    ReservationDropped,
)
from gantree.model.jobs import Job, Role
from gantree.model.phases import ENDED, HOLDING, Phase, StopCause
from gantree.model.placements import MemberPlacement, Placement
from gantree.model.verdicts import Gate, Refused
from gantree.placement.choice.search import find
from gantree.placement.request.sizes import goodputs, resized
from gantree.placement.request.topology_request import topology_request_of
from gantree.planning.policy_preferences import placement_preferences_of
from gantree.policy.boosts import boost_of
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.prices import LIST_PRICES, Market, PriceList

HOUR_S = 3600.0

REQUIRED, MEMBERS, GPU = "topology.required", "members", "gpu"
PRIORITY, TIME_LIMIT, QUEUE = "priority", "time_limit", "queue"
FIELDS = (REQUIRED, MEMBERS, GPU, PRIORITY, TIME_LIMIT, QUEUE)

Change = tuple[tuple[str, str | int | float | None], ...]
"""Fields of the job (of FIELDS) with what each would be: a tier or None, a number, a model, a class or number, seconds,
a queue."""

KEPT = (
    "attempt", "started_at", "checkpoint_step", "failures", "preempted_at", "resized_at", "gpu_s_lost",
    "attained_gpu_s", "done_s", "scaled", "reason",
)  # fmt: skip
"""The history that a job keeps when its request changes."""


@dataclass(frozen=True, slots=True)
class Stopped:
    """A job that would give up room. how is "preempt", "reclaim", "order", "shrink" or "move"."""

    job: str
    how: str


@dataclass(frozen=True, slots=True)
class Alternative:
    """The result of a change of the job; () is the job as it is.

    start: its start, None if unknown; `now`: it would start at once. placement: where. refused: why it would not start
    now, and sentence the same in words, "" if it would. stopped: the jobs that would give up room first. step_s and
    comm_s are predicted there; the ratios compare with the best placement of the job as it is on the empty cluster.
    run_s is the whole run, gpu_hours and cost_USD are of it. None: not known. cut: its time limit may end the run
    before its work is done.
    """

    change: Change
    now: bool
    start: Start | None = None
    placement: Placement | None = None
    refused: Refused | None = None
    sentence: str = ""
    stopped: tuple[Stopped, ...] = ()
    step_s: float | None = None
    step_ratio: float | None = None
    comm_s: float | None = None
    comm_ratio: float | None = None
    run_s: float | None = None
    cut: bool = False
    gpu_hours: float | None = None
    cost_USD: float | None = None


def alternatives(
    ledger: Ledger,
    job: str,
    changes: Iterable[Change],
    now: float,
    prices: PriceList = LIST_PRICES,
) -> tuple[Alternative, ...]:
    """The job as it is, then with each change by itself. O(jobs) for each; the ledger does not change.

    Raises NotFound, Conflict for a job that has ended or was rejected, BadInput and Unsupported for a change that this
    job cannot have (an unknown queue, tier or class; a size that its parallelism forbids).
    """
    state = _known(ledger, job)
    variants = [((), state.spec), *((each, changed(ledger, state.spec, each)) for each in changes)]
    preferences = placement_preferences_of(ledger.policy)
    variant = next(iter(open_variants(ledger, state.spec)), state.spec)
    reference = find(ledger.rooms().emptied(), variant, preferences)
    found = []
    for change, spec in variants:
        alternative, priced = _tried(ledger, state, change, spec, now)
        found.append(_priced(alternative, ledger, state, priced, reference, prices))
    return tuple(found)


def _known(ledger: Ledger, job: str) -> JobState:
    if job in ledger.rejected:
        raise Conflict(f"{job} was rejected")
    state = ledger.jobs.get(job) or ledger.leader_of(job)
    if state is None and ledger.spec_of(job) is not None:
        raise Conflict(
            f"{job} waits behind other jobs of its array, or is held with it: name another"
        )
    if state is None:
        raise NotFound(f"there is no job {job}")
    if state.phase in ENDED:
        raise Conflict(f"{job} has ended: {state.phase}")
    if ledger.occupancy is None:
        raise Conflict("no cluster is known yet")
    return state


# ----- what it would ask for


def changed(ledger: Ledger, spec: Job, change: Change) -> Job:
    """The changed job. Raises BadInput for a field that is none of FIELDS, or an unsuitable value."""
    for field, value in change:
        spec = _with(ledger, spec, field, value)
    topology_request_of(ledger.rooms().fabric, spec)
    return spec


def _with(ledger: Ledger, spec: Job, field: str, value: str | int | float | None) -> Job:
    match field, value:
        case ("topology.required", None | str() as tier):
            return _requiring(spec, tier)
        case ("members", int(members)):
            return _resized(spec, members)
        case ("gpu", str(model)):
            return replace(spec, roles=tuple(_on_model(role, model) for role in spec.roles))
        case ("priority", str() | int() as priority):
            ledger.policy.priority_of(priority)
            return replace(spec, priority=priority)
        case ("time_limit", int() | float() as limit_s) if 0 < limit_s < inf:
            expected_s = None if spec.expected_s is None else min(spec.expected_s, limit_s)
            return replace(spec, time_limit_s=float(limit_s), expected_s=expected_s)
        case ("queue", str(queue)):
            problem = ledger.accounts.tree.problem(queue)
            if problem:
                raise BadInput(f"queue: {problem}")
            return replace(spec, queue=queue)
    raise BadInput(
        f"{field}: found {value!r}; allowed: {', '.join(FIELDS)}, each with a value of it"
    )


def _resized(spec: Job, members: int) -> Job:
    """The job with so many members, not elastic; its expected run time is in inverse proportion to them."""
    sized, expected_s = resized(spec, members), spec.expected_s
    if expected_s is not None:
        expected_s = min(expected_s * spec.members / members, spec.time_limit_s or inf)
    return replace(sized, elastic=None, expected_s=expected_s)


def _requiring(spec: Job, tier: str | None) -> Job:
    """Replace the tier that the job requires, or that its roles require if it requires none."""
    in_roles = spec.topology.required is None and any(r.topology.required for r in spec.roles)
    if not in_roles:
        return replace(spec, topology=replace(spec.topology, required=tier))
    roles = tuple(
        replace(role, topology=replace(role.topology, required=tier))
        if role.topology.required
        else role
        for role in spec.roles
    )
    return replace(spec, roles=roles)


def _on_model(role: Role, model: str) -> Role:
    needs_gpus = role.shape.gpus or role.shape.part
    return replace(role, shape=replace(role.shape, models=(model,))) if needs_gpus else role


# ----- what would become of it


def _tried(
    ledger: Ledger, state: JobState, change: Change, spec: Job, now: float
) -> tuple[Alternative, Job]:
    """Decide on a copy of the ledger with the changed job, and read the result."""
    twin = copy_of(ledger)
    _resubmit(twin, twin.jobs[state.job], replace(spec, after=(), held=False), now)
    return _decided(twin, state.job, change, TimePassed(id="what-if", observed_at=now))


def forecast(ledger: Ledger, event: JobSubmitted) -> Alternative:
    """When and where a job would start that was submitted at that moment; no price. The ledger does not change.

    Of an array, its first element.

    Raises Conflict where the job would be rejected, or no cluster is known.
    """
    if ledger.occupancy is None:
        raise Conflict("no cluster is known yet")
    spec, job = event.spec, event.job
    if spec.array:
        index = index_at(spec.array, 0)
        spec, job = element_of(spec, index), element_name(job, index)
    return _decided(copy_of(ledger), job, (), replace(event, job=job, spec=spec))[0]


def _decided(twin: Ledger, job: str, change: Change, event: Event) -> tuple[Alternative, Job]:
    """Decide about an event on a copy of the ledger, and read what became of a job."""
    now = event.observed_at
    scheduler = Scheduler(twin.policy)
    scheduler.ledger = twin
    scheduler.recover(())
    decision = settled(scheduler, [event], now)
    if job in twin.rejected:
        raise Conflict(f"{job} would be rejected: {twin.rejected[job]}")
    after = twin.jobs[job]
    if after.phase in HOLDING:
        assert after.placement is not None
        start = Start(now, True, (), True, domain=domain_in_words(after.placement))
        return Alternative(change, True, start, after.placement), after.present
    stopped = tuple(_stopped(decision.facts, job))
    explained = why(twin, job, now)
    start_later, placement = _later(twin, after, now, explained.refused)
    sized = after.spec if placement is None else after.at_size(len(placement.members))
    return (
        Alternative(
            change, False, start_later, placement, explained.refused, explained.sentence, stopped
        ),
        sized,
    )


def _resubmit(twin: Ledger, state: JobState, spec: Job, now: float) -> None:
    """Replace the request of the job, at its old place in the order of arrival."""
    if state.phase is Phase.PENDING and spec == state.spec and state.not_before <= now:
        return
    for fact in _withdrawn(twin, state, now):
        twin.apply(fact)
    old = twin.jobs.pop(state.job)
    priority = twin.policy.priority_of(spec.priority) + boost_of(twin.policy, spec, now)
    twin.apply(
        JobAccepted(at=old.submitted_at, job=old.job, spec=spec, priority=priority, seq=old.seq)
    )
    for field in KEPT:
        setattr(twin.jobs[old.job], field, getattr(old, field))
    twin.apply(PriorityChanged(at=now, job=old.job, priority=priority))


def _withdrawn(twin: Ledger, state: JobState, now: float) -> Iterator[Fact]:
    """The facts that take the job off its placement, claim, reservation and queue, and drop reservations behind its
    own.

    Apply each fact before the next one is generated.
    """
    if state.phase in HOLDING:
        yield AttemptEnded(
            at=now,
            job=state.job,
            attempt=state.attempt,
            exit_code=0,
            gpu_s_lost=state.gpu_s_at_stake(now),
        )
        yield JobRequeued(
            at=now,
            job=state.job,
            cause=StopCause.PREEMPTED,
            not_before=0.0,
            failures=state.failures,
        )
    if state.job in twin.claims:
        yield ClaimDropped(at=now, job=state.job, reason="what if")
    reserved = list(twin.reservations)
    if state.job in twin.reservations:  # later reservations depend on its own
        for job in reserved[reserved.index(state.job) :]:
            yield ReservationDropped(at=now, job=job, reason="what if")
    yield JobEnded(at=now, job=state.job, outcome=Phase.CANCELLED, exit_code=None, reason="what if")


def _stopped(facts: Sequence[Fact], job: str) -> Iterator[Stopped]:
    """The jobs that a decision stops, shrinks or moves for a job."""
    for fact in facts:
        if isinstance(fact, GangPreempted) and fact.by == job:
            yield Stopped(fact.job, "preempt" if fact.cause == "priority" else fact.cause)
        elif isinstance(fact, GangMoving) and fact.by == job:
            yield Stopped(fact.job, "shrink" if fact.cause is StopCause.RESIZED else "move")


def _later(
    twin: Ledger, state: JobState, now: float, refused: Refused | None
) -> tuple[Start | None, Placement | None]:
    """The start and placement of a job that does not start now: by its claim or reservation, else a forecast."""
    held = twin.claims.get(state.job) or twin.reservations.get(state.job)
    if held is not None:
        return known_start(twin, state), held.placement
    found = None
    if not is_beyond_forecast(refused):
        found = planned_start(twin, state, now, placement_preferences_of(twin.policy))
    if found is None:
        return None, None
    where = domain_in_words(found.placement)
    return Start(found.starts_at, False, found.waits_for, False, domain=where), found.placement


def is_beyond_forecast(refused: Refused | None) -> bool:
    """Whether the ends of running jobs do not determine a start: it never comes, or depends on quota."""
    return refused is not None and (refused.never or refused.gate in (Gate.LIMIT, Gate.QUOTA))


# ----- what it would cost


def _priced(
    alternative: Alternative,
    ledger: Ledger,
    state: JobState,
    spec: Job,
    reference: Placement | None,
    prices: PriceList,
) -> Alternative:
    """The alternative with its step, its run time and its price, as far as they are known."""
    placement, fabric = alternative.placement, ledger.rooms().fabric
    if placement is None:
        return alternative
    predicted = placement.predicted
    best = None if reference is None else reference.predicted
    run_s, cut = _run_s(ledger, state, spec, placement, reference)
    USD_per_hour = USD_per_hour_of(fabric, placement, prices)
    hours = None if run_s is None else run_s / HOUR_S
    return replace(
        alternative,
        step_s=predicted.step_s,
        step_ratio=_ratio(predicted.step_s, best.step_s if best else None),
        comm_s=predicted.comm_s or None,
        comm_ratio=_ratio(predicted.comm_s, best.comm_s if best else None),
        run_s=run_s,
        cut=cut,
        gpu_hours=None if hours is None else hours * _gpus(placement.members),
        cost_USD=None if hours is None or USD_per_hour is None else hours * USD_per_hour,
    )


def _ratio(here: float | None, best: float | None) -> float | None:
    return here / best if here and best else None


def _gpus(members: Sequence[MemberPlacement]) -> float:
    return sum(len(each.gpus) + (each.share.compute if each.share else 0.0) for each in members)


def _run_s(
    ledger: Ledger, state: JobState, spec: Job, placement: Placement, reference: Placement | None
) -> tuple[float | None, bool]:
    """The run time of the whole job there, by its user or by similar jobs, at most its limit; and whether the limit may
    end it before its work is done: as these run times suggest, or if fewer members work no longer than all might.
    """
    limit_s = inf if spec.time_limit_s is None else spec.time_limit_s
    guess_s = ledger.accounts.run_times.guess_s(state)
    whole_s = state.spec.time_limit_s if guess_s is None else guess_s
    if whole_s is None or reference is None:
        return None, False
    here_s = whole_s / _speed_beside(ledger, state.spec, reference, spec, placement)
    says_so = guess_s is not None or spec.members < state.spec.members
    return min(here_s, limit_s), says_so and here_s > limit_s


def _speed_beside(
    ledger: Ledger, written: Job, reference: Placement, spec: Job, placement: Placement
) -> float:
    """The speed of the job at a placement, relative to the best one that it could have as written.

    If it gives its speeds on models, relative to a model of speed 1, as in `planning.rightsizing.ranking`; these
    include communication.
    """
    fabric = ledger.rooms().fabric
    model = _model(fabric, placement)
    predicted = placement.predicted.step_s and reference.predicted.step_s
    tells = bool(written.speeds) and not predicted
    speed = dict(written.speeds).get(model or "", 1.0) if tells else 1.0
    if len(written.roles) != 1:
        return speed
    if tells and model != _model(fabric, reference):
        return speed * spec.members / written.members
    before, here = goodputs(written, [(written.members, reference), (spec.members, placement)])
    return speed * here / before


def _model(fabric: Fabric, placement: Placement) -> str | None:
    node = fabric.index_of_node[placement.members[0].node]
    return fabric.machine_of_node(node).gpu


def USD_per_hour_of(fabric: Fabric, placement: Placement, prices: PriceList) -> float | None:
    """The price of an hour of a placement, spot nodes at spot prices; None where the price of a GPU is not known."""
    total = 0.0
    for member in placement.members:
        gpus = _gpus([member])
        if member.mig:
            return None
        if not gpus:
            continue
        node = fabric.index_of_node[member.node]
        market: Market = "on_demand" if fabric.nodes[node].spot is None else "spot"
        quote = prices.quote(fabric.machine_of_node(node).gpu, market)
        if quote is None:
            return None
        total += gpus * quote.USD_per_hour
    return total
