"""Creates the controller of a leadership term: opens the executor, folds the journal, recovers running gangs.

The cluster and the policy named at the start count at the start alone. A daemon that takes over later goes on with what
is on record.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gantree.api.access.access import Access
from gantree.api.access.audit import Audit
from gantree.api.server.access_setup import run_as_of
from gantree.api.server.app import Pages
from gantree.api.server.executor_setup import ExecutorSetup, kubernetes_executor, local_executor
from gantree.api.server.journal_location import (
    JournalLocation,
    refuse_runs_elsewhere,
)
from gantree.api.server.settings import Settings
from gantree.control.clock import check_wall_clock
from gantree.control.engine.controller import Controller
from gantree.control.engine.leadership import Term
from gantree.control.engine.loop import Loop
from gantree.control.federation.leased_jobs import LeasedJobs
from gantree.control.garbage import (
    without_collecting,
)
from gantree.control.metrics.metrics import Metrics
from gantree.control.readers.follower import Follower
from gantree.control.readers.host import ReaderHost
from gantree.executors.local.launch.open_files import OpenFiles
from gantree.journal.notification_store import NotificationStore
from gantree.model.cluster import Cluster
from gantree.model.federation import EnforcedBy

NODES_WITHIN_S = 5.0
"""A try waits so long for the first node of a cluster that has none, as each try lists everything."""


@dataclass(slots=True)
class DaemonParts:
    """What lives as long as the process."""

    settings: Settings
    location: JournalLocation
    site: Cluster | None
    access: Access
    audit: Audit
    pages: Pages
    host: ReaderHost
    open_files: OpenFiles
    metrics: Metrics = field(default_factory=Metrics)


@without_collecting()
def recovered_controller(
    daemon: DaemonParts,
    loop: Loop,
    term: Term,
    follower: Follower | None,
    *,
    is_start: bool,
    is_retry: bool = False,
) -> Controller:
    """A controller that has gone on where the last one stopped, on this machine's processes.

    The cluster and the policy that a daemon was started with are those of its start: one that takes over later goes on
    with what is on record. follower has read the journal ahead, if anybody has. is_retry: there was no
    cluster to go on with, and the daemon has said so.
    """
    settings, journal = daemon.settings, daemon.location.journal
    if settings.notify.is_on:
        NotificationStore(daemon.location.journal.database).begin()
    running: list[Controller] = []  # none yet while it is built
    if daemon.location.shared and settings.kubernetes is None:
        refuse_runs_elsewhere(settings.state_dir, journal)
    if is_start and not settings.accept_clock:
        check_wall_clock(journal.last_observed_at(), time.time())
    is_named = is_start or journal.turns() == 0

    leased_jobs = LeasedJobs(settings.state_dir, _enforced_by(settings))
    setup = _executor_setup(
        daemon, running, term, loop.wake, leased_jobs, is_named=is_named, is_retry=is_retry
    )
    try:
        controller = Controller(
            journal,
            settings.policy,
            setup.make_cluster,
            site=setup.site,
            may_grow=setup.may_grow,
            wake=loop.wake,
            places=settings.places,
            metrics=daemon.metrics,
            policy_text=settings.policy_text if is_named else None,
            epoch=term.epoch,
            keep=settings.keep,
            waiting_limits=settings.waiting_limits,
            notify=settings.notify,
            follower=follower,
            beat=loop.pulse.beat,
            leased_jobs=leased_jobs,
        )
    except BaseException:
        setup.close()
        raise
    running.append(controller)
    if setup.figures is not None:
        daemon.metrics.registry.register(setup.figures)
    controller.recover()
    return controller


def _enforced_by(settings: Settings) -> EnforcedBy:
    """Shims end with the lease of a federation; the containers of pods know nothing of it."""
    return EnforcedBy.MEMBERS if settings.kubernetes is None else EnforcedBy.DAEMON


def _executor_setup(
    daemon: DaemonParts,
    running: Sequence[Controller],
    term: Term,
    wake: Callable[[], None],
    leased_jobs: LeasedJobs,
    *,
    is_named: bool,
    is_retry: bool,
) -> ExecutorSetup:
    """What carries out orders. running holds the controller once it is there."""
    settings = daemon.settings
    if settings.kubernetes is not None:
        within_s = NODES_WITHIN_S if is_retry else 0.0
        return kubernetes_executor(
            settings,
            lambda: running[0].decided,
            lambda: term.is_on,
            wake,
            within_s,
            lambda: running[0].policy,
            lambda: running[0].ledger,
            leased_jobs.holds,
        )
    return local_executor(
        settings,
        daemon.site if is_named else None,
        lambda: running[0].policy if running else settings.policy,
        lambda: term.is_on,
        run_as_of(daemon.access) if settings.run_as_submitter else None,
        daemon.open_files.at_start,
        lambda: running[0].ledger,
    )
