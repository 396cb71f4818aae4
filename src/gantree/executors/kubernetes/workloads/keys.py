"""The gang of a pod: the pod's own key, and the part where the object of its group makes a gang of each part.

A pod that came later than its gang started stands alone from then on.
"""

import re
from collections.abc import Iterable

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.pods.gang_spec import PART, GangSpec
from gantree.executors.kubernetes.workloads.composite_groups import GroupTree
from gantree.executors.kubernetes.workloads.gang_labels import group_of
from gantree.executors.kubernetes.workloads.gang_owners import role_of

Key = tuple[str, str, str]
"""What holds a gang together: namespace, name (and part), and the kind of group, or "pod" for one that stands alone."""
ALONE, BY_WORD = "pod", "gang"
"""Kinds of gangs that have no object."""
LONGEST = 253
"""What an annotation names may be any text; no object has a longer name."""
HAND_IN = "_"
"""In ids of jobs, between the uid of the gang's first pod and what tells one hand-in of it from all others."""
_NO_NAME, _NO_WORD = re.compile(r"[^A-Za-z0-9.-]"), re.compile(rf"[^A-Za-z0-9._{PART}-]")
"""What stands in no name, and in no name of a gang of ours: ids of jobs are made of them."""


def key_of(pod: Pod) -> Key:
    """The gang that a pod says it is of."""
    ref = group_of(pod)
    if ref is None:
        return key_alone(pod)
    if ref.kind is None:
        return ref.namespace, _NO_WORD.sub("_", ref.name)[:LONGEST], BY_WORD
    name = _NO_NAME.sub("_", ref.name)[:LONGEST]
    part = _NO_WORD.sub("_", ref.part)[:LONGEST]
    return ref.namespace, f"{name}{PART}{part}" if part else name, ref.kind.key_word


def key_alone(pod: Pod) -> Key:
    """The gang of a pod that stands alone."""
    return pod.metadata.namespace, pod.metadata.name, ALONE


def object_of(key: Key) -> Key:
    """The object that makes a gang what it is: that of its name without the part."""
    namespace, name, kind = key
    has_object = kind not in (ALONE, BY_WORD)
    return (namespace, name.partition(PART)[0], kind) if has_object else key


def part_of(key: Key) -> str:
    """The part of its object that a gang is; "" for the whole."""
    return key[1].partition(PART)[2] if key[2] not in (ALONE, BY_WORD) else ""


def job_id(key: Key, uid: str, hand_in: str) -> str:
    """The id of a gang as a job. uid is that of its first pod; hand_in never came before, and has no dot."""
    return f"{handed_in(key, uid)}{HAND_IN}{hand_in}"


def handed_in(key: Key, uid: str) -> str:
    """What the ids of all jobs have in common that a gang with this first pod was handed in as."""
    return f"{'.'.join(key)}.{uid}"


def uid_of_job(job: str) -> str:
    """The uid of the first pod of a job's gang."""
    return job.rpartition(".")[2].partition(HAND_IN)[0]


class Keys:
    """What objects say, by their keys, and the pods that stand alone although they say otherwise."""

    def __init__(self) -> None:
        self.groups = GroupTree()
        self._alone: set[str] = set()

    def of(self, pod: Pod) -> Key:
        """The gang of a pod."""
        if pod.metadata.uid in self._alone:
            return key_alone(pod)
        key = self.groups.gang_key(key_of(pod))
        gang_spec = self.groups.specs.get(object_of(key))
        if gang_spec is None or not gang_spec.apart:
            return key
        part, role = part_of(key), role_of(pod)
        own = f"{role}{PART}{part}" if part else role
        has_own = own in gang_spec.parts or own[: own.rfind(PART) + 1] in gang_spec.parts
        return (key[0], f"{object_of(key)[1]}{PART}{own}", key[2]) if has_own else key

    def spec_of(self, key: Key) -> GangSpec | None:
        """What the object of a gang asks for; None for a gang without one, or one that was not seen."""
        return self.groups.spec_of(object_of(key))

    def set_alone(self, uid: str) -> None:
        """A pod stands alone from now on."""
        self._alone.add(uid)

    def forget(self, uid: str) -> None:
        """A pod is gone."""
        self._alone.discard(uid)

    def keep(self, uids: Iterable[str]) -> None:
        """These are all pods that there are."""
        self._alone.intersection_update(uids)
