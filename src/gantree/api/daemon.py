"""The daemon: one process that puts journal, controller, loop and HTTP server together, and takes them apart.

It stops on SIGTERM, SIGINT and SIGHUP, and leaves the gangs running: they belong to the state directory, and
the next daemon there adopts them. A bug that ends the control loop ends the daemon in the same way.
"""

import asyncio
import gc
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname, socket

import uvicorn

from gantree import __version__
from gantree.api import sockets
from gantree.api.app import build_app
from gantree.api.backend import Backend
from gantree.control.controller import Controller
from gantree.control.gpu_ids import gpu_ids_of, mig_ids_of
from gantree.control.loop import Loop
from gantree.control.ports import Clock, ClusterPort, Emit
from gantree.executors.local import LocalCluster
from gantree.formats import read_cluster
from gantree.formats.policies import PRESETS
from gantree.formats.policy_places import NOWHERE, PolicyPlaces
from gantree.journal.sqlite import FILE, SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.errors import JournalError
from gantree.policy.rules import Policy
from gantree.telemetry.mig import mig_instances
from gantree.telemetry.nvml import uuids
from gantree.text.words import plural

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LAST_ANSWERS_S = 1
"""How long requests that are being answered may take once the daemon was told to stop."""


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to the daemon."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def run_daemon(
    state_dir: Path,
    cluster_text: str | None,
    source: str,
    policy: Policy | None = None,
    places: PolicyPlaces = NOWHERE,
) -> None:
    """Run until told to stop. cluster_text may be None where the state directory has seen a cluster before.

    places are those of the policy's file, for errors.

    Prints one line when requests are answered, and one at the end. Raises BadInput for the cluster file or for
    a missing one, Conflict for a cluster that contradicts what runs, JournalError for a state directory that
    is in use, damaged or newer.
    """
    logging.basicConfig(
        level=logging.WARNING,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    site = None if cluster_text is None else read_cluster(cluster_text, source)
    _refuse_orphaned_runs(state_dir)
    journal = SqliteJournal(state_dir)
    try:
        asyncio.run(_live(state_dir, journal, site, policy or PRESETS["gantree"], places))
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
    places: PolicyPlaces,
) -> None:
    loop = Loop()

    def make_cluster(described: Cluster, emit: Emit, clock: Clock) -> ClusterPort:
        gpu_ids = gpu_ids_of(described, gethostname(), uuids)
        mig_ids = mig_ids_of(gethostname(), mig_instances)
        return LocalCluster(state_dir, described, emit, clock, gpu_ids=gpu_ids, mig_ids=mig_ids)

    def make_controller() -> Controller:
        controller = Controller(
            journal, policy, make_cluster, site=site, wake=loop.wake, places=places
        )
        controller.recover()
        gc.freeze()  # the site does not change: looking through it again would hold up a turn by 40 ms
        return controller

    try:
        controller = await loop.call(make_controller)
        listener = sockets.listen(state_dir)
        try:
            await _serve(loop, controller, listener, state_dir)
        finally:
            listener.close()
            sockets.remove(state_dir)
            left = await loop.call(lambda: len(controller.ledger.holding))
            await loop.call(controller.close)
        _say(f"stopped; {_left_running(left)}")
    finally:
        loop.close()


async def _serve(loop: Loop, controller: Controller, listener: socket, state_dir: Path) -> None:
    """Answer requests and step until a signal, or until either of the two breaks."""
    app = build_app(Backend(loop, controller, time.time()))
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )
    server = _Server(config)
    stepping = asyncio.create_task(loop.run(controller))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    for number in STOP_SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, loop.stop)
    while not (server.started or serving.done()):
        await asyncio.sleep(0.001)
    if server.started:
        _say(f"gantree {__version__} ready: {_site(controller)}; socket {state_dir / sockets.FILE}")
    await asyncio.wait({stepping, serving}, return_when=asyncio.FIRST_COMPLETED)
    loop.stop()
    server.should_exit = True
    await serving
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
