"""Nodes on which the pods of a gang may run now, by constraints that depend on other pods and on volumes.

These change all the time, unlike what manifests ask of nodes. They go to the core as node restrictions
(`gantree.model.node_restrictions`), again whenever they change, so that it places, preempts and explains with them.
They are checked once more before pods are bound (`admit`): two gangs may have been placed in one turn, and constraints
between pods of one gang can only be checked then. Gangs with constraints that match their own pods (spread, affinity
and anti-affinity to pods like themselves) are submitted in batches (`pod_turns`), as are replicas of several pods that
keep away from each other, and pods that share a claim without devices one after the other (`claim_turns`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import affinity, channels, spread
from gantree.executors.kubernetes.constraints.affinity import Placed
from gantree.executors.kubernetes.constraints.claim_turns import ClaimTurns, claims_open_to_others
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.constraints.pod_index import PodIndex
from gantree.executors.kubernetes.constraints.pod_turns import PodTurns
from gantree.executors.kubernetes.constraints.volume_writes import Provision
from gantree.executors.kubernetes.constraints.volumes import Volumes, claims_of
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import PendingGang
from gantree.executors.kubernetes.workloads.serving import spread_service_of
from gantree.model.jobs import Job, Spread
from gantree.model.node_rules import (
    NAME_KEY,
    NODE_RESTRICTIONS_LABEL,
    Alternatives,
    Requirement,
    rule_text,
)

NO_VOLUMES = "volumes that are free and suit its claims are on other nodes"
MOST_ALTERNATIVES = 64
"""Alternatives in one rule, at most; claims with more possible volumes wait until one is bound."""
PLACED_FIRST = "pods that its constraints count are placed first"
NODE = "node"
NOWHERE = Requirement(NAME_KEY, "in", ())
"""No node is like that."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The node restrictions of a gang by role, their reason, and why it can run nowhere yet ("" if it can).

    at_most is for how many members of a role one node has volumes.
    """

    restrictions: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    waits: str = ""
    at_most: tuple[tuple[str, int], ...] = ()

    def restrictions_for(self, job: Job) -> dict[str, str]:
        """Return the node restrictions of the gang's job, whose roles may have been split (`gang_constraints`)."""
        told = dict(self.restrictions)
        names = (role.name for role in job.roles)
        return {name: told[role_of(name)] for name in names if role_of(name) in told}

    def limited(self, job: Job) -> Job:
        """The job, which is this gang, with no more members on a node than this has volumes for."""
        told = dict(self.at_most)
        roles = (
            replace(role, topology=replace(role.topology, spread=Spread(NODE, told[role.name])))
            if role.name in told and role.topology.spread is None
            else role
            for role in job.roles
        )
        return replace(job, roles=tuple(roles)) if told else job

    def is_tighter_than(self, job: Job) -> bool:
        """Whether a node has volumes for fewer members by now than the job was limited to."""
        told = dict(self.at_most)
        spreads = ((role.name, role.topology.spread) for role in job.roles)
        return any(
            spread is None or (spread.tier == NODE and (spread.at_most or 0) > told[name])
            for name, spread in spreads
            if name in told
        )


ANYWHERE = Verdict()
"""No constraint depends on pods or volumes."""


