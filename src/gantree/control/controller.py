"""The whole control plane as one synchronous object: journal, intake, turns, cluster, alarm.

All methods are called from one thread; only the cluster's `emit` and `wake` may come from others. `loop` calls
it from asyncio, tests call it directly.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gantree.control.alarm import Alarm
from gantree.control.clock import SteadyClock
from gantree.control.intake import Intake
from gantree.control.policy_fit import check_fit, jobs_without_queue
from gantree.control.ports import Clock, MakeCluster
from gantree.control.recovery import site_on_record, to_settle, vanished
from gantree.control.submission import (
    JobIds,
    Receipt,
    about,
    check_commands,
    check_queue,
    job_of,
    overridden,
    warnings_of,
    with_absolute_paths,
    with_predecessors,
    with_user,
)
from gantree.control.turn import Turns
from gantree.core.ledger import Ledger
from gantree.core.moves import Defragmentation, defragmentation_plan
from gantree.core.scheduler import Scheduler
from gantree.core.state import JobState
from gantree.formats.policy_places import NOWHERE, PolicyPlaces
from gantree.journal.contract import Journal
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, Conflict, NotFound
from gantree.model.events import (
    CancelRequested,
    ClusterObserved,
    DefragmentRequested,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
)
from gantree.model.jobs import Job
from gantree.model.phases import ENDED, Phase
from gantree.planning.taste import taste_of
from gantree.policy.rules import Policy

RECONCILE_EVERY_S = 30.0
JOBS_NAMED = 10
"""So many jobs of a queue that is not in the policy are named at the start."""

log = logging.getLogger(__name__)


class Controller:
    """Drives one scheduler on one cluster from one journal. `recover` must be called first."""

    def __init__(
        self,
        journal: Journal,
        policy: Policy,
        make_cluster: MakeCluster,
        *,
        site: Cluster | None = None,
        wake: Callable[[], None] = lambda: None,
        make_clock: Callable[[float], Clock] = SteadyClock,
        places: PolicyPlaces = NOWHERE,
    ) -> None:
        """site is the cluster as described now, None to go on with the one on record; places are the policy's.

        Raises BadInput if there is neither, and for a policy that does not suit it; JournalError if the journal cannot
        be read.
        """
        self.journal = journal
        self.policy = policy
        self.epoch = journal.next_epoch()
        self.clock = make_clock(journal.last_observed_at())
        self.intake = Intake(journal, wake)
        folded = self._fold()
        on_record = site_on_record(journal, folded.ledger)
        known = site or on_record
        if known is None:
            raise BadInput("the first start on a state directory needs a cluster file")
        check_fit(policy, known, folded.ledger, places)
        self._new_site = site if site != on_record else None
        self.cluster = make_cluster(known, self.intake.tell, self.clock)
        self.turns = Turns(journal, self.cluster, self.epoch, self._fold, folded)
        self._alarm = Alarm(self.epoch)
        self._reconciled_at = self.clock()
        self._ids = JobIds(self._id_is_taken)
        self._asked = 0

    @property
    def ledger(self) -> Ledger:
        """The ledger, equal to the fold of the journal's facts."""
        return self.turns.scheduler.ledger

    def recover(self) -> None:
        """Go on where the last process stopped: adopt what runs, take the site as it is now, say orders again.

        Raises Conflict if jobs run where the new description of the site has nothing for them.
        """
        self.cluster.adopt()
        self._drain()
        if self._new_site is not None:
            self._observe(self._new_site)
            self._drain()
        self.reconcile()
        self._warn_of_lost_queues()

    def step(self) -> bool:
        """Look at the cluster and the clock once, and decide what there is to decide; say whether there was."""
        self.cluster.poll()
        ring = self._alarm.ring(self.turns.scheduler.wake_at(), self.clock())
        if ring is not None:
            self.intake.append([ring])
        progressed = self._drain()
        if self.clock() - self._reconciled_at >= RECONCILE_EVERY_S:
            self.reconcile()
        return progressed

    def seconds_to_alarm(self) -> float | None:
        """Seconds until time alone could change an answer."""
        return self._alarm.seconds_left(self.turns.scheduler.wake_at(), self.clock())

    def reconcile(self) -> None:
        """Make events of what the cluster lost, and tell the cluster again what must be in force."""
        self._reconciled_at = self.clock()
        inventory = self.cluster.inventory()
        for job, attempt in to_settle(self.ledger, inventory):
            self.cluster.settle(job, attempt)
        lost = vanished(self.ledger, inventory, self.clock())
        if lost:
            log.error("vanished from the cluster: %s", ", ".join(event.id for event in lost))
            self.intake.append(lost)
            self._drain()
        self.turns.send(self.turns.scheduler.standing_orders())

    def submit(
        self,
        jobs: Sequence[Job],
        base_dir: str | None,
        overrides: Mapping[str, Any],
        user: str = "",
    ) -> Receipt:
        """Make jobs durable under new ids; they are decided about in the next step.

        user is whose they are where they do not say.
        Raises BadInput and Unsupported for what can be known to be wrong; then none of the jobs is taken.
        """
        if "name" in overrides and len(jobs) > 1:
            raise BadInput(f"{len(jobs)} jobs cannot all be named {overrides['name']}")
        asked = [self._checked(job, base_dir, overrides, user) for job in jobs]
        warnings = warnings_of(asked, self.ledger)
        chosen = self._ids.choose(asked)
        specs = with_predecessors(asked, chosen, self.ledger)
        now = self.clock()
        self.intake.append(
            [
                JobSubmitted(
                    id=_submission(submitted.job), observed_at=now, job=submitted.job, spec=spec
                )
                for submitted, spec in zip(chosen, specs, strict=True)
            ]
        )
        return Receipt(chosen, warnings)

    def _checked(
        self, job: Job, base_dir: str | None, overrides: Mapping[str, Any], user: str
    ) -> Job:
        """One job as it is handed in, with all that can be known to be wrong of it alone."""
        asked = with_user(overridden(job, overrides), user)
        with about(f"job {asked.name}"):
            asked = with_absolute_paths(asked, base_dir)
            check_commands(asked)
            self.policy.priority_of(asked.priority)
            check_queue(asked, self.ledger.accounts.tree)
        return asked

    def cancel(self, word: str) -> str:
        """Ask for a job to be cancelled, by id or name; give its id. Asking twice is the same as once.

        Raises NotFound, and Conflict for a job that has ended.
        """
        job = self._not_ended(word).job
        event_id = f"{job}/cancel-requested"
        self.intake.append([CancelRequested(id=event_id, observed_at=self.clock(), job=job)])
        return job

    def hold(self, word: str) -> str:
        """Keep a waiting job from being started, by id or name; give its id. One that is held stays held.

        Raises NotFound, and Conflict for a job that does not wait.
        """
        state = self._not_ended(word)
        if state.phase is not Phase.PENDING:
            raise Conflict(
                f"{state.job} is {state.phase}, and only a job that waits can be held; to have it gone:"
                f" gantree cancel {state.job}, and submit it again with `hold: true`"
            )
        self._ask(HoldRequested, state.job, "hold-requested")
        return state.job

    def release(self, word: str) -> str:
        """Let a held job go, by id or name; give its id. Raises NotFound, and Conflict for a job that is not held."""
        state = self._not_ended(word)
        if not state.held:
            raise Conflict(f"{state.job} is not held: it is {state.phase}")
        self._ask(ReleaseRequested, state.job, "release-requested")
        return state.job

    def moves_for(self, word: str) -> tuple[Defragmentation | None, str]:
        """The moves that would let a waiting job start now; where there are none, None and a sentence that says why.

        Raises NotFound, and Conflict for a job that does not wait.
        """
        state = self._not_ended(word)
        if state.phase is not Phase.PENDING:
            raise Conflict(f"{state.job} is {state.phase}: moves are made for jobs that wait")
        if self.policy.defragment == "off":
            return None, "The policy says `defragment: off`."
        plan = defragmentation_plan(self.ledger, state.job, self.clock(), taste_of(self.policy))
        reason = f"No moves let {state.job} start now and cost less than they gain."
        return plan, "" if plan else reason

    def defragment(self, word: str) -> str:
        """Ask for the moves that let a waiting job start, by id or name; give its id. They are planned anew when made.

        Raises NotFound, and Conflict for a job that does not wait or for which no moves gain.
        """
        plan, reason = self.moves_for(word)
        if plan is None:
            raise Conflict(reason)
        self._ask(DefragmentRequested, plan.job, "defragment-requested")
        return plan.job

    def _ask(
        self,
        kind: type[HoldRequested | ReleaseRequested | DefragmentRequested],
        job: str,
        name: str,
    ) -> None:
        """Take in what a user may ask of a job again and again: each time is an event of its own."""
        self._asked += 1
        event_id = f"{job}/{name}/{self.epoch}.{self._asked}"
        self.intake.append([kind(id=event_id, observed_at=self.clock(), job=job)])

    def _not_ended(self, word: str) -> JobState:
        """The job that a word means. Raises NotFound, and Conflict where it was rejected or has ended."""
        job = self.resolve(word)
        state = self.ledger.jobs.get(job)
        if state is None:
            raise Conflict(f"{job} was rejected")
        if state.phase in ENDED:
            raise Conflict(f"{job} has ended: {state.phase}")
        return state

    def resolve(self, word: str) -> str:
        """The id of the job that a user means by an id or a name. Raises NotFound."""
        job = job_of(self.ledger, word)
        if job is not None:
            return job
        for poisoned in self.journal.all_set_aside():
            if isinstance(poisoned.event, JobSubmitted) and poisoned.event.job == word:
                raise Conflict(f"{word} was set aside, it broke the scheduler: {poisoned.error}")
        raise NotFound(f"there is no job {word}")

    def close(self) -> None:
        """Let go of cluster and journal; what runs goes on running."""
        self.cluster.close()
        self.journal.close()

    def _fold(self) -> Scheduler:
        scheduler = Scheduler(self.policy)
        scheduler.recover(recorded.fact for recorded in self.journal.facts())
        return scheduler

    def _drain(self) -> bool:
        """Turn until neither the inbox nor what the cluster tells has anything left."""
        progressed = False
        while self.intake.flush() | self.turns.run():
            progressed = True
        return progressed

    def _observe(self, site: Cluster) -> None:
        conflicts = self.turns.scheduler.conflicts(site)
        if conflicts:
            way_out = "start on the cluster as it was, and cancel or await these first"
            raise Conflict(
                f"the changed cluster has no room for what runs: {'; '.join(conflicts)}; {way_out}"
            )
        event_id = f"cluster-observed/{self.epoch}"
        self.intake.append([ClusterObserved(id=event_id, observed_at=self.clock(), cluster=site)])

    def _warn_of_lost_queues(self) -> None:
        for queue, jobs in jobs_without_queue(self.ledger).items():
            more = f" and {len(jobs) - JOBS_NAMED} more" if len(jobs) > JOBS_NAMED else ""
            named = ", ".join(jobs[:JOBS_NAMED]) + more
            log.warning("queue %s is not in the policy, and has jobs that go on: %s", queue, named)

    def _id_is_taken(self, job: str) -> bool:
        """Ids on record, and those under which something ran that this journal knows nothing of."""
        ran_here = self.cluster.log_path(job, 1, 0).parent.exists()
        return ran_here or self.journal.seen(_submission(job))


def _submission(job: str) -> str:
    return f"{job}/submitted"
