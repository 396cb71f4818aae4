"""The whole control plane as one synchronous object: journal, inbox, turns, cluster, wake timer.

All methods are called from one thread; only the cluster's `emit` and `wake` may come from others. `loop` calls
it from asyncio, tests call it directly.
"""

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from itertools import count
from socket import gethostname
from typing import Any

from gantree.control.clock import SteadyClock
from gantree.control.engine.reconciliation import site_on_record, to_settle, vanished
from gantree.control.engine.retention import DEFAULT_RETENTION, Retention, RetentionLimits
from gantree.control.engine.wake_timer import WakeTimer
from gantree.control.federation.leased_jobs import LeasedJobs
from gantree.control.history.rebuild import HistoryRebuild
from gantree.control.inbox import InboxWriter
from gantree.control.metrics.metrics import Metrics
from gantree.control.metrics.sampler import LedgerSampler
from gantree.control.nodes.clock_watch import ClockWatch
from gantree.control.notifications.settings import (
    NO_NOTIFICATIONS,
    NotifySettings,
    unannounced_budgets,
)
from gantree.control.ports import Clock, MakeCluster
from gantree.control.readers.follower import Follower
from gantree.control.readers.standby_fold import ReadAhead, read_ahead
from gantree.control.requests.burn_ins import BurnIns
from gantree.control.requests.gpu_faults import GpuFaults
from gantree.control.requests.job_commands import JobCommands
from gantree.control.requests.link_commands import LinkCommands
from gantree.control.requests.node_commands import NodeCommands
from gantree.control.requests.policy_fit import check_fit, jobs_without_queue
from gantree.control.requests.policy_text import PolicyText
from gantree.control.requests.policy_versions import (
    PolicyVersions,
    RecordedPolicies,
    adopted,
    checked,
    in_force_already,
)
from gantree.control.requests.read_view import ReadPoint, ReadView
from gantree.control.requests.repair_commands import RepairCommands
from gantree.control.requests.service_commands import ServiceCommands
from gantree.control.requests.submission_checks import Receipt
from gantree.control.requests.submissions import JobSubmission, Submissions, no_federation
from gantree.control.requests.waiting_limits import DEFAULT_WAITING_LIMITS, WaitingLimits
from gantree.control.snapshots import Snapshots
from gantree.control.tracing import Causes
from gantree.control.turn import TurnRunner
from gantree.control.turn_telemetry import TurnTelemetry
from gantree.core.ledger.ledger import Ledger
from gantree.core.scheduler import Scheduler
from gantree.core.view import LedgerView
from gantree.executors.federated_jobs import federated_jobs_of
from gantree.executors.served_services import ClusterServices, services_of
from gantree.formats.policy.locations import NOWHERE, PolicyPlaces
from gantree.journal.contract import Journal
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput, Conflict, GantreeError
from gantree.model.events import ClusterObserved, Event, JobSubmitted
from gantree.model.facts import PolicyAdopted
from gantree.model.jobs import Job
from gantree.policy.rules import Policy

RECONCILE_EVERY_S = 30.0
FindSite = Callable[[LedgerView], Cluster | None]
"""Looks at what is there now, given what is held according to the record; None: the one on record stays."""
LEASE_S = 4.0
"""How long a leadership holds that is not renewed, where the journal has leases at all."""
JOBS_NAMED = 10
"""So many jobs of a queue that is not in the policy are named at the start."""

log = logging.getLogger(__name__)


