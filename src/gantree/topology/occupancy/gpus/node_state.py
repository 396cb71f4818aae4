"""The GPUs of one node, assigned member by member: whole GPUs, MIG instances and shares.

The remainder of a GPU can be kept for an owner who is to have it, or more of it, when the holders of its parts leave
(`NodeState.remainder_of`): all compute that no tenant holds, or memory slices of a GPU in MIG mode, as instances that
are held but never made. A search finds no room there; a place found earlier, and a returning holder, is not refused for
compute that is kept, so the order in which these are counted does not matter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gantree.model.cluster import CUT_NOT_PERMITTED
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.model.values import quick
from gantree.topology.hardware.mig import MigInstance, MigTable
from gantree.topology.occupancy.gpus.gpu_state import (
    MILLIONTHS,
    PLAIN,
    REMAINDER,
    WHOLE,
    GpuState,
    GpuStates,
    Instance,
    PartRules,
    free_millionths,
    free_share_KiB,
    left_by_tenants,
    millionths_of,
)
from gantree.topology.occupancy.gpus.mig_cut import all_made, cut_for, kept_instances


@quick
@dataclass(frozen=True, slots=True)
class NodeState:
    """The GPUs of one node, to be handed out member by member; each step gives a new value.

    recut says whether instances and modes may be changed: always where each GPU is cut alone, never where nobody cuts,
    and where a manager cuts whole nodes as long as nobody held anything there at the beginning.
    """

    rules: PartRules
    gpus: GpuStates
    recut: bool

    def free_mask(self) -> int:
        """GPUs that one member could have whole now: nothing of them is held, MIG mode is off or may be switched."""
        mask = 0
        for gpu, state in enumerate(self.gpus):
            if state is PLAIN or (not state.held and (self.recut or not state.mig)):
                mask |= 1 << gpu
        return mask

    def for_shares(self) -> GpuStates:
        """The GPUs as who shares them finds them: out of MIG mode where nothing is held and it may be switched off."""
        if not self.recut or not any(one.mig for one in self.gpus):
            return self.gpus
        return tuple(PLAIN if one.mig and not one.held else one for one in self.gpus)

    def with_gpu(self, gpu: int, state: GpuState) -> "NodeState":
        """The same node with another state of one GPU."""
        gpus = (*self.gpus[:gpu], state, *self.gpus[gpu + 1 :])
        return NodeState(self.rules, gpus, self.recut)

    def take_whole(self, gpus: Sequence[int]) -> "NodeState":
        """With these GPUs held whole; they must be in `free_mask`. MIG mode is switched off where it was on."""
        states = list(self.gpus)
        for gpu in gpus:
            states[gpu] = WHOLE
        return NodeState(self.rules, tuple(states), self.recut)

    def take_instance(self, part: MigPart) -> "NodeState":
        """With one MIG instance held. AssertionError where `why_not_instance` has words."""
        problem = self.why_not_instance(part)
        assert not problem, problem
        state, profile = self.gpus[part.gpu], profile_of_part(self.rules.table, part)
        kept = kept_instances(self.rules.table, state.instances, profile, part.start)
        assert kept is not None
        held = Instance(part.start, profile, held=True)
        instances = all_made(self.rules.table, (*kept, held))
        cut = state.cut and cut_for(self.rules.table, state, Instance(part.start, profile))
        return self.with_gpu(part.gpu, replace(state, mig=True, instances=instances, cut=cut))

    def take_share(self, part: SharePart) -> "NodeState":
        """With one share held, MIG mode off. AssertionError where `why_not_share` has words."""
        problem = self.why_not_share(part)
        assert not problem, problem
        state = self.gpus[part.gpu]
        if part.isolation == REMAINDER:
            return self.with_gpu(part.gpu, replace(state, kept=state.kept + millionths_of(part)))
        state = self.for_shares()[part.gpu]
        tenants = tuple(sorted((*state.tenants, part), key=_order_of_tenants))
        return self.with_gpu(part.gpu, replace(state, tenants=tenants, cut=None))

    def why_not_instance(self, part: MigPart) -> str:
        """Why this MIG instance cannot be held now, in words; empty where it can."""
        return next(self._against_instance(part), "")

    def why_not_share(self, part: SharePart) -> str:
        """Why this share cannot be held now, in words; empty where it can."""
        return next(self._against_share(part), "")

    def may_be_kept_from(self, part: SharePart) -> bool:
        """Whether compute that is kept leaves too little for a share."""
        return part.isolation != REMAINDER and free_millionths(self.gpus[part.gpu]) < millionths_of(
            part
        )

    def remainder_of(
        self, gpu: int, instance: MigPart | None
    ) -> tuple[SharePart | None, tuple[MigPart, ...]]:
        """What is to be kept of a GPU for one who lacks all of it, or a share, or else this instance."""
        state, table = self.gpus[gpu], self.rules.table
        if state.whole:
            return None, ()
        if not state.mig or table is None:
            free = free_millionths(state)
            return (SharePart(gpu, free / MILLIONTHS, 0.0, REMAINDER) if free else None), ()
        wanted = range(table.memory_slices)
        modes = {one.profile for one in state.instances} if table.uniform else set()
        if instance is not None and modes <= {instance.profile}:
            wanted = table.slices(MigInstance(instance.profile, instance.start))
        return None, tuple(self._rest_of_slices(table, gpu, wanted))

    def _rest_of_slices(self, table: MigTable, gpu: int, wanted: range) -> Iterator[MigPart]:
        """The idle instances on some memory slices, and, where GPUs are cut, one for each slice without any."""
        after, there = self, [_slices_of(table, one) for one in self.gpus[gpu].instances]
        for one, slices in zip(self.gpus[gpu].instances, there, strict=True):
            if not one.held and slices.start < wanted.stop and wanted.start < slices.stop:
                after = after.take_instance(MigPart(gpu, one.profile, one.start))
                yield MigPart(gpu, one.profile, one.start)
        for start in wanted if self.recut else ():
            part = MigPart(gpu, REMAINDER, start)
            if not any(start in slices for slices in there) and not after.why_not_instance(part):
                after = after.take_instance(part)
                yield part

    def _against_gpu(self, gpu: int) -> Iterator[str]:
        if not 0 <= gpu < len(self.gpus):
            yield f"there is no GPU {gpu}"
        if self.gpus[gpu].whole:
            yield f"GPU {gpu} is held whole"

    def _against_instance(self, part: MigPart) -> Iterator[str]:
        yield from self._against_gpu(part.gpu)
        state, name = self.gpus[part.gpu], f"instance {part.profile} at {part.start}"
        table, profile = self.rules.table, profile_of_part(self.rules.table, part)
        cuts = self.recut or part.profile == REMAINDER
        if table is None:
            yield f"GPU {part.gpu} ({self.rules.gpu}) has no MIG"
        elif profile not in {profile.name for profile in table.profiles}:
            yield f"{table.name} has no MIG profile {part.profile}"
        elif part.start not in table.placements(profile):
            yield f"{name} of GPU {part.gpu}: it cannot start there"
        elif state.tenants:
            yield f"GPU {part.gpu} is shared"
        elif kept_instances(table, state.instances, profile, part.start) is None:
            yield f"{name} of GPU {part.gpu} is not free"
        elif not cuts and Instance(part.start, profile) not in state.instances:
            yield f"{name} of GPU {part.gpu} is not there, and {_WHO_CUTS[self.rules.mig_by]}"

    def _against_share(self, part: SharePart) -> Iterator[str]:
        yield from self._against_gpu(part.gpu)
        if part.isolation == REMAINDER:
            return
        state, rules, gpu = self.for_shares()[part.gpu], self.rules, f"GPU {part.gpu}"
        if state.mig:
            yield f"{gpu} is in MIG mode"
        if part.isolation not in rules.shares:
            yield f"{gpu} is not to be shared by {part.isolation}"
        if any(tenant.isolation != part.isolation for tenant in state.tenants):
            yield f"{gpu} is shared by {state.tenants[0].isolation}"
        if state.tenants and (part.alone or any(tenant.alone for tenant in state.tenants)):
            yield f"{gpu} must be held alone"
        if rules.tenants is not None and len(state.tenants) >= rules.tenants:
            yield f"{gpu} has {len(state.tenants)} tenants, as many as it may have"
        if left_by_tenants(state) < millionths_of(part):
            yield f"{part.compute:g} of the compute of {gpu} are not free"
        free = free_share_KiB(rules, state)
        if free is not None and free < round(part.memory_GiB * (1 << 20)):
            yield f"{part.memory_GiB:g} GiB of the memory of {gpu} are not free"


_WHO_CUTS = {
    "node": "the node is cut only while nobody holds anything of it",
    "nobody": "nobody cuts the GPUs of this node",
    CUT_NOT_PERMITTED: "this daemon may not partition GPUs (gantree up --partition-gpus)",
}


def taken(state: NodeState, member: MemberPlacement) -> GpuStates:
    """States of a node after a member took its GPUs and parts, whoever cuts there. AssertionError if not free."""
    state = NodeState(state.rules, state.gpus, recut=True).take_whole(member.gpus)
    for part in member.mig:
        state = state.take_instance(part)
    return (state if member.share is None else state.take_share(member.share)).gpus


def profile_of_part(table: MigTable | None, part: MigPart) -> str:
    """Profile of an instance; for a memory slice that is kept, one that takes as little else as any."""
    if part.profile != REMAINDER or table is None:
        return part.profile
    of_one_slice = [one for one in table.profiles if one.memory_slices == 1 and not one.extra]
    return min(of_one_slice, key=lambda one: one.media).name if of_one_slice else REMAINDER


def _slices_of(table: MigTable, one: Instance) -> range:
    return table.slices(MigInstance(one.profile, one.start))


def _order_of_tenants(part: SharePart) -> tuple[float, float, str, bool]:
    return part.compute, part.memory_GiB, part.isolation, part.alone
