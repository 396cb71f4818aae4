"""What a dry run counts: for each pod where and when two schedulers bound it, and the GPU time that both have held."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Node, Pod, PodStatus
from gantree.executors.kubernetes.nodes.site import told_of
from gantree.executors.kubernetes.pods import annotations as marks
from gantree.executors.kubernetes.pods.shapes import amounts_of
from gantree.executors.kubernetes.workloads.keys import Key, key_of
from gantree.topology.discovery.listings.kubernetes_nodes import GPU_RESOURCES

MOST_GANGS = 1_000
"""Gangs of which the tally knows; of those that are over the oldest are forgotten first."""
_MARKS = frozenset({
    marks.JOB, marks.ATTEMPT, marks.MEMBER, marks.MEMBERS, marks.RANK, marks.WORLD_SIZE, marks.ROLE, marks.GPUS,
    marks.NICS, marks.DOMAIN, marks.FIRST_NODE, marks.NEIGHBOURS,
})  # fmt: skip
"""What a gantree that is in charge wrote onto its pods is no word of ours."""


@dataclass(slots=True)
class Side:
    """What one scheduler did with a pod: the node where it is, since when, and when it first had one."""

    node: str = ""
    bound_at: float | None = None
    first_at: float | None = None
    holds: bool = False


@dataclass(slots=True)
class Shade:
    """A pod of the scheduler in charge, and what it is shown as.

    stops counts how often gantree stopped it: it is another pod each time. is_left_over: it is gone in truth.
    """

    pod: Pod
    seen_at: float
    gpus: int = 0
    theirs: Side = field(default_factory=Side)
    ours: Side = field(default_factory=Side)
    annotations: dict[str, str] = field(default_factory=dict)
    ended_at: float | None = None
    stops: int = 0
    edition: int = 0
    is_ending: bool = False
    is_over: bool = False
    is_left_over: bool = False

    def __post_init__(self) -> None:
        """Its GPUs never change."""
        self.gpus = gpus_of(self.pod)

    @property
    def shown_uid(self) -> str:
        """It is another pod after each stop."""
        uid = self.pod.metadata.uid
        return f"{uid}-{self.stops}" if self.stops else uid

    def shown(self) -> Pod:
        """The pod as gantree sees it."""
        told, replace = self.pod, msgspec.structs.replace
        own = {key: text for key, text in told.metadata.annotations.items() if key not in _MARKS}
        metadata = replace(
            told.metadata,
            uid=self.shown_uid,
            resource_version=f"{told.metadata.resource_version}.{self.edition}",
            annotations=own | self.annotations,
            deletion_timestamp=None,
        )
        status = told.status
        if not (self.is_over and told.has_ended):
            status = PodStatus(phase="Running" if self.ours.node else "Pending")
        return Pod(metadata, replace(told.spec, node_name=self.ours.node), status)


@dataclass(slots=True)
class Row:
    """A gang: its pods, as they came."""

    key: Key
    shades: list[Shade] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether all its pods have ended in truth: others of its name are another gang."""
        return all(shade.ended_at is not None for shade in self.shades)


@dataclass(slots=True)
class Held:
    """GPUs that are held now, and GPU-seconds that were, in each of the two worlds."""

    gpus: int = 0
    gpu_s: float = 0.0


