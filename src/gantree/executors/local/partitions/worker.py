"""Partitions GPUs for gangs in a thread of its own, one gang after the other, since it may take seconds.

NVML's calls for MIG mode take up to ten seconds, and the daemon decides for all other jobs meanwhile.
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
from gantree.model.errors import GantreeError
from gantree.model.gpu_partitions import LASTING_FAULTS, PartitionError
from gantree.model.orders import StartGang

CLOSE_WITHIN_S = 30.0
"""A driver that does not answer does not keep the daemon from ending."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitioningFailed:
    """Why the GPUs of a gang could not be partitioned; all is as before. is_final: another try would fail, too."""

    reason: str
    is_final: bool


Prepared = Mapping[NodePart, str] | PartitioningFailed
"""UUIDs of the MIG instances of a gang, or why it has none."""


class Partitioning:
    """The gangs whose GPUs are being partitioned. There is a thread while there is work."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._running: list[tuple[Gang, Future[Prepared]]] = []
        self._lock = Lock()
        self._work: deque[Callable[[], None]] = deque()
        self._thread: Thread | None = None

    def concerns(self, order: StartGang) -> bool:
        """Whether anything may have to be done for an order."""
        return self._partitions.concerns(order)

    def begin(self, gang: Gang, order: StartGang, held: Collection[NodePart]) -> None:
        """Begin to partition the GPUs of a gang, behind those that came before. held must stay as it is."""
        if all(other is not gang for other, _ in self._running):
            future: Future[Prepared] = Future()
            self._running.append((gang, future))
            self._submit(lambda: future.set_result(self._prepare(order, held)))

    def finished(self) -> Iterator[tuple[Gang, Prepared]]:
        """Each gang that is done with, with what came of it; it comes again if the caller raises."""
        while self._running and self._running[0][1].done():
            gang, future = self._running[0]
            yield gang, future.result()
            del self._running[0]

    def tidy(self, held: Collection[NodePart]) -> None:
        """Bring the record of created instances up to date, before anything else."""
        if self._partitions.has_created:
            self._submit(lambda: self._tidy(held))

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
                self._thread = Thread(target=self._run, name="partition-gpus", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._work:
                    self._thread = None
                    return
                work = self._work.popleft()
            work()

    def _prepare(self, order: StartGang, held: Collection[NodePart]) -> Prepared:
        try:
            return self._partitions.prepare(order, held)
        except PartitionError as error:
            return PartitioningFailed(str(error), error.fault in LASTING_FAULTS)
        except (GantreeError, OSError) as error:
            return PartitioningFailed(f"its GPUs could not be partitioned: {error}", is_final=False)
        except Exception:  # a bug; without an answer the gang would wait for ever
            log.exception("the GPUs of job %s could not be partitioned", order.job)
            return PartitioningFailed(
                "its GPUs could not be partitioned; see the log", is_final=True
            )

    def _tidy(self, held: Collection[NodePart]) -> None:
        try:
            self._partitions.tidy(held)
        except (GantreeError, OSError):
            log.warning(
                "the MIG instances of an earlier daemon could not be checked", exc_info=True
            )