class InterPodFeasibility:
    """Pods, nodes and volumes, and what follows from them for pending gangs."""

    def __init__(self) -> None:
        self.index, self.volumes = PodIndex(), Volumes()
        self._seen = (0, 0, 0)
        self._nodes_version = 0
        self._dynamic: dict[Key, None] = {}
        self._turns, self._claim_turns = PodTurns(), ClaimTurns()

    # ----- objects

    def update(self, pod: Pod, *, gone: bool, is_member: bool) -> None:
        """A pod was added, has changed or is gone. is_member: it is bound, or about to be."""
        if gone or pod.has_ended or not (pod.spec.node_name or is_member):
            self._leave(pod)
        elif pod.spec.node_name:
            self._place(pod, pod.spec.node_name)

    def _place(self, pod: Pod, node: str) -> None:
        self.index.place(pod, node)
        if pod.spec.volumes:
            self.volumes.use(pod, ends=False)

    def _leave(self, pod: Pod) -> None:
        self.index.remove(pod.metadata.uid)
        if pod.spec.volumes:
            self.volumes.use(pod, ends=True)

    # ----- pending gangs

    def stale(self, gangs: Mapping[Key, PendingGang], now_s: float) -> list[Key]:
        """Pending gangs whose restrictions may have changed since the last call, or whose turn may have come."""
        woken = [*self._turns.pop_woken(now_s), *self._claim_turns.pop_woken(now_s)]
        now = (self.index.version, self.volumes.version, self.index.anti_affinity_version)
        if now == self._seen:
            return woken
        anti_affinity_before, self._seen = self._seen[2], now
        self._dynamic = {key: None for key in self._dynamic if key in gangs}
        if anti_affinity_before == now[2]:
            return [*woken, *self._dynamic]
        kept = (
            key for key in gangs if not self._turns.waits(key) and self._is_kept_away(gangs[key])
        )
        return list(dict.fromkeys((*woken, *self._dynamic, *kept)))

    def _is_kept_away(self, pending_gang: PendingGang) -> bool:
        """Whether anti-affinity of running pods matches the first pod of a gang."""
        pod = next(iter(pending_gang.pods.values()), None)
        return pod is not None and bool(self.index.forbidden_domains(pod))

    def depends_on_others(self, gang: Gang) -> bool:
        """Whether other pods can matter to a gang: not to one pod without constraints, if none of theirs matches it."""
        pods = gang.pods
        if len(pods) > 1 or self.index.has_anti_affinity or self.index.preferred_affinity.has_any:
            return True
        return has_constraints(pods[0])

    def evaluate(self, gang: Gang) -> Verdict:
        """Where a gang may run now."""
        if any(map(has_dynamic_constraints, gang.pods)):
            self._dynamic[gang.key] = None
        elif not self.index.has_anti_affinity:
            return ANYWHERE
        self._follow_nodes()
        missing = (self.volumes.missing(pod) for pod in gang.pods if pod.spec.volumes)
        waits = next(filter(None, missing), "")
        if waits:
            nowhere = rule_text(((NOWHERE,),))
            return Verdict(tuple((role.name, nowhere) for role, _ in gang.roles), waits, waits)
        restrictions: list[tuple[str, str]] = []
        reasons: dict[str, None] = {}
        at_most: list[tuple[str, int]] = []
        for role, of_role in gang.roles:
            asked = list(self._requirements(of_role[0], len(of_role)))
            limit = self.volumes.limit(of_role, self.index.nodes)
            if limit is not None:
                asked.append((Requirement(NAME_KEY, "in", limit.nodes), NO_VOLUMES))
            if limit is not None and limit.at_most is not None:
                at_most.append((role.name, limit.at_most))
            ways: list[Alternatives] = [((each,),) for each, _ in asked]
            of_volumes = [each for pod in of_role for each in self.volumes.asked(pod)]
            ways += dict.fromkeys(of_volumes)
            if ways:
                restrictions.append((role.name, _together(ways)))
            reasons |= dict.fromkeys(why for _, why in asked)
            reasons |= {"its volumes are not everywhere": None} if of_volumes else {}
        return Verdict(tuple(restrictions), "; ".join(reasons), at_most=tuple(at_most))

    def _follow_nodes(self) -> None:
        if self._nodes_version != self.index.nodes_version:
            self._nodes_version = self.index.nodes_version
            self.volumes.forget_limits()

    def _requirements(self, pod: Pod, members: int) -> Iterator[affinity.NodeConstraint]:
        yield from affinity.requirements(self.index, pod)
        yield from channels.requirements(self.index, pod)
        yield from spread.requirements(self.index, pod, members)

    # ----- in batches

    def acquire_turn(self, gang: Gang, now_s: float) -> str:
        """Why other gangs are to be placed first; "" if none is, and from now on it is the turn of this one."""
        if not self._turns.acquire(gang.key, self._limits(gang), now_s):
            self._dynamic.pop(gang.key, None)
            return PLACED_FIRST
        return self._claim_turns.acquire(gang.key, claims_open_to_others(gang.pods), now_s)

    def leave_queue(self, key: Key) -> None:
        """A gang is placed or gone: the next have their turn."""
        self._turns.leave(key)
        self._claim_turns.leave(key)

    def release_turn(self, key: Key) -> None:
        """A gang that has its turn cannot use it now: the next have it."""
        self._turns.release(key)
        self._claim_turns.release(key)

    def _limits(self, gang: Gang) -> dict[str, int]:
        """How many gangs may be placed with the present restrictions, by selector that matches their own pods."""
        limits: dict[str, int] = {}
        for _, pods in gang.roles:
            if has_dynamic_constraints(pods[0]):
                for name, limit in self._limits_of(pods[0]):
                    limits[name] = min(limit, limits.get(name, limit))
        if len(gang.pods) == 1:
            return limits
        spread = spread_service_of(gang.pods[0])
        return dict.fromkeys((*limits, *([spread] if spread else [])), 0)

    def _limits_of(self, pod: Pod) -> Iterator[tuple[str, int]]:
        for term in pod.spec.anti_affinity_terms:
            selector = self.index.selector_of(term, pod)
            if not selector.counted_by and selector.matches(pod):
                yield selector.name, 1
        for term in pod.spec.affinity_terms:
            selector = self.index.selector_of(term, pod)
            if selector.matches(pod) and not self.index.counts_by_node(selector):
                yield selector.name, 1
        for constraint in spread.constraints_of(pod):
            selector = spread.selector_of(pod, constraint)
            if selector.matches(pod):
                yield selector.name, spread.room(self.index, pod, constraint)

    # ----- placed gangs

    def admit(self, placed: Placed, key: Key | None = None) -> str:
        """Check pods of a gang before they are bound: "" and they count as bound, or why they must not be.

        Once they count, the turn of the gang with this key is over.
        """
        for pod, node in placed:
            self._place(pod, node)
        if not (
            self.index.has_anti_affinity or any(has_dynamic_constraints(pod) for pod, _ in placed)
        ):
            return ""
        objections = (
            *affinity.objections(self.index, placed),
            *spread.objections(self.index, placed),
            *filter(None, (self.volumes.missing(pod) for pod, _ in placed)),
            *filter(None, (self.volumes.choose(placed, self.index.nodes),)),
        )
        if objections:
            for pod, _ in placed:
                self._leave(pod)
        elif key is not None:
            self._turns.release(key)
        return objections[0] if objections else ""

    def forget(self, pod: Pod) -> None:
        """A pod is not bound after all."""
        self._leave(pod)

    def to_make(self, placed: Placed) -> tuple[Provision, ...]:
        """Volumes that are to be made where pods of a gang go."""
        return tuple(each for pod, node in placed for each in self.volumes.to_make(pod, node))


