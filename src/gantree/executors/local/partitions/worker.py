"""Prepares GPUs for gangs in a thread of its own, one gang after the other, since it may take seconds.

GPUs are partitioned first; then MPS control daemons are started and time slices set on those that are shared. NVML's
calls for MIG mode take up to ten seconds, and the daemon decides for all other jobs meanwhile.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock, Thread

from gantree.executors.local.gang import Gang
from gantree.executors.local.partitions.created_instances import NodePart
from gantree.executors.local.partitions.partitions import Partitions
from gantree.executors.local.sharing.mps_daemons import MpsDaemons, uid_of
from gantree.executors.local.sharing.shared_gpus import SharedGpu
from gantree.executors.local.sharing.time_slices import TimeSlices
from gantree.executors.local.unix_users import UnixUser
from gantree.model.errors import GantreeError, Unsupported
from gantree.model.gpu_partitions import LASTING_FAULTS, PartitionError
from gantree.model.orders import MemberLaunch, StartGang

CLOSE_WITHIN_S = 30.0
"""A driver that does not answer does not keep the daemon from ending."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparationFailed:
    """Why the GPUs of a gang could not be prepared; all is as before. is_final: another try would fail, too."""

    reason: str
    is_final: bool


Prepared = Mapping[NodePart, str] | PreparationFailed
"""UUIDs of the MIG instances of a gang, or why it has none."""


class GpuPreparation:
    """The gangs whose GPUs are being prepared. There is a thread while there is work."""

    def __init__(self, partitions: Partitions, mps: MpsDaemons, time_slices: TimeSlices) -> None:
        self._partitions, self._mps, self._time_slices = partitions, mps, time_slices
        self._running: list[tuple[Gang, Future[Prepared]]] = []
        self._lock = Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None

    def may_change(self, node: str) -> bool:
        """Whether the GPUs of a node may be partitioned."""
        return self._partitions.may_change(node)

    def concerns(self, order: StartGang) -> bool:
        """Whether anything may have to be done for an order."""
        concerned = (self._partitions, self._mps, self._time_slices)
        return any(each.concerns(order) for each in concerned)

    def begin(
        self, gang: Gang, order: StartGang, held: Collection[NodePart], unix: UnixUser | None
    ) -> None:
        """Begin to prepare the GPUs of a gang, behind those that came before. held must stay as it is.

        unix is the user of its processes; None: that of the daemon.
        """
        if all(other is not gang for other, _ in self._running):
            future: Future[Prepared] = Future()
            self._running.append((gang, future))
            self._submit(lambda: future.set_result(self._prepare(order, held, unix)))

    def finished(self) -> Iterator[tuple[Gang, Prepared]]:
        """Each gang that is done with, with what came of it; it comes again if the caller raises."""
        while self._running and self._running[0][1].done():
            gang, future = self._running[0]
            yield gang, future.result()
            del self._running[0]

    def tidy(self, held: Collection[NodePart], shared: Collection[SharedGpu]) -> None:
        """Bring what an earlier daemon left up to date, before anything else. shared: as for `end_sharing`."""
        if self._partitions.has_created:
            self._submit(lambda: self._tidy(held))
        if any(each.has_any for each in (self._mps, self._time_slices)):
            self._submit(lambda: self._end_sharing(shared))

    def end_sharing(self, ended: StartGang, shared: Collection[SharedGpu]) -> None:
        """Once a gang is over, end what lets GPUs be shared that no other shares. shared: what others share."""
        if any(each.has_any or each.concerns(ended) for each in (self._mps, self._time_slices)):
            self._submit(lambda: self._end_sharing(shared))

    def mps_variables(self, member: MemberLaunch, unix: UnixUser | None) -> dict[str, str]:
        """How the processes of a member that was prepared find their MPS control daemon."""
        return self._mps.variables(member, uid_of(unix))

    def close(self) -> None:
        """Wait for the one that is being prepared; the others are not begun."""
        with self._lock:
            self._work.clear()
            thread = self._thread
        if thread is not None:
            thread.join(CLOSE_WITHIN_S)
        self._running.clear()

    def _submit(self, work: Callable[[], None]) -> None:
        with self._lock:
            self._work.append(work)
            if self._thread is None:
                self._thread = Thread(target=self._run, name="prepare-gpus", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._thread = None
                    return
                work = self._work.popleft()
            work()

    def _prepare(
        self, order: StartGang, held: Collection[NodePart], unix: UnixUser | None
    ) -> Prepared:
        try:
            uuids = self._partitions.prepare(order, held)
            self._provide_sharing(order, held, unix)
        except PartitionError as error:
            return PreparationFailed(str(error), error.fault in LASTING_FAULTS)
        except Unsupported as error:
            return PreparationFailed(str(error), is_final=True)
        except (GantreeError, OSError) as error:
            return PreparationFailed(f"its GPUs could not be prepared: {error}", is_final=False)
        except Exception:  # a bug; without an answer the gang would wait for ever
            log.exception("the GPUs of job %s could not be prepared", order.job)
            return PreparationFailed("its GPUs could not be prepared; see the log", is_final=True)
        return uuids

    def _provide_sharing(
        self, order: StartGang, held: Collection[NodePart], unix: UnixUser | None
    ) -> None:
        try:
            self._mps.provide(order, uid_of(unix), unix)
            self._time_slices.provide(order)
        except (GantreeError, OSError):
            self._partitions.undo(order, held)
            raise

    def _tidy(self, held: Collection[NodePart]) -> None:
        try:
            self._partitions.tidy(held)
        except (GantreeError, OSError):
            log.warning(
                "the MIG instances of an earlier daemon could not be checked", exc_info=True
            )

    def _end_sharing(self, shared: Collection[SharedGpu]) -> None:
        for each in (self._mps, self._time_slices):
            try:
                each.end_unused(shared)
            except (GantreeError, OSError):
                log.warning("what lets gangs share GPUs could not be ended", exc_info=True)
