"""Counts of a dry run: when and where both schedulers bound each pod, and the GPU time that both used."""

from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from gantree.executors.kubernetes.apiserver.objects import Node, Pod, PodStatus
from gantree.executors.kubernetes.nodes.site import site_fields
from gantree.executors.kubernetes.pods import annotations as marks
from gantree.executors.kubernetes.pods.pod_amounts import amounts_of
from gantree.executors.kubernetes.workloads.keys import Key, key_of
from gantree.model.jobs import GPU_RESOURCES

MOST_GANGS = 1_000
"""Gangs that the tally keeps; the oldest ended ones are dropped first."""
_MARKS = frozenset({
    marks.JOB, marks.ATTEMPT, marks.MEMBER, marks.MEMBERS, marks.RANK, marks.WORLD_SIZE, marks.ROLE, marks.GPUS,
    marks.NICS, marks.DOMAIN, marks.FIRST_NODE, marks.NEIGHBOURS,
})  # fmt: skip
"""What a gantree that is in charge wrote onto its pods is no word of ours."""


@dataclass(slots=True)
class BindingTimes:
    """What one scheduler did with a pod: the node where it is, since when, and when it first had one."""

    node: str = ""
    bound_at: float | None = None
    first_at: float | None = None
    holds: bool = False


@dataclass(slots=True)
class ShadowPod:
    """A pod of the scheduler in charge, and what it is shown as.

    stops counts how often gantree stopped it: it is another pod each time. is_left_over: it is gone in truth.
    """

    pod: Pod
    seen_at: float
    gpus: int = 0
    theirs: BindingTimes = field(default_factory=BindingTimes)
    ours: BindingTimes = field(default_factory=BindingTimes)
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
class ShadowGang:
    """A gang: its pods, as they came."""

    key: Key
    pods: list[ShadowPod] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether all its pods have ended in truth: others of its name are another gang."""
        return all(shadow_pod.ended_at is not None for shadow_pod in self.pods)


@dataclass(slots=True)
class GpuTime:
    """GPUs that are held now, and GPU-seconds that were, in each of the two worlds."""

    gpus: int = 0
    gpu_s: float = 0.0


class ShadowTally:
    """Changes at moments that never go back."""

    def __init__(self, now: float) -> None:
        self.began_at = self.now = now
        self.nodes: dict[str, Node] = {}
        self.site_edition = 0
        """Another one whenever nodes have changed in what a site is made of."""
        self.gangs: list[ShadowGang] = []
        self.theirs, self.ours = GpuTime(), GpuTime()
        self.withheld: dict[str, int] = {}
        """How many writes were not sent, by what they would have been."""
        self._gang_of_key: dict[Key, ShadowGang] = {}
        self._gpus_of_other: dict[str, int] = {}

    def advance(self, now: float) -> None:
        """Time has passed."""
        passed_s = max(0.0, now - self.now)
        for held in (self.theirs, self.ours):
            held.gpu_s += held.gpus * passed_s
        self.now = max(self.now, now)

    # ----- pods that are decided about

    def add(self, shadow_pod: ShadowPod) -> None:
        """A pod came."""
        key = key_of(shadow_pod.pod)
        gang = self._gang_of_key.get(key)
        if gang is None or gang.is_over:
            gang = self._gang_of_key[key] = ShadowGang(key)
            self.gangs.append(gang)
            self._forget_some()
        gang.pods.append(shadow_pod)

    def update(self, shadow_pod: ShadowPod, pod: Pod, now: float) -> None:
        """A pod is like this in truth."""
        self.advance(now)
        shadow_pod.pod = pod
        if (
            pod.spec.node_name
            and shadow_pod.theirs.bound_at is None
            and shadow_pod.ended_at is None
        ):
            shadow_pod.theirs.node, shadow_pod.theirs.bound_at = pod.spec.node_name, now
            shadow_pod.theirs.first_at = now
            self._take(self.theirs, shadow_pod.theirs, shadow_pod.gpus)
        if pod.has_ended:
            self.end(shadow_pod, now)

    def end(self, shadow_pod: ShadowPod, now: float) -> None:
        """A pod has ended in truth, or is gone."""
        self.advance(now)
        if shadow_pod.ended_at is None:
            shadow_pod.ended_at = now
            self._give(self.theirs, shadow_pod.theirs, shadow_pod.gpus)

    def bind(self, shadow_pod: ShadowPod, node: str, now: float) -> None:
        """Gantree binds a pod."""
        self.advance(now)
        shadow_pod.ours.node, shadow_pod.ours.bound_at = node, now
        shadow_pod.ours.first_at = shadow_pod.ours.first_at or now
        self._take(self.ours, shadow_pod.ours, shadow_pod.gpus)

    def release(self, shadow_pod: ShadowPod, now: float) -> None:
        """What gantree gave to a pod is free again."""
        self.advance(now)
        self._give(self.ours, shadow_pod.ours, shadow_pod.gpus)

    def stop(self, shadow_pod: ShadowPod, now: float) -> None:
        """Gantree stops a pod."""
        self.release(shadow_pod, now)
        shadow_pod.ours.node, shadow_pod.ours.bound_at = "", None
        shadow_pod.annotations, shadow_pod.is_ending = {}, False
        shadow_pod.stops += 1

    def update_node(self, name: str, node: Node | None) -> None:
        """A node is like this; None: it is gone."""
        before = self.nodes.pop(name, None)
        if node is not None:
            self.nodes[name] = node
        if before is None or node is None or site_fields(before) != site_fields(node):
            self.site_edition += 1

    # ----- others, which hold the same in both worlds

    def update_foreign_pod(self, pod: Pod, now: float) -> None:
        """A pod that is shown as it is."""
        uid = pod.metadata.uid
        if not pod.spec.node_name or pod.has_ended:
            self.remove_foreign_pod(uid, now)
        elif uid not in self._gpus_of_other:
            gpus = self._gpus_of_other[uid] = gpus_of(pod)
            self._hold_both(gpus, now)

    def remove_foreign_pod(self, uid: str, now: float) -> None:
        """It is gone, or has ended."""
        self._hold_both(-self._gpus_of_other.pop(uid, 0), now)

    def keep_foreign_pods(self, there: Collection[str], now: float) -> None:
        """Only these are there."""
        for uid in [uid for uid in self._gpus_of_other if uid not in there]:
            self.remove_foreign_pod(uid, now)

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
    def _take(held: GpuTime, side: BindingTimes, gpus: int) -> None:
        held.gpus, side.holds = held.gpus + gpus, True

    @staticmethod
    def _give(held: GpuTime, side: BindingTimes, gpus: int) -> None:
        if side.holds:
            held.gpus, side.holds = held.gpus - gpus, False

    def _forget_some(self) -> None:
        if len(self.gangs) > MOST_GANGS:
            oldest = next((gang for gang in self.gangs if gang.is_over), None)
            if oldest is not None:
                self.gangs.remove(oldest)
                if self._gang_of_key.get(oldest.key) is oldest:
                    del self._gang_of_key[oldest.key]


def gpus_of(pod: Pod) -> int:
    """How many GPUs a pod asks for."""
    amounts = amounts_of(pod.spec)
    return int(sum(amounts.get(name, 0.0) for name in GPU_RESOURCES))
