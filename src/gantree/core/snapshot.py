"""Snapshots of the ledger: all that later decisions and answers depend on, as plain data with names.

    snapshot = snapshot_of(scheduler)          # shares nothing with the ledger that will ever change
    scheduler = restored(snapshot, policy)     # decides as one that folded all the facts

Under the policy that it was taken under, what is restored equals the fold. Accounts follow the policy in force, so
under another one queues, quotas and lines are made anew, as a fold would; what it cannot make anew is in `restored`.
Caches are left out: they are built again when asked for. Its text is made in
`journal.encoding.snapshots`.

Jobs are told as columns, a list for each field of `JobState`: that costs a decision the least time. Those that have
ended never change again; whoever has them already (`ended_before`) need not be told of them again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, make_dataclass, replace
from itertools import repeat
from operator import attrgetter
from typing import Any, ClassVar, get_type_hints

from gantree.core.ledger.apply.arrays import count_unsplit
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.budgets import NO_BUDGETS, BudgetsSnapshot
from gantree.core.ledger.job_parts import MeteredUse, TimeSlices
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.lending import NO_LENDING, LendingSnapshot
from gantree.core.ledger.site import Cordon, Illness, Labels, LinkSign, Repair, Site
from gantree.core.ledger.state import Claim, JobState, Reservation
from gantree.core.ledger.usage import gpus_of_model
from gantree.core.scheduler import Scheduler
from gantree.model.cluster import Cluster, LinkId
from gantree.model.facts import PolicyAdopted
from gantree.model.jobs import Job
from gantree.model.phases import HOLDING, Phase
from gantree.model.placements import MemberPlacement, Placement
from gantree.policy.order import Position
from gantree.policy.rules import Amounts, Policy
from gantree.policy.runtimes import Group
from gantree.policy.share import UseSnapshot
from gantree.policy.waiting_jobs import EquivalenceClass, WaitingJobsSnapshot
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy_snapshot import (
    OccupancySnapshot,
    occupancy_snapshot_of,
    restored_occupancy,
)

JobColumns = Mapping[str, Sequence[Any]]
"""Field -> what each job has there."""

OF_THE_POLICY = ("queue", "equivalence_class", "position")
"""Fields of a job that follow from the policy in force."""
PARTS: dict[str, type] = {"slices": TimeSlices, "metered": MeteredUse}
"""Fields of a job that are stored as columns of their own fields."""
PATH_OF_COLUMN = {
    each.name: f"{part}.{each.name}" if part else each.name
    for part, of in {"": JobState, **PARTS}.items()
    for each in fields(of)
    if part or each.name not in (*OF_THE_POLICY, *PARTS)
}
"""Where a job has what a column tells."""
JOB_FIELDS = tuple(PATH_OF_COLUMN)


def _stored_job() -> type:
    """A job as it is stored: one dataclass with a field for each column."""
    columns = [
        (each.name, get_type_hints(of)[each.name], field(default=each.default))
        for of in (JobState, *PARTS.values())
        for each in fields(of)
        if each.name in PATH_OF_COLUMN
    ]
    return make_dataclass("JobState", columns, kw_only=True)


STORED_JOB = _stored_job()


@dataclass(frozen=True, slots=True)
class QueueEntrySnapshot:
    """The position of a job that waits, or of when it last waited, and what only its equivalence class knows."""

    key: tuple[float, ...]
    priority: int
    span_s: float
    enforced: bool


@dataclass(frozen=True, slots=True)
class ArraySnapshot:
    """An array as in `ArrayState`; what follows from its split elements is left out."""

    array: str
    spec: Job
    seq: int
    submitted_at: float
    held: bool
    next_offset: int
    early: tuple[int, ...]
    undecided: tuple[str, ...]
    ended: dict[Phase, int]
    cut: bool
    cut_as: Phase | None
    cut_at: float | None
    reason: str
    waits_since: float
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class Books:
    """What a ledger knows beside its jobs; job ids are in the order of the collections that they are in.

    asked: None in a snapshot that is older than illnesses: all cordons were asked for.
    counters are attributes of the ledger that are numbers. counted is what a gang counts for in quotas and shares,
    where that is not what its place comes to on the fabric of today.
    """

    policy: Policy
    now: float
    counters: dict[str, int]
    described: Cluster | None = None
    cordoned: dict[str, Cordon] = field(default_factory=dict)
    labels: dict[str, Labels] = field(default_factory=dict)
    site_version: int = 0
    policies: tuple[PolicyAdopted, ...] = ()
    rejected: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, str] = field(default_factory=dict)
    holding: tuple[str, ...] = ()
    elastic: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()
    lines: WaitingJobsSnapshot = field(default_factory=WaitingJobsSnapshot)
    resting: dict[str, float] = field(default_factory=dict)
    claims: dict[str, Claim] = field(default_factory=dict)
    bookings: dict[str, Reservation] = field(default_factory=dict)
    bound: tuple[tuple[str, str, int, str], ...] = ()
    signatures: int = 0
    counted: dict[str, Amounts] = field(default_factory=dict)
    uses: tuple[UseSnapshot, ...] = ()
    runs: tuple[tuple[Group, tuple[float, ...]], ...] = ()
    occupancy: OccupancySnapshot | None = None
    came: tuple[tuple[str, str], ...] = ()
    rejected_at: dict[str, float] = field(default_factory=dict)
    others: dict[str, tuple[MemberPlacement, ...]] = field(default_factory=dict)
    short: tuple[str, ...] = ()
    asked: dict[str, Cordon] | None = None
    unwell: dict[str, dict[str, Illness]] = field(default_factory=dict)
    arrays: tuple[ArraySnapshot, ...] = ()
    links: tuple[tuple[LinkId, dict[str, LinkSign]], ...] = ()
    repairs: dict[str, Repair] = field(default_factory=dict)
    budgets: BudgetsSnapshot = NO_BUDGETS
    lending: LendingSnapshot = NO_LENDING


@dataclass(frozen=True, slots=True)
class LedgerSnapshot:
    """A ledger at a moment. live and ended are jobs as columns; the first `ended_before` that ended are not in it."""

    VERSION: ClassVar[int] = 3
    books: Books
    live: JobColumns
    lines: tuple[QueueEntrySnapshot, ...]
    ended: JobColumns
    ended_before: int = 0


COUNTERS = (
    "next_seq", "room_version", "free_version", "holders_version", "placings", "applied", "forgotten",
    "forgotten_rejected",
)  # fmt: skip


def snapshot_of(scheduler: Scheduler, ended_before: int = 0) -> LedgerSnapshot:
    """The ledger as it is between two decisions. O(jobs): 1 us for each that has not ended, 0.1 us for each that has.

    ended_before: how many of the ended jobs, the first ones, are not to be told.
    """
    ledger = scheduler.ledger
    live = [state for state in ledger.jobs.values() if state.ended_at is None]
    return LedgerSnapshot(
        _books(ledger, scheduler.now),
        columns_of(live),
        tuple(_entry_snapshot(state) for state in live),
        columns_of(ledger.ended[ended_before:]),
        ended_before,
    )


def columns_of(states: Sequence[JobState]) -> JobColumns:
    """Jobs as columns."""
    return {name: list(map(attrgetter(path), states)) for name, path in PATH_OF_COLUMN.items()}


def _entry_snapshot(state: JobState) -> QueueEntrySnapshot:
    assert state.equivalence_class is not None, f"{state.job} never waited"
    eq_class = state.equivalence_class
    return QueueEntrySnapshot(
        state.position.key,
        eq_class.priority,
        eq_class.span_s,
        eq_class.enforced,
    )


def _books(ledger: Ledger, now: float) -> Books:
    site, accounts = ledger.site, ledger.accounts
    return Books(
        ledger.policy,
        now,
        {name: getattr(ledger, name) for name in COUNTERS},
        site.described,
        dict(site.cordoned),
        {node: dict(labels) for node, labels in site.labels.items()},
        site.version,
        tuple(ledger.policies),
        dict(ledger.rejected),
        dict(ledger.unusable),
        tuple(ledger.holding),
        tuple(accounts.elastic),
        tuple(ledger.leaving),
        ledger.waiting.snapshot(),
        dict(ledger.resting),
        dict(ledger.claims),
        dict(ledger.reservations),
        tuple((*cell, domain) for cell, domain in ledger.bound.items()),
        ledger.signatures.given,
        dict(_counted_otherwise(ledger)),
        accounts.shares.kept(),
        accounts.run_times.runtimes.kept(),
        None
        if ledger.occupancy is None
        else occupancy_snapshot_of(ledger.occupancy, _held(ledger)),
        tuple(ledger.came),
        dict(ledger.rejected_at),
        dict(site.others),
        tuple(site.short),
        dict(site.asked),
        {node: dict(told) for node, told in site.unwell.items()},
        tuple(map(_array_snapshot, ledger.arrays.values())),
        tuple((link, dict(signs)) for link, signs in site.links.items()),
        dict(site.repairs),
        accounts.budgets.kept(),
        accounts.lending.snapshot(),
    )


def _array_snapshot(array: ArrayState) -> ArraySnapshot:
    found = {each.name: getattr(array, each.name) for each in fields(ArraySnapshot)}
    found["early"], found["undecided"] = tuple(sorted(array.early)), tuple(array.undecided)
    return ArraySnapshot(**{**found, "ended": dict(array.ended)})


def _held(ledger: Ledger) -> dict[str, Any]:
    return {job: _place(state).members for job, state in ledger.holding.items()}


def _place(state: JobState) -> Placement:
    assert state.placement is not None, f"{state.job} holds no place"
    return state.placement


def _counted_otherwise(ledger: Ledger) -> Iterator[tuple[str, Amounts]]:
    """Gangs whose nodes have changed under them (another model of GPU), with what they count for."""
    accounts = ledger.accounts
    for job, state in ledger.holding.items():
        counted = accounts.shares.amounts_of(job)
        if counted != accounts.amounts.held(_place(state)):
            yield job, counted


# ----- back again


def restored(snapshot: LedgerSnapshot, policy: Policy) -> Scheduler:
    """A scheduler that goes on from a snapshot, under the policy that it was taken under or another one.

    Under another one all is as a fold of the facts would make it, except that
    - used GPU time has decayed by the old half-life until now, counts GPUs by the old weights, and, where users had no
      share of their own, is that of their queue; without a half-life nothing was kept, and all begin with none;
    - how long a waiting job would hold its place is guessed by what is known now, not when it began to wait; its place
      in the order "stretch" goes by the size that the cluster has now.
    """
    assert not snapshot.ended_before, "the first jobs that ended are not told"
    books, ledger = snapshot.books, Ledger(policy)
    for name, number in books.counters.items():
        setattr(ledger, name, number)
    _restore_site(ledger, books)
    live, ended = states_of(snapshot.live), states_of(snapshot.ended)
    _restore_jobs(ledger, live, ended, books.signatures)
    _restore_arrays(ledger, books.arrays)
    _restore_dependents(ledger)
    ledger.accounts.run_times.runtimes.go_on_from(books.runs)
    _restore_holders(ledger, books)
    _restore_waiting(ledger, books, live, snapshot.lines)
    _restore_shares(ledger, books)
    ledger.accounts.budgets.go_on_from(books.budgets)
    ledger.accounts.lending.go_on_from(books.lending, books.policy.queues)
    for job, claim in books.claims.items():
        ledger.set_claim(job, claim)
        ledger.accounts.claim(ledger.jobs[job], claim.placement, at_home=claim.at_home)
    return Scheduler.of(ledger, books.now)


def states_of(columns: JobColumns) -> list[JobState]:
    """Jobs that were told as columns; what follows from the policy is still to be said."""
    return list(map(JobState, *_values_of(JobState, columns)))


def _values_of(of: type, columns: JobColumns) -> Iterator[Iterable[Any]]:
    """The values of each field of a job, or of one of its parts, for all jobs."""
    count = len(columns["job"])
    for each in fields(of):
        if each.name in PARTS:
            part = PARTS[each.name]
            yield map(part, *_values_of(part, columns))
        else:
            known = each.name in columns
            yield columns[each.name] if known else repeat(_default(each), count)


def _default(one: Any) -> Any:
    assert one.default is not MISSING, f"nothing is told of {one.name}"
    return one.default


def _restore_site(ledger: Ledger, books: Books) -> None:
    labels = {node: dict(of_node) for node, of_node in books.labels.items()}
    ledger.site = Site(
        books.described,
        dict(books.cordoned),
        labels,
        books.site_version,
        dict(books.others),
        dict.fromkeys(books.short),
        dict(books.cordoned if books.asked is None else books.asked),
        {node: dict(told) for node, told in books.unwell.items()},
        {link: dict(signs) for link, signs in books.links},
        dict(books.repairs),
    )
    ledger.policies = list(books.policies)
    ledger.unusable, ledger.rejected = dict(books.unusable), dict(books.rejected)
    ledger.rejected_at = dict(books.rejected_at)
    ledger.came = dict.fromkeys(books.came)
    ledger.resting, ledger.reservations = dict(books.resting), dict(books.bookings)
    ledger.bound = {(queue, tier, number): domain for queue, tier, number, domain in books.bound}


def _restore_jobs(
    ledger: Ledger, live: Sequence[JobState], ended: Sequence[JobState], signatures: int
) -> None:
    """All jobs in the order in which they came: queues and names are told as they came too."""
    ledger.ended = list(ended)
    every = sorted([*live, *ended], key=attrgetter("seq"))
    queue_of = ledger.accounts.tree.leaf
    node_of = {of_whom: queue_of(*of_whom) for of_whom in ledger.came}
    for state in every:
        spec = state.spec
        of_whom = spec.queue, spec.user
        if of_whom not in node_of:
            ledger.came[of_whom], node_of[of_whom] = None, queue_of(*of_whom)
        state.queue = node_of[of_whom]
        ledger.jobs[state.job] = state
        ledger.newest_of_name[spec.name] = state.job
    ledger.accounts.grow()
    _restore_signatures(ledger, signatures, every, live)


def _restore_dependents(ledger: Ledger) -> None:
    known = ledger.jobs.keys() | ledger.arrays.keys()
    for state in ledger.jobs.values():
        ledger.add_dependents(state.job, state.seq, filter(known.__contains__, state.spec.after))
    for array in ledger.arrays.values():
        ledger.add_dependents(array.array, array.seq, filter(known.__contains__, array.spec.after))


def _restore_arrays(ledger: Ledger, arrays: Iterable[ArraySnapshot]) -> None:
    for one in arrays:
        found = {each.name: getattr(one, each.name) for each in fields(ArraySnapshot)}
        found |= {"early": set(one.early), "undecided": dict.fromkeys(one.undecided)}
        array = ArrayState(**{**found, "ended": dict(one.ended)})
        array.queue = ledger.accounts.queue_of(array.spec)
        ledger.arrays[array.array] = array
        ledger.newest_array_of_name[array.spec.name] = array.array
        count_unsplit(ledger, array, array.unsplit)
    plain = ((state.seq, job) for job, state in ledger.jobs.items() if not state.array)
    ledger.arrivals = sorted(
        [*plain, *((array.seq, array.array) for array in ledger.arrays.values())]
    )
    for state in ledger.jobs.values():
        if state.array:
            ledger.arrays[state.array].known += 1
        if state.array and state.ended_at is None:
            ledger.arrays[state.array].alive[state.job] = None


def _restore_signatures(
    ledger: Ledger, given: int, every: Sequence[JobState], live: Iterable[JobState]
) -> None:
    """Jobs that are alike have the number that they had, the lowest where they have several."""
    one_of = dict(zip(map(attrgetter("signature"), every), every, strict=False))
    ledger.signatures.restore(given, ((number, state.spec) for number, state in one_of.items()))
    for state in live:
        state.signature = ledger.signatures.of(state.spec)


def _restore_holders(ledger: Ledger, books: Books) -> None:
    for job in books.holding:
        state = ledger.jobs[job]
        assert state.phase in HOLDING, f"{job} is {state.phase}, and was told to hold a place"
        ledger.count_holder(state, 1)
    ledger.leaving = {job: ledger.jobs[job] for job in books.leaving}
    ledger.gapped = {job: state for job, state in ledger.holding.items() if state.missing}
    ledger.slowed = {job: state for job, state in ledger.holding.items() if state.slow}
    if books.occupancy is None:
        return
    fabric = Fabric.build(ledger.site.as_observed())
    ledger.occupancy = restored_occupancy(fabric, books.occupancy, _held(ledger))
    ledger.accounts.use_fabric(fabric)
    for job, state in ledger.holding.items():
        counted = books.counted.get(job) or ledger.accounts.amounts.held(_place(state))
        ledger.accounts.count(state, counted, books.now)
        if state.suspended:
            ledger.accounts.suspend(state, books.now)
    ledger.accounts.elastic = dict.fromkeys(books.elastic)
    _meter_from_now_on(ledger, books.now)


def _meter_from_now_on(ledger: Ledger, now: float) -> None:
    """Jobs of a snapshot that was taken before there were accounts are in them from then on."""
    for state in ledger.jobs.values():
        if state.metered.metered_at is None and state.ended_at is None:
            state.metered = replace(state.metered, metered_at=now)
            if state.placement is not None:
                held = gpus_of_model(ledger.accounts.amounts.held(state.placement))
                state.metered = replace(state.metered, gpus_of_model=held)
        _measure_from_now_on(state, now)


def _measure_from_now_on(state: JobState, now: float) -> None:
    """Of a gang of a snapshot that does not say since when it runs, nothing is told until now."""
    attempt = state.metered.measured_attempt
    runs = state.phase is Phase.RUNNING and state.running_at is not None and not state.suspended
    if runs and attempt.runs_since is None:
        since, saved_at = now - state.ran_s(now), state.checkpoint_at or 0.0
        attempt = replace(attempt, runs_since=since, told_to=now, saved_at=saved_at)
        state.metered = replace(state.metered, measured_attempt=attempt)


def _restore_waiting(
    ledger: Ledger, books: Books, live: Iterable[JobState], lines: Iterable[QueueEntrySnapshot]
) -> None:
    """Whoever waits stands where it stood; under another policy, where that puts it."""
    same = books.policy == ledger.policy
    for state, entry in zip(live, lines, strict=True):
        if same:
            _restore_entry(state, entry)
        else:
            _remake_entry(ledger, state)
    for job in books.lines.waiting:
        state = ledger.jobs[job]
        assert state.phase is Phase.PENDING and state.equivalence_class is not None, (
            f"{job} is {state.phase}"
        )
        ledger.add_waiting(state)
    jobs = ledger.jobs
    ledger.waiting.restore_order(
        [jobs[job].queue for job in (*books.lines.one_of_queue, *books.lines.waiting)],
        [jobs[job].signature for job in (*books.lines.one_of_signature, *books.lines.waiting)],
    )


def _restore_entry(state: JobState, entry: QueueEntrySnapshot) -> None:
    state.equivalence_class = EquivalenceClass(
        state.queue,
        state.signature,
        entry.priority,
        state.spec.preemptible,
        entry.span_s,
        entry.enforced,
    )
    state.position = Position(entry.key, state.seq, state.job)


def _remake_entry(ledger: Ledger, state: JobState) -> None:
    """As when it began to wait, as far as that is known."""
    accounts = ledger.accounts
    at = state.submitted_at if state.placed_at is None else state.placed_at
    state.equivalence_class = accounts.equivalence_class_of(state)
    state.position = Position(accounts.order.key(state.order_factors(at)), state.seq, state.job)


def _restore_shares(ledger: Ledger, books: Books) -> None:
    shares = ledger.accounts.shares
    if books.policy == ledger.policy:
        shares.go_on_from(books.uses)
    else:
        shares.inherit_usage(books.uses, books.policy.half_life_s, books.now)
