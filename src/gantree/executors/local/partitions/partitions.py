"""Makes the GPUs of a gang's nodes what its order needs before it starts: MIG instances that exist, MIG mode off.

Whatever cannot be done is taken back. An instance that a gang has left stays for the next one that it fits.
"""

from collections.abc import Callable, Collection
from pathlib import Path

from gantree.executors.local.partitions.created_instances import CreatedInstances, NodePart
from gantree.executors.local.partitions.gpu import Gpu
from gantree.model.errors import GantreeError
from gantree.model.gpu_partitions import GpuPartitioner
from gantree.model.orders import StartGang
from gantree.model.placements import MigPart

PartitionerOf = Callable[[str], GpuPartitioner | None]
"""Who partitions the GPUs of a node; None: nobody may."""


def no_partitioner(node: str) -> GpuPartitioner | None:
    """Nobody may partition the GPUs of any node."""
    return None


def parts_of(order: StartGang) -> list[NodePart]:
    """The MIG instances that an order needs."""
    return [(member.node, part) for member in order.members for part in member.mig]


class Partitions:
    """Partitions GPUs for gangs, node by node. One thread at a time may call it."""

    def __init__(self, state_dir: Path, partitioner_of: PartitionerOf) -> None:
        self._partitioner_of = partitioner_of
        self._created = CreatedInstances(state_dir)

    @property
    def has_created(self) -> bool:
        """Whether any instance is on record."""
        return bool(self._created.every())

    def may_change(self, node: str) -> bool:
        """Whether the GPUs of a node may be partitioned."""
        return self._partitioner_of(node) is not None

    def concerns(self, order: StartGang) -> bool:
        """Whether anything may have to be done for an order."""
        nodes = {node for node, _ in parts_of(order)} | {change.node for change in order.changes}
        return any(map(self.may_change, sorted(nodes)))

    def prepare(self, order: StartGang, held: Collection[NodePart]) -> dict[NodePart, str]:
        """Carry out what an order needs; the UUIDs of its instances. held: what other gangs have, which stays.

        Raises PartitionError, Unreachable and OSError after taking back what was done.
        """
        try:
            for change in order.changes:
                if change.mode is False and self.may_change(change.node):
                    self._gpu(change.node, change.gpu, held).leave_mig_mode()
            own = frozenset(parts_of(order))
            return {
                (node, part): self._gpu(node, part.gpu, {*held, *own}).provide(
                    part, _destroyed_by(order, node, part.gpu)
                )
                for node, part in parts_of(order)
                if self.may_change(node)
            }
        except (GantreeError, OSError):
            self.undo(order, held)
            raise

    def tidy(self, held: Collection[NodePart]) -> None:
        """After a restart: forget instances that are gone, destroy unfinished ones. Whole ones stay for reuse.

        Raises as `prepare`.
        """
        for node, part in self._created.every():
            if self.may_change(node) and (node, part) not in held:
                self._gpu(node, part.gpu, held).tidy(part)

    def undo(self, order: StartGang, held: Collection[NodePart]) -> None:
        """Take back the changes of an order, as far as the hardware allows."""
        for change in order.changes:
            if self.may_change(change.node):
                self._gpu(change.node, change.gpu, held).undo(change)

    def _gpu(self, node: str, gpu: int, held: Collection[NodePart]) -> Gpu:
        partitioner = self._partitioner_of(node)
        assert partitioner is not None
        return Gpu(partitioner, self._created, node, gpu, held)


def _destroyed_by(order: StartGang, node: str, gpu: int) -> tuple[MigPart, ...]:
    of_gpu = (each for each in order.changes if (each.node, each.gpu) == (node, gpu))
    return tuple(part for change in of_gpu for part in change.destroy)
