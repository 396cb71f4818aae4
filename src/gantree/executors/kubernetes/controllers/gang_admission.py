"""Admission of gangs: a gang is submitted as a job once its pods are complete; its job is held while they are not, and
cancelled when they are gone or change, and handed in again under another id: an id is never used twice, whoever led and
whatever was forgotten meanwhile, as the journal would take its events for repeats.

A required topology that the site does not have is an error of the manifest: such a gang is not submitted until its pods
or the site change, as it must not run elsewhere.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.channels import together
from gantree.executors.kubernetes.constraints.claim_turns import claims_open_to_others
from gantree.executors.kubernetes.constraints.gang_constraints import with_gang_constraints
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import (
    ANYWHERE,
    InterPodFeasibility,
    Verdict,
)
from gantree.executors.kubernetes.constraints.preferred_affinity import with_preferences
from gantree.executors.kubernetes.controllers.attempts.events import FOR_PODS
from gantree.executors.kubernetes.nodes.asked_levels import MOST_ASKED
from gantree.executors.kubernetes.nodes.node_health import tolerates_cordons
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.shapes import pod_request
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.elastic import min_pods
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB
from gantree.executors.kubernetes.workloads.gangs import Gang, in_order, job_of, topology_in_words
from gantree.executors.kubernetes.workloads.keys import Key, handed_in, job_id, uid_of_job
from gantree.executors.kubernetes.workloads.pending_pods import PendingGang, PendingPods
from gantree.executors.kubernetes.writes.pod_status import (
    MISCONFIGURED,
    PENDING,
    PodStatusUpdates,
    WaitReason,
)
from gantree.executors.kubernetes.writes.writes import StatusMessage
from gantree.model.events import (
    BarsRequested,
    CancelRequested,
    Event,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
)
from gantree.model.jobs import Check, Job, Shape
from gantree.model.node_restrictions import node_restrictions_of, without_node_restrictions
from gantree.model.phases import ENDED, HOLDING, Phase

AT_ONCE = 256
"""Gangs that are reviewed in one step: as many as one turn decides about, so that binding goes on meanwhile."""
PODS_MISSING, NOT_HONOURED = "WaitingForPodsReady", "NotHonoured"
WITHDRAWN = {
    word: f"withdrawn: {why}"
    for word, why in (
        ("pods-gone", "its pods are gone"),
        ("pods-changed", "its pods have changed"),
        ("volumes-changed", "its volumes allow fewer nodes"),
    )
}
"""Why a job is cancelled here, by the word in the id of the request: on record, it tells them from those that a user
cancels, which are not handed in again."""


class GangAdmission:
    """Reviews gangs whose pods have changed, and jobs about which something was decided."""

    def __init__(
        self,
        api: ApiThread,
        pending: PendingPods,
        feasibility: InterPodFeasibility,
        emit: Callable[[Event], None],
        is_steady: Callable[[str, int], bool],
        ask_level: Callable[[str, float], bool],
        tolerate_cordons: Callable[[float], None],
        remains: Callable[[str], str],
        check_of: Callable[[str], Check | None],
    ) -> None:
        """is_steady says whether all members of an attempt run. ask_level has the site get a tier of a label key,
        tolerate_cordons has it show cordons as taints.

        remains says what keeps the last attempt of a job from ending. check_of gives the check of a queue.
        """
        self._check_of = check_of
        self._api, self._pending, self._emit = api, pending, emit
        self._feasibility = feasibility
        self._pod_status, self._is_steady = PodStatusUpdates(self._write_status, remains), is_steady
        self._ask_level, self._tolerate_cordons = ask_level, tolerate_cordons
        self._undecided: dict[str, bool] = {}
        """Jobs with an event that is not decided yet; whether it is the end of an attempt."""
        self._site: SiteReading | None = None
        self._without_topology: dict[Key, None] = {}
        """Gangs whose required topology the site lacks: reviewed again when the site changes."""
        self._with_late_pods: dict[Key, None] = {}
        """Gangs that are placed and have further pods that are pending."""
        self._refused: dict[str, str] = {}
        """What was cancelled or failed under earlier leaders, by `handed_in`, and what its pods are told."""
        self._is_caught_up = False
        self._epoch = self._counted = 0

    def adopt(self, decided: LedgerView, epoch: int) -> None:
        """The jobs on record are the gangs of their names."""
        self._epoch = epoch
        self._set_jobs(decided)

    def _catch_up(self, decided: LedgerView) -> None:
        """What was appended before the start is decided by now, and is handed in no second time."""
        self._is_caught_up = True
        self._set_jobs(decided)
        for state in decided.ended_jobs():
            self._refused.pop(before := handed_in(_key_of(state), uid_of_job(state.job)), None)
            if _is_refused(state):
                self._refused[before] = _of_ended(state)

    def _set_jobs(self, decided: LedgerView) -> None:
        for state in decided.open_jobs():
            if state.job not in self._pending.key_of_job:
                self._pending.set_job(state.job, _key_of(state))

    def attempts_ended(self, jobs: Iterable[str]) -> None:
        """Attempts of these jobs have ended; the jobs are not decided yet."""
        self._undecided |= dict.fromkeys(jobs, True)

    def expect_decision(self, jobs: Iterable[str]) -> None:
        """There are events of these jobs that are not decided yet."""
        self._undecided |= dict.fromkeys(jobs, False)

    def step(self, decided: LedgerView, site: SiteReading | None, now: float) -> None:
        """Review what has changed, and write to a few gangs why they wait."""
        if not self._is_caught_up:
            self._catch_up(decided)
        for job, has_ended in list(self._undecided.items()):
            state = decided.job(job)
            is_rejected = decided.rejection(job) is not None
            if is_rejected or (state is not None and _is_settled(state)):
                del self._undecided[job]
                self._pending.mark_changed(job)
            elif state is not None and not has_ended:
                del self._undecided[job]  # it is placed: nothing to do until its attempt ends
        self._pending.changed |= dict.fromkeys(self._feasibility.stale(self._pending.gangs, now))
        for key in dict.fromkeys((*self._pending.pop_changed(AT_ONCE), *self._to_retry(site))):
            pending_gang = self._pending.gangs.get(key)
            if pending_gang is not None:
                self._review(pending_gang, decided, site, now)
                self._pending.prune(key)
        for key in self._pod_status.step(decided, self._pending.job_of, now):
            self._pending.changed[key] = None

    @property
    def without_topology(self) -> Mapping[Key, None]:
        """Gangs that wait because the site lacks the topology that they require."""
        return self._without_topology

    def explain(self, key: Key, sentence: str) -> None:
        """Write to the pods of a gang why they wait, unless that was written already."""
        if key in self._pending.gangs:
            self._pod_status.report(key, WaitReason(PENDING, sentence))

    def _to_retry(self, site: SiteReading | None) -> Iterator[Key]:
        """Gangs to review although their pods have not changed."""
        late, self._with_late_pods = self._with_late_pods, {}
        yield from late
        if site is not self._site:
            barred, self._without_topology, self._site = self._without_topology, {}, site
            yield from barred

    def _review(
        self, pending_gang: PendingGang, decided: LedgerView, site: SiteReading | None, now: float
    ) -> None:
        if pending_gang.pods:
            self._pod_status.add(pending_gang.key, now, len(pending_gang.pods))
        else:
            self._pod_status.remove(pending_gang.key)
            self._feasibility.leave_queue(pending_gang.key)
            self._without_topology.pop(pending_gang.key, None)
        state = None if pending_gang.job is None else decided.job(pending_gang.job)
        if pending_gang.job is not None and pending_gang.job not in self._undecided:
            if state is None or state.phase in ENDED:
                self._feasibility.leave_queue(pending_gang.key)
                if not pending_gang.withdrawn and (state is None or _is_refused(state)):
                    rejected_for = decided.rejection(pending_gang.job)
                    why = f"Rejected: {rejected_for}." if state is None else _of_ended(state)
                    self._refuse(pending_gang, why)
                self._pending.release_job(pending_gang.job)
            elif state.phase is Phase.PENDING:
                self._review_job(pending_gang, state, decided, now)
            else:
                pending_gang.withdrawn = False
        is_fixed = state is None or state.spec.elastic is None
        if pending_gang.pods and state is not None and state.phase in HOLDING and is_fixed:
            self._review_late(pending_gang, state)
        if pending_gang.job is None and pending_gang.pods:
            self._submit(pending_gang, site, now)
            if pending_gang.job is None:
                self._feasibility.release_turn(pending_gang.key)

    def _review_late(self, pending_gang: PendingGang, state: JobView) -> None:
        """Pods that came after their gang has started are gangs of their own; if it ends, for its next start."""
        if self._is_steady(state.job, state.attempt):
            self._pending.set_alone(pending_gang.key)
        else:
            self._with_late_pods[pending_gang.key] = None

    def _review_job(
        self, pending_gang: PendingGang, state: JobView, decided: LedgerView, now: float
    ) -> None:
        """Hold a pending job while its pods are incomplete; cancel it if they can never be complete."""
        gang = self._pending.gang(pending_gang.key)
        members = min_pods(state)
        if self._pending.is_gone(pending_gang.key):
            self._withdraw(pending_gang, state.job, "pods-gone", now)
        elif gang is not None and self._pending.has_shrunk(pending_gang.key, members):
            self._withdraw(pending_gang, state.job, "pods-changed", now)
        elif gang is None or len(gang.pods) < members or gang.blocked:
            self._feasibility.leave_queue(pending_gang.key)
            has_claim = decided.claimed_placement(state.job) is not None
            has_room = has_claim and self._pending.makes_pods(state.job)
            if not state.held and not has_room:
                self._request(HoldRequested, state.job, "hold", now, reason=FOR_PODS)
        elif not _is_unchanged(gang.pods, members, state):
            self._withdraw(pending_gang, state.job, "pods-changed", now)
        else:
            verdict = self._feasibility.evaluate(gang)
            if not verdict.waits and verdict.is_tighter_than(state.spec):
                self._withdraw(pending_gang, state.job, "volumes-changed", now)
                return
            self._update_restrictions(verdict, state.job, state.spec, now)
            if state.held_for:
                self._request(ReleaseRequested, state.job, "release", now)

    def _update_restrictions(self, verdict: Verdict, job: str, spec: Job, now: float) -> None:
        """Request other node restrictions for a job, if they have changed."""
        restrictions = verdict.restrictions_for(spec)
        if restrictions != node_restrictions_of(spec):
            fields: Any = {"bars": tuple(restrictions.items()), "reason": verdict.reason}
            self._request(BarsRequested, job, "bars", now, **fields)

    def _withdraw(self, pending_gang: PendingGang, job: str, word: str, now: float) -> None:
        pending_gang.withdrawn = True
        told: Any = {"reason": WITHDRAWN[word], "if_pending": True}
        self._request(CancelRequested, job, word, now, **told)

    def _submit(self, pending_gang: PendingGang, site: SiteReading | None, now: float) -> None:
        gang = self._pending.gang(pending_gang.key)
        if gang is None:
            sentence = self._pending.missing_sentence(pending_gang.key)
            self._pod_status.report_later(pending_gang.key, WaitReason(PODS_MISSING, sentence), now)
        elif site is not None and not self._is_refused(pending_gang, gang):
            self._submit_whole(gang, site, now)

    def _is_refused(self, pending_gang: PendingGang, gang: Gang) -> bool:
        """Whether these pods were a job that came to nothing, here or under an earlier leader."""
        before = handed_in(gang.key, gang.pods[0].metadata.uid)
        if before in self._refused:
            self._refuse(pending_gang, self._refused.pop(before))
        return frozenset(pending_gang.pods) == pending_gang.refused

    def _refuse(self, pending_gang: PendingGang, why: str) -> None:
        """Do not hand these pods in again, and say why."""
        pending_gang.refused = frozenset(pending_gang.pods)
        if pending_gang.pods:
            self._pod_status.report(pending_gang.key, WaitReason(MISCONFIGURED, why))

    def _submit_whole(self, gang: Gang, site: SiteReading, now: float) -> None:
        blocked = gang.blocked
        if blocked is not None and blocked.may_pass:
            return
        reason = _why_blocked(gang)
        if reason is not None:
            self._pod_status.report(gang.key, reason)
            return
        spec, barred, lost = job_of(gang, site.tier, gang.key[0])
        if tolerates_cordons(spec):
            self._tolerate_cordons(now)
        keys = [word for word in (*barred, *lost) if site.is_new_key(word)]
        new_keys = [word for word in keys if self._ask_level(word, now)]
        if barred or new_keys:
            self._without_topology[gang.key] = None
        if barred and not new_keys:
            sentence = _without_tier(barred[0], site)
            self._pod_status.report(gang.key, WaitReason(MISCONFIGURED, sentence))
        if barred or new_keys:
            return
        verdict, depends_on_others = ANYWHERE, self._feasibility.depends_on_others(gang)
        if depends_on_others:
            behind = self._feasibility.acquire_turn(gang, now)
            if behind:  # mostly for a moment
                reason = WaitReason(PENDING, f"Waiting: {behind}.")
                self._pod_status.report_later(gang.key, reason, now)
                return
            verdict = self._feasibility.evaluate(gang)
        if verdict.waits:
            self._pod_status.report(gang.key, WaitReason(PENDING, f"Waiting: {verdict.waits}."))
            return
        for word in (*gang.unknown, *map(topology_in_words, lost), *self._unchecked(gang, spec)):
            self._write_status(
                gang.key, WaitReason(NOT_HONOURED, f"gantree does not act on {word}.")
            )
        job = job_id(gang.key, gang.pods[0].metadata.uid, self._next_number("-"))
        self._pod_status.update_soon(gang.key, now)
        self._pending.set_job(job, gang.key)
        self._pending.changed.pop(gang.key, None)
        self._undecided[job] = False
        if depends_on_others:
            spec = self._with_constraints(spec, gang, site, verdict)
        self._emit(JobSubmitted(id=f"{job}/submitted", observed_at=now, job=job, spec=spec))
        if depends_on_others:
            self._update_restrictions(verdict, job, spec, now)

    def _unchecked(self, gang: Gang, spec: Job) -> Iterator[str]:
        """That the check of its queue is not carried out: GangJobs say so themselves, pods alone have no links."""
        is_gangjob = gang.key[2] == GANGJOB.key_word
        if len(gang.pods) > 1 and not is_gangjob and self._check_of(spec.queue) is not None:
            yield f"the check of queue {spec.queue!r}: pods of GangJobs alone check their links"

    def _with_constraints(self, spec: Job, gang: Gang, site: SiteReading, verdict: Verdict) -> Job:
        """A job with the constraints and preferences of its pods about each other, other pods and volumes."""
        index = self._feasibility.index
        spec = together(with_gang_constraints(spec, gang, index, site.tier), gang, site)
        return with_preferences(verdict.limited(spec), gang, index)

    def _request(
        self, kind: type[Event], job: str, word: str, now: float, **fields: object
    ) -> None:
        told: Any = {"job": job, **fields}
        self._emit(kind(id=f"{job}/{word}/{self._next_number('.')}", observed_at=now, **told))
        self._undecided[job] = False

    def _next_number(self, between: str) -> str:
        """A number that never came before: each epoch counts anew."""
        self._counted += 1
        return f"{self._epoch}{between}{self._counted}"

    def _write_status(self, key: Key, reason_to_wait: WaitReason, has_event: bool = True) -> None:
        """Write why a gang waits to its pods; what is not acted on, as an event alone."""
        pending_gang = self._pending.gangs.get(key)
        pods = in_order(pending_gang.pods.values()) if pending_gang else []
        if not pods:
            return
        is_warning = reason_to_wait.reason == NOT_HONOURED
        self._api.report_status(
            StatusMessage(
                tuple((pod.metadata.namespace, pod.metadata.name) for pod in pods),
                pods[0].metadata.uid,
                reason_to_wait.reason,
                reason_to_wait.sentence,
                None if is_warning else self._api.status_of_group(key),
                is_warning,
                has_event,
            )
        )


def _without_tier(word: str, site: SiteReading) -> str:
    """Why a gang waits whose topology the site does not have, and the way out."""
    tiers = ", ".join(site.cluster.tiers)
    sentence = f"Waiting: the site has no {topology_in_words(word)}; its tiers are {tiers}."
    if word not in site.labels:
        return sentence
    return (
        f"{sentence} Nodes have that label, but it is made no tier (its domains do not nest in these, or"
        f" {MOST_ASKED} other labels were asked for): name the levels with --level, the widest first."
    )


def _is_settled(state: JobView) -> bool:
    return state.phase in ENDED or state.phase is Phase.PENDING


def _why_blocked(gang: Gang) -> WaitReason | None:
    """Why the claims of a gang keep it from being handed in."""
    blocked = gang.blocked
    if blocked is not None:
        reason = PENDING if blocked.in_use else MISCONFIGURED
        return WaitReason(reason, f"Waiting: {blocked.blocked}.")
    often = Counter(claims_open_to_others(gang.pods))
    shared = next((name for (_, name), count in often.items() if count > 1), None)
    if shared is None:
        return None
    sentence = (
        f"Waiting: pods of one gang share claim {shared!r}, which is not allocated; gantree allocates a claim with one"
        " pod, so give each its own, or have a pod that is not of the gang use it first."
    )
    return WaitReason(MISCONFIGURED, sentence)


def _is_refused(state: JobView) -> bool:
    """Whether the pods of a job that has ended are not handed in again."""
    return state.phase is not Phase.SUCCEEDED and state.reason not in WITHDRAWN.values()


def _of_ended(state: JobView) -> str:
    """What pods are told whose job has ended without them."""
    return f"Not bound: {state.job} {state.phase}: {state.reason}."


def _key_of(state: JobView) -> Key:
    """The key of a job's gang; its id has the kind of the group after namespace and name."""
    namespace, _, name = state.spec.name.partition("/")
    kind = state.job.removeprefix(f"{namespace}.{name}.").rpartition(".")[0]
    return namespace, name, kind


def _is_unchanged(pods: Sequence[Pod], members: int, state: JobView) -> bool:
    """Whether pods have the shapes of their job; pods of an elastic job have one shape."""
    if state.spec.elastic is not None:
        return {pod_request(pod).shape for pod in pods} == {
            without_node_restrictions(state.spec.roles[0].shape)
        }
    return _shapes(pods[:members]) == _shapes_of(state)


def _shapes(pods: Sequence[Pod]) -> list[Shape]:
    return sorted((pod_request(pod).shape for pod in pods), key=repr)


def _shapes_of(state: JobView) -> list[Shape]:
    roles = state.present.roles
    shapes = (without_node_restrictions(role.shape) for role in roles for _ in range(role.members))
    return sorted(shapes, key=repr)
