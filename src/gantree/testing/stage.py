"""A stage for tests of the core: events are given by hand; all invariants are checked after each, recovery after many.

    stage = Stage(cluster(leaves=2))
    stage.submit(job("a", members=2, gpus=8))
    stage.started("a")
    assert stage.phase("a") is Phase.RUNNING

After the first steps and then after every few, the recorded facts are folded into a second ledger, which must equal
the first, and a scheduler that goes on from there must decide nothing else.
"""

from collections.abc import Sequence
from typing import Any

from gantree.core.ledger.invariants import check
from gantree.core.ledger.state import JobState
from gantree.core.scheduler import Decision, Scheduler, settled
from gantree.model.cluster import Cluster
from gantree.model.events import (
    CancelRequested,
    CheckpointSaved,
    ClusterObserved,
    Event,
    GangEnded,
    GangStarted,
    JobSubmitted,
    RankExited,
    TimePassed,
)
from gantree.model.facts import Fact
from gantree.model.jobs import Job
from gantree.model.orders import Order
from gantree.model.phases import Phase
from gantree.policy.rules import Policy

RECOVERED_FIRST = 6
RECOVERED_EVERY = 4
"""After which batches recovery is checked: the first ones, then every so many. That takes as long as all else."""


class Stage:
    """A scheduler on a cluster, at a time that only the test moves.

    recovered_every: after every so many batches recovery is checked, beside the first ones.
    """

    def __init__(self, cluster: Cluster, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self.scheduler = Scheduler(self.policy)
        self.now = 0.0
        self.facts: list[Fact] = []
        self.orders: list[Order] = []
        self._told = 0
        self._batches = 0
        self.recovered_every = RECOVERED_EVERY
        self.tell(ClusterObserved, cluster=cluster)

    def tell(self, kind: type[Event], **fields: Any) -> Decision:
        """Hand in one event of this kind."""
        return self.handle([self.event(kind, **fields)])

    def event(self, kind: type[Event], **fields: Any) -> Event:
        """Make an event that happens now."""
        self._told += 1
        return kind(id=f"e{self._told}", observed_at=self.now, **fields)

    def handle(self, events: Sequence[Event]) -> Decision:
        """Hand in a batch, let the scheduler go on for as long as it asks to, and check all that must hold afterwards.

        Returns all that was decided at this moment.
        """
        decision = settled(self.scheduler, events, self.now)
        self.facts += decision.facts
        self.orders += decision.orders
        check(self.scheduler.ledger)
        self._batches += 1
        if self._batches <= RECOVERED_FIRST or self._batches % self.recovered_every == 0:
            self.check_recovery()
        return decision

    def check_recovery(self) -> None:
        """Fold all facts into a ledger, and ask a scheduler that goes on from it and has decided nothing yet."""
        recovered = Scheduler(self.policy)
        recovered.recover(self.facts)
        ledger = recovered.ledger
        check(ledger)
        assert ledger.jobs == self.scheduler.ledger.jobs, "folding the facts gives other jobs"
        assert ledger.arrays == self.scheduler.ledger.arrays, "... other arrays"
        assert ledger.services == self.scheduler.ledger.services, "... other services"
        assert ledger.claims == self.scheduler.ledger.claims, "... other claims"
        again = TimePassed(id="recovered", observed_at=self.now)
        decision = settled(recovered, [again], self.now)
        assert decision.facts == (), "a recovered scheduler decides something else"
        assert decision.wake_at == self.scheduler.wake_at(), "... wakes at another time"

    def submit(self, *jobs: Job) -> Decision:
        """Hand in jobs, in one batch; their ids are their names."""
        return self.handle([self.event(JobSubmitted, job=spec.name, spec=spec) for spec in jobs])

    def cancel(self, job: str) -> Decision:
        """A user cancels the job."""
        return self.tell(CancelRequested, job=job)

    def started(self, *jobs: str) -> None:
        """The present attempts of these jobs have been started."""
        for job in jobs:
            self.tell(GangStarted, job=job, attempt=self.state(job).attempt)

    def ended(self, job: str, exit_code: int = 0) -> Decision:
        """Nothing of the job's present attempt is left."""
        return self.tell(GangEnded, job=job, attempt=self.state(job).attempt, exit_code=exit_code)

    def rank_failed(self, job: str, rank: int = 0, exit_code: int = 1) -> Decision:
        """One process of the present attempt ended badly."""
        return self.tell(
            RankExited,
            job=job,
            attempt=self.state(job).attempt,
            rank=rank,
            exit_code=exit_code,
        )

    def saved(self, job: str, step: int) -> Decision:
        """The ranks answered the request that is open, or saved of their own accord if none is."""
        state = self.state(job)
        return self.tell(
            CheckpointSaved, job=job, attempt=state.attempt, step=step, request=state.request
        )

    def wait(self, seconds: float) -> Decision:
        """Let time pass, and say so."""
        self.now += seconds
        return self.tell(TimePassed)

    def state(self, job: str) -> JobState:
        """What the ledger knows of the job."""
        return self.scheduler.ledger.jobs[job]

    def phase(self, job: str) -> Phase:
        """Where the job is in its life."""
        return self.state(job).phase

    def phases(self) -> dict[str, str]:
        """All jobs' phases by name, to compare with a table."""
        return {job: str(state.phase) for job, state in self.scheduler.ledger.jobs.items()}

    def nodes(self, job: str) -> list[str]:
        """The nodes of the job's members in rank order."""
        placement = self.state(job).placement
        return [] if placement is None else [member.node for member in placement.members]
