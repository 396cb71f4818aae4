"""Where pods of a gang may be as things are: not what their manifests ask of nodes, which never changes, but what hangs
on other pods and on volumes, which does all the time.

What nodes must be like now goes to the core as *bars* (`gantree.model.node_restrictions`), anew whenever it is another:
so the core looks for room, preempts and explains with it. It is looked at again once the core has decided and before
anything is written (`admit`): two gangs may have been placed in one turn, and what a gang's pods ask of each other is
known only then. Gangs that count their own kind (a spread, keeping away from or near to pods like themselves) are
handed in one after the other, each when the one before has its place.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints import affinity, channels, spread
from gantree.executors.kubernetes.constraints.affinity import Placed
from gantree.executors.kubernetes.constraints.gang_constraints import role_of
from gantree.executors.kubernetes.constraints.pod_index import Scene
from gantree.executors.kubernetes.constraints.volume_writes import Provision
from gantree.executors.kubernetes.constraints.volumes import Volumes, claims_of
from gantree.executors.kubernetes.pods.shapes import asked_by
from gantree.executors.kubernetes.pods.templates import once_per_template
from gantree.executors.kubernetes.workloads.gangs import Gang
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import Crowd
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
"""Of one rule; claims whose volumes together have more ways than these wait until one of them is bound."""
NODE = "node"
NOWHERE = Requirement(NAME_KEY, "in", ())
"""No node is like that."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The bars of a gang, role by role, why they are there, and why it cannot be anywhere yet ("" where it can).

    at_most is how many members of a role one node has volumes for.
    """

    bars: tuple[tuple[str, str], ...] = ()
    reason: str = ""
    waits: str = ""
    at_most: tuple[tuple[str, int], ...] = ()

    def bars_for(self, job: Job) -> dict[str, str]:
        """The bars of a job that is this gang, whose roles may have been cut in two (`wishes`)."""
        told = dict(self.bars)
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
"""Nothing hangs on others."""


class Whereabouts:
    """What is seen of pods, nodes and volumes, and what follows for gangs that wait."""

    def __init__(self) -> None:
        self.scene, self.volumes = Scene(), Volumes()
        self._seen = (0, 0, 0)
        self._nodes_version = 0
        self._subject: dict[Key, None] = {}
        self._lanes: dict[str, Key] = {}
        self._behind: dict[str, dict[Key, None]] = {}
        self._next: dict[Key, None] = {}

    # ----- what is seen

    def see(self, pod: Pod, *, gone: bool, seated: bool) -> None:
        """A pod is like this. seated: it is about to be bound, if it is not."""
        if gone or pod.has_ended or not (pod.spec.node_name or seated):
            self._leave(pod)
        elif pod.spec.node_name:
            self._place(pod, pod.spec.node_name)

    def _place(self, pod: Pod, node: str) -> None:
        self.scene.place(pod, node)
        if pod.spec.volumes:
            self.volumes.use(pod, ends=False)

    def _leave(self, pod: Pod) -> None:
        self.scene.remove(pod.metadata.uid)
        if pod.spec.volumes:
            self.volumes.use(pod, ends=True)

    # ----- gangs that wait

    def stale(self, crowds: Mapping[Key, Crowd]) -> list[Key]:
        """The gangs that wait about which something may have changed since the last time."""
        woken, self._next = list(self._next), {}
        now = (self.scene.version, self.volumes.version, self.scene.keepers_version)
        if now == self._seen:
            return woken
        keepers_before, self._seen = self._seen[2], now
        self._subject = {key: None for key in self._subject if key in crowds}
        if keepers_before == now[2]:
            return [*woken, *self._subject]
        kept = (key for key, crowd in crowds.items() if self._is_kept_away(crowd))
        return list(dict.fromkeys((*woken, *self._subject, *kept)))

    def _is_kept_away(self, crowd: Crowd) -> bool:
        """Whether somebody keeps the pods of a gang away, as far as one of them tells."""
        pod = next(iter(crowd.pods.values()), None)
        return pod is not None and bool(self.scene.kept_away(pod))

    def hang_on_others(self, gang: Gang) -> bool:
        """Whether it matters to a gang who else is there: to none of one pod that asks nothing of others, where nobody
        asks anything of it."""
        pods = gang.pods
        if len(pods) > 1 or self.scene.has_keepers or self.scene.leanings.are_there:
            return True
        return asks_of_others(pods[0])

    def look(self, gang: Gang) -> Verdict:
        """Where a gang may be now."""
        if any(map(is_subject, gang.pods)):
            self._subject[gang.key] = None
        elif not self.scene.has_keepers:
            return ANYWHERE
        self._follow_nodes()
        missing = (self.volumes.missing(pod) for pod in gang.pods if pod.spec.volumes)
        waits = next(filter(None, missing), "")
        if waits:
            nowhere = rule_text(((NOWHERE,),))
            return Verdict(tuple((role.name, nowhere) for role, _ in gang.roles), waits, waits)
        bars: list[tuple[str, str]] = []
        reasons: dict[str, None] = {}
        at_most: list[tuple[str, int]] = []
        for role, of_role in gang.roles:
            asked = list(self._asked(of_role[0], len(of_role)))
            limit = self.volumes.limit(of_role, self.scene.nodes)
            if limit is not None:
                asked.append((Requirement(NAME_KEY, "in", limit.nodes), NO_VOLUMES))
            if limit is not None and limit.at_most is not None:
                at_most.append((role.name, limit.at_most))
            ways: list[Alternatives] = [((each,),) for each, _ in asked]
            of_volumes = [each for pod in of_role for each in self.volumes.asked(pod)]
            ways += dict.fromkeys(of_volumes)
            if ways:
                bars.append((role.name, _together(ways)))
            reasons |= dict.fromkeys(why for _, why in asked)
            reasons |= {"its volumes are not everywhere": None} if of_volumes else {}
        return Verdict(tuple(bars), "; ".join(reasons), at_most=tuple(at_most))

    def _follow_nodes(self) -> None:
        if self._nodes_version != self.scene.nodes_version:
            self._nodes_version = self.scene.nodes_version
            self.volumes.forget_limits()

    def _asked(self, pod: Pod, of_its_kind: int) -> Iterator[affinity.Why]:
        yield from affinity.asked(self.scene, pod)
        yield from channels.asked(self.scene, pod)
        yield from spread.asked(self.scene, pod, of_its_kind)

    # ----- one after the other

    def is_its_turn(self, gang: Gang) -> bool:
        """Whether no gang of a kind that this one counts has to get its place before; from now on it is its turn."""
        lanes = list(self._lanes_of(gang))
        for lane in lanes:
            if self._lanes.get(lane, gang.key) != gang.key:
                self._behind.setdefault(lane, {})[gang.key] = None
                self._subject.pop(gang.key, None)
                return False
        self._lanes |= dict.fromkeys(lanes, gang.key)
        return True

    def leaves_line(self, key: Key) -> None:
        """A gang waits for its first place no more: it is the turn of the next."""
        for lane in [lane for lane, behind in self._behind.items() if key in behind]:
            self._step_back(lane, key)
        self.gives_turn_up(key)

    def gives_turn_up(self, key: Key) -> None:
        """A gang whose turn it is, if it is, cannot use it."""
        for lane in [lane for lane, first in self._lanes.items() if first == key]:
            del self._lanes[lane]
            if lane in self._behind:
                first = next(iter(self._behind[lane]))
                self._step_back(lane, first)
                self._lanes[lane] = first
                self._next[first] = None

    def _step_back(self, lane: str, key: Key) -> None:
        del self._behind[lane][key]
        if not self._behind[lane]:
            del self._behind[lane]

    def _lanes_of(self, gang: Gang) -> Iterator[str]:
        """Names of the kinds of pods that a gang counts and is of."""
        for _, pods in gang.roles:
            pod = pods[0]
            if not is_subject(pod):
                continue
            for term in (*pod.spec.keeps_from, *pod.spec.keeps_to):
                kind = self.scene.kind(term, pod)
                if not kind.sole and kind.has(pod):
                    yield kind.name
            for constraint in spread.constraints_of(pod):
                kind = spread.kind_of(pod, constraint)
                if kind.has(pod):
                    yield kind.name

    # ----- what was decided

    def admit(self, placed: Placed) -> str:
        """Pods of a gang are about to be bound to nodes: "" and they are counted there, or why they must not be."""
        for pod, node in placed:
            self._place(pod, node)
        if not (self.scene.has_keepers or any(is_subject(pod) for pod, _ in placed)):
            return ""
        objections = (
            *affinity.objections(self.scene, placed),
            *spread.objections(self.scene, placed),
            *filter(None, (self.volumes.missing(pod) for pod, _ in placed)),
            *filter(None, (self.volumes.choose(placed, self.scene.nodes),)),
        )
        if objections:
            for pod, _ in placed:
                self._leave(pod)
        return objections[0] if objections else ""

    def forget(self, pod: Pod) -> None:
        """A pod is not going to be bound after all."""
        self._leave(pod)

    def to_make(self, placed: Placed) -> tuple[Provision, ...]:
        """Volumes that are to be made where pods of a gang go."""
        return tuple(each for pod, node in placed for each in self.volumes.to_make(pod, node))


@once_per_template
def is_subject(pod: Pod) -> bool:
    """Whether a pod asks for anything that hangs on others, or on volumes."""
    spec = pod.spec
    hangs_on_pods = spec.keeps_from or spec.keeps_to or spread.constraints_of(pod)
    return bool(hangs_on_pods or claims_of(pod) or channels.is_led_by_domain(pod))


@once_per_template
def asks_of_others(pod: Pod) -> bool:
    """Whether a pod asks for, or prefers, anything of pods, volumes or nodes but what its shape says."""
    spec, labels = pod.spec, asked_by(pod).shape.labels
    is_barred = any(name == NODE_RESTRICTIONS_LABEL for name, _ in labels)
    told = (spec.affinity, spec.topology_spread_constraints, pod.claimed, is_barred)
    return any(told) or is_subject(pod)


def _together(ways: Sequence[Alternatives]) -> str:
    """The rule of nodes that are as each of several rules asks."""
    count = 1
    for each in ways:
        count *= len(each)
    if count > MOST_ALTERNATIVES:
        return rule_text(((NOWHERE,),))
    terms = [tuple(r for term in chosen for r in term) for chosen in product(*ways)]
    found = tuple(tuple(_said(r) for r in dict.fromkeys(term)) for term in terms)
    return rule_text(found or ((NOWHERE,),))


def _said(asked: Requirement) -> Requirement:
    """A requirement that a text can hold: a label of no value at all is nowhere."""
    return NOWHERE if asked.operator == "in" and not asked.values else asked
