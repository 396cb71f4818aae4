"""Pending pods by gang, and the job of each gang.

A job outlives its pods: when its gang is stopped, their controller makes new ones, and as soon as they are complete the
job may start again. Until then it is held.
"""

from dataclasses import dataclass, field
from itertools import islice

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.gang_spec import GangSpec
from gantree.executors.kubernetes.workloads.composite_groups import KINDS
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB
from gantree.executors.kubernetes.workloads.gangs import Gang, gang_of
from gantree.executors.kubernetes.workloads.keys import (
    ALONE,
    BY_WORD,
    Key,
    Keys,
    object_of,
    part_of,
    uid_of_job,
)


@dataclass(slots=True)
class PendingGang:
    """The pending pods of one gang, by uid, and its job, if it was submitted."""

    key: Key
    pods: dict[str, Pod] = field(default_factory=dict)
    job: str | None = None
    refused: frozenset[str] = frozenset()
    """Pods of a job that was rejected: they are not submitted again."""
    withdrawn: bool = False
    """Its job is cancelled as its pods have changed or are gone: new pods are submitted again."""


class PendingPods:
    """All pending gangs, and which of them have changed."""

    def __init__(self) -> None:
        self.gangs: dict[Key, PendingGang] = {}
        self.key_of_job: dict[str, Key] = {}
        self._key_of_pod: dict[str, Key] = {}
        self.changed: dict[Key, None] = {}
        self.keys = Keys()
        self._gangs_of_object: dict[Key, dict[Key, None]] = {}

    def update(self, pod: Pod, *, waits: bool) -> None:
        """A pod of ours was added or has changed; waits: it is to be bound."""
        uid = pod.metadata.uid
        key = self.keys.of(pod) if waits else None
        before = self._key_of_pod.get(uid)
        if before is not None and before != key:
            del self._key_of_pod[uid]
            del self.gangs[before].pods[uid]
            self.changed[before] = None
        if key is not None:
            self._key_of_pod[uid] = key
            (self.gangs.get(key) or self._new(key)).pods[uid] = pod
            self.changed[key] = None

    def update_group(self, key: Key, gang_spec: GangSpec | None) -> None:
        """The object of a group has this spec; None: it is gone."""
        gangs = list(self._gangs_of_object.get(key, ()))
        if self.keys.groups.set(key, gang_spec):
            gangs += [each for each in self.gangs if each[0] == key[0] and each[2] in KINDS]
            gangs = list(dict.fromkeys(gangs))
        for pod in [pod for each in gangs for pod in self.gangs[each].pods.values()]:
            self.update(pod, waits=True)
        self.changed |= dict.fromkeys((key, *gangs))

    def set_alone(self, key: Key) -> None:
        """Pods of a gang that has started without them: each is a gang of its own from now on."""
        for pod in list(self.gangs[key].pods.values()):
            self.keys.set_alone(pod.metadata.uid)
            self.update(pod, waits=True)

    def set_job(self, job: str, key: Key) -> None:
        """Set the job of a gang."""
        pending_gang = self.gangs.get(key) or self._new(key)
        pending_gang.job, pending_gang.withdrawn = job, False
        if key[2] == ALONE:
            self.keys.set_alone(uid_of_job(job))
        self.key_of_job[job] = key
        self.changed[key] = None

    def release_job(self, job: str) -> None:
        """A job is over; its gang may be submitted again."""
        key = self.key_of_job.pop(job, None)
        if key is not None and self.gangs[key].job == job:
            self.gangs[key].job = None
            self.changed[key] = None
            self.prune(key)

    def gang(self, key: Key) -> Gang | None:
        """The gang of a key with its present pods; None while they are incomplete."""
        pending_gang = self.gangs.get(key)
        if pending_gang is None or not pending_gang.pods:
            return None
        gang_spec = self.keys.spec_of(key)
        if key[2] not in (ALONE, BY_WORD) and gang_spec is None:
            return None  # its object is yet to be seen
        if gang_spec is not None and len(pending_gang.pods) < gang_spec.members_of(part_of(key)):
            return None
        gang = gang_of(key, gang_spec, list(pending_gang.pods.values()))
        return gang if gang.is_whole else None

    def mark_changed(self, job: str) -> None:
        """Review the gang of a job."""
        key = self.key_of_job.get(job)
        if key is not None:
            self.changed[key] = None

    def pods_of_job(self, job: str) -> list[Pod]:
        """The pending pods of a job."""
        key = self.key_of_job.get(job)
        pending_gang = None if key is None else self.gangs.get(key)
        return [] if pending_gang is None else list(pending_gang.pods.values())

    def gang_of_job(self, job: str) -> Gang | None:
        """The gang of a job with its present pods; None while they are incomplete."""
        key = self.key_of_job.get(job)
        return None if key is None else self.gang(key)

    def job_of_group(self, key: Key) -> str | None:
        """The job of the gang that a group is, or is a part of."""
        return self.job_of(self.keys.groups.gang_key(key))

    def job_of(self, key: Key) -> str | None:
        """The job of a gang, if it was submitted."""
        pending_gang = self.gangs.get(key)
        return None if pending_gang is None else pending_gang.job

    def makes_pods(self, job: str) -> bool:
        """Whether gantree makes the pods of a job itself."""
        key = self.key_of_job.get(job)
        return key is not None and key[2] == GANGJOB.key_word

    def has_shrunk(self, key: Key, members: int) -> bool:
        """Whether the object of a gang asks for fewer pods than these members by now."""
        gang_spec = self.keys.spec_of(key)
        return gang_spec is not None and gang_spec.no_more and gang_spec.members < members

    def missing_sentence(self, key: Key) -> str:
        """Why a gang is not whole."""
        pods = list(self.gangs[key].pods.values())
        gang_spec = self.keys.spec_of(key)
        if gang_spec is None and key[2] != BY_WORD:
            return f"Waiting: there is no pod group {object_of(key)[1]!r} that can be read."
        gang = gang_of(key, gang_spec, pods) if pods else None
        members = gang.spec.members if gang else 0
        if gang and len(pods) >= members:
            asked = ", ".join(f"{role.members} {role.name}" for role in gang.spec.roles)
            return f"Waiting: the {len(pods)} pods of {key[1]!r} are not all that are asked for: {asked}."
        return f"Waiting: {len(pods)} of {members} pods of {key[1]!r} are there."

    def is_gone(self, key: Key) -> bool:
        """Whether a gang has no pending pod and no object of its group."""
        pending_gang = self.gangs.get(key)
        return (pending_gang is None or not pending_gang.pods) and self.keys.spec_of(key) is None

    def pop_changed(self, at_most: int) -> list[Key]:
        """The first keys that have changed; they count as reviewed."""
        taken = list(islice(self.changed, at_most))
        for key in taken:
            del self.changed[key]
        return taken

    def prune(self, key: Key) -> None:
        """Forget a gang without pods and without a job."""
        pending_gang = self.gangs.get(key)
        if pending_gang is not None and not pending_gang.pods and pending_gang.job is None:
            del self.gangs[key]
            gangs = self._gangs_of_object[object_of(key)]
            del gangs[key]
            if not gangs:
                del self._gangs_of_object[object_of(key)]

    def _new(self, key: Key) -> PendingGang:
        """A gang without pods."""
        self._gangs_of_object.setdefault(object_of(key), {})[key] = None
        pending_gang = self.gangs[key] = PendingGang(key)
        return pending_gang


def may_be_bound(pod: Pod) -> bool:
    """Whether a pod that has no node may get one now."""
    return (
        not pod.has_ended
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )
