"""Pods that wait for gantree, by gang, and what is to be done about each gang: hand it in, hold it, let it go, end it.

A job of ours lives longer than its pods: when its gang is stopped, whoever made the pods makes new ones, and as soon as
they are all there the job may start again. Until then it is held.
"""

from dataclasses import dataclass, field
from itertools import islice

from gantree.executors.kubernetes.dialects import Terms
from gantree.executors.kubernetes.gangs import Gang, Key, gang_of, key_of, with_pod
from gantree.executors.kubernetes.objects import Pod


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
        self.terms: dict[Key, Terms] = {}
        """Of groups that have an object of their own."""

    def see(self, pod: Pod, *, waits: bool) -> None:
        """A pod of ours is like this, and waits to be bound or not."""
        uid = pod.metadata.uid
        key = key_of(pod) if waits else None
        before = self._key_of_pod.get(uid)
        if before is not None and before != key:
            del self._key_of_pod[uid]
            del self.crowds[before].pods[uid]
            self.changed[before] = None
        if key is not None:
            self._key_of_pod[uid] = key
            self.crowds.setdefault(key, Crowd(key)).pods[uid] = pod
            self.changed[key] = None

    def group(self, key: Key, terms: Terms | None) -> None:
        """The object of a group asks for this; None: it is gone."""
        if terms is None:
            self.terms.pop(key, None)
        else:
            self.terms[key] = terms
        self.changed[key] = None

    def adopt(self, job: str, key: Key) -> None:
        """A job is the one of this gang."""
        crowd = self.crowds.setdefault(key, Crowd(key))
        crowd.job, crowd.withdrawn = job, False
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
        terms = self.terms.get(key)
        if key[2] not in ("pod", "gang") and terms is None:
            return None  # its object is yet to be seen
        gang = gang_of(key, terms, list(crowd.pods.values()))
        return gang if len(crowd.pods) >= gang.terms.members else None

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

    def job_of(self, key: Key) -> str | None:
        """The job that a gang is, if it was handed in."""
        crowd = self.crowds.get(key)
        return None if crowd is None else crowd.job

    def what_is_missing(self, key: Key) -> str:
        """Why a gang is not whole."""
        pods = list(self.crowds[key].pods.values())
        terms = self.terms.get(key)
        if terms is None and key[2] != "gang":
            return f"Waiting: there is no pod group {key[1]!r}."
        members = with_pod(terms, pods[0]).members if pods else 0
        return f"Waiting: {len(pods)} of {members} pods of {key[1]!r} are there."

    def is_gone(self, key: Key) -> bool:
        """Whether nothing of a gang is left: no pod that waits, no object of the group."""
        crowd = self.crowds.get(key)
        return (crowd is None or not crowd.pods) and key not in self.terms

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


def may_be_bound(pod: Pod) -> bool:
    """Whether a pod that has no node may get one now."""
    return (
        not pod.has_ended
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )
