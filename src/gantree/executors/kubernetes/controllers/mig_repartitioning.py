"""Gives nodes other MIG configs, or GPU config profiles, for gangs that wait, by the label that a manager acts upon.

A gang for which not even the empty site has room may have nodes whose pods with GPUs are all of gangs that its priority
is above; they are drained. One that only waits for room has idle nodes alone. A node is cordoned from the order to the
moment when its device plugin offers what the config makes. If that fails, the node is left as it is, cordoned, with the
reason in an annotation and an event. Nodes outside the selector are never changed.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.client import JSON, MERGE, ApiError, Client
from gantree.executors.kubernetes.apiserver.objects import Node
from gantree.executors.kubernetes.controllers.node_events import EVENTS, node_event
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.nodes import mig_orders
from gantree.executors.kubernetes.nodes.compute_partitions import offer_of as profile_offer
from gantree.executors.kubernetes.nodes.compute_partitions import table_of
from gantree.executors.kubernetes.nodes.gpu_holders import GpuHolders
from gantree.executors.kubernetes.nodes.mig_layouts import (
    Partitionable,
    gpu_count,
    is_of_gpus,
    least_change,
    offer_of,
    offers_any,
    partitionable,
    with_offer,
)
from gantree.executors.kubernetes.nodes.mig_orders import Marks, MigOrder, marks_of, order_of
from gantree.executors.kubernetes.nodes.partition_managers import (
    CORDONED,
    DCM,
    is_prepared,
    manager_of,
)
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gangs import Gang, job_of
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.model.errors import GantreeError, Unreachable
from gantree.model.events import CordonRequested, Event, UncordonRequested
from gantree.model.jobs import Job
from gantree.model.mig_configs import PartitionNodes
from gantree.model.phases import ENDED
from gantree.model.verdicts import Gate
from gantree.placement.choice.search import fits
from gantree.topology.discovery.listings.kubernetes_nodes import gpu_of_labels
from gantree.topology.fabric.fabric import Fabric
from gantree.topology.hardware.mig import mig_table
from gantree.topology.occupancy.occupancy import Occupancy

log = logging.getLogger(__name__)

EVERY_S = 0.5
PAUSE_OF_TOOK = 10.0
"""After a step there is none for so many times as long as planning took."""
MOST_NODES = 64
"""A gang is planned on so many nodes at most: to read as many as a site takes 25 ms, a few times for each config."""
AT_ONCE = 4
"""Gangs that are looked at in one step."""
AGAIN_S = 30.0
"""A gang for which nothing could be done is looked at again after so long."""
SEEN_WITHIN_S = 10.0
"""A change that was written and is not seen for so long is written again."""
WITHIN_S = 1800.0
"""The manager may stop pods of the operator, and reboot the node."""
FAILURE_WITHIN_S = 300.0
"""AMD's manager tries again every minute, since pods of its operator take a while to leave."""
FAILED_EVENT = "MigConfigFailed"


