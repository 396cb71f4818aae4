"""From pods that wait to jobs: each gang is handed in when it is whole, held while it is not, ended when it is gone.

A required topology that the site does not have is an error of the manifest: such a gang is not handed in until its
pods or the site are others, for it must not run where its author did not want it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.channels import together
from gantree.executors.kubernetes.constraints.gang_constraints import wished
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import (
    ANYWHERE,
    Verdict,
    Whereabouts,
)
from gantree.executors.kubernetes.constraints.preferred_affinity import liking
from gantree.executors.kubernetes.controllers.attempt_controller import FOR_PODS
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.shapes import asked_by
from gantree.executors.kubernetes.watch.api_thread import Link
from gantree.executors.kubernetes.workloads.elastic import pods_to_wait
from gantree.executors.kubernetes.workloads.gangs import Gang, in_order, job_of
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import Crowd, Waiting
from gantree.executors.kubernetes.writes.pod_status import MISCONFIGURED, PENDING, Saying, Telling
from gantree.executors.kubernetes.writes.writes import Said
from gantree.model.events import (
    BarsRequested,
    CancelRequested,
    Event,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
)
from gantree.model.jobs import Job, Shape
from gantree.model.node_restrictions import node_restrictions_of, without_node_restrictions
from gantree.model.phases import ENDED, HOLDING, Phase

AT_ONCE = 256
"""Gangs that are looked at in one step: as many as one turn decides about, so that those are bound while the next
are looked at."""
TOO_FEW, NOT_HONOURED = "WaitingForPodsReady", "NotHonoured"


class Reception:
    """Looks at gangs whose pods have changed, and at jobs about which something was decided."""

    def __init__(
        self,
        link: Link,
        waiting: Waiting,
        whereabouts: Whereabouts,
        emit: Callable[[Event], None],
        is_steady: Callable[[str, int], bool],
    ) -> None:
        """is_steady says whether all members of an attempt run."""
        self._link, self._waiting, self._emit = link, waiting, emit
        self._whereabouts = whereabouts
        self._telling, self._is_steady = Telling(self._say), is_steady
        self._unsettled: dict[str, bool] = {}
        """Jobs about which something was told and is yet to be decided; whether that is the end of an attempt."""
        self._site: SiteReading | None = None
        self._barred: dict[Key, None] = {}
        """Gangs that ask for what the site does not have: looked at again when it is another."""
        self._late: dict[Key, None] = {}
        """Gangs that hold their place while further pods of theirs wait."""
        self._epoch = self._counted = 0

    def adopt(self, decided: LedgerView, epoch: int) -> None:
        """Jobs that the ledger knows are the gangs of their names."""
        self._epoch = epoch
        for state in decided.open_jobs():
            namespace, _, name = state.spec.name.partition("/")
            self._waiting.adopt(state.job, _key_in(state.job, namespace, name))

    def ended(self, jobs: Iterable[str]) -> None:
        """Attempts of these jobs have ended: what becomes of the jobs is yet to be decided."""
        self._unsettled |= dict.fromkeys(jobs, True)

    def expects(self, jobs: Iterable[str]) -> None:
        """These jobs were told of, and are yet to be decided about."""
        self._unsettled |= dict.fromkeys(jobs, False)

    def step(self, decided: LedgerView, site: SiteReading | None, now: float) -> None:
        """Tell what follows from what has changed, and a few gangs why they wait."""
        for job, has_ended in list(self._unsettled.items()):
            state = decided.job(job)
            is_rejected = decided.rejection(job) is not None
            if is_rejected or (state is not None and _is_at_rest(state)):
                del self._unsettled[job]
                self._waiting.touch(job)
            elif state is not None and not has_ended:
                del self._unsettled[
                    job
                ]  # it has its place; nothing is to be done for it until that ends
        self._waiting.changed |= dict.fromkeys(self._whereabouts.stale(self._waiting.crowds))
        for key in dict.fromkeys((*self._waiting.take_changed(AT_ONCE), *self._again(site))):
            crowd = self._waiting.crowds.get(key)
            if crowd is not None:
                self._review(crowd, decided, site, now)
                self._waiting.tidy(key)
        self._telling.step(decided, self._waiting.job_of, now)

    def _again(self, site: SiteReading | None) -> Iterator[Key]:
        """Gangs to look at although nothing about them has changed."""
        late, self._late = self._late, {}
        yield from late
        if site is not self._site:
            barred, self._barred, self._site = self._barred, {}, site
            yield from barred

    def _review(
        self, crowd: Crowd, decided: LedgerView, site: SiteReading | None, now: float
    ) -> None:
        if crowd.pods:
            self._telling.waits(crowd.key, now)
        else:
            self._telling.is_over(crowd.key)
            self._whereabouts.leaves_line(crowd.key)
            self._barred.pop(crowd.key, None)
        state = None if crowd.job is None else decided.job(crowd.job)
        if crowd.job is not None and crowd.job not in self._unsettled:
            if state is None or state.phase in ENDED:
                self._whereabouts.leaves_line(crowd.key)
                if not crowd.withdrawn and (state is None or state.phase is not Phase.SUCCEEDED):
                    crowd.refused = frozenset(crowd.pods)
                self._waiting.part(crowd.job)
            elif state.phase is Phase.PENDING:
                self._review_job(crowd, state, decided, now)
        is_fixed = state is None or state.spec.elastic is None
        if crowd.pods and state is not None and state.phase in HOLDING and is_fixed:
            self._review_late(crowd, state)
        if crowd.job is None and crowd.pods:
            self._hand_in(crowd, site, now)
            if crowd.job is None:
                self._whereabouts.gives_turn_up(crowd.key)

    def _review_late(self, crowd: Crowd, state: JobView) -> None:
        """Pods that came after their gang started are gangs of their own; where it ends, they wait for the next."""
        if self._is_steady(state.job, state.attempt):
            self._waiting.set_alone(crowd.key)
        else:
            self._late[crowd.key] = None

    def _review_job(self, crowd: Crowd, state: JobView, decided: LedgerView, now: float) -> None:
        """A job waits: it is held while its pods are not all there, and ended where they never will be."""
        gang = self._waiting.gang(crowd.key)
        members = pods_to_wait(state)
        if self._waiting.is_gone(crowd.key):
            self._withdraw(crowd, state.job, "pods-gone", now)
        elif gang is None or len(gang.pods) < members or gang.blocked:
            self._whereabouts.leaves_line(crowd.key)
            has_claim = decided.claimed_placement(state.job) is not None
            has_room = has_claim and self._waiting.is_made_here(state.job)
            if not state.held and not has_room:
                self._ask(HoldRequested, state.job, "hold", now, reason=FOR_PODS)
        elif not _is_alike(gang.pods, members, state):
            self._withdraw(crowd, state.job, "pods-changed", now)
        else:
            verdict = self._whereabouts.look(gang)
            if not verdict.waits and verdict.is_tighter_than(state.spec):
                self._withdraw(crowd, state.job, "volumes-changed", now)
                return
            self._bar(verdict, state.job, state.spec, now)
            if state.held_for:
                self._ask(ReleaseRequested, state.job, "release", now)

    def _bar(self, verdict: Verdict, job: str, spec: Job, now: float) -> None:
        """Tell where the members of a job may be, if that is not what its bars say."""
        bars = verdict.bars_for(spec)
        if bars != node_restrictions_of(spec):
            told: Any = {"bars": tuple(bars.items()), "reason": verdict.reason}
            self._ask(BarsRequested, job, "bars", now, **told)

    def _withdraw(self, crowd: Crowd, job: str, word: str, now: float) -> None:
        crowd.withdrawn = True
        self._ask(CancelRequested, job, word, now)

    def _hand_in(self, crowd: Crowd, site: SiteReading | None, now: float) -> None:
        gang = self._waiting.gang(crowd.key)
        if gang is None:
            self._telling.say(crowd.key, Saying(TOO_FEW, self._waiting.what_is_missing(crowd.key)))
        elif site is not None and frozenset(crowd.pods) != crowd.refused:
            self._hand_in_whole(gang, site, now)

    def _hand_in_whole(self, gang: Gang, site: SiteReading, now: float) -> None:
        namespace, name, kind = gang.key
        if gang.blocked is not None:
            if not gang.blocked.may_pass:
                sentence = f"Waiting: {gang.blocked.blocked}."
                self._telling.say(gang.key, Saying(MISCONFIGURED, sentence))
            return
        spec, barred, lost = job_of(gang, site.tier, namespace)
        if barred:
            tiers = ", ".join(site.cluster.tiers)
            sentence = f"Waiting: the site has no {barred[0]}; its tiers are {tiers}."
            self._telling.say(gang.key, Saying(MISCONFIGURED, sentence))
            self._barred[gang.key] = None
            return
        verdict, hangs_on_others = ANYWHERE, self._whereabouts.hang_on_others(gang)
        if hangs_on_others:
            verdict = self._whereabouts.look(gang)
        if verdict.waits or (hangs_on_others and not self._whereabouts.is_its_turn(gang)):
            why = verdict.waits or "its turn comes after others of its kind"
            self._telling.say(gang.key, Saying(PENDING, f"Waiting: {why}."))
            return
        for word in (*gang.unknown, *lost):
            self._say(gang.key, Saying(NOT_HONOURED, f"gantree does not act on {word}."))
        job = f"{namespace}.{name}.{kind}.{gang.pods[0].metadata.uid}"
        self._waiting.adopt(job, gang.key)
        self._waiting.changed.pop(gang.key, None)
        self._unsettled[job] = False
        if hangs_on_others:
            spec = self._among_others(spec, gang, site, verdict)
        self._emit(JobSubmitted(id=f"{job}/submitted", observed_at=now, job=job, spec=spec))
        if hangs_on_others:
            self._bar(verdict, job, spec, now)

    def _among_others(self, spec: Job, gang: Gang, site: SiteReading, verdict: Verdict) -> Job:
        """A job with what its pods ask and prefer of each other, of others and of volumes."""
        scene = self._whereabouts.scene
        spec = together(wished(spec, gang, scene, site.tier), gang, site)
        return liking(verdict.limited(spec), gang, scene)

    def _ask(self, kind: type[Event], job: str, word: str, now: float, **fields: object) -> None:
        self._counted += 1
        told: Any = {"job": job, **fields}
        self._emit(kind(id=f"{job}/{word}/{self._epoch}.{self._counted}", observed_at=now, **told))
        self._unsettled[job] = False

    def _say(self, key: Key, saying: Saying) -> None:
        """Tell the pods of a gang that wait; what is not honoured in an event alone."""
        crowd = self._waiting.crowds.get(key)
        pods = in_order(crowd.pods.values()) if crowd else []
        if not pods:
            return
        is_warning = saying.reason == NOT_HONOURED
        self._link.say(
            Said(
                tuple((pod.metadata.namespace, pod.metadata.name) for pod in pods),
                pods[0].metadata.uid,
                saying.reason,
                saying.sentence,
                None if is_warning else self._link.status_of_group(key),
                is_warning,
            )
        )


def _is_at_rest(state: JobView) -> bool:
    return state.phase in ENDED or state.phase is Phase.PENDING


def _key_in(job: str, namespace: str, name: str) -> Key:
    """The gang that a job was made of; the kind of its group stands in its id, behind namespace and name."""
    kind = job.removeprefix(f"{namespace}.{name}.").rpartition(".")[0]
    return namespace, name, kind


def _is_alike(pods: Sequence[Pod], members: int, state: JobView) -> bool:
    """Whether pods are what a job was made of; of an elastic one all are of one shape."""
    if state.spec.elastic is not None:
        return {asked_by(pod).shape for pod in pods} == {
            without_node_restrictions(state.spec.roles[0].shape)
        }
    return _shapes(pods[:members]) == _shapes_of(state)


def _shapes(pods: Sequence[Pod]) -> list[Shape]:
    return sorted((asked_by(pod).shape for pod in pods), key=repr)


def _shapes_of(state: JobView) -> list[Shape]:
    roles = state.present.roles
    shapes = (without_node_restrictions(role.shape) for role in roles for _ in range(role.members))
    return sorted(shapes, key=repr)
