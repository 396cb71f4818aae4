"""The controller of GangServices: makes a GangJob for each replica, ends those that are too many, writes the status.

How many replicas are wanted is in the spec of the object; which are added and which end, `gantree.services.rollout`
says. Each replica is a GangJob that the service owns, so the core places, restarts and preempts it as any gang. One
that ends drains first: its GangJob gets the annotation `gantree.io/drain-until`, its first pod loses the label by which
requests reach it, and at that time, or as soon as no request is left, the GangJob is deleted. All of this is in
objects: a new leader goes on where the last one stopped.

A replica that is over (its processes have exited) is replaced by another after a back-off as a kubelet has it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.client import JSON, MERGE
from gantree.executors.kubernetes.apiserver.conditions import seconds_of
from gantree.executors.kubernetes.apiserver.objects import Group, Pod
from gantree.executors.kubernetes.pods.gang_spec import InvalidObject, amount, table
from gantree.executors.kubernetes.services.gang_service import (
    GangService,
    gang_service,
    scheduler_of_service,
)
from gantree.executors.kubernetes.services.pod_services import PodServices
from gantree.executors.kubernetes.services.replica_jobs import (
    draining,
    front_of,
    number_of,
    replica_body,
    replica_name,
    revision_of,
)
from gantree.executors.kubernetes.services.replicas import Replica
from gantree.executors.kubernetes.services.scaling import NumberOfReplicas, number_of_status
from gantree.executors.kubernetes.services.serving_table import served_service, unreadable_service
from gantree.executors.kubernetes.services.status import (
    NotMade,
    last_replica,
    misconfigured,
    status_of,
)
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB, OF_GANGJOB
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE, SERVES, SERVICE
from gantree.executors.kubernetes.writes.patches import patch_pod
from gantree.executors.kubernetes.writes.pod_status import MISCONFIGURED
from gantree.executors.served_services import ServedService
from gantree.model.events import Event
from gantree.services.rollout import ReplicaStatus, plan

log = logging.getLogger(__name__)

Name = tuple[str, str]
AGAIN_S = 5.0
"""A write without effect is repeated after so long."""
DRAIN, DELETE = "drain", "delete"
BACKOFF_S, BACKOFF_MAX_S = 5.0, 300.0
NO_REQUESTS = {"metadata": {"labels": {SERVES: None}}}
"""The change of a pod to which a Service sends nothing more."""
FRONT_AGAIN_S = 300.0
"""A Service that somebody has deleted is made anew after so long."""
RESET_S = 600.0
"""A replica that has run for so long before it was over is replaced without a longer back-off."""


@dataclass(slots=True)
class Known:
    """One GangService: the object, what is in it, and what was written when.

    making are replicas, by number, whose GangJob was written and not seen yet; refused is why one was not made,
    front_refused why the Service was not when that was last written, at front_asked. exits counts the replicas that
    were over one after the other, soon after their start.
    """

    group: Group
    service: GangService | None = None
    trouble: str = ""
    written: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    look_at: float = 0.0
    making: dict[int, float] = field(default_factory=dict)
    last: int = 0
    refused: NotMade | None = None
    front_refused: NotMade | None = None
    front_asked: float = float("-inf")
    exits: int = 0
    number: NumberOfReplicas = field(default_factory=NumberOfReplicas)
    served: ServedService | None = None

    @property
    def made_at(self) -> float:
        """When the object was made."""
        return seconds_of(self.group.metadata.creation_timestamp) or 0.0

    def forget(self, gangjob: str) -> None:
        """A replica is gone."""
        for word in (DRAIN, DELETE):
            self.asked.pop(f"{word} {gangjob}", None)


class GangServices:
    """All GangServices. job_of gives the job that the gang of a key is at the moment."""

    def __init__(
        self,
        api: ApiThread,
        scheduler: str,
        job_of: Callable[[Key], str | None],
        label_of_tier: Callable[[str], str | None],
        first_change: int,
        emit: Callable[[Event], None],
    ) -> None:
        """label_of_tier gives the label of nodes that has the domains of a tier; None where there is none.

        first_change is what `changes` begins with: above all that it was before.
        """
        self._api, self._scheduler, self._emit = api, scheduler, emit
        self._job_of, self._label_of_tier = job_of, label_of_tier
        self._known: dict[Name, Known] = {}
        self._gangjobs: dict[Name, dict[str, Group]] = {}
        self._service_of: dict[Name, Name] = {}
        self._names_of_gangjobs: set[Name] = set()
        self._pods: dict[Name, dict[str, Pod]] = {}
        self._drained: set[Name] = set()
        self._of_pods = PodServices()
        self.served: tuple[ServedService, ...] = ()
        self.changes = first_change

    def update(self, where: Name, group: Group | None) -> None:
        """A GangService was added or has changed; None: it is gone, and so will its GangJobs be."""
        if group is None or scheduler_of_service(group.spec) != self._scheduler:
            self._known.pop(where, None)
            return
        known = self._known.get(where)
        if known is None or known.group.metadata.uid != group.metadata.uid:
            known = self._known[where] = Known(group, last=last_replica(group.status))
            known.number = number_of_status(group.status)
        known.group, known.look_at = group, 0.0
        try:
            known.service, known.trouble = gang_service(group), ""
        except InvalidObject as error:
            known.service, known.trouble = None, str(error)

    def update_gangjob(self, where: Name, group: Group | None) -> None:
        """A GangJob was added or has changed; None: it is gone."""
        if group is None:
            self._names_of_gangjobs.discard(where)
        else:
            self._names_of_gangjobs.add(where)
        service = self._service_of.get(where)
        if group is not None and service is None and group.metadata.labels.get(SERVICE):
            service = self._service_of[where] = (where[0], group.metadata.labels[SERVICE])
        if service is None:
            return
        gangjobs = self._gangjobs.setdefault(service, {})
        if group is None:
            gangjobs.pop(where[1], None)
            del self._service_of[where]
            self._drained.discard(where)
            if service in self._known:
                self._known[service].forget(where[1])
        else:
            gangjobs[where[1]] = group
        self._look(service)

    def update_pod(self, pod: Pod, *, gone: bool) -> None:
        """A pod was added, has changed, or is gone."""
        labels = pod.metadata.labels
        if OF_GANGJOB not in labels:
            self._of_pods.update(pod, gone=gone)
        if SERVICE not in labels or OF_GANGJOB not in labels:
            return
        gangjob = (pod.metadata.namespace, labels[OF_GANGJOB])
        pods = self._pods.setdefault(gangjob, {})
        service = (pod.metadata.namespace, labels[SERVICE])
        if gone:
            pods.pop(pod.metadata.name, None)
            if service in self._known:
                self._known[service].forget(pod.metadata.name)
        else:
            pods[pod.metadata.name] = pod
        if not pods:
            del self._pods[gangjob]
        self._look(service)

    def _refused(self, where: Name, number: int, why: str) -> None:
        """A GangJob was not made: why, "" where its name is taken."""
        known = self._known.get(where)
        if known is not None:
            known.look_at, known.refused = 0.0, NotMade("Replica", why) if why else None
            if not why:
                known.making.pop(number, None)

    def drained(self, replica: str) -> None:
        """No request is left on a replica that drains."""
        namespace, _, name = replica.partition(".")
        service = self._service_of.get((namespace, name))
        if service is not None:
            self._drained.add((namespace, name))
            self._look(service)

    def scale(self, service: str, replicas: int, reason: str, *, automatic: bool) -> None:
        """Write another number of replicas, as any autoscaler does."""
        namespace, _, name = service.partition(".")
        known = self._known.get((namespace, name))
        if known is not None:
            log.info("%s is scaled to %d replicas: %s", service, replicas, reason)
            known.number.request(replicas, reason, automatic=automatic)
            body = {"spec": {"replicas": replicas}}
            self._api.request("PATCH", f"{_path(known.group)}/scale", body, MERGE)

    def _look(self, service: Name) -> None:
        if service in self._known:
            self._known[service].look_at = 0.0

    def step(self, decided: LedgerView, now: float) -> None:
        """Reconcile those that may have changed."""
        if not self._api.leads():
            return
        for where, known in self._known.items():
            if now >= known.look_at:
                known.look_at = now + AGAIN_S
                self._review(where, known, decided, now)
        others = [each for name, each in self._of_pods.served() if name not in self._known]
        own = [each.served for each in self._known.values() if each.served is not None]
        served = (*own, *others)
        if served != self.served:
            self.served, self.changes = served, self.changes + 1

    def replicas_of(self, where: Name, decided: LedgerView) -> list[Replica]:
        """The replicas of a service, by number."""
        known = self._known[where]
        found = []
        for name, gangjob in self._gangjobs.get(where, {}).items():
            number = number_of(gangjob)
            owners = {each.uid for each in gangjob.metadata.owner_references}
            if number is not None and known.group.metadata.uid in owners:
                job = self._job_of((where[0], name, GANGJOB.key_word))
                state = None if job is None else decided.job(job)
                pods = tuple(self._pods.get((where[0], name), {}).values())
                found.append(Replica(number, gangjob, state, pods))
        return sorted(found, key=lambda each: each.number)

    def _review(self, where: Name, known: Known, decided: LedgerView, now: float) -> None:
        if known.group.metadata.deletion_timestamp is not None:
            known.served = None
            return
        trouble = known.trouble or self._clash(where, known)
        if known.service is None or trouble:
            self._write(known, misconfigured(known.group, trouble, now), now)
            reason = f"{MISCONFIGURED}: {trouble}"
            before = known.served or unreadable_service(known.group, known.made_at, reason)
            known.served = replace(before, reason=reason)
            return
        replicas = self.replicas_of(where, decided)
        self._make_front(known, known.service, now)
        self._replace_finished(known, known.service, replicas, now)
        try:
            self._roll(known, known.service, replicas, now)
        except InvalidObject as error:
            known.refused = NotMade("Replica", str(error))
        self._end_drained(known, replicas, now)
        refused = known.refused or known.front_refused or _cut(known.service, replicas)
        scaled = known.number.observe(known.group, known.service, now)
        if scaled is not None:
            self._emit(scaled)
        status = status_of(known.group, known.service, replicas, known.last, refused, now)
        status |= known.number.status()
        reason = "" if refused is None else status["message"]
        known.served = served_service(
            known.service, replicas, known.made_at, reason, known.number.last
        )
        self._write(known, status, now)

    def _clash(self, where: Name, known: Known) -> str:
        """Why a service that has no replica yet cannot have its name; "" if it can."""
        if known.last or where not in self._names_of_gangjobs:
            return ""
        return (
            f"metadata.name: GangJob {where[1]} has a Service of this name for its pods; delete it, or"
            " choose another name"
        )

    # ----- which replicas there are

    def _roll(
        self, known: Known, service: GangService, replicas: Sequence[Replica], now: float
    ) -> None:
        """Add and end replicas as the number that is wanted and the update ask for."""
        revision = revision_of(service)
        known.last = max([known.last, *(each.number for each in replicas)])
        for each in replicas:
            known.making.pop(each.number, None)
        there = [
            ReplicaStatus(
                number=each.number,
                is_current_revision=each.revision == revision,
                is_ready=each.is_ready,
                is_draining=each.is_ending,
                is_placed=each.is_placed,
            )
            for each in replicas
        ]
        there += [_being_made(number) for number in known.making]
        told = plan(there, service.wanted, service.update)
        by_number = {each.number: each for each in replicas}
        for number in told.end:
            known.making.pop(number, None)
            if number in by_number:
                self._end(known, service, by_number[number], now)
        for _ in range(told.add):
            known.last = self._next_number(service, known.last)
            known.making[known.last] = 0.0
        self._make(known, service, replicas, now)
        known.refused = known.refused if known.making else None

    def _next_number(self, service: GangService, last: int) -> int:
        """The number after the last one with which a replica is not named as another GangService."""
        number = last + 1
        while (service.namespace, replica_name(service.name, number)) in self._known:
            number += 1
        return number

    def _make(
        self, known: Known, service: GangService, replicas: Sequence[Replica], now: float
    ) -> None:
        """Write the GangJobs that are not there yet, again where that had no effect."""
        protected = sum(
            each.gangjob.spec.get("preemptible") is False and not each.is_ending
            for each in replicas
        )
        for number, asked in list(known.making.items()):
            is_floor = protected < service.replicas.floor
            protected += is_floor
            if now < asked + AGAIN_S:
                continue
            key = self._topology_key(service)
            body = replica_body(service, known.group, number, key, is_floor=is_floor)
            known.making[number] = now
            on_refused = partial(self._refused, (service.namespace, service.name), number)
            self._api.create(_gangjobs_at(service), body, on_refused)

    def _topology_key(self, service: GangService) -> str | None:
        """The label of nodes by which replicas are spread. Raises InvalidObject where no node has one."""
        if service.spread is None:
            return None
        key = self._label_of_tier(service.spread)
        if key is None:
            raise InvalidObject(f"spread.tier: no label of the nodes has tier {service.spread!r}")
        return key

    def _end(self, known: Known, service: GangService, replica: Replica, now: float) -> None:
        """Let a replica drain, or delete it at once where it never got a request."""
        if service.drain_s > 0 and replica.has_started and not replica.is_finished:
            if self._ask(known, f"{DRAIN} {replica.name}", now):
                path = f"{_gangjobs_at(service)}/{replica.name}"
                meta = {"uid": replica.gangjob.metadata.uid}
                body = draining(now + service.drain_s)
                body["metadata"] |= meta
                self._api.request("PATCH", path, body, MERGE)
        else:
            self._delete(known, service, replica, now)

    def _end_drained(self, known: Known, replicas: Sequence[Replica], now: float) -> None:
        """Take requests away from replicas that drain, and delete those that are done."""
        service = known.service
        assert service is not None, "a service that can be read"
        for each in replicas:
            until = each.drain_until
            if until is None or each.gangjob.metadata.deletion_timestamp is not None:
                continue
            self._take_away(known, each, now)
            if (
                now >= until
                or (service.namespace, each.name) in self._drained
                or not each.has_started
            ):
                self._delete(known, service, each, now)
            else:
                known.look_at = min(known.look_at, until)

    def _take_away(self, known: Known, replica: Replica, now: float) -> None:
        """The Service sends nothing new to a replica that drains."""
        for pod in replica.pods:
            meta = pod.metadata
            if SERVES in meta.labels and self._ask(known, f"{DRAIN} {meta.name}", now):
                self._api.write(partial(patch_pod, pod=meta, part="", body=NO_REQUESTS))

    def _replace_finished(
        self, known: Known, service: GangService, replicas: Sequence[Replica], now: float
    ) -> None:
        """Delete replicas that are over, after a back-off, so that others are made."""
        for each in replicas:
            if not each.is_finished or each.is_ending:
                continue
            ended = seconds_of(each.gangjob.status.get("finishTime")) or now
            due = ended + _backoff_s(service, 0 if each.ran_s >= RESET_S else known.exits)
            if now < due:
                known.look_at = min(known.look_at, due)
            elif self._delete(known, service, each, now):
                known.exits = 0 if each.ran_s >= RESET_S else known.exits + 1

    # ----- writes

    def _make_front(self, known: Known, service: GangService, now: float) -> None:
        """The Kubernetes Service; from time to time again, for it may have been deleted."""
        again_s = AGAIN_S if known.front_refused else FRONT_AGAIN_S
        if now >= known.front_asked + again_s:
            known.front_asked = now
            path = f"api/v1/namespaces/{service.namespace}/services"
            body = front_of(service, known.group)
            self._api.create_owned(path, body, partial(self._front_made, known))

    def _front_made(self, known: Known, why: str) -> None:
        """The Service is there, or why not: that of an earlier GangService of this name may still have to go."""
        known.look_at, known.front_refused = 0.0, NotMade("Service", why) if why else None

    def _delete(self, known: Known, service: GangService, replica: Replica, now: float) -> bool:
        """Delete the GangJob of a replica, and its pods with it; whether that was written now."""
        if not self._ask(known, f"{DELETE} {replica.name}", now):
            return False
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": replica.gangjob.metadata.uid},
        }
        self._api.request("DELETE", f"{_gangjobs_at(service)}/{replica.name}", body, JSON)
        return True

    def _ask(self, known: Known, what: str, now: float) -> bool:
        """Whether to write something now: not again while the last write may be on its way."""
        if now < known.asked.get(what, 0.0) + AGAIN_S:
            return False
        known.asked[what] = now
        return True

    def _write(self, known: Known, status: dict[str, Any], now: float) -> None:
        """Write a status that is another; again after a while if it is not there."""
        there, is_new = known.group.status, status != known.written
        is_lost = any(there.get(key) != value for key, value in status.items())
        if is_new or (is_lost and self._ask(known, "status", now)):
            known.asked["status"] = now
            known.written = status
            self._api.request("PATCH", f"{_path(known.group)}/status", {"status": status}, MERGE)


def _cut(service: GangService, replicas: Sequence[Replica]) -> NotMade | None:
    """Replicas from which an older definition of GangJobs has cut what makes them answer requests."""
    if all("serving" in each.gangjob.spec for each in replicas):
        return None
    why = (
        "the definition of GangJobs on this cluster is older and has no field spec.serving: apply"
        " deploy/kubernetes/crds/gangjobs.yaml, and then kubectl delete gangjobs -l"
        f" {SERVICE}={service.name}"
    )
    return NotMade("Replica", why)


def _being_made(number: int) -> ReplicaStatus:
    return ReplicaStatus(
        number=number,
        is_current_revision=True,
        is_ready=False,
        is_draining=False,
        is_placed=False,
    )


def _backoff_s(service: GangService, exits: int) -> float:
    """How long a replica that is over stays before another is made."""
    told = table(table(service.template, "spec"), "restarts")
    first = amount(told, "backoffSeconds")
    first = BACKOFF_S if first is None else first
    most: float = amount(told, "backoffMaxSeconds") or BACKOFF_MAX_S
    return min(most, first * 2.0 ** min(exits, 32))


def _path(group: Group) -> str:
    meta = group.metadata
    home = f"apis/{GANGSERVICE.group}/{GANGSERVICE.versions[0]}/namespaces/{meta.namespace}"
    return f"{home}/{GANGSERVICE.plural}/{meta.name}"


def _gangjobs_at(service: GangService) -> str:
    return f"apis/{GANGJOB.group}/{GANGJOB.versions[0]}/namespaces/{service.namespace}/{GANGJOB.plural}"