class MigRepartitioning:
    """The orders of all nodes, and the gangs that need more."""

    def __init__(
        self,
        api: ApiThread,
        pending: PendingPods,
        nodes: Nodes,
        allowed: PartitionNodes | None,
        emit: Callable[[Event], None],
    ) -> None:
        """allowed: None for no node."""
        self._api, self._pending, self._nodes, self._emit = api, pending, nodes, emit
        self._allowed = allowed
        self._written: dict[str, tuple[float, Marks]] = {}
        """Nodes that were changed, until when that may take to be seen, and how they were before."""
        self._cordons: dict[str, tuple[str | None, bool]] = {}
        """The cordon that was asked for last, and whether to drain."""
        self._again_at: dict[Key, float] = {}
        self._next_at, self._cursor, self._told_events = 0.0, 0, 0

    def told(self, job: str) -> str:
        """What the nodes of a job wait for here, as a part of a sentence; "" for nothing."""
        found = (
            mig_orders.said_of(node)
            for node in self._ours()
            if node.metadata.annotations.get(mig_orders.FOR) == job and mig_orders.cordon_of(node)
        )
        return "; ".join(found)

    def step(self, decided: LedgerView, now: float, epoch: int) -> None:
        """Carry every order on, and begin some more."""
        if self._allowed is None or now < self._next_at:
            return
        self._next_at = now + EVERY_S
        holders, ours = GpuHolders(decided), self._ours()
        for node in ours:
            order = order_of(node)
            self._cordon(node, decided, holders, now, epoch)
            if order is not None and not self._is_written(node, now):
                self._carry_on(order, node, decided, holders, now)
        began_s = time.perf_counter()
        for key in self._next_keys(now):
            if any(self._is_written(node, now) for node in ours):
                break  # what is written counts once it is seen
            self._plan(key, decided, holders, now)
        took_s = time.perf_counter() - began_s
        self._next_at = max(self._next_at, now + PAUSE_OF_TOOK * took_s)

    def _ours(self) -> list[Node]:
        """The nodes that may be changed, by name."""
        asked = () if self._allowed is None else self._allowed.selector
        found = [
            node
            for node in self._nodes.present.values()
            if all(node.metadata.labels.get(key) == value for key, value in asked)
        ]
        return sorted(found, key=lambda each: each.metadata.name) if self._allowed else []

    def _cordon(
        self, node: Node, decided: LedgerView, holders: GpuHolders, now: float, epoch: int
    ) -> None:
        """Have the node cordoned by the reason that it has here, or not any more."""
        name, reason = node.metadata.name, mig_orders.cordon_of(node)
        known = decided.site.cordon_reason(name)
        drains = order_of(node) is not None and bool(holders.on(name))
        is_operators = known is not None and not known.startswith(CORDONED)
        if is_operators or (reason == known and not drains) or not decided.site.has_node(name):
            self._cordons.pop(name, None)
            return
        if self._cordons.get(name) == (reason, drains):
            return  # asked for, and not decided yet
        self._cordons[name] = reason, drains
        self._told_events += 1
        event = f"kubernetes/mig/{name}/{epoch}.{self._told_events}"
        if reason is None:
            self._emit(UncordonRequested(id=event, observed_at=now, node=name, forgives=False))
        else:
            self._emit(
                CordonRequested(id=event, observed_at=now, node=name, reason=reason, drain=drains)
            )

    def _carry_on(
        self, order: MigOrder, node: Node, decided: LedgerView, holders: GpuHolders, now: float
    ) -> None:
        """The next step of an order."""
        if order.since is None:
            state = decided.job(order.job)
            waits = state is not None and state.placement is None and state.phase not in ENDED
            if not waits or not holders.are_below(order.node, state):
                self._write(node, mig_orders.end(node), now)
            elif decided.site.cordon_reason(order.node) and not holders.has_any(order.node):
                self._write(node, mig_orders.ask(order.config, now, node), now)
            return
        if order.state == manager_of(node).success and is_prepared(node):
            self._write(node, mig_orders.release(node), now)
            return
        offer, limits = self._offer(node, order.config), (WITHIN_S, FAILURE_WITHIN_S)
        came = mig_orders.outcome(order, node, offer, now, *limits)
        if came is None:
            return
        self._write(node, mig_orders.end(node, came), now)
        if came:
            log.error("node %s: %s", order.node, came)
            event = node_event(order.node, FAILED_EVENT, came, now, is_warning=True)
            self._api.request("POST", EVENTS, event, JSON)

    def _offer(self, node: Node, name: str) -> Mapping[str, int] | None:
        """What a node offers by a config; None for one that is not known any more."""
        if manager_of(node) is DCM:
            return self._profile_offer(node, name)
        configs = self._allowed.configs if self._allowed else ()
        config = next((each for each in configs if each.name == name), None)
        table = mig_table(gpu_of_labels(node.metadata.labels))
        return None if config is None else offer_of(config, gpu_count(node), table)

    def _profile_offer(self, node: Node, name: str) -> Mapping[str, int] | None:
        """The same by a profile. How many GPUs there are, it says itself, for the device plugin may be away."""
        profiles = self._allowed.profiles if self._allowed else ()
        profile = next((each for each in profiles if each.name == name), None)
        table = table_of(node.metadata.labels)
        if profile is None or table is None:
            return None
        return profile_offer(profile, sum(count for *_, count in profile.sets), table)

    def _next_keys(self, now: float) -> list[Key]:
        """The next few gangs that may need other configs."""
        gangs = self._pending.gangs
        for key in self._again_at.keys() - gangs.keys():
            del self._again_at[key]
        start = self._cursor if self._cursor < len(gangs) else 0
        self._cursor = start + AT_ONCE
        chosen = islice(gangs, start, start + AT_ONCE)
        return [key for key in chosen if now >= self._again_at.get(key, now)]

    def _plan(self, key: Key, decided: LedgerView, holders: GpuHolders, now: float) -> None:
        """Begin the orders of a gang, if it waits for room and other configs give it some."""
        job = self._pending.gangs[key].job
        state, gang = decided.job(job or ""), self._pending.gang(key)
        if state is None or gang is None or not _asked(state.spec):
            return
        is_short = decided.needs_more_nodes(state.job, now)
        if not is_short and _gate(decided, state.job, now) not in (Gate.ROOM, Gate.CONTIGUITY):
            return
        self._again_at[key] = now + AGAIN_S
        for node, config in self._changes(gang, state, decided, holders, is_short=is_short):
            what, name = manager_of(node).what, node.metadata.name
            log.info("node %s gets %s %s for job %s", name, what, config, state.job)
            self._write(node, mig_orders.begin(config, state.job), now)

    def _changes(
        self,
        gang: Gang,
        state: JobView,
        decided: LedgerView,
        holders: GpuHolders,
        *,
        is_short: bool,
    ) -> list[tuple[Node, str]]:
        """The nodes to change and their configs, idle ones first; none where nothing helps or nothing is needed."""
        coming = self._coming()
        free = [node for node in self._ours() if _is_free(node, decided)]
        idle = [node for node in free if not holders.has_any(node.metadata.name)]
        below = [
            node
            for node in free
            if node not in idle and is_short and holders.are_below(node.metadata.name, state)
        ]
        for nodes in (idle, [*idle, *below]) if below else (idle,):
            found = self._least(gang, state, nodes, coming)
            if found is not None:
                return found
        return []

    def _coming(self) -> list[Node]:
        """Nodes with orders, as they will be."""
        found = []
        for node in self._ours():
            order = order_of(node)
            offer = None if order is None else self._offer(node, order.config)
            if offer is not None:
                found.append(with_offer(node, offer))
        return found

    def _least(
        self, gang: Gang, state: JobView, nodes: Sequence[Node], coming: Sequence[Node]
    ) -> list[tuple[Node, str]] | None:
        """The least change with which a gang fits on these nodes, empty; None if there is none."""
        configs = self._allowed.configs if self._allowed else ()
        profiles, asked = self._allowed.profiles if self._allowed else (), _asked(state.spec)
        if len(nodes) > MOST_NODES:
            first = sorted(nodes, key=lambda each: not offers_any(each, asked))[:MOST_NODES]
            looked_at = {each.metadata.name for each in first}
            nodes = [each for each in nodes if each.metadata.name in looked_at]
        if self._fits(gang, [*nodes, *coming]):
            return []
        found_for = (partitionable(node, configs, profiles) for node in nodes)
        able = [each for each in found_for if each is not None]

        def fits_with(chosen: Sequence[Partitionable], config: str) -> bool:
            return self._fits(gang, [*_with(nodes, chosen, config), *coming])

        names = [*(each.name for each in configs), *(each.name for each in profiles)]
        found = least_change(able, names, asked, fits_with)
        return None if found is None else [(each.node, found[1]) for each in found[0]]

    def _fits(self, gang: Gang, nodes: Sequence[Node]) -> bool:
        if not nodes:
            return False
        try:
            site: SiteReading = self._nodes.site_of(nodes)
            spec, barred, _ = job_of(gang, site.tier, gang.key[0])
            return not barred and fits(Occupancy(Fabric.build(site.cluster)), spec)
        except GantreeError:
            return False

    def _write(self, node: Node, patch: Mapping[str, object], now: float) -> None:
        self._written[node.metadata.name] = now + SEEN_WITHIN_S, marks_of(node)
        self._api.write(partial(_patch, node=node.metadata.name, patch=patch))

    def _is_written(self, node: Node, now: float) -> bool:
        """Whether a change of a node was written and is not seen yet."""
        until, before = self._written.get(node.metadata.name, (now, ()))
        return now < until and marks_of(node) == before


