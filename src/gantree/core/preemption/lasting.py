"""Whether a gang keeps the room that others are stopped for: not where one that waits would have it instead, at once.

Rights are not a single line: what a queue is guaranteed is asked between queues, the order within one too. So a gang
may stop another and yet get nothing for it, and a few of them may go round for ever, each by a right of its own:

    owed    a gang would borrow where it comes to run; a job that waits is owed just that, and stops the gang in turn,
            be it what the victims give back or what others leave anyway
    first   a gang stops one of its own queue, which the queue is guaranteed; a job that waits in another queue, and
            may not stop that one, goes before the gang and takes the room that it claims

Either may need more room than that, and stop others beside by a right of its own: so it is asked whether it would fit
with these gone as well. Who leaves, or would be told to, and waits again then, is asked as if it waited already.

Nobody is stopped for a gang that would not stay, nor does it claim what others leave. Where rights go round all the
same, over more jobs than one decision sees, jobs rest between their attempts (`core.queue.preemption_backoff`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import chain, islice, product

from gantree.core.ledger.accounts import rank_of
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, JobState
from gantree.core.preemption.candidates import Prospects, Wanted
from gantree.core.preemption.coming_back import coming_back
from gantree.core.queue.eligibility import eligible
from gantree.core.queue.fit_bound import Need
from gantree.core.queue.preemption_rules import borrowers, claims_overtaken, no_right, overrules
from gantree.model.jobs import Job
from gantree.placement.choice.search import fits
from gantree.planning.preempt import Plan, Victim
from gantree.policy.admission import Admission
from gantree.policy.rules import Amounts
from gantree.topology.occupancy.occupancy import Occupancy

GANG = "the gang that waits"


@dataclass(frozen=True, slots=True)
class Spoiler:
    """A waiting job that would have the room that others are stopped for; is_owed: as it is guaranteed to its queue."""

    state: JobState
    is_owed: bool


def without_spoilt(
    ledger: Ledger,
    victims: Sequence[Victim],
    plan: Plan,
    spoilers: Sequence[Spoiler],
    now: float,
) -> list[Victim]:
    """Those of some victims whose end gives no room to any of these spoilers; if all, without those of the plan."""
    tops = {_top(ledger, each.state) for each in spoilers if each.is_owed}
    left = [each for each in victims if _top(ledger, ledger.jobs[each.owner]) not in tops]
    for spoiler in spoilers:
        if not spoiler.is_owed:
            left = _stoppable(ledger, spoiler.state, left, now)
    if len(left) < len(victims):
        return left
    return [each for each in victims if each not in plan.victims]


def spoilers_of(
    ledger: Ledger,
    wanted: Wanted,
    plan: Plan,
    later: Occupancy,
    prospects: Prospects,
    now: float,
) -> list[Spoiler]:
    """Jobs that wait, or will when they have left, and would have the room of a gang at once, had these victims and all
    who leave made it free; [] if the gang stays. Each fits where the gang would be, and not beside it.
    """
    if not plan.victims and not ledger.leaving:
        return []
    instead = _Instead(ledger, wanted.state, later, plan, prospects)
    back = _who_takes_back(ledger, wanted, plan, instead, now)
    first = _who_goes_first(ledger, wanted, plan, instead, now)
    return [
        *(Spoiler(state, True) for state in back),
        *(Spoiler(state, False) for state in first),
    ]


class _Instead:
    """Which waiting gangs fit where some have left, and not beside the gang that these leave for.

    Asked once for each signature, of two rooms that all share: a copy for each gang took most of what a decision did
    where hundreds wait.
    """

    def __init__(
        self, ledger: Ledger, gang: JobState, later: Occupancy, plan: Plan, prospects: Prospects
    ) -> None:
        self._ledger, self._later, self._place = ledger, later, plan.placement
        self._prospects = prospects
        self.gone = [victim.owner for victim in plan.victims]
        self.overtaken = claims_overtaken(ledger, gang, plan.placement)
        self._uncounted = [*self.gone, *(CLAIM + job for job in self.overtaken)]
        self._known, self._might = dict[int, bool](), dict[int, bool]()
        self._with: dict[tuple[frozenset[str], int, bool], bool] = {}
        self._borrowed: bool | None = None

    @cached_property
    def _without(self) -> Occupancy:
        """What is free when they have left."""
        room = self._later.copy()
        for owner in self.gone:
            room.give_back(owner)
        return room

    @cached_property
    def _beside(self) -> Occupancy:
        """What is left of that beside the gang."""
        room = self._without.copy()
        room.take(GANG, self._place.members)
        return room

    def admission(self, state: JobState, without: Iterable[str] = ()) -> Admission:
        """What the queue of a waiting job says to it then: without those who left, and without these."""
        accounts = self._ledger.accounts
        return accounts.admission_to_come(
            state, accounts.asked(state), [*self._uncounted, *without]
        )

    def is_borrowed(self, gang: JobState, amounts: Amounts) -> bool:
        """Whether the gang would borrow some of what it would hold, of its queue's jobs by rank."""
        if self._borrowed is None:
            gone = {*self.gone, *self._ledger.leaving}
            quota, rank = self._ledger.accounts.quota, rank_of(gang)
            self._borrowed = quota.would_borrow(gang.queue, amounts, rank, gone)
        return self._borrowed

    @cached_property
    def _most_gpus(self) -> int:
        """GPUs that are free when all have left who may ever be stopped for anybody; some too many do no harm."""
        stay = (state for state in self._ledger.holding.values() if state.spec.preemptible)
        free = self._without.free_gpus_in_domain(0)[0]
        return int(free) + sum(state.touched_gpus for state in stay)

    def fits(self, state: JobState) -> bool:
        """Whether a gang fits there, and not beside the other one."""
        return self._of_all_alike(state, self._known, self._only_there)

    def might_fit(self, state: JobState) -> bool:
        """Whether it does, or might if others left as well; by GPUs alone, at its smallest size."""
        return self.fits(state) or self._of_all_alike(state, self._might, self._may_be_enough)

    def beside_whom(
        self, state: JobState, admission: Admission, now: float
    ) -> frozenset[str] | None:
        """Whom a gang would stop besides, by a right of its own, so as to fit there, and not beside the other one; None
        where it does not, or would stop these alone.
        """
        if self.fits(state):
            return frozenset()
        wanted = Wanted(state, state.spec, admission)
        own = self._prospects.victims(self._ledger, wanted, now).difference(self.gone)
        return own if own and self._fits_with(state, own) else None

    def _fits_with(self, state: JobState, own: frozenset[str]) -> bool:
        comes_back = state.job in self._ledger.leaving
        known = own, state.signature, comes_back
        if known not in self._with:
            rooms = [room.copy() for room in (self._later, self._without, self._beside)]
            for room, owner in product(rooms, own):
                room.give_back(owner)
            alone, there, beside = (fits(room, state.spec) for room in rooms)
            self._with[known] = there and not beside and (comes_back or not alone)
        return self._with[known]

    def _may_be_enough(self, spec: Job) -> bool:
        return Need.of(self._later, spec).all_gpus <= self._most_gpus

    def _only_there(self, spec: Job) -> bool:
        return fits(self._without, spec) and not fits(self._beside, spec)

    @staticmethod
    def _of_all_alike(state: JobState, known: dict[int, bool], of: Callable[[Job], bool]) -> bool:
        if state.signature not in known:
            known[state.signature] = of(state.spec)
        return known[state.signature]


