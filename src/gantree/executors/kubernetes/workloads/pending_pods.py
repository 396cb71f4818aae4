"""Pods that wait for gantree, by gang, and what is to be done about each gang: hand it in, hold it, let it go, end it.

A job of ours lives longer than its pods: when its gang is stopped, whoever made the pods makes new ones, and as soon as
they are all there the job may start again. Until then it is held.
"""

from dataclasses import dataclass, field
from itertools import islice

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.gang_spec import Terms
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB
from gantree.executors.kubernetes.workloads.gangs import Gang, gang_of
from gantree.executors.kubernetes.workloads.keys import (
    ALONE,
    BY_WORD,
    Key,
    Keys,
    object_of,
    part_of,
)


@dataclass(slots=True)
class Crowd:
    """The pods of one gang that wait, by uid, and the job that it is, if it was handed in."""

    key: Key
    pods: dict[str, Pod] = field(default_factory=dict)
    job: str | None = None
    refused: frozenset[str] = frozenset()
    """Pods of a job that was turned down: only others are handed in."""
    withdrawn: bool = False
    """Its job is to end because its pods are others by now, or gone: those that come are not turned down with it."""


class Waiting:
    """All crowds, and which of them have changed."""

    def __init__(self) -> None:
        self.crowds: dict[Key, Crowd] = {}
        self.key_of_job: dict[str, Key] = {}
        self._key_of_pod: dict[str, Key] = {}
        self.changed: dict[Key, None] = {}
        self.keys = Keys()
        self._crowds_of_object: dict[Key, dict[Key, None]] = {}

    def see(self, pod: Pod, *, waits: bool) -> None:
        """A pod of ours is like this, and waits to be bound or not."""
        uid = pod.metadata.uid
        key = self.keys.of(pod) if waits else None
        before = self._key_of_pod.get(uid)
        if before is not None and before != key:
            del self._key_of_pod[uid]
            del self.crowds[before].pods[uid]
            self.changed[before] = None
        if key is not None:
            self._key_of_pod[uid] = key
            (self.crowds.get(key) or self._new(key)).pods[uid] = pod
            self.changed[key] = None

    def group(self, key: Key, terms: Terms | None) -> None:
        """The object of a group asks for this; None: it is gone."""
        if terms is None:
            self.keys.terms.pop(key, None)
        else:
            self.keys.terms[key] = terms
        crowds = list(self._crowds_of_object.get(key, ()))
        for pod in [pod for each in crowds for pod in self.crowds[each].pods.values()]:
            self.see(pod, waits=True)
        self.changed |= dict.fromkeys((key, *crowds))

    def set_alone(self, key: Key) -> None:
        """Pods of a gang that has started without them: each is a gang of its own from now on."""
        for pod in list(self.crowds[key].pods.values()):
            self.keys.set_alone(pod.metadata.uid)
            self.see(pod, waits=True)

    def adopt(self, job: str, key: Key) -> None:
        """A job is the one of this gang."""
        crowd = self.crowds.get(key) or self._new(key)
        crowd.job, crowd.withdrawn = job, False
        if key[2] == ALONE:
            self.keys.set_alone(job.rpartition(".")[2])
        self.key_of_job[job] = key
        self.changed[key] = None

    def part(self, job: str) -> None:
        """A job is over; its gang may be handed in anew."""
        key = self.key_of_job.pop(job, None)
        if key is not None and self.crowds[key].job == job:
            self.crowds[key].job = None
            self.changed[key] = None
            self.tidy(key)

    def gang(self, key: Key) -> Gang | None:
        """The gang of a key as its pods are now; None while too few wait."""
        crowd = self.crowds.get(key)
        if crowd is None or not crowd.pods:
            return None
        terms = self.keys.terms_of(key)
        if key[2] not in (ALONE, BY_WORD) and terms is None:
            return None  # its object is yet to be seen
        if terms is not None and len(crowd.pods) < terms.members_of(part_of(key)):
            return None
        gang = gang_of(key, terms, list(crowd.pods.values()))
        return gang if gang.is_whole else None

    def touch(self, job: str) -> None:
        """Something was decided about a job."""
        key = self.key_of_job.get(job)
        if key is not None:
            self.changed[key] = None

    def pods_of_job(self, job: str) -> list[Pod]:
        """The pods of a job's gang that wait."""
        key = self.key_of_job.get(job)
        crowd = None if key is None else self.crowds.get(key)
        return [] if crowd is None else list(crowd.pods.values())

    def gang_of_job(self, job: str) -> Gang | None:
        """The gang that a job is, as its pods are now; None while too few wait."""
        key = self.key_of_job.get(job)
        return None if key is None else self.gang(key)

    def job_of(self, key: Key) -> str | None:
        """The job that a gang is, if it was handed in."""
        crowd = self.crowds.get(key)
        return None if crowd is None else crowd.job

    def is_made_here(self, job: str) -> bool:
        """Whether gantree makes the pods of a job itself."""
        key = self.key_of_job.get(job)
        return key is not None and key[2] == GANGJOB.key_word

    def what_is_missing(self, key: Key) -> str:
        """Why a gang is not whole."""
        pods = list(self.crowds[key].pods.values())
        terms = self.keys.terms_of(key)
        if terms is None and key[2] != BY_WORD:
            return f"Waiting: there is no pod group {object_of(key)[1]!r} that can be read."
        gang = gang_of(key, terms, pods) if pods else None
        members = gang.terms.members if gang else 0
        if gang and len(pods) >= members:
            asked = ", ".join(f"{role.members} {role.name}" for role in gang.terms.roles)
            return f"Waiting: the {len(pods)} pods of {key[1]!r} are not all that are asked for: {asked}."
        return f"Waiting: {len(pods)} of {members} pods of {key[1]!r} are there."

    def is_gone(self, key: Key) -> bool:
        """Whether nothing of a gang is left: no pod that waits, no object of the group."""
        crowd = self.crowds.get(key)
        return (crowd is None or not crowd.pods) and self.keys.terms_of(key) is None

    def take_changed(self, at_most: int) -> list[Key]:
        """The first keys that have changed and were not taken since."""
        taken = list(islice(self.changed, at_most))
        for key in taken:
            del self.changed[key]
        return taken

    def tidy(self, key: Key) -> None:
        """Forget a crowd that nobody is in and that is no job."""
        crowd = self.crowds.get(key)
        if crowd is not None and not crowd.pods and crowd.job is None:
            del self.crowds[key]
            crowds = self._crowds_of_object[object_of(key)]
            del crowds[key]
            if not crowds:
                del self._crowds_of_object[object_of(key)]

    def _new(self, key: Key) -> Crowd:
        """A crowd that nobody is in yet."""
        self._crowds_of_object.setdefault(object_of(key), {})[key] = None
        crowd = self.crowds[key] = Crowd(key)
        return crowd


def may_be_bound(pod: Pod) -> bool:
    """Whether a pod that has no node may get one now."""
    return (
        not pod.has_ended
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )
