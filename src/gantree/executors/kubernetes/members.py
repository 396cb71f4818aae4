"""Attempts and the pods that have a seat in them: bound on order, watched, deleted on order.

A pod that is given a seat waits no more. It keeps the seat until the attempt's end is on record, but where its binding
failed: then it waits again.
"""

from collections import deque
from collections.abc import Callable

from gantree.core.ledger import Ledger
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.attempts import Attempt, Seat, happened
from gantree.executors.kubernetes.gangs import order_of
from gantree.executors.kubernetes.hived import isolation_of
from gantree.executors.kubernetes.link import Link
from gantree.executors.kubernetes.marks import Mark, mark_of, marks_of
from gantree.executors.kubernetes.objects import Pod
from gantree.executors.kubernetes.shapes import asked_by
from gantree.executors.kubernetes.waiting import Waiting, may_be_bound
from gantree.executors.kubernetes.writes import Binding, Bound
from gantree.model.events import Event, GangEnded, GangStartFailed, HoldRequested
from gantree.model.jobs import Shape
from gantree.model.orders import StartGang, StopGang
from gantree.model.phases import Phase

FOR_PODS = "its pods are not all there; whoever makes them has to make new ones"

Name = tuple[str, int]
"""A job and the number of an attempt."""


class Members:
    """All attempts that are not settled. pods are all pods that there are, by uid."""

    def __init__(self, link: Link, waiting: Waiting, emit: Callable[[Event], None]) -> None:
        self.pods: dict[str, Pod] = {}
        self._link, self._waiting, self._emit = link, waiting, emit
        self._attempts: dict[Name, Attempt] = {}
        self._seat_of_pod: dict[str, tuple[Name, int]] = {}
        self._touched: dict[Name, None] = {}
        self._told: dict[Name, set[str]] = {}

    def adopt(self, ledger: Ledger) -> None:
        """Attempts that the ledger knows; their pods say themselves which they are."""
        for state in ledger.holding.values():
            name = (state.job, state.attempt)
            self._attempts[name] = Attempt(state.job, state.attempt, state.present.members)

    def miss(self, ledger: Ledger) -> None:
        """Once all pods were seen: members that ran and have no pod went while nobody looked."""
        for state in ledger.holding.values():
            if state.phase is not Phase.STARTING:
                self._miss(self._attempts[state.job, state.attempt])

    def inventory(self) -> Inventory:
        """The status of every attempt."""
        return Inventory({name: attempt.status() for name, attempt in self._attempts.items()})

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        ended = self._attempts.pop((job, attempt), None)
        self._told.pop((job, attempt), None)
        for seat in ended.seats.values() if ended else ():
            self._seat_of_pod.pop(seat.uid or "", None)

    # ----- what was seen

    def is_member(self, pod: Pod) -> bool:
        """Whether a pod has a seat in an attempt that counts."""
        if pod.metadata.uid in self._seat_of_pod:
            return True
        mark = mark_of(pod.metadata.annotations)
        if mark is None or (mark.job, mark.attempt) not in self._attempts:
            return False
        self._sit(pod, mark)
        return True

    def is_steady(self, job: str, attempt: int) -> bool:
        """Whether all members of an attempt run, and none of their pods is about to go."""
        there = self._attempts.get((job, attempt))
        if there is None or there.status() != "running" or there.binding:
            return False
        pods = [self.pods.get(seat.uid or "") for seat in there.seats.values()]
        return all(pod is not None and pod.metadata.deletion_timestamp is None for pod in pods)

    def see(self, pod: Pod, *, gone: bool) -> None:
        """A member's pod is like this, or is gone and was like this."""
        name, member = self._seat_of_pod[pod.metadata.uid]
        attempt = self._attempts[name]
        attempt.see(pod, attempt.seats[member])
        attempt.seats[member].gone = gone
        self._waiting.see(pod, waits=False)
        self._touched[name] = None

    def see_bound(self, done: Bound) -> None:
        """The writes of an attempt are over; pods that were not bound wait again, those that were go with the rest."""
        name = (done.job, done.attempt)
        attempt = self._attempts.get(name)
        if attempt is None:
            return
        attempt.binding = False
        self._touched[name] = None
        if done.failed:
            attempt.failed = attempt.failed or done.failed[0][1]
        for uid, _ in done.failed:
            self._stand_up(attempt, uid)
        if attempt.failed or attempt.stopping:
            self._delete_all(attempt, None)

    def _sit(self, pod: Pod, mark: Mark) -> None:
        """A pod that was bound by an earlier process has its seat again."""
        attempt = self._attempts[mark.job, mark.attempt]
        seat = attempt.seats.setdefault(mark.member, Seat(mark.member, mark.rank, mark.role))
        seat.uid = pod.metadata.uid
        self._seat_of_pod[pod.metadata.uid] = ((mark.job, mark.attempt), mark.member)

    def _stand_up(self, attempt: Attempt, uid: str) -> None:
        """A pod leaves its seat unbound, and waits again if it is still there."""
        _, member = self._seat_of_pod.pop(uid)
        attempt.seats[member] = Seat(member, attempt.seats[member].rank, attempt.seats[member].role)
        pod = self.pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            self._waiting.see(pod, waits=may_be_bound(pod))

    def _miss(self, attempt: Attempt) -> None:
        for member in range(attempt.size):
            seat = attempt.seats.setdefault(member, Seat(member, member, "worker"))
            seat.gone = seat.gone or seat.uid is None
            seat.uid = seat.uid or ""
        self._touched[attempt.job, attempt.attempt] = None

    # ----- what is told

    def tell(self, now: float) -> list[str]:
        """Tell what became of attempts; give the jobs of those that have ended."""
        there = [name for name in self._touched if name in self._attempts]
        told = [(name, event) for name in there for event in _told_by(self._attempts[name], now)]
        fresh = [event for name, event in told if self._tell_once(name, event)]
        self._touched.clear()
        return [event.job for event in fresh if isinstance(event, GangEnded)]

    def _tell_once(self, name: Name, event: Event) -> bool:
        told = self._told.setdefault(name, set())
        if event.id in told:
            return False
        told.add(event.id)
        self._emit(event)
        return True

    # ----- orders

    def start(self, order: StartGang, ledger: Ledger) -> None:
        """Bind what is not bound yet of an attempt."""
        name = (order.job, order.attempt)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = Attempt(order.job, order.attempt, len(order.members))
            self._attempts[name] = attempt
        if attempt.binding or attempt.stopping or attempt.failed:
            return
        bindings = self._seat(attempt, order, ledger)
        self._touched[name] = None
        if attempt.failed:
            self._delete_all(attempt, None)
        elif bindings:
            attempt.binding = True
            self._link.bind(order.job, order.attempt, bindings)

    def stop(self, order: StopGang) -> None:
        """Delete the pods of an attempt; of one that is being bound, as soon as that is over."""
        name = (order.job, order.attempt)
        attempt = self._attempts.setdefault(name, Attempt(order.job, order.attempt, 0))
        attempt.stopping = True
        self._touched[name] = None
        if not attempt.binding:
            self._delete_all(attempt, order.grace_s)

    def _seat(self, attempt: Attempt, order: StartGang, ledger: Ledger) -> list[Binding]:
        """Bindings for the members that have no pod yet; where pods are missing the attempt has failed."""
        shape_of_role = {role.name: role.shape for role in ledger.jobs[order.job].spec.roles}
        free = self._free_pods(order.job)
        bindings, missing = [], 0
        for launch in sorted(order.members, key=lambda each: each.node_rank):
            seat = attempt.seats.get(launch.node_rank)
            line = free.get(shape_of_role[launch.role])
            if seat is not None and seat.uid is not None:
                continue
            if not line:
                missing += 1
                continue
            pod = line.popleft()
            uid = pod.metadata.uid
            seat = Seat(launch.node_rank, launch.first_rank, launch.role, uid)
            attempt.seats[launch.node_rank] = seat
            self._seat_of_pod[uid] = ((order.job, order.attempt), launch.node_rank)
            self._waiting.see(pod, waits=False)
            bindings.append(_binding(pod, launch.node, marks_of(order, launch)))
        if missing:
            attempt.failed = f"{missing} of {attempt.size} pods are not there any more"
            for binding in bindings:
                self._stand_up(attempt, binding.uid)
        return [] if missing else bindings

    def _free_pods(self, job: str) -> dict[Shape, deque[Pod]]:
        """Pods of a job's gang that wait, by shape, in member order."""
        found: dict[Shape, deque[Pod]] = {}
        for pod in sorted(self._waiting.pods_of_job(job), key=order_of):
            found.setdefault(asked_by(pod).shape, deque()).append(pod)
        return found

    def _delete_all(self, attempt: Attempt, grace_s: float | None) -> None:
        """Have its pods deleted that are not over; asked again with each standing order until they are gone."""
        for seat in attempt.seats.values():
            pod = self.pods.get(seat.uid or "")
            if pod is not None and not seat.is_over and pod.metadata.deletion_timestamp is None:
                self._link.delete(
                    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, grace_s
                )


def _told_by(attempt: Attempt, now: float) -> list[Event]:
    """What an attempt tells by now. Before its end comes that its job waits for new pods, unless it succeeded."""
    told = list(happened(attempt, now))
    if attempt.failed:
        failed = GangStartFailed(
            id=f"{attempt.name}/start-failed",
            observed_at=now,
            job=attempt.job,
            attempt=attempt.attempt,
            reason=attempt.failed,
        )
        told.insert(0, failed)
    if attempt.is_over and attempt.exit_code != 0:
        held = HoldRequested(
            id=f"{attempt.name}/hold", observed_at=now, job=attempt.job, reason=FOR_PODS
        )
        told.insert(-1, held)
    return told


def _binding(pod: Pod, node: str, annotations: dict[str, str]) -> Binding:
    meta = pod.metadata
    marks = {**annotations, **isolation_of(pod, annotations)}
    return Binding(meta.namespace, meta.name, meta.uid, node, marks)
