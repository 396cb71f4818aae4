"""The objects that routes use: the control loop, its controller, and the reader.

A route that changes something calls the controller on its thread (`call_controller`). A route that only reads queries
the reader, which answers beside the turns from a state at least as new as any answer given before.

* `read`: for queries of milliseconds; runs on the controller's thread while there is no reader.
* `read_forked`: for queries of seconds; runs in a fork of the reader.
* `read_adaptive`: in the reader while queries of its kind are quick, else in a fork.
* `read_inline`: for queries of microseconds that are repeated at every change; runs on the controller's thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, TypeVarTuple

from gantree.api.gpu_metrics.gpu_counters import GpuCounters
from gantree.api.views import service_view
from gantree.api.views.progress_view import add_observed, add_progress
from gantree.api.views.straggler_view import StragglerJudge
from gantree.control.engine.controller import Controller
from gantree.control.engine.loop import Loop
from gantree.control.readers.frames import QueryMode
from gantree.control.readers.supervisor import ReaderSupervisor
from gantree.control.requests.read_view import ReadView
from gantree.control.services.observed import ObservedServices
from gantree.control.services.of_cluster import services_ledger, services_view
from gantree.executors.progress import Progress
from gantree.formats.prices.reader import PricesFile
from gantree.model.host_use import HostUse
from gantree.model.phases import Phase

Json = dict[str, Any]
T = TypeVar("T")
Given = TypeVarTuple("Given")


class QueryBackend(Protocol):
    """What reading routes work with; a standby has one too (`server.standby.reads`)."""

    @property
    def gpu_counters(self) -> GpuCounters:
        """The use of GPUs, as their counters say."""
        ...

    @property
    def prices(self) -> PricesFile | None:
        """The prices of the site; None: list prices."""
        ...

    async def read(self, function: Callable[[ReadView, *Given], T], *arguments: *Given) -> T:
        """The plain values that a module's function makes of a ReadView within milliseconds."""
        ...

    async def read_adaptive(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same for queries that mostly take milliseconds and may take seconds. Raises as read_forked."""
        ...

    async def read_forked(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same for queries that may take seconds. Raises TooLong, and Unreachable while there is no reader.

        asker is the caller, whose share of the queries that wait is limited.
        """
        ...

    async def read_inline(self, function: Callable[[ReadView, *Given], T], *arguments: *Given) -> T:
        """The same for queries of microseconds that are repeated at every change."""
        ...

    async def read_services(
        self, function: Callable[[ReadView, *Given], T], *arguments: *Given, asker: str
    ) -> T:
        """The same as read_adaptive for queries about services, which the cluster may keep itself.

        Raises NotLeading where only the leader has them.
        """
        ...

    async def is_service_of_cluster(self, word: str) -> bool:
        """Whether a name is that of a service that the cluster keeps itself."""
        ...

    def ticket(self) -> asyncio.Event:
        """An event that is set by the first change after now, or after a moment."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether streams are to end."""
        ...

    async def add_progress(self, rows: Sequence[Json], *, ended: bool = False) -> None:
        """Put into rows of jobs that hold a place how far they are; where ended, also of those that did."""
        ...

    async def add_remaining(self, explained: Json) -> None:
        """Put into the answer to why what keeps an attempt that is stopped from ending."""
        ...

    async def add_load(self, rows: Sequence[Json]) -> None:
        """Put into rows of services what routers and probes report; only a leader knows it."""
        ...

    async def add_observed(self, explained: Json) -> None:
        """Put into the answer to why how its check stands, and which ranks are slower than their peers."""
        ...

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Where the output of a rank is, once there is some."""
        ...

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """The reports of an attempt over time, oldest first; from any thread."""
        ...

    def record(self, job: str, attempt: int) -> Json | None:
        """What ran as an attempt, None if it was never started; from any thread. Raises OSError."""
        ...

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory, None where that is not measured; from any thread. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """What the routes work with. readers are None where everything runs in one process."""

    loop: Loop
    controller: Controller
    started_at: float
    readers: ReaderSupervisor | None = None
    gpu_counters: GpuCounters = field(default_factory=GpuCounters)
    straggler_judge: StragglerJudge = field(default_factory=StragglerJudge)
    prices: PricesFile | None = None
    observed: ObservedServices = field(default_factory=ObservedServices)

    async def call_controller(self, function: Callable[[Controller], T]) -> T:
        """Run a function on the controller's thread."""
        return await self.loop.call(lambda: function(self.controller))

    async def read(
        self,
        function: Callable[[ReadView, *Given], T],
        *arguments: *Given,
    ) -> T:
        """The plain values that a module's function makes of a ReadView within milliseconds."""
        if self.readers is not None:
            self.readers.start()  # for the queries that follow, where nobody asked before
        if self.readers is None or not self.readers.is_ready:
            return await self.call_controller(
                lambda controller: function(controller.read_view(), *arguments)
            )
        return await self._read(self.readers, function, arguments, QueryMode.INLINE)

    async def read_adaptive(
        self,
        function: Callable[[ReadView, *Given], T],
        *arguments: *Given,
        asker: str,
    ) -> T:
        """The same for queries that mostly take milliseconds and may take seconds. Raises as read_forked."""
        return await self._beside(function, arguments, QueryMode.ADAPTIVE, asker)

    async def read_forked(
        self,
        function: Callable[[ReadView, *Given], T],
        *arguments: *Given,
        asker: str,
    ) -> T:
        """The same for queries that may take seconds. Raises TooLong, and Unreachable while there is no reader."""
        return await self._beside(function, arguments, QueryMode.FORKED, asker)

    async def read_inline(self, function: Callable[[ReadView, *Given], T], *arguments: *Given) -> T:
        """The same for queries of microseconds that are repeated at every change: on the controller's thread."""
        return await self.call_controller(
            lambda controller: function(controller.read_view(), *arguments)
        )

    async def read_services(
        self,
        function: Callable[[ReadView, *Given], T],
        *arguments: *Given,
        asker: str,
    ) -> T:
        """The same as read_adaptive; on the controller's thread where the cluster keeps services itself."""
        if self.controller.cluster_services is None:
            return await self.read_adaptive(function, *arguments, asker=asker)
        return await self.call_controller(
            lambda controller: function(services_view(controller), *arguments)
        )

    async def is_service_of_cluster(self, word: str) -> bool:
        """Whether a name is that of a service that the cluster keeps itself."""
        if self.controller.cluster_services is None:
            return False
        return await self.call_controller(lambda one: word in services_ledger(one).services)

    def ticket(self) -> asyncio.Event:
        """An event that is set by the first change after now."""
        return self.loop.changes.ticket()

    @property
    def stopping(self) -> bool:
        """Whether streams are to end."""
        return self.loop.stopping

    async def add_progress(self, rows: Sequence[Json], *, ended: bool = False) -> None:
        """Put into rows of jobs that hold a place how far they are; where ended, also of those that did."""
        await add_progress(rows, self.controller.cluster, self.straggler_judge, ended=ended)

    async def add_observed(self, explained: Json) -> None:
        """Put into the answer to why how its check stands, and which ranks are slower than their peers."""
        await add_observed(explained, self.controller.cluster, self.straggler_judge)

    async def add_remaining(self, explained: Json) -> None:
        """Put into the answer to why what keeps an attempt that is stopped from ending, or a job from starting."""
        if explained["phase"] not in (Phase.STOPPING, Phase.PENDING):
            return
        job: str = explained["job"]
        remaining = await self.call_controller(lambda controller: controller.cluster.remains(job))
        if remaining:
            explained["sentence"] += f" Waiting: {remaining}."

    async def add_load(self, rows: Sequence[Json]) -> None:
        """Put into rows of services what routers and probes report, and what the autoscaler makes of it."""
        observed = self.observed

        def seen(controller: Controller) -> tuple[Any, Any, Any]:
            now, routers = controller.clock(), observed.routers
            loads, tokens = routers.loads(now), observed.scaling.tokens_per_s()
            for service in loads.keys() & tokens.keys():
                loads[service] = replace(loads[service], tokens_per_s=tokens[service])
            return loads, routers.in_flight(now), observed.scaling.recommendations()

        loads, in_flight, scaling = await self.call_controller(seen)
        service_view.add_observed(rows, loads, observed.answers, in_flight, scaling)

    def take_report(self, token: str, body: bytes) -> dict[str, Any]:
        """Take what a rank reports by a request; from any thread. Raises GantreeError as the cluster does."""
        return {"again_s": self.controller.cluster.take_report(token, body)}

    def take_check(self, token: str, body: bytes) -> dict[str, Any]:
        """Take what a pod posts during the check before its start; from any thread. Raises GantreeError."""
        return self.controller.cluster.take_check(token, body)

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Where the output of a rank is, once there is some."""
        return self.controller.cluster.log_path(job, attempt, rank)

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """The reports of an attempt over time, oldest first; from any thread."""
        return self.controller.cluster.curve(job, attempt)

    def record(self, job: str, attempt: int) -> Json | None:
        """What ran as an attempt, None if it was never started; from any thread. Raises OSError."""
        return self.controller.cluster.record(job, attempt)

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """What an attempt uses of CPUs and memory, None where that is not measured; from any thread. Raises OSError."""
        return self.controller.cluster.host_use(job, attempt)

    async def _beside(
        self,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        mode: QueryMode,
        asker: str,
    ) -> T:
        """Query the reader; without one, the controller."""
        if self.readers is None:
            return await self.call_controller(
                lambda controller: function(controller.read_view(), *arguments)
            )
        return await self._read(self.readers, function, arguments, mode, asker)

    async def _read(
        self,
        readers: ReaderSupervisor,
        function: Callable[..., T],
        arguments: tuple[object, ...],
        mode: QueryMode,
        asker: str = "",
    ) -> T:
        """Query the reader for a state at least as new as the controller's."""
        since = await self.call_controller(lambda controller: controller.read_view().at)
        reply = await readers.query(since, function, *arguments, mode=mode, asker=asker)
        value: T = reply.value
        return value
