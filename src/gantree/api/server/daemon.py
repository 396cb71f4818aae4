"""The daemon: one process that starts and stops journal, controller, loop and HTTP server.

It stops on SIGTERM, SIGINT and SIGHUP, and leaves the gangs running: they belong to the state directory, and
the next daemon there adopts them. A bug that ends the control loop ends the daemon in the same way.

On SQLite it leads for as long as it lives. Of several on one PostgreSQL one leads and the others stand by: each goes on
from standing by to leading and, where it loses its lease, back, with everything that it knew thrown away.
"""

import asyncio
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import uvloop
from prometheus_client import disable_created_metrics

from gantree import __version__
from gantree.api.access.audit import Audit
from gantree.api.backend import Backend
from gantree.api.gpu_metrics.gpu_counters import counters_of
from gantree.api.gpu_metrics.polling import poll_all
from gantree.api.http import unix_socket
from gantree.api.http.connections import socket_limits, tcp_limits
from gantree.api.observability import log_format, tracing_setup
from gantree.api.server.access_setup import access_of
from gantree.api.server.app import Pages, build_app
from gantree.api.server.fault_watch import watch_kernel_log, watch_nvml
from gantree.api.server.http_server import Server
from gantree.api.server.journal_location import (
    journal_location_of,
)
from gantree.api.server.lemon_watch import cordon_lemons
from gantree.api.server.listeners import advertised, bind, url_of
from gantree.api.server.notifications import notify_users
from gantree.api.server.recovery import DaemonParts, recovered_controller
from gantree.api.server.repair_watch import repair_nodes
from gantree.api.server.settings import KernelLog, Settings
from gantree.api.server.standby.app import build_standby_app
from gantree.api.server.standby.reads import StandbyBackend
from gantree.api.server.standby.role_dispatcher import RoleDispatcher
from gantree.api.server.stop_signals import StopSignals
from gantree.api.server.straggler_watch import watch_stragglers
from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.leadership import CAMPAIGN_EVERY_S, Term
from gantree.control.engine.loop import Loop, wait_until_set
from gantree.control.engine.watchdog import Watchdog
from gantree.control.garbage import (
    set_all_apart,
    set_survivors_apart,
    take_back,
)
from gantree.control.readers.frames import FollowJournal
from gantree.control.readers.host import fork_host
from gantree.control.readers.server import serve
from gantree.control.readers.standby_fold import StandbyFold
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.control.services.autoscale_watch import autoscale
from gantree.control.services.observed import watch_drains
from gantree.control.services.of_cluster import services_ledger
from gantree.control.services.readiness import watch_readiness
from gantree.executors.kubernetes.apiserver.settings import KubernetesSettings
from gantree.executors.local.launch.open_files import raise_limit
from gantree.journal.access_store import AccessStore
from gantree.journal.service_week_store import ServiceWeekStore
from gantree.model.errors import JournalError, NotLeading, Unreachable
from gantree.text.words import plural

LOOK_EVERY_S = 0.1
"""How often a leader looks whether it still leads; what it must not do is refused without this look."""
AGAIN_AFTER_S, LOOK_AGAIN_AFTER_S = 2.0, 0.25
"""After a take-over that failed; after one in which no cluster was found, whose nodes may appear at any moment."""
STOP_WITHIN_S = 30.0
"""After a signal a daemon ends at the latest: what it waits for may never answer."""
SWITCH_S = 0.0003
"""Another thread gets its turn after so long, a sixteenth of what is usual: the controller's lets go of the interpreter
for every statement, and would wait for the event loop, or a snapshot's text, each time."""

log = logging.getLogger(__name__)


def run_daemon(settings: Settings, pages: Pages = ()) -> None:
    """Run until stopped. pages are routers of floors above, served beside the API.

    Prints one line when requests are answered, and one at the end. Raises BadInput for the cluster file or for
    a missing one, Conflict for a cluster that contradicts what runs, JournalError for a state directory that
    is in use, damaged or newer.
    """
    set_up_log = partial(log_format.set_up, settings.log_level, settings.log_format)
    set_up_log()
    for warning in settings.warnings():
        log.warning("%s", warning)
    host = fork_host(serve, set_up_log)  # before there are threads, files and secrets
    open_files = raise_limit()
    sys.setswitchinterval(SWITCH_S)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # drops a second line for each counter
    site = settings.site()
    with ExitStack() as opened:
        opened.callback(host.close)
        location = journal_location_of(settings, opened)
        book = AccessStore(location.journal.database)
        access = access_of(settings, book)
        audit = Audit(book)
        opened.callback(audit.close)
        opened.enter_context(tracing_setup.exported())
        runner = opened.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        parts = DaemonParts(settings, location, site, access, audit, pages, host, open_files)
        runner.run(_run(parts))


