"""What the GPUs of a node are cut into, and which parts of them are held: MIG instances and shares.

A GPU is in one of these states. A state is a value: taking a part gives another state, so states can be shared between
copies of an occupancy and asked for as keys.

    plain           nobody holds anything; MIG mode is off
    whole           one member holds all of it
    MIG mode on     cut into instances, each held by one member or idle
    shared          tenants hold shares of it, all shared in one way (in turns, or side by side under MPS)

Holding an instance that is not there makes it, and destroys idle instances that are in its way: those whose memory
slices it needs first, then, where compute slices or media engines do not suffice, others, from the last memory slice
backwards. A held instance is never destroyed. Giving an instance back leaves it idle. Who may cut is `Node.mig_by`:
"gpu" cuts each GPU alone, and switches MIG mode on or off on a GPU of which nothing is held; "node" is a manager that
needs the whole node empty of all holders for any of it; "nobody" leaves instances and modes as they are.

The remainder of a GPU can be kept for an owner who is to have it, or more of it, when the holders of its parts leave
(`NodeState.remainder_of`): all compute that no tenant holds, or memory slices of a GPU in MIG mode, as instances that
are held but never made. A search finds no room there; a place found earlier, and a returning holder, is not refused for
compute that is kept, so the order in which these are counted does not matter.

Nothing is cut or switched for room that is only held for a waiting gang: the state says how the GPU would be, and
`GpuState.cut` how it is really cut, which shows again when the room is released.

Here are states and their transitions. Who holds what is in `occupancy`; which part a member gets, and what cutting
costs, is decided in `placement`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gantree.model.cluster import Machine, Mig, Node
from gantree.model.errors import BadInput
from gantree.model.placements import MemberPlacement, MigPart, SharePart
from gantree.text.words import plural
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.mig import TABLES, MigInstance, MigTable, mig_table

MILLIONTHS = 1_000_000
"""Compute of a GPU is counted in millionths of it, so that taking and giving back never drifts."""

REMAINDER = "the rest"
"""Isolation of a share, and profile of an instance of one memory slice, that are kept; role of the member that keeps
them."""


@dataclass(frozen=True, slots=True, order=True)
class Instance:
    """A MIG instance: the memory slice at which it starts, its profile, whether a member holds it."""

    start: int
    profile: str
    held: bool = False


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU: whole (one member holds all of it), or in MIG mode with instances (by start), or shared by tenants.

    kept is compute, in millionths, that is kept beside tenants. cut is how it really is cut, all instances as if idle,
    where room held for those to come stands otherwise; None: as it stands. Holders have no names here, so that GPUs in
    like states are equal.
    """

    whole: bool = False
    mig: bool = False
    instances: tuple[Instance, ...] = ()
    tenants: tuple[SharePart, ...] = ()
    kept: int = 0
    cut: "GpuState | None" = None

    @property
    def really(self) -> "GpuState":
        """How it is cut, whoever holds what: MIG mode and instances, all as if idle."""
        idle = tuple(replace(one, held=False) for one in self.instances)
        return self.cut or GpuState(mig=self.mig, instances=idle)

    @property
    def held(self) -> bool:
        """Whether anything of it is held or kept."""
        if self.whole or self.tenants or self.kept > 0:
            return True
        return bool(self.instances) and any(one.held for one in self.instances)

    @property
    def held_instances(self) -> tuple[MigInstance, ...]:
        """The instances that members hold, by start."""
        return tuple(MigInstance(one.profile, one.start) for one in self.instances if one.held)


PLAIN = GpuState()
WHOLE = GpuState(whole=True)

