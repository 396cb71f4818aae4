"""The controller of attempts: binds the pods of a starting gang, watches them, and deletes them to stop it.

A pod that is assigned to a member is pending no more. It stays that member until the end of the attempt is on record,
unless its binding failed: then it is pending again.
"""

from collections.abc import Callable

from gantree.core.view import JobView, LedgerView
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import InterPodFeasibility
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempts.events import AttemptEvents
from gantree.executors.kubernetes.controllers.attempts.members import AttemptMembers
from gantree.executors.kubernetes.controllers.attempts.pod_choice import lacks_pods, pod_chooser
from gantree.executors.kubernetes.controllers.attempts.remaining_pods import RemainingPods
from gantree.executors.kubernetes.controllers.attempts.replacement import MemberReplacement
from gantree.executors.kubernetes.controllers.link_checks import CheckFailure
from gantree.executors.kubernetes.controllers.rank_reports import report_annotations
from gantree.executors.kubernetes.devices.claims import Unfit
from gantree.executors.kubernetes.pods.annotations import start_annotations
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.attempts import Attempt, MemberBinding
from gantree.executors.kubernetes.workloads.elastic import COME_WITHIN_S, PendingStarts
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods
from gantree.executors.kubernetes.writes.eviction import Evictions
from gantree.executors.kubernetes.writes.writes import Binding, Bound, binding_of
from gantree.model.events import Event
from gantree.model.jobs import Shape
from gantree.model.orders import ReplaceMember, StartGang, StopGang
from gantree.model.phases import Phase

NO_LEASE = "the lease of its federation does not hold here"
AGAIN_S = 10.0
"""Deletions of pods that still exist are repeated after so long."""


