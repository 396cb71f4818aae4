"""Turns Node objects into events: the site when it changes, and which nodes are usable, cordoned or unhealthy.

A deleted node stays part of the site while gangs hold something on it (`nodes.stale_nodes`): it is lost, and they are
stopped first. The site is rebuilt when that has changed.
"""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gantree.core.view import LedgerView, SiteView
from gantree.executors.kubernetes.apiserver.objects import Group, Node
from gantree.executors.kubernetes.constraints.channels import unmarked
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.nodes.asked_levels import MOST_ASKED, keys_of_jobs
from gantree.executors.kubernetes.nodes.node_health import (
    SOURCE,
    UNSCHEDULABLE,
    has_lost_gpu,
    is_of_kubernetes,
    tolerates_cordons,
    what_is_wrong,
    why_cordoned,
    with_cordon,
)
from gantree.executors.kubernetes.nodes.site import (
    SiteReading,
    site_fields,
    site_of,
    usable,
    with_hostnames,
)
from gantree.executors.kubernetes.nodes.stale_nodes import (
    HOLDER,
    attempts_on,
    lost_parts,
    with_stale_nodes,
)
from gantree.executors.kubernetes.nodes.topologies import read_topologies
from gantree.executors.kubernetes.nodes.zones import ZONES, has_equal_zones
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.model.cluster import Cluster
from gantree.model.errors import BadInput
from gantree.model.events import (
    ClusterObserved,
    CordonRequested,
    Event,
    HealthObserved,
    NodeLost,
    NodeReturned,
    OthersHold,
    UncordonRequested,
)
from gantree.model.placements import MemberPlacement

log = logging.getLogger(__name__)

SETTLE_S = 0.05
"""The site is rebuilt so long after its first change at the earliest, so that many new nodes are one change."""
LETS_GO_S = 0.5
"""How often it is asked whether gangs on stale nodes have ended."""
PAUSE_OF_TOOK, LONGEST_PAUSE_S = 10.0, 1.0
"""After a rebuild there is none for ten times as long as it took, at most a second."""