GpuStates = tuple[GpuState, ...]
"""States of the GPUs of one node, by GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class PartRules:
    """What cutting and sharing the GPUs of a node obeys; one object for all nodes alike, so identity compares them.

    table is None for GPUs without MIG, memory_GiB that of one GPU (None: not known, then not counted). mig_by, shares
    and tenants are as in `model.cluster.Node`.
    """

    gpu: str | None
    table: MigTable | None
    memory_GiB: float | None
    mig_by: str
    shares: tuple[str, ...]
    tenants: int | None


def rules_of(machine: Machine, node: Node) -> PartRules:
    """The rules of a node; the same object for nodes alike."""
    return _rules(machine.gpu, node.mig_by, node.shares, node.tenants)


@lru_cache(maxsize=1024)
def _rules(gpu: str | None, mig_by: str, shares: tuple[str, ...], tenants: int | None) -> PartRules:
    model = gpu_model(gpu)
    return PartRules(
        gpu, mig_table(gpu), model.memory_GiB if model else None, mig_by, shares, tenants
    )


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
        return replace(self, gpus=(*self.gpus[:gpu], state, *self.gpus[gpu + 1 :]))

    def take_whole(self, gpus: Sequence[int]) -> "NodeState":
        """With these GPUs held whole; they must be in `free_mask`. MIG mode is switched off where it was on."""
        states = list(self.gpus)
        for gpu in gpus:
            states[gpu] = WHOLE
        return replace(self, gpus=tuple(states))

    def take_instance(self, part: MigPart) -> "NodeState":
        """With one MIG instance held. AssertionError where `why_not_instance` has words."""
        problem = self.why_not_instance(part)
        assert not problem, problem
        state, profile = self.gpus[part.gpu], _profile_of(self.rules.table, part)
        kept = kept_instances(self.rules.table, state.instances, profile, part.start)
        assert kept is not None
        instances = tuple(sorted((*kept, Instance(part.start, profile, held=True))))
        cut = state.cut and _cut_for(self.rules.table, state, Instance(part.start, profile))
        return self.with_gpu(part.gpu, replace(state, mig=True, instances=instances, cut=cut))

    def take_share(self, part: SharePart) -> "NodeState":
        """With one share held, MIG mode off. AssertionError where `why_not_share` has words."""
        problem = self.why_not_share(part)
        assert not problem, problem
        state = self.gpus[part.gpu]
        if part.isolation == REMAINDER:
            return self.with_gpu(part.gpu, replace(state, kept=state.kept + _millionths(part)))
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
        return part.isolation != REMAINDER and free_millionths(self.gpus[part.gpu]) < _millionths(
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
        if instance is not None:
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
        table, profile = self.rules.table, _profile_of(self.rules.table, part)
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
        if _left_by_tenants(state) < _millionths(part):
            yield f"{part.compute:g} of the compute of {gpu} are not free"
        free = free_share_KiB(rules, state)
        if free is not None and free < round(part.memory_GiB * (1 << 20)):
            yield f"{part.memory_GiB:g} GiB of the memory of {gpu} are not free"


_WHO_CUTS = {
    "node": "the node is cut only while nobody holds anything of it",
    "nobody": "nobody cuts the GPUs of this node",
}


def taken(state: NodeState, member: MemberPlacement) -> GpuStates:
    """States of a node after a member took its GPUs and parts, whoever cuts there. AssertionError if not free."""
    state = NodeState(state.rules, state.gpus, recut=True).take_whole(member.gpus)
    for part in member.mig:
        state = state.take_instance(part)
    return (state if member.share is None else state.take_share(member.share)).gpus


def given_back(state: NodeState, member: MemberPlacement) -> GpuStates:
    """States of a node after a member left. AssertionError where it did not hold what it says."""
    states = given_back_whole(state.gpus, member.gpus)
    for part in member.mig:
        states = given_back_instance(states, part)
    states = states if member.share is None else given_back_share(states, member.share)
    if any(states[gpu].cut for gpu in member.parts):
        table = state.rules.table
        states = tuple(
            as_cut(table, one) if n in member.parts else one for n, one in enumerate(states)
        )
    return states


def given_back_whole(states: GpuStates, gpus: Sequence[int]) -> GpuStates:
    """States after these GPUs, which were held whole, are free."""
    changed = list(states)
    for gpu in gpus:
        assert changed[gpu].whole, f"GPU {gpu} is not held whole"
        changed[gpu] = changed[gpu].cut or PLAIN
    return tuple(changed)


def given_back_instance(states: GpuStates, part: MigPart) -> GpuStates:
    """States after a held instance became idle, or is gone where it was kept only."""
    state = states[part.gpu]
    held = next((o for o in state.instances if o.start == part.start and o.held), None)
    assert held is not None and part.profile in (held.profile, REMAINDER), f"{part} is not held"
    after = () if part.profile == REMAINDER else (replace(held, held=False),)
    idle = tuple(sorted((*(one for one in state.instances if one is not held), *after)))
    return (
        *states[: part.gpu],
        replace(state, instances=idle),
        *states[part.gpu + 1 :],
    )


def given_back_share(states: GpuStates, part: SharePart) -> GpuStates:
    """States after a tenant left, or compute is no longer kept."""
    state = states[part.gpu]
    if part.isolation == REMAINDER:
        after = replace(state, kept=state.kept - _millionths(part))
        assert after.kept >= 0, f"{part} is not kept"
    else:
        tenants = list(state.tenants)
        assert part in tenants, f"{part} is not held"
        tenants.remove(part)
        after = replace(state, tenants=tuple(tenants))
    return (*states[: part.gpu], after, *states[part.gpu + 1 :])


# ----- how GPUs really are cut


def over(before: GpuStates, after: GpuStates) -> GpuStates:
    """The states after room was held for those to come: nothing is cut for it, and how it was cut is remembered."""
    return tuple(
        now if now is was else _beneath(now, was.really)
        for was, now in zip(before, after, strict=True)
    )


def as_cut(table: MigTable | None, state: GpuState) -> GpuState:
    """A GPU of which less is held than before: its idle instances are those that it has and that have room."""
    if state.cut is None or table is None or not state.held:
        return state.cut or state
    there, shared = [one for one in state.instances if one.held], state.tenants or state.kept
    for one in () if shared else state.cut.instances:
        beside = [MigInstance(other.profile, other.start) for other in there]
        if one.start in table.fits(beside, one.profile):
            there.append(one)
    mig = bool(there) or (state.cut.mig and not shared)
    return _beneath(replace(state, mig=mig, instances=tuple(sorted(there))), state.cut)


def _beneath(state: GpuState, cut: GpuState) -> GpuState:
    """A state of a GPU that really is cut so."""
    plain = replace(state, cut=None)
    return plain if plain.really == cut else replace(state, cut=cut)


def _cut_for(table: MigTable | None, state: GpuState, made: Instance) -> GpuState:
    """How a GPU is cut once an instance was really made beside what is held of it."""
    assert state.cut is not None
    there = tuple(
        replace(one, held=replace(one, held=True) in state.instances)
        for one in state.cut.instances
        if one != made
    )
    kept = kept_instances(table, there, made.profile, made.start)
    assert kept is not None, f"{made} has no room"
    idle = [replace(one, held=False) for one in kept]
    return GpuState(mig=True, instances=tuple(sorted((*idle, made))))


def kept_instances(
    table: MigTable | None, instances: tuple[Instance, ...], profile: str, start: int
) -> tuple[Instance, ...] | None:
    """The other instances of a GPU that stay when one of a profile is held at a start: the held, and what idle can.

    None where held ones leave no room. The instance itself, where it is there and idle, is not among them.
    """
    assert table is not None, "a GPU without MIG has no instances"
    return _kept(table.name, instances, profile, start)


@lru_cache(maxsize=1 << 16)
def _kept(
    table_name: str, instances: tuple[Instance, ...], profile: str, start: int
) -> tuple[Instance, ...] | None:
    table = TABLES[table_name]
    mine = table.slices(MigInstance(profile, start))
    kept = []
    for one in instances:
        slices = table.slices(MigInstance(one.profile, one.start))
        apart = slices.stop <= mine.start or mine.stop <= slices.start
        if apart:
            kept.append(one)
        elif one.held:
            return None
    while start not in table.fits([MigInstance(o.profile, o.start) for o in kept], profile):
        idle = [one for one in kept if not one.held]
        if not idle:
            return None
        kept.remove(idle[-1])
    return tuple(kept)


def free_millionths(state: GpuState) -> int:
    """Compute of a shared or plain GPU that no tenant holds and that is not kept, in millionths."""
    return max(0, _left_by_tenants(state) - state.kept)


def _left_by_tenants(state: GpuState) -> int:
    return MILLIONTHS - sum(map(_millionths, state.tenants))


def _millionths(part: SharePart) -> int:
    return round(part.compute * MILLIONTHS)


def _profile_of(table: MigTable | None, part: MigPart) -> str:
    """Profile of an instance; for a memory slice that is kept, one that takes as little else as any."""
    if part.profile != REMAINDER or table is None:
        return part.profile
    of_one_slice = [one for one in table.profiles if one.memory_slices == 1 and not one.extra]
    return min(of_one_slice, key=lambda one: one.media).name if of_one_slice else REMAINDER


def _slices_of(table: MigTable, one: Instance) -> range:
    return table.slices(MigInstance(one.profile, one.start))


def free_share_KiB(rules: PartRules, state: GpuState) -> int | None:
    """Memory of a shared or plain GPU that no tenant holds; None where it is not known how much there is."""
    if rules.memory_GiB is None:
        return None
    held = sum(round(tenant.memory_GiB * (1 << 20)) for tenant in state.tenants)
    return round(rules.memory_GiB * (1 << 20)) - held


def _order_of_tenants(part: SharePart) -> tuple[float, float, str, bool]:
    return part.compute, part.memory_GiB, part.isolation, part.alone


@lru_cache(maxsize=1 << 16)
def states_of_mask(gpus: int, free_mask: int) -> GpuStates:
    """States of a node of so many GPUs of which none is cut or shared: each is plain or whole."""
    return tuple(PLAIN if free_mask >> gpu & 1 else WHOLE for gpu in range(gpus))


def states_of_site(machine: Machine, node: Node) -> GpuStates | None:
    """States that the cluster file gives the GPUs of a node, all instances idle; None where no GPU is in MIG mode.

    Raises BadInput for GPUs that are not there or have no MIG, profiles that they have not, and instances that do not
    fit beside each other.
    """
    if not node.mig:
        return None
    states = [PLAIN] * machine.gpus
    for cut in node.mig:
        where = f"node {node.name}: mig: GPU {cut.gpu}"
        if not 0 <= cut.gpu < machine.gpus:
            raise BadInput(f"{where}: machine {machine.name} has {plural(machine.gpus, 'GPU')}")
        table = mig_table(machine.gpu)
        if table is None:
            raise BadInput(f"{where}: {machine.gpu or 'its GPU model'} has no MIG")
        try:
            states[cut.gpu] = GpuState(mig=True, instances=_idle(table, cut))
        except BadInput as problem:
            raise BadInput(f"{where}: {problem}") from problem
    return tuple(states)


def _idle(table: MigTable, cut: Mig) -> tuple[Instance, ...]:
    there: list[MigInstance] = []
    for profile, start in cut.instances:
        table.slices(MigInstance(profile, start))
        if start not in table.fits(there, profile):
            beside = ", ".join(f"{one.profile} at {one.start}" for one in there)
            raise BadInput(f"{profile} at {start} does not fit beside {beside}")
        there.append(MigInstance(profile, start))
    return tuple(sorted(Instance(one.start, one.profile) for one in there))