def _who_takes_back(
    ledger: Ledger, wanted: Wanted, plan: Plan, instead: _Instead, now: float
) -> Iterator[JobState]:
    """Who is owed some of what the gang would hold, where the gang would borrow it; who loses a claim to it, too."""
    mine, accounts = wanted.state, ledger.accounts
    claimed, gone = accounts.held(plan.placement), instead.gone
    if not mine.spec.preemptible or accounts.admission_to_come(mine, claimed, gone).takes_back:
        return

    @cache
    def lends(queue: int) -> bool:
        return accounts.may_reclaim(queue) and accounts.quota.lends_to(queue, mine.queue)

    def may(state: JobState) -> bool:
        return lends(state.queue) and instead.might_fit(state)

    others = ledger.lines.queues if plan.victims else ()  # where nobody is stopped they were asked
    queues = filter(lends, others)
    overtaken = (ledger.jobs[job] for job in instead.overtaken)
    leavers = coming_back(ledger, [*ledger.leaving, *gone], mine.job, now, may)
    first = _first_of_lines(ledger, queues, now, may)
    for state in chain(first, filter(may, overtaken), leavers):
        if not instead.is_borrowed(mine, claimed):
            return
        admission = instead.admission(state)
        if admission.takes_back and instead.beside_whom(state, admission, now) is not None:
            yield state


