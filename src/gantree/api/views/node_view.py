"""Nodes as plain JSON values: whether each is usable and why not, its jobs, its labels. No HTTP here."""

from collections.abc import Iterable
from typing import Any

from gantree.api.views.link_view import rows_of_node
from gantree.core.explain.nodes import kept_in_words
from gantree.core.ledger.ledger import Ledger
from gantree.model.errors import NotFound
from gantree.model.repairs import RepairState
from gantree.topology.fabric.conditions import sound_nodes
from gantree.topology.occupancy.occupancy import Occupancy

Json = dict[str, Any]


def node_rows(ledger: Ledger) -> list[Json]:
    """All nodes in topology order."""
    if ledger.fabric is None:
        return []
    jobs_on = _jobs_by_node(ledger)
    sound = sound_nodes(ledger.fabric).tolist()
    return [
        _row(ledger, index, node.name, jobs_on.get(node.name, {}), sound=sound[index])
        for index, node in enumerate(ledger.fabric.nodes)
    ]


def node_row(ledger: Ledger, name: str) -> Json:
    """One node. Raises NotFound."""
    index = None if ledger.fabric is None else ledger.fabric.index_of_node.get(name)
    if ledger.fabric is None or index is None:
        raise NotFound(f"there is no node {name}")
    jobs = _jobs_by_node(ledger, name).get(name, {})
    return _row(ledger, index, name, jobs, sound=bool(sound_nodes(ledger.fabric)[index]))


def _jobs_by_node(ledger: Ledger, only: str | None = None) -> dict[str, dict[str, Json]]:
    """Node -> job -> what it holds there; for one node alone where it is named."""
    found: dict[str, dict[str, Json]] = {}
    for state in ledger.holding.values():
        for member in state.placement.members if state.placement else ():
            if only not in (None, member.node):
                continue
            here = found.setdefault(member.node, {})
            row = here.setdefault(
                state.job,
                {"job": state.job, "phase": state.phase.value, "members": 0, "gpus": 0},
            )
            row["members"] += 1
            row["gpus"] += len(member.gpus) + len(member.parts)
    return found


def _row(ledger: Ledger, index: int, name: str, jobs: dict[str, Json], *, sound: bool) -> Json:
    fabric, rooms = ledger.rooms().fabric, ledger.rooms()
    cordon = ledger.site.cordoned.get(name)
    machine = fabric.machine_of_node(index)
    return {
        "node": name,
        "state": state_of_node(ledger, name, busy=bool(jobs), sound=sound),
        "reason": ledger.unusable.get(name) or (cordon.reason if cordon else ""),
        "cordoned_at": None if cordon is None else cordon.since,
        "drain": cordon is not None and cordon.drain,
        "deadline_at": None if cordon is None else cordon.deadline_at,
        "waits_for": _staying(ledger, jobs) if cordon is not None and cordon.drain else [],
        "machine": machine.name,
        "gpu": machine.gpu,
        "gpus": machine.gpus,
        "free_gpus": len(rooms.free_gpus(name)),
        "domains": dict(zip(fabric.tiers[1:-1], fabric.nodes[index].at, strict=False)),
        "jobs": list(jobs.values()),
        "labels": dict(fabric.nodes[index].labels),
        "labels_by_hand": dict(ledger.site.labels.get(name, {})),
        "signs": _signs(ledger, name),
        "repair": _repair(ledger, name),
        "mig": _mig_rows(rooms, index, name) if index in rooms.parts_of_node else [],
        "links": rows_of_node(ledger, name) if ledger.site.links else [],
    }


def _repair(ledger: Ledger, name: str) -> Json | None:
    """How far the repair of a node has come; None where there was none, or it has succeeded."""
    repair = ledger.site.repairs.get(name)
    if repair is None or repair.state is RepairState.SUCCEEDED:
        return None
    return {
        "state": repair.state.value,
        "sign": repair.sign,
        "step": repair.steps[repair.step],
        "number": repair.step + 1,
        "steps": list(repair.steps),
        "reason": repair.reason,
        "since": repair.since,
    }


def _signs(ledger: Ledger, name: str) -> list[Json]:
    """What each source reports to be wrong with a node, and what follows from it."""
    kept = {one.reason: kept_in_words(name, one.kept) for one in ledger.site.kept_in_use(name)}
    return [
        {
            "source": source,
            "reason": one.reason,
            "since": one.since,
            "overruled": one.forgiven,
            "kept": kept.get(one.reason, "") if one.kept else "",
        }
        for source, one in sorted(ledger.site.unwell.get(name, {}).items())
    ]


def _mig_rows(rooms: Occupancy, index: int, name: str) -> list[Json]:
    """The MIG instances of a node, by GPU and place, with who has each."""
    job_of_place = {
        (part.gpu, part.start): owner
        for owner in rooms.holders(name)
        for member in rooms.owners[owner]
        if member.node == name
        for part in member.mig
    }
    return [
        {"gpu": gpu, "profile": one.profile, "start": one.start}
        | {"job": job_of_place.get((gpu, one.start))}
        for gpu, state in enumerate(rooms.parts_of_node[index])
        for one in state.really.instances
    ]


def _staying(ledger: Ledger, jobs: Iterable[str]) -> list[str]:
    """Return jobs that never leave a node on request."""
    return [job for job in jobs if not ledger.jobs[job].spec.preemptible]


def state_of_node(ledger: Ledger, name: str, *, busy: bool, sound: bool) -> str:
    """One word: what it is most of all. busy: a job holds something there."""
    cordon = ledger.site.cordoned.get(name)
    if name in ledger.unusable:
        return "lost"
    if cordon is None:
        return "ready" if sound else "broken"
    if not cordon.drain:
        return "cordoned"
    return "draining" if busy else "drained"
