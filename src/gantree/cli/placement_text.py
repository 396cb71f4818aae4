"""Placements as `gantree place --json` prints them, read back and held against a cluster. Printing them is `place`."""

from collections.abc import Iterator

from gantree.model.placements import MemberPlacement
from gantree.text.records import Record, Report, json_records
from gantree.text.words import did_you_mean
from gantree.topology.fabric import Fabric


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
    seen: set[tuple[str, int]] = set()
    for member in answer.records("members"):
        node = member.text("node")
        if node not in fabric.index_of_node:
            hint = did_you_mean(node, list(fabric.index_of_node)[:1000])
            member.problem("node", f"`{node}`", f"a node of {fabric.cluster.name}", hint)
            continue
        gpus = tuple(_gpus(member, fabric, node, seen))
        role, rank = member.text("role", "worker"), member.integer("rank", 0)
        yield MemberPlacement(role, rank, node, gpus, tuple(member.texts("nics")))


def _gpus(member: Record, fabric: Fabric, node: str, seen: set[tuple[str, int]]) -> Iterator[int]:
    count = int(fabric.gpus_of_node[fabric.index_of_node[node]])
    for word in member.texts("gpus"):
        gpu = int(word) if word.isascii() and word.isdecimal() and len(word) < 6 else count
        if gpu >= count:
            member.problem("gpus", f"`{word}`", f"GPUs of {node}: numbers below {count}")
        elif (node, gpu) in seen:
            member.problem("gpus", f"GPU {gpu} of {node} again", "each GPU once")
        else:
            seen.add((node, gpu))
            yield gpu