class Controller:
    """Drives one scheduler on one cluster from one journal. `recover` must be called first.

    One class, since it alone decides in which order inbox, turns, cluster, snapshots and retention run in a step;
    what users request is in `jobs` and `nodes`.
    """

    _service_changes = 0
    """Of the services that the cluster keeps, at the last step."""

    def __init__(
        self,
        journal: Journal,
        policy: Policy,
        make_cluster: MakeCluster,
        *,
        site: Cluster | FindSite | None = None,
        may_grow: bool = False,
        wake: Callable[[], None] = lambda: None,
        make_clock: Callable[[float], Clock] = SteadyClock,
        places: PolicyPlaces = NOWHERE,
        metrics: Metrics | None = None,
        policy_text: PolicyText | None = None,
        epoch: int | None = None,
        keep: RetentionLimits = DEFAULT_RETENTION,
        waiting_limits: WaitingLimits = DEFAULT_WAITING_LIMITS,
        notify: NotifySettings = NO_NOTIFICATIONS,
        follower: Follower | None = None,
        beat: Callable[[], None] = lambda: None,
        leased_jobs: LeasedJobs | None = None,
    ) -> None:
        """site is the cluster as described now, or finds it, given what is decided; None: the one on record stays.
        may_grow: nodes come and go by themselves, so a policy may guarantee more than there is now. places are the
        policy's.

        epoch is the one in which this process leads already; None: it begins one here. follower has read the journal
        ahead and is taken over; None: the journal is read here. beat is called while it goes on with what takes long.

        leased_jobs are those of a federation. metrics are those that it feeds. policy_text is what policy was read
        from, if somebody named it: else the newest on record rules, and policy where there is none.

        Raises BadInput if there is neither, and for a policy that does not suit it; JournalError if the journal cannot
        be read; Conflict if another process leads it.
        """
        self.journal = journal
        self.epoch = _begin_epoch(journal) if epoch is None else epoch
        self.clock = make_clock(journal.last_observed_at())
        self.metrics = metrics or Metrics()
        self.causes = Causes()
        self.gpu_clocks = ClockWatch()
        self.inbox = InboxWriter(journal, self.epoch, wake, self.metrics, self.causes)
        self._beat = beat
        self._snapshots = Snapshots(journal, self.epoch, beat=beat)
        self._history = Retention(journal, self.epoch, keep)
        ahead = read_ahead(follower, journal)
        on_record = RecordedPolicies(journal) if ahead is None else ahead.on_record(journal)
        self.policies = PolicyVersions(
            journal, policy, policy_text, self._fold_under, self.clock, on_record
        )
        folded = self._first_fold(ahead)
        HistoryRebuild(journal, self.epoch, folded.policy, beat).run()
        known, self._new_site = _site_of(journal, folded, site)
        self._find_site = site if callable(site) else None
        named = self.policies.places or places
        check_fit(folded.policy, known, folded.ledger, named, may_grow=may_grow)
        self.cluster = make_cluster(known, self.inbox.enqueue, self.clock)
        self.sampler = LedgerSampler(self.metrics, self.epoch)
        watch = TurnTelemetry(self.metrics, self.causes, self.epoch, journal.turns())
        self.turn_runner = TurnRunner(
            journal, self.cluster, self.epoch, self._fold, folded, watch, self.policies.under
        )
        self._wake_timer, self._command_ids = WakeTimer(self.epoch), count(1)
        self._reconciled_at = self.clock()
        self.notify, self.leased_jobs = notify, leased_jobs
        self._submissions = self._make_submissions(waiting_limits, notify)
        self.jobs = JobCommands(self.read_view, self._append, self._new_id)
        self.nodes = NodeCommands(lambda: self.ledger, self._append, self._new_id, self.clock)
        self.faults = GpuFaults(lambda: self.ledger, self._append, self._new_id, self.clock)
        self.repairs = RepairCommands(lambda: self.ledger, self._append, self._new_id, self.clock)
        self.links = LinkCommands(lambda: self.ledger, self._append, self._new_id, self.clock)

    @property
    def policy(self) -> Policy:
        """The policy in force."""
        return self.turn_runner.scheduler.policy

    @property
    def ledger(self) -> Ledger:
        """The ledger, equal to the fold of the journal's facts."""
        return self.turn_runner.scheduler.ledger

    @property
    def services(self) -> ServiceCommands:
        """Takes commands for services."""
        return ServiceCommands(self.read_view, self._append, self._new_id)

    @property
    def burn_ins(self) -> BurnIns:
        """Takes in burn-ins of cordoned nodes."""
        take, can_check = self._submissions.take_burn_in, self.cluster.checks_links
        return BurnIns(lambda: self.ledger, take, checks_links=can_check)

    @property
    def decided(self) -> LedgerView:
        """The ledger as executors may read it."""
        return LedgerView(self.ledger)

    def recover(self) -> None:
        """Go on where the last process stopped: adopt what runs, take the site as it is now, say orders again.

        Raises Conflict if jobs run where the new description of the site has nothing for them.
        """
        if self.policies.to_submit is not None and not self.policies.is_submitted:
            event_id = f"policy-submitted/{self.epoch}"
            self.inbox.append([self.policies.event(self.policies.to_submit, "", event_id)])
        self._follow_lease()
        self.cluster.adopt(self.epoch)
        self._drain()
        site = self._site_with_room()
        if site is not None:
            self._observe(site)
            self._drain()
        self.reconcile()
        self._warn_of_policy()

    def step(self) -> bool:
        """Look at the cluster and the clock once, and decide what there is to decide; say whether there was."""
        self.journal.check_place()
        if (
            self.turn_runner.known is None
        ):  # perhaps only the news of a commit was lost, and orders with it
            self.reconcile()
        self.cluster.poll()
        ring = self._wake_timer.fire(self.turn_runner.scheduler.wake_at(), self.clock())
        if ring is not None:
            self.inbox.append([ring])
        self._follow_lease()
        due = self._history.due(self.ledger, self.clock())
        if due is not None:
            self.inbox.append([due])
        progressed = self._drain()
        if progressed or self._snapshots.is_ready:
            self._snapshots.follow(self.turn_runner.scheduler)
        self._history.compact(self.clock())
        if self.clock() - self._reconciled_at >= RECONCILE_EVERY_S:
            self.reconcile()
        return self._services_changed() or progressed

    @property
    def cluster_services(self) -> ClusterServices | None:
        """The services that the cluster keeps itself; None where they are in the ledger."""
        return services_of(self.cluster)

    def _services_changed(self) -> bool:
        """Whether services that the cluster keeps are other ones than at the last step."""
        own = self.cluster_services
        if own is None or own.changes == self._service_changes:
            return False
        self._service_changes = own.changes
        return True

    def seconds_to_wake(self) -> float | None:
        """Seconds until time alone could change an answer."""
        return self._wake_timer.seconds_left(self.turn_runner.scheduler.wake_at(), self.clock())

    def sample_metrics(self) -> None:
        """Take the figures that the metrics tell of, unless that was done a moment ago. Raises JournalError."""
        self.sampler.sample(self.ledger, self.journal, self.inbox.unflushed, self.clock())

    def reconcile(self) -> None:
        """Make events of what the cluster lost, and tell the cluster again what must be in force."""
        self._reconciled_at = self.clock()
        inventory = self.cluster.inventory()
        for job, attempt in to_settle(self.ledger, inventory):
            self.cluster.settle(job, attempt)
        lost = vanished(self.ledger, inventory, self.clock())
        if lost:
            log.error("vanished from the cluster: %s", ", ".join(event.id for event in lost))
            self.inbox.append(lost)
            self._drain()
        self.turn_runner.send(self.turn_runner.scheduler.standing_orders())

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
        (outcome,) = self.submit_batch([JobSubmission(jobs, base_dir, overrides, user)])
        if isinstance(outcome, GantreeError):
            raise outcome
        return outcome

    def submit_batch(self, batch: Sequence[JobSubmission]) -> list[Receipt | GantreeError]:
        """Submissions of several callers, made durable by one append: a receipt for each, or what is wrong with it."""
        return self._submissions.accept(batch)

    def check(self, submission: JobSubmission) -> Receipt:
        """The receipt that a submission would get now; nothing is taken. Raises what is wrong with it."""
        return self._submissions.check(submission)

    def federated_job(self, submission: JobSubmission) -> "Future[str] | None":
        """Have the cluster keep what a federation hands in; None where the ledger does. Raises what is wrong."""
        jobs = federated_jobs_of(self.cluster)
        return None if jobs is None else jobs.create(self._submissions.federated(submission))

    def first_event(self, submission: JobSubmission) -> JobSubmitted:
        """The event of the first job of a submission, of which nothing is taken. Raises what is wrong with it."""
        return self._submissions.first_event(submission)

    def adopt_policy(self, submitted: PolicyText, by: str = "") -> PolicyAdopted:
        """Let a policy rule from now on; give the version that it is. The one in force already is no new version.

        Raises BadInput (BadFields) for one that is wrong or does not suit the cluster or the jobs.
        """
        checked(submitted, self.ledger)
        if not in_force_already(self.ledger, submitted):
            event_id = self._new_id("policy", "submitted")
            self.inbox.append([self.policies.event(submitted, by, event_id)])
            self._drain()
        return adopted(self.ledger, submitted)

    def _follow_lease(self) -> None:
        """Stop the jobs of a federation as its lease runs out; release them once it is renewed."""
        if self.leased_jobs is None:
            return
        events = self.leased_jobs.events(self.ledger, self.clock(), self.epoch)
        if events:
            self.inbox.append(events)

    def _append(self, event: Event) -> None:
        """Make one event durable."""
        self.inbox.append([event])

    def _new_id(self, noun: str, name: str) -> str:
        """An id that no event ever had."""
        return f"{noun}/{name}/{self.epoch}.{next(self._command_ids)}"

    def read_view(self) -> ReadView:
        """What questions are answered from, as it is now; until the next step."""
        at = ReadPoint(self.ledger.applied, self.clock())
        return ReadView(self.ledger, self.journal, at, self._fold_under)

    def resolve(self, word: str) -> str:
        """The id of the job that a user means by an id or a name. Raises NotFound."""
        return self.read_view().resolve(word)

    def close(self) -> None:
        """Let go of cluster and journal, with a snapshot for the next start; what runs goes on running."""
        self._snapshots.close(self.turn_runner.known)
        self.cluster.close()
        self.journal.close()

    def _first_fold(self, ahead: ReadAhead | None) -> Scheduler:
        """What was read ahead, where it is under the policy that rules; else the fold of the journal."""
        policy = self.policies.in_force()
        if ahead is not None and ahead.scheduler.policy == policy:
            self._snapshots.go_on()
            return ahead.scheduler
        if ahead is not None:
            log.warning("what was read ahead is under another policy: the journal is read anew")
        return self._fold_under(policy)

    def _fold(self) -> Scheduler:
        return self._fold_under(self.policies.in_force())

    def _fold_under(self, policy: Policy) -> Scheduler:
        return self._snapshots.fold(policy)

    def _make_submissions(self, limits: WaitingLimits, notify: NotifySettings) -> Submissions:
        return Submissions(
            self.journal,
            self.inbox.append,
            self.clock,
            lambda: self.ledger,
            lambda: self.policy,
            self.cluster.has_run,
            limits,
            notify,
            self.cluster.checks_links,
            no_federation if self.leased_jobs is None else self.leased_jobs.check,
            self._new_id,
            federated_jobs_of(self.cluster),
            runs_services=self.cluster.runs_services,
        )

    def _drain(self) -> bool:
        """Run turns until the inbox and the events of the cluster are processed."""
        progressed = False
        while self.inbox.flush() | self.turn_runner.run():
            progressed = True
            self._beat()
        return progressed

    def _site_with_room(self) -> Cluster | None:
        """The site if it is not the one on record; found again, if what was decided since it was has no room there."""
        site = self._new_site
        if site is None or self._find_site is None:
            return site
        has_room = not self.turn_runner.scheduler.conflicts(site)
        return site if has_room else self._find_site(self.decided)

    def _observe(self, site: Cluster) -> None:
        conflicts = self.turn_runner.scheduler.conflicts(site)
        if conflicts:
            way_out = "start on the cluster as it was, and cancel or await these first"
            raise Conflict(
                f"the changed cluster has no room for what runs: {'; '.join(conflicts)}; {way_out}"
            )
        event_id = f"cluster-observed/{self.epoch}"
        self.inbox.append([ClusterObserved(id=event_id, observed_at=self.clock(), cluster=site)])

    def _warn_of_policy(self) -> None:
        for queue, jobs in jobs_without_queue(self.ledger).items():
            more = f" and {len(jobs) - JOBS_NAMED} more" if len(jobs) > JOBS_NAMED else ""
            named = ", ".join(jobs[:JOBS_NAMED]) + more
            log.warning("queue %s is not in the policy, and has jobs that go on: %s", queue, named)
        for sentence in unannounced_budgets(self.policy, self.notify):
            log.warning("%s", sentence)


def _site_of(
    journal: Journal, folded: Scheduler, described: Cluster | FindSite | None
) -> tuple[Cluster, Cluster | None]:
    """The cluster that there is, and the same again if it is not the one on record. Raises BadInput for none at all."""
    site = described(LedgerView(folded.ledger)) if callable(described) else described
    on_record = site_on_record(journal, folded.ledger)
    known = site or on_record
    if known is None:
        raise BadInput("the first start on a journal needs a cluster file")
    return known, None if site == on_record else site


def _begin_epoch(journal: Journal) -> int:
    """Lead from now on. Raises Conflict where another process does."""
    epoch = journal.lead(f"{gethostname()} process {os.getpid()}", LEASE_S)
    if epoch is None:
        raise Conflict(f"another daemon leads here: {journal.leader()[1]}")
    return epoch
