"""Figures of a ledger at one time: pending, running and held amounts, fragmentation. No clock, no metric names.

`gantree.control.metrics.metrics` gives them names. Queues are named by the policy; of those that it does not name (a
policy without queues takes any name) the oldest hundred are told apart, the rest are one.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gantree.core.ledger.accounts.budgets import BudgetKey
from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import CLAIM, RESERVATION, JobState
from gantree.model.placements import MemberPlacement
from gantree.policy.budgets import BudgetUse
from gantree.policy.queues import QueueTree
from gantree.topology.fabric.fabric import Fabric, IntArray
from gantree.topology.occupancy.occupancy import Occupancy
from gantree.topology.occupancy.site import OWNER_PREFIX

QUEUES_BY_NAME = 100
"""Queues that the policy does not name and that have series of their own, at most."""
OTHER_QUEUES = "(other)"

USES = ("job", "reserved", "site", "free", "unusable")


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue: jobs that wait, seconds since the oldest of them was handed in, gangs that hold a place, their GPUs.

    gpus counts parts of GPUs as such.
    """

    waiting: int = 0
    oldest_s: float = 0.0
    running: int = 0
    gpus: float = 0.0


@dataclass(frozen=True, slots=True)
class TierFigures:
    """The free GPUs of one tier: largest is the most in one domain, torn the share that lies in domains partly held."""

    largest: int
    torn: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a ledger. gpus counts each GPU once, by use; starts are the reservations of pending jobs.

    unhealthy_nodes counts nodes by what follows from the faults that are reported: out of use, kept, or overruled.
    links counts those of which something is reported: worn (they carry less), busy (whole, and others' traffic takes
    a part), or overruled.
    """

    queues: dict[str, QueueFigures]
    gpus: dict[str, int]
    tiers: dict[str, TierFigures]
    starts: dict[str, int]
    unhealthy_nodes: dict[str, int]
    links: dict[str, int]
    budgets: dict[BudgetKey, BudgetUse]

    @property
    def utilisation(self) -> float:
        """GPUs that jobs hold over those that jobs could hold: held by jobs, reserved, or free on usable nodes."""
        usable = self.gpus["job"] + self.gpus["reserved"] + self.gpus["free"]
        return self.gpus["job"] / usable if usable else 0.0


def figures_of(ledger: Ledger, now: float) -> Figures:
    """The figures at a moment in seconds."""
    rooms, budgets = ledger.occupancy, ledger.accounts.budgets
    promised = sum(reservation.promised for reservation in ledger.reservations.values())
    return Figures(
        _queues(ledger, now),
        dict.fromkeys(USES, 0) if rooms is None else _gpus(rooms),
        {} if rooms is None else _tiers(rooms),
        {"promised": promised, "estimated": len(ledger.reservations) - promised},
        _unhealthy_nodes(ledger),
        _links(ledger),
        {key: budgets.use(key, now) for key in budgets.of_key},
    )


def _unhealthy_nodes(ledger: Ledger) -> dict[str, int]:
    counts = dict.fromkeys(("out", "kept", "overruled"), 0)
    for illnesses in ledger.site.unwell.values():
        if any(one.takes_out for one in illnesses.values()):
            counts["out"] += 1
        elif any(not one.forgiven for one in illnesses.values()):
            counts["kept"] += 1
        else:
            counts["overruled"] += 1
    return counts


def _links(ledger: Ledger) -> dict[str, int]:
    site = ledger.site
    worn, busy = site.health_of_link().keys(), site.load_of_link().keys()
    overruled = site.links.keys() - worn - busy
    return {"worn": len(worn), "busy": len(busy - worn), "overruled": len(overruled)}


def queue_names(tree: QueueTree) -> list[str]:
    """The name under which each node of the tree is counted; "" for the cluster and for cohorts."""
    named = {name for name, rule in zip(tree.queue, tree.rule, strict=True) if rule is not None}
    others = dict.fromkeys(name for name in tree.queue if name and name not in named)
    named.update(list(others)[:QUEUES_BY_NAME])
    return [name if name in named or not name else OTHER_QUEUES for name in tree.queue]


def _queues(ledger: Ledger, now: float) -> dict[str, QueueFigures]:
    name_of_node = queue_names(ledger.accounts.tree)
    waiting: Counter[str] = Counter()
    since: dict[str, float] = {}
    for node in ledger.waiting.queues:
        name = name_of_node[node]
        standing = ledger.waiting.in_queue(node)
        waiting[name] += len(standing)
        first = min((ledger.jobs[each.position.job].submitted_at for each in standing), default=now)
        since[name] = min(since.get(name, now), first)
    for array in ledger.unsplit.values():
        name = name_of_node[array.queue]
        waiting[name] += array.unsplit
        since[name] = min(since.get(name, now), array.submitted_at)
    running: Counter[str] = Counter()
    gpus: dict[str, float] = {}
    for state in ledger.holding.values():
        name = name_of_node[state.queue]
        running[name] += 1
        gpus[name] = gpus.get(name, 0.0) + _gpus_of(ledger, state)
    return {
        name: QueueFigures(
            waiting[name],
            max(0.0, now - since.get(name, now)),
            running[name],
            gpus.get(name, 0.0),
        )
        for name in dict.fromkeys(filter(None, name_of_node))
    }


def _gpus_of(ledger: Ledger, state: JobState) -> float:
    assert state.placement is not None
    return ledger.accounts.amounts.held(state.placement).get("gpus", 0.0)


def _gpus(rooms: Occupancy) -> dict[str, int]:
    """Count each GPU once: by its holder (jobs before reserved room), else by whether its node is usable."""
    held: dict[str, int] = {"job": 0, "site": 0, "reserved": 0}
    held_of_node = np.zeros(len(rooms.fabric.nodes), dtype=np.int64)
    cut: set[tuple[str, int]] = set()
    for use, member in sorted(_held(rooms), key=lambda each: each[0]):
        parts = {(member.node, gpu) for gpu in member.parts} - cut
        cut |= parts
        count = len(member.gpus) + len(parts)
        held[use] += count
        held_of_node[rooms.fabric.index_of_node[member.node]] += count
    left = rooms.fabric.gpus_of_node - held_of_node
    free = int(left[rooms.usable_node].sum())
    return {**held, "free": free, "unusable": int(left.sum()) - free}


def _held(rooms: Occupancy) -> Iterator[tuple[str, MemberPlacement]]:
    for owner, members in rooms.owners.items():
        use = "site" if owner.startswith(OWNER_PREFIX) else "job"
        if owner.startswith((CLAIM, RESERVATION)):
            use = "reserved"
        for member in members:
            yield use, member


def _tiers(rooms: Occupancy) -> dict[str, TierFigures]:
    fabric = rooms.fabric
    usable_of_node = fabric.gpus_of_node * rooms.usable_node
    free_of_node = rooms.free_gpus_in_domain(fabric.node_tier) * rooms.usable_node
    return {
        name: _tier(fabric, number, usable_of_node, free_of_node)
        for number, name in enumerate(fabric.tiers)
        if number > 0
    }


def _tier(
    fabric: Fabric, tier: int, usable_of_node: IntArray, free_of_node: IntArray
) -> TierFigures:
    first = fabric.first_node_of_domain[tier][:-1]
    free_of_domain = np.add.reduceat(free_of_node, first)
    usable_of_domain = np.add.reduceat(usable_of_node, first)
    free = int(free_of_domain.sum())
    torn = int(free_of_domain[free_of_domain < usable_of_domain].sum())
    return TierFigures(int(free_of_domain.max()), torn / free if free else 0.0)
