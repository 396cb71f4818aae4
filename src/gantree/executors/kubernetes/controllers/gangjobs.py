"""The controller of GangJobs: creates their pods, creates them again after a stop, and writes their status.

It decides nothing. A GangJob is a gang like any other (`workloads.gangjob.gang_spec`): the core places, stops and
restarts it, and counts its failures and back-off. The controller reconciles three things whenever one of them changes:
the object, its pods, and its job as decided. So it repeats a write that was lost, and a new leader continues where the
last one stopped.

Pods that have ended stay for their logs until the GangJob, which owns them, is deleted.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gantree.core.view import JobView, LedgerView
from gantree.executors.kubernetes.apiserver.client import JSON, MERGE
from gantree.executors.kubernetes.apiserver.conditions import (
    api_time,
    seconds_of,
    with_transition,
)
from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.controllers.compute_domains import ComputeDomains
from gantree.executors.kubernetes.controllers.gangjob_checks import GangJobChecks
from gantree.executors.kubernetes.nodes.site import SiteReading
from gantree.executors.kubernetes.pods.annotations import member_annotation
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject, count
from gantree.executors.kubernetes.pods.link_check import PodCheck
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.elastic import pods_needed
from gantree.executors.kubernetes.workloads.gangjob import (
    GANGJOB,
    OF_GANGJOB,
    index_of,
    number_of,
    pods_of,
    scheduler_of,
    service_of,
    size_asked,
)
from gantree.executors.kubernetes.writes.pod_status import MISCONFIGURED, wait_reason
from gantree.model.events import Event, ScaleRequested
from gantree.model.phases import ENDED, HOLDING, Phase
from gantree.placement.request.sizes import sizes_of

log = logging.getLogger(__name__)

Json = dict[str, Any]
Name = tuple[str, str]
SERVICE = "Service"
"""What was written or refused that is no pod: these have names in small letters."""
AGAIN_S = 5.0
"""A write without effect is repeated after so long; why a GangJob waits is updated as often."""
WORD_OF_PHASE = {
    Phase.PENDING: "Pending",
    Phase.STARTING: "Starting",
    Phase.RUNNING: "Running",
    Phase.SAVING: "Stopping",
    Phase.STOPPING: "Stopping",
    Phase.SUCCEEDED: "Succeeded",
    Phase.FAILED: "Failed",
    Phase.CANCELLED: "Cancelled",
    Phase.TIMED_OUT: "TimedOut",
}
FINISHED = frozenset(WORD_OF_PHASE[phase] for phase in ENDED)


@dataclass(slots=True)
class Known:
    """One GangJob: the object, its pods by name, its job if it has one, the last status, and the time of each write.

    wanted are the pods that it should have; size is how many of an elastic one, checked the check that they make.
    refused are pods by name, and the Service as SERVICE, that the server did not make; with why.
    """

    group: Group
    pods: dict[str, Pod] = field(default_factory=dict)
    job: str | None = None
    written: Json = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    look_at: float = 0.0
    explain_at: float = 0.0
    wanted: dict[str, Json] | None = None
    refused: dict[str, str] = field(default_factory=dict)
    size: int | None = None
    checked: PodCheck | None = None


class GangJobs:
    """All GangJobs. job_of gives the job that the gang of a key is at the moment."""

    def __init__(
        self,
        api: ApiThread,
        scheduler: str,
        job_of: Callable[[tuple[str, str, str]], str | None],
        site: Callable[[], SiteReading | None],
        emit: Callable[[Event], None],
        link_checks: GangJobChecks,
    ) -> None:
        self._link_checks = link_checks
        self._api, self._scheduler, self._job_of, self._emit = api, scheduler, job_of, emit
        self._domains = ComputeDomains(api, site)
        self._known: dict[Name, Known] = {}
        self._pods: dict[Name, dict[str, Pod]] = {}

    def update(self, name: Name, group: Group | None) -> None:
        """A GangJob was added or has changed; None: it is gone, and so will its pods be.

        One of another scheduler is left to that.
        """
        if group is not None and scheduler_of(group.spec) != self._scheduler:
            return
        known = self._known.get(name)
        if group is None:
            self._known.pop(name, None)
        elif known is None or known.group.metadata.uid != group.metadata.uid:
            self._known[name] = Known(group, self._pods.setdefault(name, {}))
        else:
            if known.group.spec != group.spec:
                known.wanted = None
            known.group, known.look_at = group, 0.0

    def update_pod(self, pod: Pod, *, gone: bool) -> None:
        """A pod was added, has changed, or is gone."""
        of = pod.metadata.labels.get(OF_GANGJOB)
        if of is None:
            return
        name = (pod.metadata.namespace, of)
        pods = self._pods.setdefault(name, {})
        if gone:
            pods.pop(pod.metadata.name, None)
        else:
            pods[pod.metadata.name] = pod
        if name in self._known:
            self._known[name].look_at = 0.0
            self._known[name].asked.pop(pod.metadata.name, None)
        elif not pods:
            del self._pods[name]

    def step(self, decided: LedgerView, now: float) -> None:
        """Reconcile those that may have changed."""
        if not self._known or not self._api.leads():
            return
        for name, known in self._known.items():
            job = self._job_of((*name, GANGJOB.key_word))
            if job is not None and job != known.job:
                known.job, known.look_at = job, 0.0
            state, told = decided.job(_job(known)), _told(known).get("phase")
            has_changed = told not in FINISHED and told != _phase(state)
            if has_changed or now >= known.look_at:
                known.look_at = now + AGAIN_S
                self._review(known, state, decided, now)

    def _review(self, known: Known, state: JobView | None, decided: LedgerView, now: float) -> None:
        told = _told(known)
        if told.get("phase") in FINISHED:
            if known.written:
                self._write(known, known.written, now)
            self._finished(known, told, now)
            return
        status = _status(known, state, decided, now, told)
        try:
            of_links = self._link_checks.condition(known.group.spec, state, told)
            status["conditions"] += [with_transition(of_links, told, now)] if of_links else []
            if state is not None:
                status["askedMembers"] = self._scale(known, state, told, now)
            if known.group.metadata.deletion_timestamp is not None:
                known.look_at = now + AGAIN_S  # its pods go with it: none is made in their place
            elif status["phase"] in FINISHED:
                self._delete(known, [pod for pod in known.pods.values() if not pod.has_ended], now)
            elif known.group.metadata.deletion_timestamp is None:
                self._make(known, state, decided, now)
        except InvalidObject as error:
            status = {"phase": "Pending", "reason": MISCONFIGURED, "message": str(error)}
        self._write(known, status, now)

    def _scale(
        self, known: Known, state: JobView, told: Mapping[str, Any], now: float
    ) -> int | None:
        """Request the size in the spec, once; returns the last size that was acted on. Raises InvalidObject."""
        asked, heeded = size_asked(known.group.spec), told.get("askedMembers")
        if asked is None or asked == heeded or asked not in sizes_of(state.spec):
            return asked
        if state.scaled and state.spec.members == asked:
            return asked
        if self._ask(known, "scale", now):
            name = f"{state.job}/scale/{asked}/{now:.3f}"
            self._emit(ScaleRequested(id=name, observed_at=now, job=state.job, members=asked))
            known.look_at = now
        return heeded if isinstance(heeded, int) else None

    def _make(self, known: Known, state: JobView | None, decided: LedgerView, now: float) -> None:
        """Make the pods that are missing; those of the attempt before must be gone first. Raises InvalidObject.

        It has them before it starts, but where it goes on at another place, or with more members: then when it
        starts. Those that an elastic one got no place for go.
        """
        size = pods_needed(known.group.spec, state, decided)
        phase = Phase.PENDING if state is None else state.phase
        starts = phase in (Phase.PENDING, Phase.STARTING)
        if SERVICE in known.refused:
            self._make_service(known, now)
        pods = [pod for pod in known.pods.values() if starts or not pod.has_ended]
        self._delete(known, [pod for pod in pods if _is_in_the_way(pod, state, size)], now)
        if starts:
            self._add(known, self._wanted(known, size), now)
        elif state is not None and state.missing:
            self._make_anew(known, self._wanted(known, size), state.replacing, now)

    def _wanted(self, known: Known, size: int | None) -> dict[str, Json]:
        checked = self._link_checks.of(known.group.spec)
        if known.wanted is None or (known.size, known.checked) != (size, checked):
            pods = pods_of(known.group, self._scheduler, size, checked)
            known.wanted = self._domains.fitted(known.group, pods)
            known.size, known.checked = size, checked
        return known.wanted

    def _add(self, known: Known, wanted: Mapping[str, Json], now: float) -> None:
        missing = [name for name in wanted if name not in known.pods]
        if missing and self._ask(known, "domains", now):
            self._domains.make(known.group, wanted)
        if missing:
            self._make_service(known, now)
        for name in missing:
            self._make_pod(known, wanted[name], now)

    def _make_service(self, known: Known, now: float) -> None:
        if self._ask(known, SERVICE, now):
            path = f"api/v1/namespaces/{known.group.metadata.namespace}/services"
            on_answer = partial(self._answered, known, SERVICE)
            self._api.create_owned(path, service_of(known.group), on_answer)

    def _make_pod(self, known: Known, pod: Json, now: float) -> None:
        name = pod["metadata"]["name"]
        if self._ask(known, name, now):
            path = f"api/v1/namespaces/{known.group.metadata.namespace}/pods"
            self._api.create(path, pod, partial(self._answered, known, name))

    def _answered(self, known: Known, what: str, why: str) -> None:
        """Why a pod or the Service was not made; "" where it is there, or one of its name is still to go."""
        known.refused.pop(what, None)
        if why:
            known.refused[what] = why
        known.look_at = 0.0

    def _make_anew(
        self, known: Known, wanted: Mapping[str, Json], members: Sequence[int], now: float
    ) -> None:
        """Make the pods anew of members, by their numbers, that are replaced while the others run."""
        names = [name for name, pod in wanted.items() if number_of(pod) in members]
        ended = [pod for name, pod in known.pods.items() if name in names and pod.has_ended]
        self._delete(known, ended, now)
        for name in names:
            if name not in known.pods:
                self._make_pod(known, wanted[name], now)

    def _delete(self, known: Known, pods: list[Pod], now: float) -> None:
        for pod in pods:
            meta = pod.metadata
            if meta.deletion_timestamp is None and self._ask(known, f"-{meta.name}", now):
                self._api.delete(meta.namespace, meta.name, meta.uid, None)

    def _finished(self, known: Known, told: Mapping[str, Any], now: float) -> None:
        """One that is over is deleted after the time that it gives itself."""
        try:
            kept_s = count(known.group.spec, "ttlSecondsAfterFinished")
        except InvalidObject:
            return
        ended = seconds_of(told.get("finishTime"))
        if kept_s is None or ended is None:
            return
        if now < ended + kept_s:
            known.look_at = min(known.look_at, ended + kept_s)
        elif self._ask(known, "-", now):
            meta = known.group.metadata
            body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": meta.uid}}
            self._api.request("DELETE", _path(known), {**body, "propagationPolicy": "Background"}, JSON)  # fmt: skip

    def _ask(self, known: Known, what: str, now: float) -> bool:
        """Whether to write something now: not again while the last write may be on its way."""
        if now < known.asked.get(what, 0.0) + AGAIN_S:
            return False
        known.asked[what] = now
        return True

    def _write(self, known: Known, status: Json, now: float) -> None:
        """Write a status that is another; again after a while if it is not there."""
        there, is_new = known.group.status, status != known.written
        is_lost = any(there.get(key) != value for key, value in status.items())
        if is_new or (is_lost and self._ask(known, "status", now)):
            known.asked["status"] = now
            known.written = status
            self._api.request("PATCH", f"{_path(known)}/status", {"status": status}, MERGE)


def _is_in_the_way(pod: Pod, state: JobView | None, size: int | None) -> bool:
    """Whether a pod is of an attempt that is over, or beyond the size of an elastic gang and has no node yet."""
    if pod.has_ended:
        annotation = member_annotation(pod.metadata.annotations)
        attempt = state.attempt if state is not None and state.phase in HOLDING else None
        return annotation is None or annotation.attempt != attempt
    index = index_of(pod)
    return not pod.spec.node_name and size is not None and index is not None and index >= size


def _job(known: Known) -> str:
    """The job of a GangJob, or the one in its status."""
    told = known.group.status.get("job")
    return known.job or (told if isinstance(told, str) else "")


def _told(known: Known) -> Mapping[str, Any]:
    """The status of a GangJob as written last."""
    return known.written or known.group.status


def _phase(state: JobView | None) -> str:
    return "Pending" if state is None else WORD_OF_PHASE[state.phase]


def _status(
    known: Known, state: JobView | None, decided: LedgerView, now: float, told: Mapping[str, Any]
) -> Json:
    """What is to be said of a GangJob; None takes a field away. What was said of its end stays."""
    job, phase = _job(known), _phase(state)
    pods = known.pods.values()
    if state is None and job and pods and all(pod.status.phase == "Succeeded" for pod in pods):
        phase = WORD_OF_PHASE[Phase.SUCCEEDED]  # it ended while no journal was there to see it
    reason, message = _not_made(known) or (
        _why(known, decided, now, told) if job and phase == "Pending" else (None, None)
    )
    placement = None if state is None else state.placement
    started = None if state is None or state.started_at is None else api_time(state.started_at)
    stopped = "" if state is None or state.stop_cause is None else str(state.stop_cause)
    return {
        "phase": phase,
        "reason": reason or stopped or None,
        "message": message,
        "job": job or None,
        "attempt": state.attempt if state else told.get("attempt") or 0,
        "failures": state.failures if state else told.get("failures") or 0,
        "members": sum(not pod.has_ended for pod in pods),
        "selector": f"{OF_GANGJOB}={known.group.metadata.name}",
        "domain": f"{placement.domain.tier}:{placement.domain.name}" if placement else told.get("domain"),
        "nodes": list(placement.nodes) if placement else told.get("nodes") or [],
        "startTime": started or told.get("startTime"),
        "finishTime": api_time(now) if phase in FINISHED else None,
        "conditions": _conditions(phase, placement is not None, told, now),
    }  # fmt: skip


def _not_made(known: Known) -> tuple[str, str] | None:
    """What of a GangJob the server refused, and its answer."""
    if why := known.refused.get(SERVICE):
        return "ServiceNotMade", why
    missing = (known.wanted or {}).keys() - known.pods.keys()
    why = next((why for name, why in known.refused.items() if name in missing), "")
    return ("PodNotMade", why) if why else None


def _why(
    known: Known, decided: LedgerView, now: float, told: Mapping[str, Any]
) -> tuple[str | None, str | None]:
    """Why a GangJob waits, a word and a sentence; worked out anew every few seconds."""
    if now < known.explain_at and told.get("phase") == "Pending":
        return told.get("reason"), told.get("message")
    known.explain_at = now + AGAIN_S
    reason_to_wait = wait_reason(decided, _job(known), now)
    return (reason_to_wait.reason, reason_to_wait.sentence) if reason_to_wait else (None, None)


def _conditions(phase: str, placed: bool, told: Mapping[str, Any], now: float) -> list[Json]:
    """Scheduled, Complete and Failed; each with the time since when it is so."""
    ended = phase in FINISHED
    is_so = {
        "Scheduled": placed,
        "Complete": phase == "Succeeded",
        "Failed": ended and phase != "Succeeded",
    }
    conditions: list[Json] = [
        {"type": kind, "status": str(holds), "reason": phase, "message": ""}
        for kind, holds in is_so.items()
    ]
    return [with_transition(each, told, now) for each in conditions]


def _path(known: Known) -> str:
    meta = known.group.metadata
    home = f"apis/{GANGJOB.group}/{GANGJOB.versions[0]}/namespaces/{meta.namespace}"
    return f"{home}/{GANGJOB.plural}/{meta.name}"
