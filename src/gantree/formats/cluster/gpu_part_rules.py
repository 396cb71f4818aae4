"""Rules on GPUs in MIG mode and shared GPUs, and on allocations of them, in a cluster file.

Like `rules`, a rule looks only at what could be read, and names the line of what breaks it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gantree.formats.cluster.form import (
    AllocationForm,
    ClusterForm,
    InstanceForm,
    MigForm,
    NodeForm,
    SharePartForm,
)
from gantree.model.cluster import Machine
from gantree.model.errors import Problem
from gantree.text.words import did_you_mean
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.mig import MigInstance, MigTable, mig_table

ROUNDING = 1e-9
"""Shares such as 0.1 add up to a little more than they should."""


def part_problems(
    form: ClusterForm, names: Sequence[Sequence[str]], machines: Mapping[str, Machine]
) -> Iterator[Problem]:
    """Yield what is wrong with MIG on nodes, and with allocations of instances, shares and other devices."""
    node_of_name: dict[str, NodeForm] = {}
    for node, own in zip(form.nodes, names, strict=True):
        machine = machines.get(node.machine)
        if node.mig is not None and machine is not None:
            yield from _mig_problems(node, node.mig, machine)
        node_of_name.update(dict.fromkeys(own, node))
    used = UsedGpus(_UsedGpu)
    devices: dict[tuple[str, str], int] = {}
    for allocation in form.allocations:
        node_form = node_of_name.get(allocation.node)
        machine = machines.get(node_form.machine) if node_form else None
        if node_form is not None and machine is not None:
            yield from _held_part_problems(allocation, node_form, machine, used)
            yield from _device_problems(allocation, machine, devices)


def mig_gpus(mig: MigForm) -> list[int]:
    """GPUs in MIG mode, as written; left out, those that have instances."""
    if mig.gpus is not None:
        return mig.gpus
    return list(dict.fromkeys(instance.gpu for instance in mig.instances))


# ----- MIG on nodes


def _mig_problems(node: NodeForm, mig: MigForm, machine: Machine) -> Iterator[Problem]:
    gpus = mig_gpus(mig)
    table = mig_table(machine.gpu)
    if table is None:
        if gpus:
            found = f"MIG on GPUs of {machine.name} ({machine.gpu or 'of no model'})"
            yield node.problem("mig", found, "a machine whose `gpu` is a model with MIG")
        return
    for place, gpu in enumerate(mig.gpus or ()):
        if gpu >= machine.gpus:
            yield mig.problem("gpus", f"GPU `{gpu}`", _gpu_range(machine), at=(place,))
        elif gpu in gpus[:place]:
            yield mig.problem("gpus", f"GPU `{gpu}` again", "each GPU once", at=(place,))
    taken: dict[int, list[MigInstance]] = {}
    for instance in mig.instances:
        if instance.gpu >= machine.gpus:
            yield instance.problem("gpu", f"GPU `{instance.gpu}`", _gpu_range(machine))
        elif instance.gpu not in gpus and not mig.any_lost("gpus"):
            allowed = f"GPUs that mig.gpus puts into MIG mode ({', '.join(map(str, gpus))})"
            yield instance.problem("gpu", f"GPU `{instance.gpu}`", allowed)
        else:
            yield from _instance_problems(instance, table, taken.setdefault(instance.gpu, []))


def _instance_problems(
    instance: InstanceForm, table: MigTable, taken: list[MigInstance]
) -> Iterator[Problem]:
    """An instance has a profile and a place of its GPU model, and fits beside those written before it."""
    profiles = [profile.name for profile in table.profiles]
    name, start = instance.profile, instance.start
    if name not in profiles:
        allowed = f"a profile of {table.name} ({', '.join(profiles)})"
        yield instance.problem("profile", f"`{name}`", allowed, did_you_mean(name, profiles))
        return
    starts = table.placements(name)
    if start not in starts:
        allowed = f"where {name} may start on {table.name}: {', '.join(map(str, starts))}"
        yield instance.problem("start", f"`{start}`", allowed)
        return
    if start in table.fits(taken, name):
        taken.append(MigInstance(name, start))
        return
    others = ", ".join(f"{each.profile} at {each.start}" for each in taken)
    found = f"{name} at {start} beside {others}"
    yield instance.problem("start", found, f"instances that fit together on {table.name}")


def _gpu_range(machine: Machine) -> str:
    return f"GPUs 0 to {machine.gpus - 1} ({machine.name})" if machine.gpus else "no GPU"


# ----- what jobs hold


@dataclass(slots=True)
class _UsedGpu:
    """What the allocations read so far hold of one GPU."""

    whole: bool = False
    instances: set[tuple[str, int]] = field(default_factory=set)
    shares: list[SharePartForm] = field(default_factory=list)


UsedGpus = defaultdict[tuple[str, int], _UsedGpu]
"""By node and GPU."""


def _held_part_problems(
    allocation: AllocationForm, node: NodeForm, machine: Machine, used: UsedGpus
) -> Iterator[Problem]:
    in_mig_mode = mig_gpus(node.mig) if node.mig else []
    yield from _whole_problems(allocation, in_mig_mode, used)
    yield from _held_instance_problems(allocation, node, mig_table(machine.gpu), used)
    for share in allocation.shares:
        use = used[allocation.node, share.gpu]
        if share.gpu >= machine.gpus:
            yield share.problem("gpu", f"GPU `{share.gpu}`", _gpu_range(machine))
        elif share.gpu in in_mig_mode:
            yield share.problem("gpu", f"GPU `{share.gpu}`, which is in MIG mode", "other GPUs")
        else:
            use.shares.append(share)
            yield from _share_problems(share, use, node, machine)


def _whole_problems(
    allocation: AllocationForm, in_mig_mode: Sequence[int], used: UsedGpus
) -> Iterator[Problem]:
    """A whole GPU is not in MIG mode and has no shares."""
    for place, gpu in enumerate(allocation.gpus):
        use = used[allocation.node, gpu]
        if gpu in in_mig_mode:
            found = f"GPU `{gpu}`, which is in MIG mode"
            yield allocation.problem("gpus", found, "whole GPUs", at=(place,))
        elif use.shares:
            found = f"GPU `{gpu}`, of which shares are held"
            yield allocation.problem("gpus", found, "GPUs that nobody holds", at=(place,))
        use.whole = True


def _held_instance_problems(
    allocation: AllocationForm, node: NodeForm, table: MigTable | None, used: UsedGpus
) -> Iterator[Problem]:
    """An instance that is held is there, and held once."""
    instances = node.mig.instances if node.mig else []
    existing = {(each.gpu, each.profile, each.start) for each in instances}
    if table is not None and table.uniform:
        modes = {(each.gpu, each.profile) for each in instances}
        existing = {(*each, start) for each in modes for start in _starts(table, each[1])}
    for part in allocation.mig:
        held, own = used[allocation.node, part.gpu].instances, (part.profile, part.start)
        if (part.gpu, *own) not in existing:
            if not node.any_lost("mig"):
                yield _unknown_instance(part, allocation.node, instances)
        elif own in held:
            found = f"{part.profile} at {part.start} of GPU {part.gpu} again"
            yield part.problem("start", found, "each instance once")
        held.add(own)


def _starts(table: MigTable, profile: str) -> tuple[int, ...]:
    """Where instances of a profile are in a GPU that is in its mode; nowhere for a profile that it has not."""
    return next((each.starts for each in table.profiles if each.name == profile), ())


def _unknown_instance(part: InstanceForm, node: str, instances: Sequence[InstanceForm]) -> Problem:
    known = [f"{each.profile} at {each.start} of GPU {each.gpu}" for each in instances]
    found = f"{part.profile} at {part.start} of GPU {part.gpu}"
    allowed = f"an instance that nodes[].mig names on {node} ({', '.join(known) or 'none'})"
    return part.problem("profile", found, allowed)


def _share_problems(
    share: SharePartForm, use: _UsedGpu, node: NodeForm, machine: Machine
) -> Iterator[Problem]:
    """use holds this share already, as the last one."""
    if use.whole:
        yield share.problem("gpu", f"GPU `{share.gpu}`, which is held as a whole", "other GPUs")
    if share.isolation not in node.share.modes and not node.any_lost("share"):
        allowed = f"how the GPUs of its node are shared ({', '.join(node.share.modes) or 'none'})"
        yield share.problem("isolation", f"`{share.isolation}`", allowed)
    first = use.shares[0]
    if share.isolation != first.isolation:
        found = f"`{share.isolation}` on GPU {share.gpu}"
        allowed = f"`{first.isolation}`, as the other shares of it"
        yield share.problem("isolation", found, allowed)
    compute = sum(each.compute for each in use.shares)
    if compute > 1 + ROUNDING:
        yield share.problem("compute", f"{compute:g} in all of GPU {share.gpu}", "at most 1")
    model = gpu_model(machine.gpu)
    capacity = model.memory_GiB if model else None
    memory = sum(each.memory_GiB for each in use.shares)
    if capacity is not None and memory > capacity + ROUNDING:
        found = f"{memory:g} in all of GPU {share.gpu}"
        yield share.problem("memory_GiB", found, f"at most {capacity:g} ({machine.gpu})")
    tenants = node.share.tenants
    if tenants is not None and len(use.shares) > tenants:
        found = f"{len(use.shares)} shares of GPU {share.gpu}"
        yield share.problem("gpu", found, f"at most {tenants}, the tenants of its node")
    if len(use.shares) > 1 and any(each.alone for each in use.shares):
        found = f"GPU `{share.gpu}` with {len(use.shares)} shares, one of them alone"
        yield share.problem("gpu", found, "no other share beside one that is alone")


def _device_problems(
    allocation: AllocationForm, machine: Machine, held: dict[tuple[str, str], int]
) -> Iterator[Problem]:
    """Add up what a node gives away, and complain where it becomes more than the node has."""
    capacity = dict(machine.devices)
    for name, count in allocation.devices.items():
        if name not in capacity:
            allowed = f"devices of {machine.name} ({', '.join(capacity) or 'none'})"
            hint = did_you_mean(name, capacity)
            yield allocation.problem("devices", f"`{name}`", allowed, hint, at=(name,))
            continue
        key = (allocation.node, name)
        held[key] = held.get(key, 0) + count
        if held[key] > capacity[name]:
            found = f"{held[key]} in all on {allocation.node}"
            allowed = f"at most {capacity[name]} ({machine.name})"
            yield allocation.problem("devices", found, allowed, at=(name,))