def _who_goes_first(
    ledger: Ledger, wanted: Wanted, plan: Plan, instead: _Instead, now: float
) -> Iterator[JobState]:
    """Who takes the claim of the gang, and could not have stopped all the victims itself, or had not been asked yet."""
    accounts, lines, jobs = ledger.accounts, ledger.lines, ledger.jobs
    claimed = accounts.held(plan.placement)
    is_due = accounts.claims_its_due(wanted.state, claimed)

    def might(first: JobState) -> bool:
        return _might_overrule(ledger, wanted.state, first, is_due) and instead.might_fit(first)

    queues = (
        queue
        for queue in lines.queues
        if accounts.goes_before(jobs[lines.in_queue(queue)[0].position.job], wanted.state)
    )
    leavers = coming_back(ledger, ledger.leaving, wanted.state.job, now, instead.might_fit)
    for state in chain(_first_of_lines(ledger, queues, now, might), leavers):
        if state is wanted.state or not overrules(ledger, state, wanted.state, claimed):
            continue
        stoppable = _stoppable(ledger, state, plan.victims, now)
        if len(stoppable) == len(instead.gone) and state.job not in ledger.leaving:
            continue
        own = instead.beside_whom(state, instead.admission(state), now)
        if own is not None and not instead.admission(state, own).refused:
            yield state


def _stoppable(
    ledger: Ledger, state: JobState, victims: Sequence[Victim], now: float
) -> list[Victim]:
    """Those of some victims whom a waiting job could stop itself, by any right."""
    others = {v.owner for v in victims if no_right(ledger, state, ledger.jobs[v.owner], now)[0]}
    if others and _takes_back(ledger, state):
        others.difference_update(borrowers(ledger, state.queue))
    return [each for each in victims if each.owner not in others]


def _takes_back(ledger: Ledger, state: JobState) -> bool:
    """Whether a waiting job is owed what it asks for, so that it has back what its queue lends."""
    accounts = ledger.accounts
    if not accounts.may_reclaim(state.queue):
        return False
    return accounts.admission_to_come(state, accounts.asked(state)).takes_back


def _might_overrule(ledger: Ledger, other: JobState, first: JobState, is_due: bool) -> bool:
    """Whether the jobs of a line, of whom this is the first, might have what is claimed for another one (`overrules`).

    is_due: whether the other one claims what it is owed.
    """
    if ledger.policy.preemption.by == "priority" and first.priority < other.priority:
        return False
    if not ledger.accounts.goes_before(first, other):
        return False
    return ledger.accounts.is_due(first) or not is_due


def _first_of_lines(
    ledger: Ledger,
    queues: Iterable[int],
    now: float,
    of: Callable[[JobState], bool],
) -> Iterator[JobState]:
    """Of each line of some queues whose first job is of this kind, the first that may start now."""
    for queue in queues:
        for line in ledger.lines.lines_in(queue):
            states = (ledger.jobs[position.job] for position in ledger.lines[line])
            if of(ledger.jobs[ledger.lines[line][0].job]):
                yield from islice((each for each in states if eligible(ledger, each, now)), 1)


def _top(ledger: Ledger, state: JobState) -> int:
    """The child of the root that a job is counted below: what its queues are guaranteed together."""
    return ledger.accounts.tree.path(state.queue)[-2]
