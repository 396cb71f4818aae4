"""A served control plane on a cluster of any size whose gangs run at once and do nothing, in this process.

    with PretendedSite(tmp_path, cluster(spines=4, leaves=16, nodes=32)) as site:
        site.submit(job("a", members=2, gpus=8))
        page.goto(site.url)

For pictures and figures of large sites, where real processes for every member would be the test. It has no reader: what
a page asks is answered on the controller's thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from gantree.api.access.access import Access
from gantree.api.backend import Backend
from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.api.http.connections import tcp_limits
from gantree.api.server.app import build_app
from gantree.api.server.http_server import Server
from gantree.api.server.listeners import bind, listen_of, url_of
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.metrics.metrics import Metrics
from gantree.journal.sqlite import SqliteJournal
from gantree.model.cluster import Cluster
from gantree.model.events import GangEnded, GangIdlenessObserved, GangStarted
from gantree.model.jobs import Job
from gantree.model.orders import Order, StartGang, StopGang
from gantree.policy.rules import Policy
from gantree.web.pages import routers
from support.recording import RecordingCluster

TOKEN = "pretended-site-token"
READY_WITHIN_S = 300.0
KILLED = 143
T = TypeVar("T")


class PretendingCluster(RecordingCluster):
    """Says of every gang that it runs as soon as it is to start, and that it is gone as soon as it is to stop."""

    def carry_out(self, order: Order) -> None:
        """Say that it is done."""
        key = order.job, order.attempt
        if isinstance(order, StartGang) and key not in self.attempts:
            self.attempts[key] = "running"
            self.emit(
                GangStarted(
                    id=f"started/{order.job}/{order.attempt}",
                    observed_at=self.clock(),
                    job=order.job,
                    attempt=order.attempt,
                )
            )
        elif isinstance(order, StopGang):
            self.end(order.job, order.attempt, KILLED)

    def end(self, job: str, attempt: int, exit_code: int = 0) -> None:
        """A gang ends."""
        if self.attempts.get((job, attempt)) == "running":
            self.attempts[job, attempt] = "ended"
            self.emit(
                GangEnded(
                    id=f"ended/{job}/{attempt}",
                    observed_at=self.clock(),
                    job=job,
                    attempt=attempt,
                    exit_code=exit_code,
                )
            )


class PretendedSite:
    """The site, from the beginning of a block to its end. access decides who asks; None: whoever shows TOKEN.

    gpu_counters tell how busy GPUs are; None: nobody does."""

    def __init__(
        self,
        place: Path,
        cluster: Cluster,
        policy: Policy | None = None,
        access: Access | None = None,
        gpu_counters: GpuCounters | None = None,
    ) -> None:
        self.url = ""
        self._place, self._cluster, self._policy = place, cluster, policy or Policy()
        self._access = access or Access(TOKEN)
        self._gpu_counters = gpu_counters or GpuCounters()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()))
        self._failed: BaseException | None = None

    def ask(self, question: Callable[[Controller], T]) -> T:
        """Run something on the controller's thread."""
        asked: Future[T] = asyncio.run_coroutine_threadsafe(
            self._backend.call_controller(question), self._events
        )
        return asked.result(READY_WITHIN_S)

    def submit(self, *jobs: Job) -> None:
        """Hand in jobs, each as its own user's, and wait until they were decided about."""
        self.ask(lambda controller: controller.submit(jobs, None, {}))
        self.settle()

    def settle(self) -> None:
        """Wait until everything that was said has been decided about."""
        while self.ask(lambda controller: controller.step()):
            pass
        self._events.call_soon_threadsafe(self._backend.loop.changes.tick)

    def end(self, job: str) -> None:
        """The attempt of a job ends well."""
        self.ask(
            lambda controller: _pretending(controller).end(job, controller.ledger.jobs[job].attempt)
        )
        self.settle()

    def idle(self, job: str) -> None:
        """Counters tell that the GPUs of a running job do not compute."""
        self.ask(lambda controller: _tell_idle(controller, job))
        self.settle()

    def __enter__(self) -> Self:
        self._thread.start()
        deadline = time.monotonic() + READY_WITHIN_S
        while not self._ready.wait(0.05):
            if self._failed is not None or time.monotonic() > deadline:
                raise RuntimeError("the site did not start") from self._failed
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._events.call_soon_threadsafe(self._backend.loop.stop)
        self._thread.join(READY_WITHIN_S)

    async def _live(self) -> None:
        try:
            await self._served()
        except BaseException as error:
            self._failed = error
            raise

    async def _served(self) -> None:
        self._events = asyncio.get_running_loop()
        loop = Loop()
        controller = await loop.call(lambda: self._built(loop))
        self._backend = Backend(loop, controller, time.time(), gpu_counters=self._gpu_counters)
        listen = listen_of("127.0.0.1:0", self._place / "token")
        with bind(listen) as listener:
            server = Server(
                build_app(self._backend, self._access, routers()),
                listener, listen, tcp_limits(1024), Metrics(),
            )  # fmt: skip
            serving = server.serving()
            while not server.started:
                await asyncio.sleep(0.005)
            self.url = url_of(listen, listener)
            self._ready.set()
            await loop.run(controller)
            server.should_exit = True
            await serving
        await loop.call(controller.close)
        await loop.call(controller.journal.close)
        loop.close()

    def _built(self, loop: Loop) -> Controller:
        controller = Controller(
            SqliteJournal(self._place),
            self._policy,
            PretendingCluster,
            site=self._cluster,
            wake=loop.wake,
        )
        controller.recover()
        return controller


def _tell_idle(controller: Controller, job: str) -> None:
    cluster, attempt = _pretending(controller), controller.ledger.jobs[job].attempt
    now = cluster.clock()
    cluster.emit(
        GangIdlenessObserved(id=f"idle/{job}", observed_at=now, job=job, attempt=attempt, since=now)
    )


def _pretending(controller: Controller) -> PretendingCluster:
    cluster = controller.cluster
    assert isinstance(cluster, PretendingCluster)
    return cluster