async def _patch(client: Client, node: str, patch: Mapping[str, object]) -> str:
    try:
        await client.write("PATCH", f"api/v1/nodes/{node}", patch, MERGE)
    except (ApiError, Unreachable) as error:
        return f"node {node} gets no other config: {error}"
    return ""


def _asked(job: Job) -> frozenset[str]:
    """The GPUs and instances that a job asks for, by resource."""
    return frozenset(
        name for role in job.roles for name, _ in role.shape.devices if is_of_gpus(name)
    )


def _gate(decided: LedgerView, job: str, now: float) -> Gate | None:
    why = decided.why_waiting(job, now)
    return None if why is None else why[1]


def _is_free(node: Node, decided: LedgerView) -> bool:
    """Whether a node is in use by gantree: it is not cordoned by anybody, nor lost, nor unhealthy.

    A cordon of an order that has ended is about to be lifted.
    """
    name, site = node.metadata.name, decided.site
    return (
        site.has_node(name)
        and not site.is_lost(name)
        and (site.cordon_reason(name) or CORDONED[0]).startswith(CORDONED)
        and name not in site.unhealthy_nodes()
        and mig_orders.cordon_of(node) is None
    )


def _with(nodes: Sequence[Node], chosen: Sequence[Partitionable], config: str) -> Iterator[Node]:
    changed = {each.name: each for each in chosen}
    for node in nodes:
        each = changed.get(node.metadata.name)
        yield node if each is None else each.with_config(config)
