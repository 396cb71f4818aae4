"""A scheduler that goes on from a snapshot (`ledger_snapshot`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import MISSING, fields, replace
from itertools import repeat
from operator import attrgetter
from typing import Any

from gantree.core.ledger.apply.arrays import count_unsplit
from gantree.core.ledger.apply.services import replica_accepted
from gantree.core.ledger.array_state import ArrayState
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.service_state import ServiceState
from gantree.core.ledger.site import Site
from gantree.core.ledger.state import JobState
from gantree.core.ledger.usage import gpus_of_model
from gantree.core.scheduler import Scheduler
from gantree.core.snapshot.ledger_snapshot import (
    PARTS,
    ArraySnapshot,
    Books,
    JobColumns,
    LedgerSnapshot,
    QueueEntrySnapshot,
    ServiceSnapshot,
    members_of_jobs,
    place_of,
)
from gantree.model.phases import HOLDING, Phase
from gantree.policy.order import Position
from gantree.policy.rules import Policy
from gantree.policy.waiting_jobs import EquivalenceClass
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.occupancy.occupancy_snapshot import (
    restored_occupancy,
)


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
    _restore_services(ledger, books)
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


def _restore_services(ledger: Ledger, books: Books) -> None:
    for one in books.services:
        found = {each.name: getattr(one, each.name) for each in fields(ServiceSnapshot)}
        ledger.services[one.service] = ServiceState(**found)
    ledger.rejected_services = dict(books.rejected_services)
    for state in ledger.jobs.values():
        if state.spec.service is not None and state.ended_at is None:
            replica_accepted(ledger, state)


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
    ledger.occupancy = restored_occupancy(fabric, books.occupancy, members_of_jobs(ledger))
    ledger.accounts.use_fabric(fabric)
    for job, state in ledger.holding.items():
        counted = books.counted.get(job) or ledger.accounts.amounts.held(place_of(state))
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
