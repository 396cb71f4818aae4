"""Amounts that a job requests and that a placed gang holds, in the resources of quotas and shares.

A part of a GPU counts as that part: a share as its compute, a MIG instance as its compute slices over those of the GPU
(3g.40gb of an H100: 3/7, cpx of an MI300X: 1/8), whether a job asks for a profile or for devices that are instances, as
pods of Kubernetes do ("nvidia.com/mig-3g.40gb", "amd.com/cpx_nps4"). "gpus" counts GPUs of any model; "gpus/MODEL" only
those of which the model is certain, so what a job asks for may lack what its place then holds: ask the quota again with
what is held.

Quotas and shares must come out the same in whatever order jobs came and went, so they count in whole `ticks`, not in
floats. A tick is the 42,000,000th part of one: thirds, sevenths, and decimals of six places come out even.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from gantree.model.jobs import Job, Role, Shape
from gantree.model.placements import MemberPlacement
from gantree.policy.rules import Amounts
from gantree.topology.hardware.gpu_models import gpu_model
from gantree.topology.hardware.mig import TABLES, mig_table

TICKS = 42_000_000
"""Ticks in one GPU, CPU, GiB, NIC or device."""
MEMBERS_KEPT = 4096
"""Kinds of members of which what they hold is remembered."""
MIG_DEVICE = "nvidia.com/mig-"
"""What the names of devices that are MIG instances begin with; their profile follows."""
PARTITION_DEVICE = re.compile(r"amd\.com/(dpx|tpx|qpx|cpx)_nps[1248]")
"""Names of devices that are partitions of AMD's GPUs, by their mode and that of the memory."""
WHOLE, SHARE = "", "share"
"""The device of whole GPUs, and of shares of a GPU, in accounts; that of an instance of MIG is its profile."""
MODEL = "gpus/"
"""What the resources that are GPUs of one model begin with."""


def ticks(amount: float) -> int:
    """Return an amount in whole ticks."""
    return round(amount * TICKS)


def requested(job: Job) -> Amounts:
    """Return the request of the whole gang of a job, without resources of amount 0."""
    amounts: dict[str, float] = {}
    for role in job.roles:
        for resource, amount in requested_by_member(role).items():
            amounts[resource] = amounts.get(resource, 0.0) + role.members * amount
    return amounts


def requested_by_member(role: Role) -> Amounts:
    """Return the request of one member of a role."""
    shape = role.shape
    gpus = _requested_gpus(shape)
    if shape.devices:
        gpus += max(_mig_devices(shape.devices, model) for model in shape.models or (None,))
    amounts = {
        "gpus": gpus,
        "cpus": shape.cpus,
        "memory_GiB": shape.memory_GiB,
        "nics": float(shape.nics),
        **{f"devices/{name}": float(count) for name, count in shape.devices},
    }
    if len(shape.models) == 1:
        amounts[MODEL + shape.models[0]] = gpus
    return {resource: amount for resource, amount in amounts.items() if amount}


def held(members: Sequence[MemberPlacement], model_of_node: Callable[[str], str | None]) -> Amounts:
    """Return what placed members hold; model_of_node gives the GPU model of a node, None for one without."""
    if len(members) == 1 and not members[0].mig and members[0].share is None:
        (one,) = members
        model, counts = model_of_node(one.node), (len(one.gpus), len(one.nics))
        return _held_by_one(model, *counts, one.cpus, one.memory_GiB, one.devices)
    amounts: dict[str, float] = {}
    for member in members:
        model = model_of_node(member.node)
        gpus = _gpus_held(member, model)
        _add(amounts, "gpus", gpus)
        if model is not None:
            _add(amounts, MODEL + model, gpus)
        _add(amounts, "cpus", member.cpus)
        _add(amounts, "memory_GiB", member.memory_GiB)
        _add(amounts, "nics", len(member.nics))
        for name, count in member.devices:
            _add(amounts, f"devices/{name}", count)
    return amounts


@lru_cache(MEMBERS_KEPT)
def _held_by_one(
    model: str | None,
    gpus: int,
    nics: int,
    cpus: float,
    memory_GiB: float,
    devices: tuple[tuple[str, int], ...],
) -> Amounts:
    """What one member with whole GPUs holds: hundreds of a kind come together."""
    amounts: dict[str, float] = {}
    whole_and_parts = gpus + _mig_devices(devices, model)
    _add(amounts, "gpus", whole_and_parts)
    if model is not None:
        _add(amounts, MODEL + model, whole_and_parts)
    _add(amounts, "cpus", cpus)
    _add(amounts, "memory_GiB", memory_GiB)
    _add(amounts, "nics", nics)
    for name, count in devices:
        _add(amounts, f"devices/{name}", count)
    return amounts


