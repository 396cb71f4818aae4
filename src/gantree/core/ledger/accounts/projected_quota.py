"""Quota usage as it will be once all leaving gangs have left and all claims are used.

A gang that was told to leave holds its place until it has left; then the claimant holds it. Each counts once: what is
held now in `Accounts.quota`, what will be held here. If both counted at one moment, the tenth claim below a limit would
have to stop ten gangs, where one that leaves gives it its room.

Which claims count depends on the job that is admitted: its own does not, nor do those that give way to it. So all
claims are counted, and an answer leaves out those that do not concern its job.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from gantree.core.ledger.state import CLAIM, JobState
from gantree.policy.queues import QueueTree
from gantree.policy.quota.admission import Admission
from gantree.policy.quota.quota import Freed, Quota
from gantree.policy.rules import Amounts

GivesWay = Callable[[JobState, JobState], bool]
"""Whether the claim of the second job gives way to the first job."""
UNRANKED = ()
"""The projected quota does not tell which jobs borrow, so its owners need no rank."""


@dataclass(frozen=True, slots=True, eq=False)
class ClaimedQuota:
    """What is claimed for a gang. firm: the gang starts as soon as its room is free, without asking its queue again."""

    state: JobState
    amounts: Amounts
    firm: bool


@dataclass(slots=True)
class _RankedClaims:
    """The first so many claims beside jobs of the same rights: those that give way, and those that may not borrow."""

    counted: int = 0
    giving_way: tuple[str, ...] = ()
    not_borrowing: tuple[ClaimedQuota, ...] = ()


class ProjectedQuota:
    """The quota of a tree as it will be used."""

    def __init__(self, tree: QueueTree, gives_way: GivesWay) -> None:
        self.quota = Quota(tree, {})
        self._gives_way = gives_way
        self._claims: dict[str, ClaimedQuota] = {}
        self._queues: set[str] = set()
        self._ranked: dict[Hashable, _RankedClaims] = {}

    def take(self, state: JobState, amounts: Amounts) -> None:
        """Add a placed gang that is not stopping. Amounts that no rule counts are left out."""
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
        """Drop cached answers on which claims give way."""
        self._ranked.clear()

    def has_moved(self, job: str) -> None:
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
        """Return the claims whose gangs start without another admission."""
        return (claimed for claimed in self._claims.values() if claimed.firm)

    def room(
        self, state: JobState, amounts: Amounts, gone: Iterable[str], rights: Hashable
    ) -> Admission:
        """Whether a job's queue admits so much more if these gangs were gone, too. rights: as `_ranked_for`.

        A claimant that may not borrow must stay within its guarantee beside the job, else its room is freed for
        nothing.
        """
        quota, ranked = self.quota, self._ranked_for(state, rights)
        without = self._left_out(state, gone, ranked)
        answer = quota.room_without(state.queue, amounts, without, state.spec.preemptible)
        if answer.state != "borrowed":
            return answer
        for claimed in ranked.not_borrowing:
            if claimed.state is not state and self._is_in_the_way(state, amounts, without, claimed):
                return self._must_not_borrow(state, amounts, without)
        return answer

    def giving_way(self, state: JobState, rights: Hashable) -> tuple[str, ...]:
        """The jobs whose claims give way to one."""
        return self._ranked_for(state, rights).giving_way

    def may_be_within_guarantee(self, state: JobState, amounts: Amounts, rights: Hashable) -> bool:
        """Whether so much more might be within the guarantee of a job; never wrongly no."""
        if self._ranked_for(state, rights).giving_way or state.job in self._claims:
            return True
        return self.quota.is_guaranteed(state.queue, amounts)

    def guarantees_left(
        self, queues: Iterable[int], gone: Iterable[str]
    ) -> list[tuple[tuple[str, int], ...]]:
        """What a job of each queue could be owed, were these gangs gone and nothing claimed: (resource, ticks)."""
        claims = (CLAIM + job for job in self._claims)
        return self.quota.guarantees_left_without(
            queues, [*filter(self.quota.holds, gone), *claims]
        )

    def most_left(self, nodes: Iterable[int], freed: Freed) -> list[list[int]]:
        """Upper bounds on what a job of each node could have with nothing claimed, as `Quota.most_left_without`."""
        claims = [CLAIM + job for job in self._claims]
        return self.quota.most_left_without(nodes, claims, freed)

    def limits(
        self, state: JobState, amounts: Amounts, gone: Iterable[str], rights: Hashable
    ) -> Admission:
        """As `room`, asking limits only."""
        without = self._left_out(state, gone, self._ranked_for(state, rights))
        return self.quota.limits_without(state.queue, amounts, without)

    def _left_out(self, state: JobState, gone: Iterable[str], ranked: _RankedClaims) -> list[str]:
        """The owners that do not count for a job."""
        own = (CLAIM + state.job,) if state.job in self._claims else ()
        giving_way = (CLAIM + job for job in ranked.giving_way)
        return [*dict.fromkeys((*filter(self.quota.holds, gone), *giving_way, *own))]

    def _is_in_the_way(
        self, state: JobState, amounts: Amounts, without: list[str], claimed: ClaimedQuota
    ) -> bool:
        """Whether a claimant that may not borrow would have to beside a job."""
        other, beside = claimed.state, [(state.queue, amounts)]
        left_out = [*without, CLAIM + other.job]
        answer = self.quota.room_without(other.queue, claimed.amounts, left_out, False, beside)
        return answer.refused

    def _must_not_borrow(self, state: JobState, amounts: Amounts, without: list[str]) -> Admission:
        """The refusal of a job that would borrow while a claim that may not borrow stands."""
        answer = self.quota.room_without(state.queue, amounts, without, False)
        used = self.quota.usage.used(state.queue).get(answer.resource, 0.0)
        return replace(answer, never=False, may_not_borrow=False, used=used)

    def _ranked_for(self, state: JobState, rights: Hashable) -> _RankedClaims:
        """The claims beside a job. rights: equal for jobs to which the same claims of other queues give way.

        Claims of the job's own queue are compared by position; its own claim does not count.
        """
        apart = (state.spec.queue, state.position) if state.spec.queue in self._queues else None
        ranked = self._ranked.setdefault((rights, apart), _RankedClaims())
        if ranked.counted < len(self._claims):
            newer = list(islice(self._claims.values(), ranked.counted, None))
            self._count(state, newer, ranked)
        return ranked

    def _count(self, state: JobState, newer: Iterable[ClaimedQuota], ranked: _RankedClaims) -> None:
        """Sort the claims that were made since."""
        giving_way, not_borrowing = [], []
        for claimed in newer:
            if claimed.state is state:
                continue
            if self._gives_way(state, claimed.state):
                giving_way.append(claimed.state.job)
            elif not claimed.state.spec.preemptible:
                not_borrowing.append(claimed)
        ranked.counted = len(self._claims)
        if giving_way or not_borrowing:
            ranked.giving_way += tuple(giving_way)
            ranked.not_borrowing += tuple(not_borrowing)
