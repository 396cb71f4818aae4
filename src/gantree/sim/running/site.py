"""Faults of the site as the events of the real scheduler, as executors and health sources report them.

process      `RankExited` of the gang on that GPU
GPU          the same, and `HealthObserved`: its node takes nothing new until it is repaired; others on it work on
node         `NodeLost`, then `NodeReturned`; domain: the same of each of its nodes
link         the up-links of a domain carry less: `LinkHealthObserved`; gangs across them are slower
sign         a failure of a node is near: `HealthObserved` until the node is back
spot         `CordonRequested` with drain at the notice, `NodeLost` when the node is taken; when it is back,
             `NodeReturned` and `UncordonRequested`
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from gantree.core.ledger.ledger import Ledger
from gantree.core.ledger.state import JobState
from gantree.model.events import (
    CordonRequested,
    Event,
    HealthObserved,
    LinkHealthObserved,
    NodeLost,
    NodeReturned,
    RankExited,
    UncordonRequested,
)
from gantree.model.phases import Phase
from gantree.sim.running.faults import Fault
from gantree.topology.fabric.conditions import links_of_domain
from gantree.topology.fabric.fabric import Fabric

EXIT_CODE = 1
"""Of a process that failed."""


@dataclass(slots=True)
class FaultCounts:
    """How often each kind of fault came, and how many gangs it stopped; GPU-seconds of nodes that were lost."""

    came: Counter[str] = field(default_factory=Counter)
    gangs: Counter[str] = field(default_factory=Counter)
    lost_gpu_s: float = 0.0


class Site:
    """Tells what happens to nodes, GPUs and links."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._told = 0
        self._causes_of_loss: Counter[str] = Counter()
        self._lost_at: dict[str, float] = {}
        self._signs: dict[str, None] = {}
        self.counts = FaultCounts()

    def events(self, fault: Fault, ledger: Ledger) -> list[Event]:
        """What a fault or a repair is to the scheduler."""
        if not fault.up:
            self.counts.came[fault.kind] += 1
        return list(self._events(fault, ledger))

    def _events(self, fault: Fault, ledger: Ledger) -> Iterator[Event]:
        match fault.kind:
            case "process" | "GPU":
                yield from self._on_gpu(fault, ledger)
            case "link":
                yield from self._link(fault)
            case "sign":
                yield self._sign(fault, "a failure is near")
            case "notice":
                yield CordonRequested(
                    **self._id(fault),
                    node=self._node(fault),
                    reason="spot interruption",
                    drain=True,
                    deadline_at=fault.deadline_at,
                )
            case _:
                yield from self._nodes(fault, ledger)

    def _on_gpu(self, fault: Fault, ledger: Ledger) -> Iterator[Event]:
        node = self._node(fault)
        if fault.kind == "GPU":
            reason = "" if fault.up else f"GPU {fault.gpu} failed"
            source = f"GPU {fault.gpu}"
            yield HealthObserved(**self._id(fault), node=node, source=source, reason=reason)
        if fault.up:
            return
        for state, rank in _on(ledger, node, fault.gpu):
            self.counts.gangs[fault.kind] += 1
            yield RankExited(
                **self._id(fault),
                job=state.job,
                attempt=state.attempt,
                rank=rank,
                exit_code=EXIT_CODE,
            )

    def _link(self, fault: Fault) -> Iterator[Event]:
        yield LinkHealthObserved(
            **self._id(fault),
            link=links_of_domain(self._fabric, *fault.domain),
            source="links",
            health=1.0 if fault.up else fault.health,
        )

    def _sign(self, fault: Fault, reason: str) -> Event:
        node = self._node(fault)
        if reason:
            self._signs[node] = None
        else:
            del self._signs[node]
        return HealthObserved(**self._id(fault), node=node, source="sign", reason=reason)

    def _nodes(self, fault: Fault, ledger: Ledger) -> Iterator[Event]:
        tier, domain = fault.domain
        first, end = self._fabric.first_node_of_domain[tier][domain : domain + 2]
        lost = {self._fabric.nodes[index].name: index for index in range(first, end)}
        if not fault.up:
            self.counts.gangs[fault.kind] += sum(
                not lost.keys().isdisjoint(state.placement.nodes)
                for state in ledger.holding.values()
                if state.placement is not None and state.phase is not Phase.STOPPING
            )
        for node, index in lost.items():
            if fault.up:
                yield from self._returned(fault, node, int(self._fabric.gpus_of_node[index]))
            else:
                yield from self._lost(fault, node)

    def _lost(self, fault: Fault, node: str) -> Iterator[Event]:
        self._causes_of_loss[node] += 1
        if self._causes_of_loss[node] == 1:
            self._lost_at[node] = fault.at_s
            yield NodeLost(**self._id(fault), node=node, reason=f"{fault.kind} failed")

    def _returned(self, fault: Fault, node: str, gpus: int) -> Iterator[Event]:
        self._causes_of_loss[node] -= 1
        if fault.kind == "spot":
            yield UncordonRequested(**self._id(fault), node=node, forgives=False)
        if self._causes_of_loss[node] == 0:
            self.counts.lost_gpu_s += gpus * (fault.at_s - self._lost_at.pop(node))
            yield NodeReturned(**self._id(fault), node=node)
            if node in self._signs:
                yield self._sign(fault, "")

    def _node(self, fault: Fault) -> str:
        return self._fabric.nodes[fault.domain[1]].name

    def _id(self, fault: Fault) -> "_Told":
        self._told += 1
        return {"id": f"fault-{self._told}", "observed_at": fault.at_s}


class _Told(TypedDict):
    """What every event has."""

    id: str
    observed_at: float


def _on(ledger: Ledger, node: str, gpu: int) -> Iterator[tuple[JobState, int]]:
    """Gangs that hold a GPU, or a part of it, and the rank of theirs on it."""
    for state in list(ledger.holding.values()):
        if state.placement is None or state.phase is Phase.STOPPING:
            continue
        processes = {role.name: role.processes for role in state.spec.roles}
        first = 0
        for member in state.placement.members:
            held = member.gpus or member.parts
            if member.node == node and gpu in held:
                position = first + held.index(gpu) * processes[member.role] // len(held)
                ranks = state.placement.ranks
                yield state, ranks[position] if ranks else position
                break
            first += processes[member.role]
