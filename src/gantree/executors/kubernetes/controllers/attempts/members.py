"""Which pod is which member of which attempt: of those that were given a pod here, and of those bound by an earlier
process, whose annotations say so.
"""

from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import InterPodFeasibility
from gantree.executors.kubernetes.pods.annotations import MemberAnnotation, member_annotation
from gantree.executors.kubernetes.workloads.attempts import Attempt, MemberBinding
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods, may_be_bound

Name = tuple[str, int]
"""A job and the number of an attempt."""


class AttemptMembers:
    """Attempts whose end is not on record yet, by name; all pods, by uid; and the attempts that have changed."""

    def __init__(self, pending: PendingPods, feasibility: InterPodFeasibility) -> None:
        self.attempts: dict[Name, Attempt] = {}
        self.pods: dict[str, Pod] = {}
        self.changed: dict[Name, None] = {}
        self._pending, self._feasibility = pending, feasibility
        self._member_of_pod: dict[str, tuple[Name, int]] = {}
        self._lives: dict[Name, dict[int, int]] = {}

    def add(self, attempt: Attempt) -> Attempt:
        """Keep an attempt."""
        self.attempts[attempt.key] = attempt
        return attempt

    def remove(self, name: Name) -> None:
        """Forget an attempt and its members."""
        attempt = self.attempts.pop(name, None)
        self._lives.pop(name, None)
        for member in attempt.members.values() if attempt else ():
            self._member_of_pod.pop(member.uid or "", None)

    def set_life(self, name: Name, member: int, life: int) -> None:
        """A member was replaced so many times: pods of earlier lives are no members."""
        self._lives.setdefault(name, {})[member] = life

    def of_pod(self, uid: str) -> tuple[Attempt, MemberBinding] | None:
        """The attempt and the member of a pod; None for a pod that is no member."""
        found = self._member_of_pod.get(uid)
        if found is None:
            return None
        attempt = self.attempts[found[0]]
        return attempt, attempt.members[found[1]]

    def restore(self, pod: Pod) -> Attempt | None:
        """Make a pod the member that its annotations say it is; None if no attempt here has such a member."""
        annotation = member_annotation(pod.metadata.annotations)
        attempt = (
            None if annotation is None else self.attempts.get((annotation.job, annotation.attempt))
        )
        if annotation is None or attempt is None:
            return None
        if annotation.life < self._lives.get(attempt.key, {}).get(annotation.member, 0):
            return None
        member = attempt.members.setdefault(annotation.member, _unbound(annotation))
        member.uid, member.life = pod.metadata.uid, annotation.life
        self._member_of_pod[pod.metadata.uid] = (attempt.key, annotation.member)
        return attempt

    def assign(self, attempt: Attempt, member: MemberBinding, pod: Pod) -> None:
        """Give a member a pending pod."""
        member.uid = pod.metadata.uid
        self._member_of_pod[member.uid] = (attempt.key, member.member)
        self._pending.update(pod, waits=False)

    def unassign(self, attempt: Attempt, uid: str) -> None:
        """Take its unbound pod from a member; the pod is pending again if it still exists."""
        _, number = self._member_of_pod.pop(uid)
        before = attempt.members[number]
        attempt.members[number] = MemberBinding(
            number, before.rank, before.role, life=before.life, index=before.index
        )
        pod = self.pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            self._feasibility.forget(pod)
            self._pending.update(pod, waits=may_be_bound(pod))

    def release(self, member: MemberBinding) -> Pod | None:
        """Take its bound pod from a member; gives the pod if it still exists."""
        self._member_of_pod.pop(member.uid or "", None)
        return self.pods.get(member.uid or "")

    def pods_of(self, name: Name) -> list[Pod]:
        """The pods of an attempt that are not over, in member order."""
        attempt = self.attempts.get(name)
        members = attempt.members if attempt else {}
        alive = (members[number] for number in sorted(members) if not members[number].is_over)
        pods = (self.pods.get(member.uid or "") for member in alive)
        return [pod for pod in pods if pod is not None]


def _unbound(annotation: MemberAnnotation) -> MemberBinding:
    return MemberBinding(annotation.member, annotation.rank, annotation.role)
