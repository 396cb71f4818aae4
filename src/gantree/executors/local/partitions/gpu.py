"""One GPU while it is partitioned: what a gang needs of it is compared with what it has; the difference is carried out.

So doing it twice is doing it once, and it does not matter how far an earlier daemon had come. Only instances that
gantree created are ever destroyed: when an order says so, and where one is in the way and no gang has it.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from gantree.executors.local.partitions.created_instances import CreatedInstances, NodePart
from gantree.model.errors import GantreeError
from gantree.model.gpu_partitions import GpuPartitioner, PartitionError, PartitionFault
from gantree.model.placements import GpuChange, MigPart

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU while it is partitioned. held are instances that must stay, with all that are made together with them."""

    partitioner: GpuPartitioner
    created: CreatedInstances
    node: str
    gpu: int
    held: Collection[NodePart]

    def provide(self, part: MigPart, destroy: Sequence[MigPart]) -> str:
        """UUID of an instance, which is created unless it is there, after those to destroy are gone."""
        uuid = self.partitioner.instances(self.gpu).get(part)
        if uuid:
            self._note_made(part)
            return uuid
        if not self.partitioner.mig_mode(self.gpu)[0]:
            self.partitioner.set_mig_mode(self.gpu, on=True)
        for each in destroy:
            self._give_way(each)
        if uuid is None:
            self._note_begun(part)
        return self._create(part)

    def leave_mig_mode(self) -> None:
        """Switch MIG mode off, once no instance is left."""
        if not any(self.partitioner.mig_mode(self.gpu)):
            return
        for part in self.created.on(self.node, self.gpu):
            self._give_way(part)
        if left := self._not_to_destroy():
            raise PartitionError(
                PartitionFault.IN_USE,
                f"GPU {self.gpu} of node {self.node} must leave MIG mode, and gantree destroys only instances that it "
                f"created and that no job has, not {left}: {self.partitioner.by_hand(self.gpu)}",
            )
        self.partitioner.set_mig_mode(self.gpu, on=False)

    def tidy(self, part: MigPart) -> None:
        """Forget an instance that is gone, destroy an unfinished one."""
        uuid = self.partitioner.instances(self.gpu).get(part)
        if uuid is None or not self.created.has(self.node, part, uuid):
            self.created.remove(self.node, part)
        elif uuid:
            self.created.note(self.node, part, uuid)
        else:
            self._give_way(part)

    def undo(self, change: GpuChange) -> None:
        """Take back one change. What the hardware refuses is met again when the next gang needs the GPU."""
        for part in change.create:
            _attempt(partial(self._give_way, part))
        if change.mode is not None and not (change.mode and self._has_instances()):
            _attempt(partial(self.partitioner.set_mig_mode, self.gpu, on=not change.mode))
        for part in change.destroy:
            _attempt(partial(self._create_again, part))

    def _create(self, part: MigPart) -> str:
        """Create an instance; idle ones that leave it no room are destroyed one by one, oldest first."""
        idle = [one for one in self.created.on(self.node, self.gpu) if one != part]
        while True:
            try:
                uuid = self.partitioner.create(self.gpu, part.profile, part.start)
            except PartitionError as error:
                no_room = error.fault is PartitionFault.INSUFFICIENT_RESOURCES
                if no_room and any(self._give_way(idle.pop(0)) for _ in range(len(idle))):
                    continue
                self._forget_if_gone(part)
                raise self._explained(error) from error
            self._note_made(part)
            return uuid

    def _create_again(self, part: MigPart) -> None:
        if part not in self.partitioner.instances(self.gpu):
            self._note_begun(part)
            self._create(part)

    def _note_begun(self, part: MigPart) -> None:
        """What is made with an instance is on record before."""
        for each in self.partitioner.made_with(part):
            self.created.note(self.node, each, "")

    def _note_made(self, part: MigPart) -> None:
        """Note the UUIDs of what was made with an instance, if it is on record as about to be."""
        there = self.partitioner.instances(self.gpu)
        for each in self.partitioner.made_with(part):
            if there.get(each) and self.created.has(self.node, each, there[each]):
                self.created.note(self.node, each, there[each])

    def _give_way(self, part: MigPart) -> bool:
        """Destroy an instance that gantree created and that no gang has; whether it did."""
        uuid = self.partitioner.instances(self.gpu).get(part)
        if uuid is None:
            self.created.remove(self.node, part)
            return False
        together = self.partitioner.made_with(part)
        is_held = any((self.node, each) in self.held for each in together)
        if is_held or not self.created.has(self.node, part, uuid):
            return False
        self.partitioner.destroy(self.gpu, part.profile, part.start)
        for each in together:
            self.created.remove(self.node, each)
        return True

    def _forget_if_gone(self, part: MigPart) -> None:
        there = self.partitioner.instances(self.gpu)
        for each in self.partitioner.made_with(part):
            if each not in there:
                self.created.remove(self.node, each)

    def _has_instances(self) -> bool:
        return bool(self.partitioner.instances(self.gpu))

    def _not_to_destroy(self) -> str:
        """The instances that gantree did not create, or that a gang has, in words."""
        there = self.partitioner.instances(self.gpu)
        return ", ".join(f"{part.profile} at slice {part.start}" for part in there)

    def _explained(self, error: PartitionError) -> PartitionError:
        """The same error, with the node and the instances that stay where there is no room."""
        stay = self._not_to_destroy()
        more = ""
        if error.fault is PartitionFault.INSUFFICIENT_RESOURCES and stay:
            more = f" {stay} must stay: gantree destroys only what it created and no job has."
        return PartitionError(error.fault, f"node {self.node}: {error}{more}")


def _attempt(step: Callable[[], object]) -> None:
    try:
        step()
    except (GantreeError, OSError):
        log.warning("a GPU could not be brought back to how it was", exc_info=True)