async def _run(daemon: DaemonParts) -> None:
    """Lead or stand by until stopped."""
    settings, leadership = daemon.settings, daemon.location.leadership
    with ExitStack() as opened:
        tcp = None if settings.listen is None else opened.enter_context(bind(settings.listen))
        addresses = []
        if settings.listen is not None and tcp is not None:
            addresses.append(url_of(settings.listen, tcp) + settings.root_path)
            leadership.url = settings.advertise or advertised(settings.listen, tcp)
        lifecycle = _Lifecycle(daemon, tcp, addresses)
        try:
            await lifecycle.run()
        finally:
            await lifecycle.close()


class _Lifecycle:
    """The phases of a process, one after the other."""

    def __init__(
        self, daemon: DaemonParts, over_tcp: socket.socket | None, addresses: Sequence[str]
    ) -> None:
        settings = daemon.settings
        self._daemon = daemon
        self._leadership = daemon.location.leadership
        self._addresses = tuple(addresses)
        self._stop = asyncio.Event()
        self._signals = StopSignals(self._stop_soon)
        self._readers = ReaderSupervisor(
            daemon.host, FollowJournal(daemon.location.open_reader, settings.policy)
        )
        self._standby_fold = StandbyFold(daemon.location.open_reader, settings.policy)
        self._counters = counters_of(settings.gpu_metrics)
        standby = partial(
            build_standby_app,
            self._leadership,
            daemon.access,
            daemon.metrics,
            daemon.audit,
            StandbyBackend(
                self._readers,
                settings.state_dir,
                self._stop,
                self._leadership.not_leading,
                self._counters,
                prices=settings.prices,
                cluster_keeps_services=settings.kubernetes is not None,
            ),
            lambda: self._standby_fold.is_ready,
            daemon.pages,
            settings.root_path,
        )
        self._dispatcher = RoleDispatcher(standby)
        self._tcp = None
        if over_tcp is not None and settings.listen is not None:
            limits = tcp_limits(
                daemon.open_files.now,
                settings.listen.most_connections,
                settings.listen.header_timeout_s,
            )
            self._tcp = Server(self._dispatcher, over_tcp, settings.listen, limits, daemon.metrics)
        self._serving_tcp: asyncio.Task[None] | None = None
        self._said: str | None = None

    async def run(self) -> None:
        """Run until stopped."""
        is_start = True
        self._signals.obey()
        while not self._stop.is_set():
            term = await asyncio.to_thread(self._leadership.campaign)
            self._daemon.metrics.leading.set(term is not None)
            if term is None:
                await self._stand_by()
            else:
                await self._lead(term, is_start=is_start)
                self._check_goes_on()
            is_start = False
        if self._said is not None:
            _say("stopped; it did not lead")

    def _check_goes_on(self) -> None:
        """Raises NotLeading where leading is over and its journal, which nobody shares, was given back with it."""
        if not self._daemon.location.shared and not self._stop.is_set():
            raise NotLeading("the lease was lost: this daemon ends, to be started again")

    async def close(self) -> None:
        """End what is served over TCP, the reader, and what is read ahead."""
        self._readers.close()
        self._standby_fold.close()
        if self._tcp is not None and self._serving_tcp is not None:
            self._tcp.should_exit = True
            await self._serving_tcp

    def _stop_soon(self) -> None:
        """Stop in order; in time, whatever may not answer."""
        if not self._stop.is_set():
            self._stop.set()
            end = threading.Timer(STOP_WITHIN_S, _end_now)
            end.daemon = True
            end.start()

    def _over_tcp(self) -> list[tuple[Server, asyncio.Task[None]]]:
        """The server of the address of TCP, which answers from its first use on."""
        if self._tcp is None:
            return []
        self._serving_tcp = self._serving_tcp or self._tcp.serving()
        return [(self._tcp, self._serving_tcp)]

    async def _stand_by(self) -> None:
        """For a moment."""
        self._over_tcp()
        self._readers.start()
        if self._daemon.location.shared:
            self._standby_fold.start()
        known, trouble = self._leadership.known, self._leadership.trouble
        leads = "nobody leads" if known is None else f"{known.name} leads"
        if trouble is None and leads != self._said:
            self._said = leads
            lease = _leases(self._daemon.settings.kubernetes)
            _say("; ".join((f"gantree {__version__} stands by: {leads}", *self._addresses, *lease)))
        await wait_until_set(self._stop, CAMPAIGN_EVERY_S)

    async def _lead(self, term: Term, *, is_start: bool) -> None:
        """Run until stopped, or until the term ends. Errors of recovery are raised at the first start only."""
        loop = Loop()
        with Watchdog(loop.pulse, term, self._daemon.settings.stall_s):
            await self._lead_by(loop, term, is_start=is_start)

    async def _lead_by(self, loop: Loop, term: Term, *, is_start: bool) -> None:
        try:
            controller = await self._recover(loop, term, is_start=is_start)
            if controller is None:
                return
            await self._answer(loop, controller, term)
            left = await loop.call(lambda: len(controller.ledger.holding))
            await loop.call(controller.close)
            if term.is_on:
                self._said = None
                _say(f"stopped; {_left_running(left)}")
            else:
                take_back()
        except JournalError as error:
            if is_start:
                raise
            log.error("epoch %d ends: %s", term.epoch, error)
            await wait_until_set(self._stop, AGAIN_AFTER_S)
        finally:
            loop.close()
            await asyncio.to_thread(self._leadership.resign)

    async def _recover(self, loop: Loop, term: Term, *, is_start: bool) -> Controller | None:
        """A controller that goes on. Where the cluster does not answer it is asked again; None once that is in vain."""
        said = ""
        while True:
            loop.pulse.is_recovering = True
            try:
                with self._signals.end_at_once():  # nothing is lost
                    return await loop.call(
                        lambda: recovered_controller(
                            self._daemon,
                            loop,
                            term,
                            self._standby_fold.hand_over(),
                            is_start=is_start,
                            is_retry=bool(said),
                        )
                    )
            except Unreachable as error:
                if str(error) != said:
                    log.error("not ready, trying again: %s", said := str(error))
            finally:
                loop.pulse.is_recovering = False
            self._start_reader()
            self._over_tcp()
            if await wait_until_set(self._stop, LOOK_AGAIN_AFTER_S) or not term.is_on:
                return None

    def _start_reader(self) -> None:
        """Before the first query; on Kubernetes with it, as few ask there: a reader takes a third of the memory."""
        if self._daemon.settings.kubernetes is None:
            self._readers.start()

    async def _answer(self, loop: Loop, controller: Controller, term: Term) -> None:
        """Answer requests and step."""
        daemon, state_dir = self._daemon, self._daemon.settings.state_dir
        with ExitStack() as opened:
            self._start_reader()
            over_socket = opened.enter_context(
                unix_socket.listen(state_dir, for_all=daemon.settings.run_as_submitter)
            )
            opened.callback(unix_socket.remove_own, state_dir, unix_socket.inode(state_dir))
            judge = StragglerJudge(clocks=controller.gpu_clocks)
            prices = daemon.settings.prices
            backend = Backend(
                loop, controller, time.time(), self._readers, self._counters, judge, prices
            )
            controller.sampler.loads = backend.observed.routers.load_figures
            controller.sampler.services = lambda _: services_ledger(controller)
            stepping = asyncio.create_task(loop.run(controller))  # while the application is built
            app = await asyncio.to_thread(
                build_app,
                backend,
                daemon.access,
                daemon.pages,
                daemon.settings.root_path,
                daemon.audit,
            )
            self._dispatcher.lead(term, app)
            opened.callback(self._dispatcher.stand_by)
            set_all_apart()
            limits = socket_limits(daemon.open_files.now, for_all=daemon.settings.run_as_submitter)
            server = Server(self._dispatcher, over_socket, None, limits, daemon.metrics)
            await self._serve(backend, term, server, stepping)

    async def _serve(
        self,
        backend: Backend,
        term: Term,
        over_socket: Server,
        stepping: asyncio.Task[None],
    ) -> None:
        """Until a signal, until the term is over, or until one of them breaks."""
        watching = asyncio.create_task(self._until_over(term))
        settings, loop, controller = self._daemon.settings, backend.loop, backend.controller
        is_exact = settings.kubernetes is None
        scaling = backend.observed.scaling
        asking = asyncio.create_task(
            poll_all(settings, loop, controller, scaling.gpu_use, is_exact=is_exact)
        )
        faults = [asyncio.create_task(each) for each in _fault_watches(settings, backend)]
        notifying = asyncio.create_task(notify_users(self._daemon, loop, controller))
        comparing = asyncio.create_task(watch_stragglers(loop, controller))
        probing = asyncio.create_task(watch_readiness(loop, controller, backend.observed.answers))
        draining = asyncio.create_task(watch_drains(loop, controller, backend.observed))
        weeks = ServiceWeekStore(self._daemon.location.journal.database)
        scaled = asyncio.create_task(
            autoscale(loop, controller, scaling, settings.prometheus, weeks)
        )
        serving = [(over_socket, over_socket.serving()), *self._over_tcp()]
        tasks = [task for _, task in serving]
        while not all(server.started for server, _ in serving) and not any(
            task.done() for task in tasks
        ):
            await asyncio.sleep(0.001)
        if all(server.started for server, _ in serving):
            addresses = (
                f"socket {self._daemon.settings.state_dir / unix_socket.FILE}",
                *self._addresses,
                *_leases(self._daemon.settings.kubernetes),
            )
            _say(f"gantree {__version__} ready: {_site(controller)}; {', '.join(addresses)}")
        await asyncio.wait(
            {stepping, watching, asking, *tasks}, return_when=asyncio.FIRST_COMPLETED
        )
        if term.is_on:
            self._stop.set()
        else:
            log.error("epoch %d is over: this daemon stands by", term.epoch)
            self._dispatcher.stand_by()  # now: what is left to end here may wait for the database
        beside = (asking, notifying, comparing, probing, draining, scaled, *faults)
        for task in beside:
            task.cancel()
        loop.stop()
        over_socket.should_exit = True
        if self._tcp is not None and self._stop.is_set():
            self._tcp.should_exit = True
            await asyncio.gather(*tasks)
        await tasks[0]
        await watching
        await stepping
        for task in beside:
            with suppress(asyncio.CancelledError):
                await task

    async def _until_over(self, term: Term) -> None:
        """Run until stopped, or until the term ends."""
        while term.is_on and not await wait_until_set(self._stop, LOOK_EVERY_S):
            set_survivors_apart()