class Nodes:
    """The nodes as last seen, and the site that they make."""

    def __init__(
        self,
        name: str,
        levels: Sequence[str],
        allocator: Allocator | None = None,
        file: Cluster | None = None,
    ) -> None:
        """allocator has the devices of nodes that their Node objects do not list.

        file describes the site, where its nodes' labels do not.
        """
        self._allocator = allocator or Allocator()
        self.site: SiteReading | None = None
        self._name, self._levels, self._file = name, tuple(levels), file
        self._topologies: dict[tuple[GroupKind, str], Group] = {}
        self._asked: dict[str, None] = {}
        self._nodes: dict[str, Node] = {}
        self._changed: dict[str, None] = {}
        self._stale_since: float | None = None
        self._built_at, self._took_s = -math.inf, 0.0
        self._stale_nodes: tuple[str, ...] = ()
        self._attempts_there: frozenset[tuple[str, int]] = frozenset()
        """The attempts for which the nodes of before are kept."""
        self._asked_at = -math.inf
        self._lost: dict[str, MemberPlacement] = {}
        self._lost_on_record: dict[str, MemberPlacement] = {}
        self._gpus_of_node: dict[str, int] = {}
        self._has_tolerant_gangs = False
        """Whether a gang tolerated cordons, so that these are taints of the site."""
        self._tainted: frozenset[str] = frozenset()
        """Nodes of which the site has the cordon as a taint."""
        self._told = 0

    def update_node(self, name: str, after: Node | None, now: float) -> None:
        """A node was added or has changed; None: it is gone."""
        known, after = self._nodes.get(name), unmarked(after)
        if after is not None:
            after = with_cordon(after, as_taint=self._has_tolerant_gangs)
        self._changed[name] = None
        if after is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = after
        is_other = known is None or after is None or site_fields(known) != site_fields(after)
        labels = None if after is None else after.metadata.labels
        is_other |= self._allocator.update_node(name, labels)
        if is_other and self._stale_since is None:
            self._stale_since = now

    @property
    def has_any(self) -> bool:
        """Whether there is any node."""
        return bool(self._nodes)

    def update_topology(self, kind: GroupKind, name: str, group: Group | None, now: float) -> None:
        """A topology object was added or has changed; None: it is gone."""
        before = self._topologies.pop((kind, name), None)
        if group is not None:
            self._topologies[kind, name] = group
        if kind is not ZONES or not has_equal_zones(before, group):
            self.mark_stale(now)

    def ask_level(self, key: str, now: float) -> bool:
        """Rebuild the site with a tier of a label key, if its domains nest; False where too many were asked for."""
        if key not in self._asked and len(self._asked) < MOST_ASKED:
            self._asked[key] = None
            self.mark_stale(now)
        return key in self._asked

    def tolerate_cordons(self, now: float) -> None:
        """From now on cordons are taints: a gang tolerates them."""
        if not self._has_tolerant_gangs:
            self._taint_cordoned()
            self.mark_stale(now)

    def _taint_cordoned(self) -> None:
        self._has_tolerant_gangs = True
        nodes = self._nodes.items()
        self._nodes = {name: with_cordon(node, as_taint=True) for name, node in nodes}

    def mark_stale(self, now: float) -> None:
        """Rebuild the site: devices or topology of nodes may have changed."""
        if self._stale_since is None:
            self._stale_since = now

    def build(self, decided: LedgerView, now: float) -> Cluster:
        """The site of the present nodes, and of stale nodes that gangs hold. Raises BadInput for no node at all."""
        is_first = self.site is None
        if is_first and any(tolerates_cordons(state.spec) for state in decided.open_jobs()):
            self._taint_cordoned()
        equipped = [self._allocator.equipped(node) for node in self._nodes.values()]
        site = self._read(equipped)
        before = keys_of_jobs(decided, site.cluster.tiers, site.labels) if is_first else ()
        if before:  # asked for before a restart
            self._asked |= dict.fromkeys(before[:MOST_ASKED])
            site = self._read(equipped)
        self.site = site
        cluster, stale = with_stale_nodes(with_hostnames(self.site.cluster, self._nodes), decided)
        self._lost = lost_parts(cluster, self.site.cluster, stale)
        self.site = replace(self.site, cluster=cluster)
        self._built_at, self._stale_since = now, None
        self._stale_nodes, self._attempts_there = stale, attempts_on(stale, decided)
        self._changed |= dict.fromkeys(stale)
        before_tainted, self._tainted = self._tainted, _with_cordon_taint(cluster)
        self._changed |= dict.fromkeys(sorted(before_tainted ^ self._tainted))
        machines = cluster.machines
        self._gpus_of_node = {node.name: machines[node.machine].gpus for node in cluster.nodes}
        return cluster

    @property
    def present(self) -> Mapping[str, Node]:
        """The nodes that there are, by name."""
        return self._nodes

    def site_of(self, nodes: Sequence[Node]) -> SiteReading:
        """The site that other nodes would make. Raises BadInput."""
        return self._read([self._allocator.equipped(node) for node in nodes])

    def _read(self, nodes: Sequence[Node]) -> SiteReading:
        topologies = read_topologies(self._topologies, nodes)
        asked = replace(topologies, asked=tuple(self._asked))
        return site_of(self._name, nodes, self._levels, asked, self._file)

    @property
    def gpus_of_node(self) -> Mapping[str, int]:
        """How many GPUs each node of the site has; the same object until the site is another."""
        return self._gpus_of_node

    def events(self, decided: LedgerView, now: float, epoch: int) -> Iterator[Event]:
        """The new events: the site first, if it has changed and settled, then single nodes."""
        self._let_go(decided, now)
        if self._nodes and self._is_settled(now):
            before = self.site
            cluster = self._rebuilt(decided, now)
            if cluster is not None and (before is None or cluster != before.cluster):
                yield ClusterObserved(
                    id=self._id("cluster", epoch), observed_at=now, cluster=cluster
                )
        yield from self._of_lost_parts(now, epoch)
        known = decided.site
        for name in [name for name in self._changed if known.has_node(name)]:
            del self._changed[name]
            yield from self._of_node(name, known, now, epoch)

    def adopt(self, holders: Mapping[str, tuple[MemberPlacement, ...]]) -> None:
        """What is on record as lost parts of nodes."""
        self._lost_on_record = {
            holder.removeprefix(HOLDER): member
            for holder, members in holders.items()
            if holder.startswith(HOLDER)
            for member in members
        }

    def _of_lost_parts(self, now: float, epoch: int) -> Iterator[Event]:
        """Parts of stale nodes that are there no more, held until the gangs there have ended."""
        before, self._lost_on_record = self._lost_on_record, dict(self._lost)
        for node in dict.fromkeys((*before, *self._lost)):
            member = self._lost.get(node)
            if member != before.get(node):
                yield OthersHold(
                    id=self._id(f"lost/{node}", epoch),
                    observed_at=now,
                    holder=HOLDER + node,
                    members=() if member is None else (member,),
                )

    def _let_go(self, decided: LedgerView, now: float) -> None:
        """Rebuild the site once other attempts hold room on stale nodes; asked from time to time."""
        if self._stale_nodes and now >= self._asked_at + LETS_GO_S:
            self._asked_at = now
            if attempts_on(self._stale_nodes, decided) != self._attempts_there:
                self.mark_stale(now)

    def _is_settled(self, now: float) -> bool:
        """Whether the site has changed, and is to be rebuilt now."""
        if self._stale_since is None:
            return False
        pause_s = min(PAUSE_OF_TOOK * self._took_s, LONGEST_PAUSE_S)
        return now >= max(self._stale_since + SETTLE_S, self._built_at + pause_s)

    def _rebuilt(self, decided: LedgerView, now: float) -> Cluster | None:
        """The rebuilt site; None if nodes make no valid site: then the last one stays until nodes change again."""
        began_s = time.perf_counter()
        try:
            cluster = self.build(decided, now)
            self._took_s = time.perf_counter() - began_s
            return cluster
        except BadInput as error:
            log.error("the nodes make no site, so the last one stays: %s", error)
            self._stale_since = None
            return None

    def _of_node(self, name: str, known: SiteView, now: float, epoch: int) -> Iterator[Event]:
        node = self._nodes.get(name)
        may_be_used = node is not None and usable(node)
        if may_be_used and known.is_lost(name):
            yield NodeReturned(id=self._id(name, epoch), observed_at=now, node=name)
        elif not may_be_used and not known.is_lost(name):
            reason = "it was deleted" if node is None else "it is not ready"
            yield NodeLost(id=self._id(name, epoch), observed_at=now, node=name, reason=reason)
        cordoned_for = known.cordon_reason(name)
        why = None if node is None else why_cordoned(node, is_tainted=name in self._tainted)
        if why is not None and cordoned_for is None:
            yield CordonRequested(id=self._id(name, epoch), observed_at=now, node=name, reason=why)
        elif why is None and cordoned_for is not None and is_of_kubernetes(cordoned_for):
            yield UncordonRequested(
                id=self._id(name, epoch), observed_at=now, node=name, forgives=False
            )
        yield from self._health(name, node, known, now, epoch)

    def _health(
        self, name: str, node: Node | None, known: SiteView, now: float, epoch: int
    ) -> Iterator[Event]:
        """A fault that a condition reports, or that none does any more."""
        before = known.health_reason(name, SOURCE)
        wrong = "" if node is None else what_is_wrong(node, before)
        is_lost = node is not None and has_lost_gpu(node)
        if wrong != before or is_lost != known.has_lost_gpu(name, SOURCE):
            yield HealthObserved(
                id=self._id(name, epoch),
                observed_at=now,
                node=name,
                source=SOURCE,
                reason=wrong,
                lost_gpus=() if is_lost else None,
            )

    def _id(self, noun: str, epoch: int) -> str:
        self._told += 1
        return f"kubernetes/{noun}/{epoch}.{self._told}"


def _with_cordon_taint(cluster: Cluster) -> frozenset[str]:
    return frozenset(
        node.name
        for node in cluster.nodes
        if any(taint.key == UNSCHEDULABLE for taint in node.taints)
    )
