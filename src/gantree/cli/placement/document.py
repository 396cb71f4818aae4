"""Placements as JSON: written as by `gantree place --json`, read, and checked against a cluster.

Lines for people are in `placement_lines`.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gantree.model.jobs import ISOLATIONS, Job
from gantree.model.placements import (
    GpuChange,
    MemberPlacement,
    MigPart,
    NumaPart,
    Placement,
    SharePart,
)
from gantree.text.records import Record, Report, json_records
from gantree.text.words import did_you_mean
from gantree.topology.fabric.fabric import Fabric

MAX_DIGITS = 6
"""Of the number of a GPU."""

# ----- written


def placement_json(job: Job, placement: Placement) -> dict[str, Any]:
    """The output for a placed job; sizes only if an elastic job got another size than requested."""
    predicted, sizes = placement.predicted, _sizes(job, placement)
    return {
        "job": job.name,
        "placed": True,
        **({"sizes": sizes} if sizes else {}),
        "members": [_member(member) for member in placement.members],
        "domain": {"tier": placement.domain.tier, "name": placement.domain.name},
        "predicted": {
            "step_s": predicted.step_s,
            "comm_s": predicted.comm_s,
            "crossings": dict(predicted.crossings),
        },
        "changes": [_change(change) for change in placement.changes],
        "fetch_s": placement.fetch_s,
    }


def _sizes(job: Job, placement: Placement) -> dict[str, int]:
    """Members by role, where they are others than the job says."""
    placed = Counter(member.role for member in placement.members)
    sizes = {role.name: placed[role.name] for role in job.roles}
    return {} if all(sizes[role.name] == role.members for role in job.roles) else sizes


def _member(member: MemberPlacement) -> dict[str, Any]:
    return {
        "role": member.role,
        "rank": member.rank,
        "node": member.node,
        "gpus": list(member.gpus),
        "nics": list(member.nics),
        "cpus": member.cpus,
        "memory_GiB": member.memory_GiB,
        "mig": [_instance(part) for part in member.mig],
        "share": _share(member.share) if member.share else {},
        "devices": dict(member.devices),
        "numa": [_numa(part) for part in member.numa],
    }


def _instance(part: MigPart) -> dict[str, Any]:
    return {"gpu": part.gpu, "profile": part.profile, "start": part.start}


def _share(share: SharePart) -> dict[str, Any]:
    return {
        "gpu": share.gpu,
        "compute": share.compute,
        "memory_GiB": share.memory_GiB,
        "isolation": share.isolation,
        "alone": share.alone,
    }


def _numa(part: NumaPart) -> dict[str, Any]:
    return {
        "numa": part.numa,
        "cpus": part.cpus,
        "memory_GiB": part.memory_GiB,
        "memory_GBps": part.memory_GBps,
    }


def _change(change: GpuChange) -> dict[str, Any]:
    return {
        "node": change.node,
        "gpu": change.gpu,
        "mode": change.mode,
        "destroy": [_instance(part) for part in change.destroy],
        "create": [_instance(part) for part in change.create],
        "seconds": change.seconds,
    }


# ----- read back


def read_placements(
    text: str, source: str, fabric: Fabric
) -> dict[str, tuple[MemberPlacement, ...]]:
    """Return the members of each job that is placed; the first one where a name stands there twice.

    A document of one placement alone is taken too. Raises BadFields for what is no placement on this cluster.
    """
    report = Report(source)
    placed: dict[str, tuple[MemberPlacement, ...]] = {}
    for record in json_records(text, report):
        answers = record.records("placements") if record.has("placements") else [record]
        for answer in answers:
            if answer.table.get("placed") is not False:
                job = answer.text("job")
                placed.setdefault(job, tuple(_members(answer, fabric)))
    report.check()
    return placed


def _members(answer: Record, fabric: Fabric) -> Iterator[MemberPlacement]:
    if not answer.has("members"):
        answer.problem("members", "nothing", "the members of a placed job")
    used: set[tuple[str, int]] = set()
    for member in answer.records("members"):
        node = member.text("node")
        if node not in fabric.index_of_node:
            hint = did_you_mean(node, list(fabric.index_of_node)[:1000])
            member.problem("node", f"`{node}`", f"a node of {fabric.cluster.name}", hint)
            continue
        count = int(fabric.gpus_of_node[fabric.index_of_node[node]])
        yield MemberPlacement(
            role=member.text("role", "worker"),
            rank=member.integer("rank", 0),
            node=node,
            gpus=tuple(_gpus(member, count, node, used)),
            nics=tuple(member.texts("nics")),
            cpus=member.number("cpus", 0.0),
            memory_GiB=member.number("memory_GiB", 0.0),
            mig=tuple(_read_instance(part, count, node) for part in member.records("mig")),
            share=_read_share(member, count, node),
            devices=tuple(_read_devices(member)),
            numa=tuple(_read_numa(part) for part in member.records("numa")),
        )


def _gpus(member: Record, count: int, node: str, used: set[tuple[str, int]]) -> Iterator[int]:
    for word in member.texts("gpus"):
        gpu = int(word) if word.isascii() and word.isdecimal() and len(word) < MAX_DIGITS else count
        if gpu >= count:
            member.problem("gpus", f"`{word}`", f"GPUs of {node}: numbers below {count}")
        elif (node, gpu) in used:
            member.problem("gpus", f"GPU {gpu} of {node} again", "each GPU once")
        else:
            used.add((node, gpu))
            yield gpu


def _gpu_of_part(part: Record, count: int, node: str) -> int:
    gpu = part.integer("gpu")
    if gpu >= count:
        part.problem("gpu", f"`{gpu}`", f"GPUs of {node}: numbers below {count}")
    return gpu


def _read_instance(part: Record, count: int, node: str) -> MigPart:
    return MigPart(_gpu_of_part(part, count, node), part.text("profile"), part.integer("start"))


def _read_share(member: Record, count: int, node: str) -> SharePart | None:
    share = member.record("share")
    if share is None or not share.keys():
        return None
    isolation = share.text("isolation")
    if isolation not in ISOLATIONS:
        share.problem("isolation", f"`{isolation}`", f"one of {', '.join(ISOLATIONS)}")
    return SharePart(
        _gpu_of_part(share, count, node),
        share.number("compute"),
        share.number("memory_GiB"),
        isolation,
        bool(share.table.get("alone", False)),
    )


def _read_devices(member: Record) -> Iterator[tuple[str, int]]:
    devices = member.record("devices")
    for name in devices.keys() if devices else ():
        assert devices is not None
        yield name, devices.integer(name, least=1)


def _read_numa(part: Record) -> NumaPart:
    return NumaPart(
        part.integer("numa") if part.has("numa") else None,
        part.number("cpus", 0.0),
        part.number("memory_GiB", 0.0),
        part.number("memory_GBps", 0.0),
    )