class AttemptController:
    """Carries out start, replace and stop orders, and emits what becomes of attempts. pods are all pods, by uid."""

    def __init__(
        self,
        api: ApiThread,
        pending: PendingPods,
        allocator: Allocator,
        feasibility: InterPodFeasibility,
        emit: Callable[[Event], None],
        tell: Callable[[str, str], None],
        report_url: str = "",
        lease_holds: Callable[[], bool] = lambda: False,
    ) -> None:
        """tell is called with a job and what keeps its last attempt from ending.

        report_url is where pods are told to report; "": nowhere. lease_holds says whether that of a federation does.
        """
        self._report_url, self._lease_holds = report_url, lease_holds
        self._api, self._pending = api, pending
        self._allocator, self._feasibility = allocator, feasibility
        self._members = AttemptMembers(pending, feasibility)
        self._events = AttemptEvents(pending, emit)
        self._replacement = MemberReplacement(
            api, self._members, pending, allocator, feasibility, report_url
        )
        self._pending_starts = PendingStarts()
        self._evictions = Evictions()
        self._remaining = RemainingPods(api, tell)
        self._retry_at = float("-inf")
        self.pods = self._members.pods

    def adopt(self, decided: LedgerView) -> None:
        """Keep the attempts on record; annotations of pods say which members they are."""
        for job in decided.placed_jobs():
            attempt = self._members.add(Attempt(job.job, job.attempt, job.present.members))
            for member, life in job.replacements.items():
                self._members.set_life(attempt.key, member, life)

    def mark_missing(self, decided: LedgerView) -> None:
        """Once all pods were listed: members that ran and have no pod are gone."""
        for job in decided.placed_jobs():
            if job.phase is not Phase.STARTING:
                self._mark_missing(self._members.attempts[job.job, job.attempt], job, decided)

    def _mark_missing(self, attempt: Attempt, job: JobView, decided: LedgerView) -> None:
        """Members without a pod are gone, except those that are being replaced."""
        known = {}
        if job.spec.restarts.replace_s is not None:
            known = {each.node_rank: each for each in decided.start_order(job.job).members}
        for number in range(attempt.size):
            launch = known.get(number)
            rank, role = (launch.first_rank, launch.role) if launch else (number, "worker")
            unbound = MemberBinding(number, rank, role, life=job.replacements.get(number, 0))
            member = attempt.members.setdefault(number, unbound)
            if number not in job.replacing:
                member.gone = member.gone or member.uid is None
                member.uid = member.uid or ""
        self._members.changed[attempt.key] = None

    def take_over(self, job: str, attempt: int, size: int) -> None:
        """Keep an attempt that runs and is not on record yet."""
        self._members.add(Attempt(job, attempt, size))

    def inventory(self) -> Inventory:
        """The status of every attempt."""
        attempts = self._members.attempts.items()
        return Inventory({name: attempt.status() for name, attempt in attempts})

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        name = (job, attempt)
        self._pending_starts.forget(job, attempt)
        self._replacement.forget(name)
        self._events.forget(name)
        self._remaining.forget(name)
        self._members.remove(name)

    # ----- pods

    def is_member(self, pod: Pod) -> bool:
        """Whether a pod is a member of an attempt here, by assignment or by its annotations."""
        if self.has_member(pod.metadata.uid):
            return True
        attempt = self._members.restore(pod)
        if attempt is not None and attempt.is_leaving:
            self._delete_pods(attempt)
        return attempt is not None

    def has_member(self, uid: str) -> bool:
        """Whether the pod of this uid is known to be a member, bound or not."""
        return self._members.of_pod(uid) is not None

    def place_of(self, uid: str) -> tuple[tuple[str, int], str] | None:
        """The attempt that a pod is a member of, and the member's role; None for a pod that is none."""
        found = self._members.of_pod(uid)
        return None if found is None else (found[0].key, found[1].role)

    def is_steady(self, job: str, attempt: int) -> bool:
        """Whether all members of an attempt run, and none of their pods is being deleted."""
        found = self._members.attempts.get((job, attempt))
        if found is None or found.status() != "running" or found.binding:
            return False
        pods = [self.pods.get(member.uid or "") for member in found.members.values()]
        return all(pod is not None and pod.metadata.deletion_timestamp is None for pod in pods)

    def is_bound(self, job: str, attempt: int) -> bool:
        """Whether all members of an attempt are bound, and it goes on."""
        found = self._members.attempts.get((job, attempt))
        if found is None or found.binding or found.stopping or found.failed:
            return False
        return found.is_assigned

    def update(self, pod: Pod, *, gone: bool) -> None:
        """The pod of a member has changed, or is gone."""
        self._allocator.count_pod(pod, gone=gone)
        found = self._members.of_pod(pod.metadata.uid)
        assert found is not None, "only members are updated"
        attempt, member = found
        attempt.update(pod, member)
        member.gone = gone
        self._pending.update(pod, waits=False)
        self._members.changed[attempt.key] = None

    def on_bound(self, done: Bound) -> None:
        """All bindings of an attempt are done; pods that were not bound are pending again."""
        attempt = self._members.attempts.get((done.job, done.attempt))
        if attempt is None:
            return
        attempt.binding = False
        self._members.changed[attempt.key] = None
        for uid, why in done.failed:
            self._allocator.give_up(uid)
            self._binding_failed(attempt, uid, why)
        if attempt.is_leaving:
            self._delete_pods(attempt)

    def _binding_failed(self, attempt: Attempt, uid: str, why: str) -> None:
        """The attempt fails with a pod that was not bound, unless that was to replace a member."""
        found = self._members.of_pod(uid)
        if found is None:  # another pod was assigned to the member meanwhile
            return
        if not found[1].life:
            attempt.failed = attempt.failed or why
        self._members.unassign(attempt, uid)

    def pods_of(self, job: str, attempt: int) -> list[Pod]:
        """The pods of an attempt that are not over, in member order."""
        return self._members.pods_of((job, attempt))

    def shape_of(self, pod: Pod, decided: LedgerView) -> Shape | None:
        """The shape that the job of a pod has for it; None where that is not on record."""
        found = self._members.of_pod(pod.metadata.uid)
        state = None if found is None else decided.job(found[0].job)
        if found is None or state is None:
            return None
        roles = (each.shape for each in state.present.roles if each.name == found[1].role)
        return next(roles, None)

    def emit_events(self, decided: LedgerView, now: float) -> list[str]:
        """Emit the events of attempts; return the jobs whose attempts have ended."""
        attempts = self._members.attempts
        changed = [attempts[name] for name in self._members.changed if name in attempts]
        for attempt in changed:
            attempt.holds_devices = attempt.is_leaving and self._holds_devices(attempt)
        ended = self._events.emit(changed, decided, now)
        self._members.changed.clear()
        self._members.changed |= {each.key: None for each in changed if each.holds_devices}
        return ended

    def _holds_devices(self, attempt: Attempt) -> bool:
        """Whether claims have devices still for pods of an attempt that are over: the control plane takes them back.

        Until then nobody can have them, so a gang for which it was stopped would find its room lost.
        """
        over = {each.uid: None for each in attempt.members.values() if each.uid and each.is_over}
        return self._allocator.book.has_devices(over)

    # ----- orders

    def start(self, order: StartGang, decided: LedgerView) -> None:
        """Bind the pods of an attempt that are not bound yet."""
        name = (order.job, order.attempt)
        attempt = self._members.attempts.get(name)
        if attempt is None:
            attempt = self._members.add(Attempt(order.job, order.attempt, len(order.members)))
        job = decided.job(order.job)
        is_done = attempt.binding or attempt.stopping or attempt.failed or attempt.is_assigned
        if (
            is_done or job is None or job.missing
        ):  # a missing member is replaced by an order of its own
            self._pending_starts.forget(*name)
            return
        pods = self._pending.pods_of_job(order.job)
        if self._pending.makes_pods(order.job) and lacks_pods(pods, order, job, attempt):
            self._pending_starts.wait(order)
            return
        self._pending_starts.forget(*name)
        if job.spec.is_leased and not self._lease_holds():
            attempt.failed, self._members.changed[name] = NO_LEASE, None
            return
        bindings = self._with_devices(attempt, self._assign_pods(attempt, order, job))
        self._members.changed[name] = None
        if attempt.failed:
            self._delete_pods(attempt)
        elif bindings:
            attempt.binding = True
            placed = [(self.pods[each.uid], each.node) for each in bindings]
            volumes = self._feasibility.to_make(placed)
            self._api.bind(order.job, order.attempt, bindings, volumes)

    def _assign_pods(self, attempt: Attempt, order: StartGang, job: JobView) -> list[Binding]:
        """Bindings for the members that have no pod yet.

        The attempt fails if pods are missing, or if they may not run there beside other pods.
        """
        choose = pod_chooser(self._pending.pods_of_job(order.job), order, job)
        bindings, missing = [], 0
        for launch, annotations in start_annotations(order):
            member = attempt.members.get(launch.node_rank)
            if member is not None and member.uid is not None:
                continue
            pod = choose(launch)
            if pod is None:
                missing += 1
                continue
            member = MemberBinding(launch.node_rank, launch.first_rank, launch.role)
            attempt.members[launch.node_rank] = member
            self._members.assign(attempt, member, pod)
            told = {**annotations, **report_annotations(self._report_url)}
            bindings.append(binding_of(pod, launch.node, told))
        if missing:
            attempt.failed = f"{missing} of {attempt.size} pods are not there any more"
        else:
            placed = [(self.pods[each.uid], each.node) for each in bindings]
            attempt.failed = self._feasibility.admit(
                placed, self._pending.key_of_job.get(order.job)
            )
        return self._unless_failed(attempt, bindings)

    def _with_devices(self, attempt: Attempt, bindings: list[Binding]) -> list[Binding]:
        """Bindings with the devices of their claims; the attempt fails if those are not free."""
        try:
            return self._allocator.plan(bindings, self.pods)
        except Unfit as error:
            attempt.failed = str(error)
            return self._unless_failed(attempt, bindings)

    def _unless_failed(self, attempt: Attempt, bindings: list[Binding]) -> list[Binding]:
        for binding in bindings if attempt.failed else ():
            self._members.unassign(attempt, binding.uid)
        return [] if attempt.failed else bindings

    def replace(self, order: ReplaceMember) -> None:
        """Have a member start anew while the others run."""
        self._replacement.replace(order)

    def stop(self, order: StopGang, *, for_others: bool = False) -> None:
        """Delete the pods of an attempt, once its bindings are done.

        for_others: nothing is wrong with the gang, so its pods are evicted, within their disruption budgets.
        """
        name = (order.job, order.attempt)
        attempt = self._members.attempts.get(name)
        attempt = attempt or self._members.add(Attempt(order.job, order.attempt, 0))
        attempt.stopping, attempt.grace_s, attempt.evicts = True, order.grace_s, for_others
        self._members.changed[name] = None
        if attempt.is_leaving:
            self._delete_pods(attempt)

    def fail(self, name: tuple[str, int], failure: CheckFailure) -> None:
        """End an attempt of which the check before the start says that it must not start."""
        attempt = self._members.attempts.get(name)
        if attempt is None or attempt.stopping or attempt.failed:
            return
        attempt.failed, attempt.final = failure.reason, failure.final
        attempt.check_failed = failure.is_named
        self._members.changed[name] = None
        if attempt.is_leaving:
            self._delete_pods(attempt)

    def step(self, decided: LedgerView, now: float) -> None:
        """Bind pods that were missing when they were to be bound, and repeat deletions, which the server may refuse."""
        for order, is_late in self._pending_starts.due(now):
            if is_late:
                self._give_up(order)
            self.start(order, decided)
        if now >= self._retry_at:
            self._retry_at = now + AGAIN_S
            for attempt in self._members.attempts.values():
                if attempt.is_leaving:
                    self._delete_pods(attempt)
                    pods = self.pods_of(*attempt.key)
                    self._remaining.review(attempt.key, pods, decided.site.is_lost, now)
        self._replacement.step(decided)

    def remains(self, job: str) -> str:
        """What keeps the last attempt of a job from ending; "" for nothing that is known."""
        found = self._remaining.told(job)
        return next((told for name, told in found if self.pods_of(*name)), "")

    def _give_up(self, order: StartGang) -> None:
        """Fail starts whose pods were not created in time."""
        attempt = self._members.attempts[order.job, order.attempt]
        if attempt.is_leaving:
            return
        attempt.failed = f"not all of its {attempt.size} pods were made within {COME_WITHIN_S:g} s"
        self._members.changed[attempt.key] = None
        self._delete_pods(attempt)

    def _delete_pods(self, attempt: Attempt) -> None:
        """Delete or evict the pods of an attempt that are not over."""
        pods = [pod for pod in self.pods_of(*attempt.key) if not pod.metadata.deletion_timestamp]
        if attempt.evicts:
            grace_s = attempt.grace_s or 0.0
            self._api.write(lambda client: self._evictions.evict(client, pods, grace_s))
            return
        for meta in (pod.metadata for pod in pods):
            self._api.delete(meta.namespace, meta.name, meta.uid, attempt.grace_s)
