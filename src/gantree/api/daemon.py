"""The daemon: one process that puts journal, controller, loop and HTTP server together, and takes them apart.

It stops on SIGTERM, SIGINT and SIGHUP, and leaves the gangs running: they belong to the state directory, and
the next daemon there adopts them. A bug that ends the control loop ends the daemon in the same way.
"""

import asyncio
import gc
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from socket import gethostname

from prometheus_client import disable_created_metrics

from gantree import __version__
from gantree.api import log_lines, sockets, tracing
from gantree.api.access import Access, token_of
from gantree.api.app import build_app
from gantree.api.backend import Backend
from gantree.api.listening import Listen, Server, bind, url_of
from gantree.api.log_lines import Format, Level
from gantree.api.rates import Rates
from gantree.control.controller import Controller
from gantree.control.gpu_ids import gpu_ids_of, mig_ids_of
from gantree.control.loop import Loop
from gantree.control.policies import PolicyText
from gantree.control.ports import Clock, ClusterPort, Emit
from gantree.control.versions import policy_version, versions_of
from gantree.executors.local import LocalCluster
from gantree.formats import read_cluster
from gantree.formats.policies import PRESETS
from gantree.formats.policy_places import NOWHERE, PolicyPlaces
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.errors import JournalError
from gantree.policy.rules import Policy
from gantree.telemetry.mig import mig_instances
from gantree.telemetry.nvml import uuids, versions
from gantree.text.words import plural

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def run_daemon(
    state_dir: Path,
    cluster_text: str | None,
    source: str,
    policy: Policy | None = None,
    places: PolicyPlaces = NOWHERE,
    listen: Listen | None = None,
    requests_per_s: float | None = None,
    log_level: Level = Level.WARNING,
    log_format: Format = Format.AUTO,
    policy_text: PolicyText | None = None,
) -> None:
    """Run until told to stop. cluster_text may be None where the state directory has seen a cluster before.

    policy_text is the file of the policy that rules from now on; None: the newest on record rules, and policy where
    there is none. places are those of the policy's file, for errors. listen is an address of TCP to answer at, beside
    the socket.
    requests_per_s is how often a caller may ask; None: as often as it likes.

    Prints one line when requests are answered, and one at the end. Raises BadInput for the cluster file or for
    a missing one, Conflict for a cluster that contradicts what runs, JournalError for a state directory that
    is in use, damaged or newer.
    """
    log_lines.set_up(log_level, log_format)
    disable_created_metrics()  # type: ignore[no-untyped-call]  # drops a second line for each counter
    site = None if cluster_text is None else read_cluster(cluster_text, source)
    _refuse_orphaned_runs(state_dir)
    journal = SqliteJournal(state_dir)
    try:
        token = None if listen is None else token_of(listen.token_file)
        access = Access(token, Rates(requests_per_s) if requests_per_s else None)
        rules = policy or PRESETS["gantree"]
        with tracing.exported():
            asyncio.run(_live(state_dir, journal, site, rules, policy_text, places, listen, access))
    finally:
        journal.close()


def _refuse_orphaned_runs(state_dir: Path) -> None:
    """What an unknown journal started must not be taken over under ids that a new one would give again."""
    journal = state_dir / FILE
    is_lost = not journal.exists() or journal.stat().st_size == 0
    if is_lost and (state_dir / "runs").exists():
        raise JournalError(
            f"{state_dir} has runs, but no journal that knows of them; restore {FILE}, or use another directory"
        )


async def _live(
    state_dir: Path,
    journal: SqliteJournal,
    site: Cluster | None,
    policy: Policy,
    policy_text: PolicyText | None,
    places: PolicyPlaces,
    listen: Listen | None,
    access: Access,
) -> None:
    loop = Loop()

    running: list[Controller] = []

    def make_cluster(described: Cluster, emit: Emit, clock: Clock) -> ClusterPort:
        gpu_ids = gpu_ids_of(described, gethostname(), uuids)
        mig_ids = mig_ids_of(gethostname(), mig_instances)
        return LocalCluster(
            state_dir,
            described,
            emit,
            clock,
            gpu_ids=gpu_ids,
            mig_ids=mig_ids,
            versions=versions_of(gethostname(), versions),
            about=lambda: {"policy": policy_version(running[0].policy if running else policy)},
        )

    def make_controller() -> Controller:
        controller = Controller(
            journal,
            policy,
            make_cluster,
            site=site,
            wake=loop.wake,
            places=places,
            policy_text=policy_text,
        )
        running.append(controller)
        controller.recover()
        gc.freeze()  # the site does not change: looking through it again would hold up a turn by 40 ms
        return controller

    try:
        with ExitStack() as opened:
            over_tcp = None if listen is None else opened.enter_context(bind(listen))
            controller = await loop.call(make_controller)
            over_socket = opened.enter_context(sockets.listen(state_dir))
            opened.callback(sockets.remove, state_dir)
            app = build_app(Backend(loop, controller, time.time()), access)
            servers = [Server(app, over_socket, None)]
            where = f"socket {state_dir / sockets.FILE}"
            if listen is not None and over_tcp is not None:
                servers.append(Server(app, over_tcp, listen))
                where += f", {url_of(listen, over_tcp)}"
            await _serve(loop, controller, servers, where)
        left = await loop.call(lambda: len(controller.ledger.holding))
        await loop.call(controller.close)
        _say(f"stopped; {_left_running(left)}")
    finally:
        loop.close()


async def _serve(loop: Loop, controller: Controller, servers: list[Server], where: str) -> None:
    """Answer requests and step until a signal, or until one of them breaks."""
    stepping = asyncio.create_task(loop.run(controller))
    serving = [server.serving() for server in servers]
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, loop.stop)
    while not all(server.started for server in servers) and not any(one.done() for one in serving):
        await asyncio.sleep(0.001)
    if all(server.started for server in servers):
        _say(f"gantree {__version__} ready: {_site(controller)}; {where}")
    await asyncio.wait({stepping, *serving}, return_when=asyncio.FIRST_COMPLETED)
    loop.stop()
    for server in servers:
        server.should_exit = True
    await asyncio.gather(*serving)
    await stepping


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