def held_devices(
    members: Sequence[MemberPlacement], model_of_node: Callable[[str], str | None]
) -> tuple[tuple[str, str, float], ...]:
    """Return (GPU model, device, GPUs) of what placed members hold; as GPUs they come to what `held` says.

    model is "" where it is unknown. device is WHOLE, the profile of MIG instances, or SHARE.
    """
    amounts: dict[tuple[str, str], float] = {}
    for member in members:
        model = model_of_node(member.node)
        for device, gpus in _devices_held(member, model):
            key = model or "", device
            amounts[key] = amounts.get(key, 0.0) + gpus
    return tuple((*key, gpus) for key, gpus in amounts.items() if gpus)


def _devices_held(member: MemberPlacement, model: str | None) -> Iterator[tuple[str, float]]:
    if member.gpus:
        yield WHOLE, float(len(member.gpus))
    for part in member.mig:
        yield part.profile, mig_part(part.profile, model)
    for name, count in member.devices:
        if profile := profile_of_device(name):
            yield profile, _mig_devices(((name, count),), model)
    if member.share is not None:
        yield SHARE, member.share.compute


def held_hosts(
    members: Sequence[MemberPlacement], model_of_node: Callable[[str], str | None]
) -> tuple[tuple[str, float, float], ...]:
    """Return (GPU model, cores, GiB of memory) of what placed members hold, by the model of their nodes' GPUs.

    model is "" where it is unknown, and of nodes without GPUs.
    """
    amounts: dict[str, tuple[float, float]] = {}
    for member in members:
        model = model_of_node(member.node) or ""
        cpus, memory_GiB = amounts.get(model, (0.0, 0.0))
        amounts[model] = cpus + member.cpus, memory_GiB + member.memory_GiB
    return tuple((model, *held) for model, held in amounts.items() if any(held))


def weighted_gpus(amounts: Amounts, gpu_weights: Mapping[str, float]) -> float:
    """Return the GPUs of amounts, each model's times its weight (1 where it has none); unknown models weigh 1."""
    of_models = weighted = 0.0
    for resource, amount in amounts.items():
        if resource.startswith(MODEL):
            of_models += amount
            weighted += amount * gpu_weights.get(resource[len(MODEL) :], 1.0)
    return weighted + max(0.0, amounts.get("gpus", 0.0) - of_models)


def _add(amounts: dict[str, float], resource: str, amount: float) -> None:
    if amount:
        amounts[resource] = amounts.get(resource, 0.0) + amount


def _requested_gpus(shape: Shape) -> float:
    """GPUs of one member; where the models it admits differ in what a part is, the largest part."""
    if shape.mig is not None:
        return max(mig_part(shape.mig, model) for model in shape.models or (None,))
    if shape.gpu_share is not None:
        return shape.gpu_share
    if shape.gpu_memory_GiB is not None:
        return max(_memory_part(shape.gpu_memory_GiB, model) for model in shape.models or (None,))
    return float(shape.gpus)


def _gpus_held(member: MemberPlacement, model: str | None) -> float:
    parts = sum(mig_part(part.profile, model) for part in member.mig)
    parts += _mig_devices(member.devices, model)
    return len(member.gpus) + parts + (member.share.compute if member.share else 0.0)


def _memory_part(memory_GiB: float, model: str | None) -> float:
    """How much of a GPU so much of its memory is; the whole of one whose memory is not known."""
    known = gpu_model(model)
    return min(1.0, memory_GiB / known.memory_GiB) if known and known.memory_GiB else 1.0


@lru_cache(MEMBERS_KEPT)
def _mig_devices(devices: tuple[tuple[str, int], ...], model: str | None) -> float:
    """GPUs that the MIG instances and partitions among devices are parts of."""
    profiles = ((profile_of_device(name), count) for name, count in devices)
    return sum(count * mig_part(profile, model) for profile, count in profiles if profile)


def profile_of_device(name: str) -> str | None:
    """The profile of a device that is an instance, or in whose mode its GPU is; None for other devices.

    A resource's name cannot have the + of "+me".
    """
    if name.startswith(MIG_DEVICE):
        return name.removeprefix(MIG_DEVICE).replace(".me", "+me")
    found = PARTITION_DEVICE.fullmatch(name)
    return found and found[1]


def mig_part(profile: str, model: str | None) -> float:
    """Compute slices of a profile over those of its GPU; without a model, the largest part of any GPU that has it."""
    table = mig_table(model)
    tables = (table,) if table else tuple(TABLES.values())
    parts = [
        each.compute_slices / table.compute_slices
        for table in tables
        for each in table.profiles
        if each.name == profile
    ]
    return max(parts, default=1.0)
