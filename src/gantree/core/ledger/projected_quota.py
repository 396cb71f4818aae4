"""What queues will use when all who leave have left, and all who have claims have what they claim.

A gang that is told to leave holds its place until it has left, and who claims that place will hold it then. Each is to
count once: now what is held, in `Accounts.quota`; later what will be, here. Were both counted at one time, the tenth
claim below a limit would have to stop ten gangs where one gives it its room.

Which claims count depends on who asks: a job's own does not, nor do those that give way to it. So all claims are in
the books, and a question counts out what does not concern its job, mostly nothing.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from gantree.core.ledger.state import CLAIM, JobState
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import Admission
from gantree.policy.quota.quota import Quota
from gantree.policy.rules import Amounts

GivesWay = Callable[[JobState, JobState], bool]
"""Whether what is claimed for the second job gives way to the first."""
UNRANKED = ()
"""Nobody borrows here, so nobody has a rank."""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedQuota:
    """What is claimed for a gang. firm: the gang begins as soon as its room is free, whatever its queue says then."""

    state: JobState
    amounts: Amounts
    firm: bool


@dataclass(slots=True)
class _Standing:
    """The first so many claims as one class of jobs sees them: whose give way, and which must stay owed."""

    counted: int = 0
    giving_way: tuple[str, ...] = ()
    owed: tuple[ClaimedQuota, ...] = ()


class ProjectedQuota:
    """The quotas of a tree as they will be used."""

    def __init__(self, tree: QueueTree, gives_way: GivesWay) -> None:
        self.quota = Quota(tree, {})
        self._gives_way = gives_way
        self._claims: dict[str, ClaimedQuota] = {}
        self._queues: set[str] = set()
        self._standing: dict[Hashable, _Standing] = {}

    def take(self, state: JobState, amounts: Amounts) -> None:
        """A gang holds these amounts, and is not about to leave. Where no rule counts them nobody will ask."""
        if self.quota.is_unruled(state.queue):
            return
        self.quota.take(state.queue, state.job, amounts, UNRANKED)

    def leave(self, job: str) -> None:
        """A gang is about to leave, or has left."""
        if self.quota.holds(job):
            self.quota.give_back(job)

    def claim(self, state: JobState, amounts: Amounts, *, firm: bool) -> None:
        """A gang claims these amounts."""
        if self.has_claimed(state.job):
            self.forget()
        self.quota.take(state.queue, CLAIM + state.job, amounts, UNRANKED)
        self._claims[state.job] = ClaimedQuota(state, amounts, firm)
        self._queues.add(state.spec.queue)

    def drop(self, job: str) -> None:
        """A gang claims nothing any more."""
        del self._claims[job]
        self.quota.give_back(CLAIM + job)
        self._queues = {claimed.state.spec.queue for claimed in self._claims.values()}
        self.forget()

    def forget(self) -> None:
        """What gives way to whom may be another matter now."""
        self._standing.clear()

    def stands_elsewhere(self, job: str) -> None:
        """A job has another place in line: if it claims anything, others may see its claim otherwise."""
        if job in self._claims:
            self.forget()

    @property
    def anybody_claims(self) -> bool:
        """Whether there is any claim."""
        return bool(self._claims)

    def has_claimed(self, job: str) -> bool:
        """Whether a job has a claim."""
        return job in self._claims

    def claimed(self, job: str) -> Amounts | None:
        """What a job claims, None where it claims nothing."""
        return self._claims[job].amounts if job in self._claims else None

    @property
    def firm(self) -> Iterator[ClaimedQuota]:
        """Claims whose gangs begin whatever their queues say then."""
        return (claimed for claimed in self._claims.values() if claimed.firm)

    def room(
        self, state: JobState, amounts: Amounts, gone: Iterable[str], seen_as: Hashable
    ) -> Admission:
        """What a job's queue says to so much more, were these gangs gone, too. seen_as: as `_seen_by`.

        A claimant that may not borrow must still be owed what it claims beside the job: else its room would come free
        in vain.
        """
        quota, seen = self.quota, self._seen_by(state, seen_as)
        without = self._counted_out(state, gone, seen)
        answer = quota.room_without(state.queue, amounts, without, state.spec.preemptible)
        if answer.state != "borrowed":
            return answer
        for claimed in seen.owed:
            if claimed.state is not state and self._is_in_the_way(state, amounts, without, claimed):
                return self._must_not_borrow(state, amounts, without)
        return answer

    def giving_way(self, state: JobState, seen_as: Hashable) -> tuple[str, ...]:
        """The jobs whose claims give way to one."""
        return self._seen_by(state, seen_as).giving_way

    def may_be_within_guarantee(self, state: JobState, amounts: Amounts, seen_as: Hashable) -> bool:
        """Whether a job might be guaranteed so much more; never wrongly no."""
        if self._seen_by(state, seen_as).giving_way or state.job in self._claims:
            return True
        return self.quota.is_guaranteed(state.queue, amounts)

    def limits(
        self, state: JobState, amounts: Amounts, gone: Iterable[str], seen_as: Hashable
    ) -> Admission:
        """As `room`, asking limits only."""
        without = self._counted_out(state, gone, self._seen_by(state, seen_as))
        return self.quota.limits_without(state.queue, amounts, without)

    def _counted_out(self, state: JobState, gone: Iterable[str], seen: _Standing) -> list[str]:
        """The owners who do not count where a job asks."""
        own = (CLAIM + state.job,) if state.job in self._claims else ()
        giving_way = (CLAIM + job for job in seen.giving_way)
        return [*filter(self.quota.holds, gone), *giving_way, *own]

    def _is_in_the_way(
        self, state: JobState, amounts: Amounts, without: list[str], claimed: ClaimedQuota
    ) -> bool:
        """Whether a claimant that may not borrow would have to beside a job."""
        other, beside = claimed.state, [(state.queue, amounts)]
        left_out = [*without, CLAIM + other.job]
        answer = self.quota.room_without(other.queue, claimed.amounts, left_out, False, beside)
        return answer.refused

    def _must_not_borrow(self, state: JobState, amounts: Amounts, without: list[str]) -> Admission:
        """No to a job that would have to borrow, as long as somebody else's claim stands."""
        answer = self.quota.room_without(state.queue, amounts, without, False)
        used = self.quota.usage.used(state.queue).get(answer.resource, 0.0)
        return replace(answer, never=False, must_be_owed=False, used=used)

    def _seen_by(self, state: JobState, seen_as: Hashable) -> _Standing:
        """Claims as a job sees them; seen_as is the same for jobs of which a claim of another queue gives way to all.

        Claims of a job's own queue are compared with its place in line, and its own claim is none to it.
        """
        apart = (state.spec.queue, state.position) if state.spec.queue in self._queues else None
        seen = self._standing.setdefault((seen_as, apart), _Standing())
        if seen.counted < len(self._claims):
            newer = list(islice(self._claims.values(), seen.counted, None))
            self._count(state, newer, seen)
        return seen

    def _count(self, state: JobState, newer: Iterable[ClaimedQuota], seen: _Standing) -> None:
        """Sort claims that were made since, as a job sees them."""
        giving_way, owed = [], []
        for claimed in newer:
            if claimed.state is state:
                continue
            if self._gives_way(state, claimed.state):
                giving_way.append(claimed.state.job)
            elif not claimed.state.spec.preemptible:
                owed.append(claimed)
        seen.counted = len(self._claims)
        if giving_way or owed:
            seen.giving_way += tuple(giving_way)
            seen.owed += tuple(owed)