class Tally:
    """Changes at moments that never go back."""

    def __init__(self, now: float) -> None:
        self.began_at = self.now = now
        self.nodes: dict[str, Node] = {}
        self.site_edition = 0
        """Another one whenever nodes have changed in what a site is made of."""
        self.rows: list[Row] = []
        self.theirs, self.ours = Held(), Held()
        self.withheld: dict[str, int] = {}
        """How many writes were not sent, by what they would have been."""
        self._row_of_key: dict[Key, Row] = {}
        self._gpus_of_other: dict[str, int] = {}

    def advance(self, now: float) -> None:
        """Time has passed."""
        passed_s = max(0.0, now - self.now)
        for held in (self.theirs, self.ours):
            held.gpu_s += held.gpus * passed_s
        self.now = max(self.now, now)

    # ----- pods that are decided about

    def begin(self, shade: Shade) -> None:
        """A pod came."""
        key = key_of(shade.pod)
        row = self._row_of_key.get(key)
        if row is None or row.is_over:
            row = self._row_of_key[key] = Row(key)
            self.rows.append(row)
            self._forget_some()
        row.shades.append(shade)

    def see(self, shade: Shade, pod: Pod, now: float) -> None:
        """A pod is like this in truth."""
        self.advance(now)
        shade.pod = pod
        if pod.spec.node_name and shade.theirs.bound_at is None and shade.ended_at is None:
            shade.theirs.node, shade.theirs.bound_at = pod.spec.node_name, now
            shade.theirs.first_at = now
            self._take(self.theirs, shade.theirs, shade.gpus)
        if pod.has_ended:
            self.end(shade, now)

    def end(self, shade: Shade, now: float) -> None:
        """A pod has ended in truth, or is gone."""
        self.advance(now)
        if shade.ended_at is None:
            shade.ended_at = now
            self._give(self.theirs, shade.theirs, shade.gpus)

    def bind(self, shade: Shade, node: str, now: float) -> None:
        """Gantree binds a pod."""
        self.advance(now)
        shade.ours.node, shade.ours.bound_at = node, now
        shade.ours.first_at = shade.ours.first_at or now
        self._take(self.ours, shade.ours, shade.gpus)

    def release(self, shade: Shade, now: float) -> None:
        """What gantree gave to a pod is free again."""
        self.advance(now)
        self._give(self.ours, shade.ours, shade.gpus)

    def stop(self, shade: Shade, now: float) -> None:
        """Gantree stops a pod."""
        self.release(shade, now)
        shade.ours.node, shade.ours.bound_at = "", None
        shade.annotations, shade.is_ending = {}, False
        shade.stops += 1

    def see_node(self, name: str, node: Node | None) -> None:
        """A node is like this; None: it is gone."""
        before = self.nodes.pop(name, None)
        if node is not None:
            self.nodes[name] = node
        if before is None or node is None or told_of(before) != told_of(node):
            self.site_edition += 1

    # ----- others, which hold the same in both worlds

    def see_other(self, pod: Pod, now: float) -> None:
        """A pod that is shown as it is."""
        uid = pod.metadata.uid
        if not pod.spec.node_name or pod.has_ended:
            self.lose_other(uid, now)
        elif uid not in self._gpus_of_other:
            gpus = self._gpus_of_other[uid] = gpus_of(pod)
            self._hold_both(gpus, now)

    def lose_other(self, uid: str, now: float) -> None:
        """It is gone, or has ended."""
        self._hold_both(-self._gpus_of_other.pop(uid, 0), now)

    def keep_others(self, there: Collection[str], now: float) -> None:
        """Only these are there."""
        for uid in [uid for uid in self._gpus_of_other if uid not in there]:
            self.lose_other(uid, now)

    def withhold(self, method: str, steps: list[str]) -> None:
        """A write was not sent."""
        resource = steps[-1] if steps[-1] in ("binding", "eviction", "status", "events") else ""
        what = f"{method} {resource or '/'.join(steps[:-1] if method != 'POST' else steps)}"
        self.withheld[what] = self.withheld.get(what, 0) + 1

    def _hold_both(self, gpus: int, now: float) -> None:
        self.advance(now)
        self.theirs.gpus += gpus
        self.ours.gpus += gpus

    @staticmethod
    def _take(held: Held, side: Side, gpus: int) -> None:
        held.gpus, side.holds = held.gpus + gpus, True

    @staticmethod
    def _give(held: Held, side: Side, gpus: int) -> None:
        if side.holds:
            held.gpus, side.holds = held.gpus - gpus, False

    def _forget_some(self) -> None:
        if len(self.rows) > MOST_GANGS:
            oldest = next((row for row in self.rows if row.is_over), None)
            if oldest is not None:
                self.rows.remove(oldest)
                if self._row_of_key.get(oldest.key) is oldest:
                    del self._row_of_key[oldest.key]


def gpus_of(pod: Pod) -> int:
    """How many GPUs a pod asks for."""
    amounts = amounts_of(pod.spec)
    return int(sum(amounts.get(name, 0.0) for name in GPU_RESOURCES))