@once_per_template
def has_dynamic_constraints(pod: Pod) -> bool:
    """Whether a pod has constraints that depend on other pods, or on volumes."""
    spec = pod.spec
    hangs_on_pods = spec.anti_affinity_terms or spec.affinity_terms or spread.constraints_of(pod)
    return bool(hangs_on_pods or claims_of(pod) or channels.is_led_by_domain(pod))


@once_per_template
def has_constraints(pod: Pod) -> bool:
    """Whether a pod has constraints or preferences beside its shape."""
    spec, labels = pod.spec, pod_request(pod).shape.labels
    is_barred = any(name == NODE_RESTRICTIONS_LABEL for name, _ in labels)
    told = (spec.affinity, spec.topology_spread_constraints, pod.claimed, is_barred)
    return any(told) or has_dynamic_constraints(pod)


def _together(ways: Sequence[Alternatives]) -> str:
    """The rule of nodes that are as each of several rules asks."""
    count = 1
    for each in ways:
        count *= len(each)
    if count > MOST_ALTERNATIVES:
        return rule_text(((NOWHERE,),))
    terms = [tuple(r for term in chosen for r in term) for chosen in product(*ways)]
    found = tuple(tuple(_expressible(r) for r in dict.fromkeys(term)) for term in terms)
    return rule_text(found or ((NOWHERE,),))


def _expressible(asked: Requirement) -> Requirement:
    """A requirement that can be written as a rule; one without values matches no node."""
    return NOWHERE if asked.operator == "in" and not asked.values else asked
