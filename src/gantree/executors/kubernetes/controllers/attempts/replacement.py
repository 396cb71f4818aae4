"""Replacement of single members: each gets the next pod that its controller creates, while the others run."""

from gantree.core.view import LedgerView
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import InterPodFeasibility
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempts.members import AttemptMembers, Name
from gantree.executors.kubernetes.controllers.attempts.pod_choice import pods_by_shape, shapes_of
from gantree.executors.kubernetes.controllers.rank_reports import report_annotations
from gantree.executors.kubernetes.devices.claims import Unfit
from gantree.executors.kubernetes.pods.annotations import LIFE, start_annotations
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.attempts import Attempt, MemberBinding, index_of
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.executors.kubernetes.writes.writes import Binding, binding_of
from gantree.model.orders import ReplaceMember


class MemberReplacement:
    """Attempts with a member that waits for a pod."""

    def __init__(
        self,
        api: ApiThread,
        members: AttemptMembers,
        pending: PendingPods,
        allocator: Allocator,
        feasibility: InterPodFeasibility,
        report_url: str = "",
    ) -> None:
        """report_url is where pods are told to report; "": nowhere."""
        self._report_url = report_url
        self._api, self._members, self._pending = api, members, pending
        self._allocator, self._feasibility = allocator, feasibility
        self._waiting: dict[Name, None] = {}

    def forget(self, name: Name) -> None:
        """The end of an attempt is on record."""
        self._waiting.pop(name, None)

    def replace(self, order: ReplaceMember) -> None:
        """Have a member start anew as soon as there is another pod for it. Its present pod, if any, is deleted."""
        name = (order.job, order.attempt)
        attempt = self._members.attempts.get(name)
        if attempt is None or attempt.stopping or attempt.failed:
            return
        launch, annotations = next(
            each for each in start_annotations(order.gang) if each[0].node_rank == order.member
        )
        member = attempt.members.get(
            order.member, MemberBinding(order.member, launch.first_rank, launch.role)
        )
        if member.life < order.life or (member.gone and not member.has_run):
            self._delete_pod(attempt, member)
            member = MemberBinding(
                order.member, launch.first_rank, launch.role, life=order.life, index=member.index
            )
            attempt.members[order.member] = member
        self._members.set_life(name, order.member, order.life)
        if member.uid is None:
            told = {**annotations, LIFE: str(order.life), **report_annotations(self._report_url)}
            attempt.replacing[order.member] = (launch, told)
            self._waiting[name] = None

    def _delete_pod(self, attempt: Attempt, member: MemberBinding) -> None:
        pod = self._members.release(member)
        if pod is None:
            return
        self._allocator.count_pod(pod, gone=True)
        meta = pod.metadata
        if not member.is_over and meta.deletion_timestamp is None:
            self._api.delete(meta.namespace, meta.name, meta.uid, attempt.grace_s)

    def step(self, decided: LedgerView) -> None:
        """Bind pods that were made for such members."""
        for name in list(self._waiting):
            attempt = self._members.attempts[name]
            if attempt.stopping or attempt.failed:
                attempt.replacing.clear()
            elif attempt.binding:
                continue
            for number in list(attempt.replacing):
                if attempt.members[number].uid is not None:
                    del attempt.replacing[number]
            if attempt.replacing:
                self._bind_next(attempt, decided)
            else:
                del self._waiting[name]

    def _bind_next(self, attempt: Attempt, decided: LedgerView) -> None:
        """Bind the first of them for which there is a pod that fits the node."""
        job = decided.job(attempt.job)
        shape_of_role = shapes_of(() if job is None else job.spec.roles)
        for number, (launch, annotations) in attempt.replacing.items():
            member = attempt.members[number]
            pods = pods_by_shape(self._pending.pods_of_job(attempt.job))
            line = pods.get(shape_of_role[launch.role], ())
            pod = next((each for each in line if member.index in (None, index_of(each))), None)
            if pod is None or self._feasibility.admit([(pod, launch.node)]):
                continue
            self._members.assign(attempt, member, pod)
            if self._bind(attempt, pod, binding_of(pod, launch.node, annotations)):
                return

    def _bind(self, attempt: Attempt, pod: Pod, binding: Binding) -> bool:
        """Bind a pod with the devices of its claims; if those are not free now, it stays pending."""
        try:
            bindings = self._allocator.plan([binding], self._members.pods)
        except Unfit:
            self._members.unassign(attempt, binding.uid)
            return False
        attempt.binding = True
        volumes = self._feasibility.to_make([(pod, binding.node)])
        self._api.bind(attempt.job, attempt.attempt, bindings, volumes)
        return True