def _fault_watches(settings: Settings, backend: Backend) -> list[Coroutine[Any, Any, None]]:
    """What repairs nodes, takes lemons out, and reads faults as they happen: on Kubernetes node conditions do that."""
    loop, controller = backend.loop, backend.controller
    watches = [repair_nodes(settings.repair_hooks, loop, controller, settings.state_dir)]
    if settings.cordon_lemons:
        watches.append(cordon_lemons(backend))
    if settings.kubernetes is not None:
        return watches
    watches.append(watch_nvml(loop, controller))
    if settings.kernel_log is not KernelLog.NEVER:
        watches.append(watch_kernel_log(settings.kernel_log, loop, controller))
    return watches


def _end_now() -> None:
    """As kill -9 does: what was answered is safe."""
    log.error(
        "no end within %g s, as when the database stands still: this process ends now",
        STOP_WITHIN_S,
    )
    os._exit(1)


def _leases(told: KubernetesSettings | None) -> tuple[str, ...]:
    """The Lease by which this daemon was elected, if by one."""
    return (f"Lease {told.connection.namespace}/{told.lease}",) if told and told.lease else ()


def _site(controller: Controller) -> str:
    fabric = controller.ledger.fabric
    if fabric is None:
        return "no cluster"
    site = fabric.cluster
    gpus = sum(site.machines[node.machine].gpus for node in site.nodes)
    return f"cluster {site.name}, {plural(len(site.nodes), 'node')}, {plural(gpus, 'GPU')}"


def _left_running(gangs: int) -> str:
    if gangs == 0:
        return "no gang was running"
    goes = "1 gang goes" if gangs == 1 else f"{gangs} gangs go"
    return f"{goes} on running, for the next start to adopt"


def _say(line: str) -> None:
    with suppress(OSError):  # nobody reads it any more; that is no reason to stop
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
