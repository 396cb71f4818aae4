"""Attempts and the pods that have a seat in them: bound on order, watched, deleted on order.

A pod that is given a seat waits no more. It keeps the seat until the attempt's end is on record, but where its binding
failed: then it waits again.
"""

from collections import deque
from collections.abc import Callable

from gantree.core.view import JobView, LedgerView
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.apiserver.objects import Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import Whereabouts
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.devices.claims import Unfit
from gantree.executors.kubernetes.pods.annotations import LIFE, Mark, mark_of, marks_of
from gantree.executors.kubernetes.pods.hived import isolation_of
from gantree.executors.kubernetes.pods.shapes import asked_by
from gantree.executors.kubernetes.watch.api_thread import Link
from gantree.executors.kubernetes.workloads.attempts import Attempt, Seat, happened, index_of
from gantree.executors.kubernetes.workloads.elastic import COME_WITHIN_S, ToCome, pods_by_index
from gantree.executors.kubernetes.workloads.gangs import in_order
from gantree.executors.kubernetes.workloads.pending_pods import Waiting, may_be_bound
from gantree.executors.kubernetes.writes.eviction import Evictions
from gantree.executors.kubernetes.writes.writes import Binding, Bound
from gantree.model.events import Event, GangEnded, GangStartFailed, HoldRequested
from gantree.model.jobs import Shape
from gantree.model.node_restrictions import without_node_restrictions
from gantree.model.orders import MemberLaunch, ReplaceMember, StartGang, StopGang
from gantree.model.phases import Phase

AGAIN_S = 10.0
"""Pods that are to go and are still there are asked to again after so long."""
FOR_PODS = "its pods are not all there; whoever makes them has to make new ones"

Name = tuple[str, int]
"""A job and the number of an attempt."""


class Members:
    """All attempts that are not settled. pods are all pods that there are, by uid."""

    def __init__(
        self,
        link: Link,
        waiting: Waiting,
        allocator: Allocator,
        whereabouts: Whereabouts,
        emit: Callable[[Event], None],
    ) -> None:
        self._allocator = allocator
        self.pods: dict[str, Pod] = {}
        self._link, self._waiting, self._emit = link, waiting, emit
        self._whereabouts = whereabouts
        self._attempts: dict[Name, Attempt] = {}
        self._seat_of_pod: dict[str, tuple[Name, int]] = {}
        self._touched: dict[Name, None] = {}
        self._told: dict[Name, set[str]] = {}
        self._anew: dict[Name, None] = {}
        """Attempts of which a member waits for a pod while the others run."""
        self._lives: dict[Name, dict[int, int]] = {}
        self._again_at = float("-inf")
        self._evictions = Evictions()
        self._to_come = ToCome()

    def adopt(self, decided: LedgerView) -> None:
        """Attempts that the ledger knows; their pods say themselves which they are."""
        for state in decided.placed_jobs():
            name = (state.job, state.attempt)
            self._attempts[name] = Attempt(state.job, state.attempt, state.present.members)
            self._lives[name] = dict(state.replacements)

    def miss(self, decided: LedgerView) -> None:
        """Once all pods were seen: members that ran and have no pod went while nobody looked."""
        for state in decided.placed_jobs():
            if state.phase is not Phase.STARTING:
                self._miss(self._attempts[state.job, state.attempt], state, decided)

    def take_over(self, job: str, attempt: int, size: int) -> None:
        """An attempt that runs counts from now on; its pods take their seats when they are seen."""
        self._attempts[job, attempt] = Attempt(job, attempt, size)

    def inventory(self) -> Inventory:
        """The status of every attempt."""
        return Inventory({name: attempt.status() for name, attempt in self._attempts.items()})

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        self._to_come.forget(job, attempt)
        ended = self._attempts.pop((job, attempt), None)
        self._told.pop((job, attempt), None)
        self._lives.pop((job, attempt), None)
        self._anew.pop((job, attempt), None)
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
        if mark.life < self._lives.get((mark.job, mark.attempt), {}).get(mark.member, 0):
            return False
        self._sit(pod, mark)
        return True

    def has_seat(self, uid: str) -> bool:
        """Whether the pod of this uid is a member of an attempt, be it bound or yet to be."""
        return uid in self._seat_of_pod

    def is_steady(self, job: str, attempt: int) -> bool:
        """Whether all members of an attempt run, and none of their pods is about to go."""
        there = self._attempts.get((job, attempt))
        if there is None or there.status() != "running" or there.binding:
            return False
        pods = [self.pods.get(seat.uid or "") for seat in there.seats.values()]
        return all(pod is not None and pod.metadata.deletion_timestamp is None for pod in pods)

    def see(self, pod: Pod, *, gone: bool) -> None:
        """A member's pod is like this, or is gone and was like this."""
        self._allocator.sit(pod, gone=gone)
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
        for uid, why in done.failed:
            self._allocator.give_up(uid)
            self._fail_to_bind(attempt, uid, why)
        if attempt.is_leaving:
            self._let_go(attempt)

    def _fail_to_bind(self, attempt: Attempt, uid: str, why: str) -> None:
        """A pod was not bound: with it the attempt fails, unless it was to start anew beside others that run."""
        _, member = self._seat_of_pod.get(uid, (None, None))
        if member is None:  # another pod was put in its place meanwhile
            return
        if not attempt.seats[member].life:
            attempt.failed = attempt.failed or why
        self._stand_up(attempt, uid)

    def _sit(self, pod: Pod, mark: Mark) -> None:
        """A pod that was bound by an earlier process, or after that was given up, has its seat again."""
        attempt = self._attempts[mark.job, mark.attempt]
        seat = attempt.seats.setdefault(mark.member, Seat(mark.member, mark.rank, mark.role))
        seat.uid, seat.life = pod.metadata.uid, mark.life
        self._seat_of_pod[pod.metadata.uid] = ((mark.job, mark.attempt), mark.member)
        if attempt.is_leaving:
            self._let_go(attempt)

    def _stand_up(self, attempt: Attempt, uid: str) -> None:
        """A pod leaves its seat unbound, and waits again if it is still there."""
        _, member = self._seat_of_pod.pop(uid)
        seat = attempt.seats[member]
        attempt.seats[member] = Seat(member, seat.rank, seat.role, life=seat.life, index=seat.index)
        pod = self.pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            self._whereabouts.forget(pod)
            self._waiting.see(pod, waits=may_be_bound(pod))

    def _miss(self, attempt: Attempt, state: JobView, decided: LedgerView) -> None:
        """Who ran and has no pod is gone, but for those that were to start anew and have none yet."""
        known = {}
        if state.spec.restarts.replace_s is not None:
            known = {each.node_rank: each for each in decided.start_order(state.job).members}
        for member in range(attempt.size):
            launch = known.get(member)
            rank, role = (launch.first_rank, launch.role) if launch else (member, "worker")
            fresh = Seat(member, rank, role, life=state.replacements.get(member, 0))
            seat = attempt.seats.setdefault(member, fresh)
            if member not in state.replacing:
                seat.gone = seat.gone or seat.uid is None
                seat.uid = seat.uid or ""
        self._touched[attempt.job, attempt.attempt] = None

    # ----- what is told

    def tell(self, decided: LedgerView, now: float) -> list[str]:
        """Tell what became of attempts; give the jobs of those that have ended."""
        there = [(name, self._attempts[name]) for name in self._touched if name in self._attempts]
        told = [
            (name, event)
            for name, it in there
            if not it.is_quiet
            for event in _told_by(it, now, waits=self._waits_for_pods(decided, it.job))
        ]
        fresh = [event for name, event in told if self._tell_once(name, event)]
        self._touched.clear()
        return [event.job for event in fresh if isinstance(event, GangEnded)]

    def _waits_for_pods(self, decided: LedgerView, job: str) -> bool:
        """Whether a job is held until its pods are made anew. It would lose the place that is held for it."""
        return decided.claimed_placement(job) is None or not self._waiting.is_made_here(job)

    def _tell_once(self, name: Name, event: Event) -> bool:
        told = self._told.setdefault(name, set())
        if event.id in told:
            return False
        told.add(event.id)
        self._emit(event)
        return True

    # ----- orders

    def start(self, order: StartGang, decided: LedgerView) -> None:
        """Bind what is not bound yet of an attempt."""
        name = (order.job, order.attempt)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = Attempt(order.job, order.attempt, len(order.members))
            self._attempts[name] = attempt
        state = decided.job(order.job)
        is_done = attempt.binding or attempt.stopping or attempt.failed or attempt.is_seated
        if (
            is_done or state is None or state.missing
        ):  # a member that is missing is replaced, by an order of its own
            self._to_come.forget(*name)
            return
        if self._has_to_wait(attempt, order, state):
            self._to_come.wait(order)
            return
        self._to_come.forget(*name)
        bindings = self._planned(attempt, self._seat(attempt, order, state))
        self._touched[name] = None
        if attempt.failed:
            self._let_go(attempt)
        elif bindings:
            attempt.binding = True
            placed = [(self.pods[each.uid], each.node) for each in bindings]
            made = self._whereabouts.to_make(placed)
            self._link.bind(order.job, order.attempt, bindings, made)

    def replace(self, order: ReplaceMember) -> None:
        """Let a member start anew as soon as whoever made its pod has made another one. Its pod, if any, goes."""
        name = (order.job, order.attempt)
        attempt = self._attempts.get(name)
        lives = self._lives.setdefault(name, {})
        if attempt is None or attempt.stopping or attempt.failed:
            return
        launch, marks = next(
            each for each in marks_of(order.gang) if each[0].node_rank == order.member
        )
        seat = attempt.seats.get(order.member, Seat(order.member, launch.first_rank, launch.role))
        if seat.life < order.life or (seat.gone and not seat.has_run):
            self._vacate(attempt, seat)
            fresh = Seat(seat.member, launch.first_rank, launch.role, life=order.life, index=seat.index)  # fmt: skip
            attempt.seats[order.member] = seat = fresh
        lives[order.member] = order.life
        if seat.uid is None:
            attempt.anew[order.member] = (launch, {**marks, LIFE: str(order.life)})
            self._anew[name] = None

    def _vacate(self, attempt: Attempt, seat: Seat) -> None:
        """The pod of a seat has it no more."""
        self._seat_of_pod.pop(seat.uid or "", None)
        pod = self.pods.get(seat.uid or "")
        if pod is None:
            return
        self._allocator.sit(pod, gone=True)
        meta = pod.metadata
        if not seat.is_over and meta.deletion_timestamp is None:
            self._link.delete(meta.namespace, meta.name, meta.uid, attempt.grace_s)

    def start_anew(self, decided: LedgerView) -> None:
        """Bind pods that have come for members that start anew."""
        for name in list(self._anew):
            attempt = self._attempts[name]
            if attempt.stopping or attempt.failed:
                attempt.anew.clear()
            for member in [each for each in attempt.anew if attempt.seats[each].uid is not None]:
                if not attempt.binding:
                    del attempt.anew[member]
            if not attempt.anew:
                del self._anew[name]
            elif not attempt.binding:
                self._bind_anew(attempt, decided)

    def _bind_anew(self, attempt: Attempt, decided: LedgerView) -> None:
        """Bind the first such pod that may be where it is to go."""
        state = decided.job(attempt.job)
        roles = () if state is None else state.spec.roles
        shape_of_role = {role.name: without_node_restrictions(role.shape) for role in roles}
        for member, (launch, marks) in attempt.anew.items():
            seat = attempt.seats[member]
            line = self._free_pods(attempt.job).get(shape_of_role[launch.role], ())
            pod = next((each for each in line if seat.index in (None, index_of(each))), None)
            if pod is None or self._whereabouts.admit([(pod, launch.node)]):
                continue
            self._sit_down(attempt, seat, pod)
            bindings = self._planned_anew(attempt, _binding(pod, launch.node, marks))
            if bindings:
                attempt.binding = True
                made = self._whereabouts.to_make([(pod, launch.node)])
                self._link.bind(attempt.job, attempt.attempt, bindings, made)
                return

    def _sit_down(self, attempt: Attempt, seat: Seat, pod: Pod) -> None:
        """A pod that waits has a seat from now on."""
        seat.uid = pod.metadata.uid
        self._seat_of_pod[seat.uid] = (attempt.key, seat.member)
        self._waiting.see(pod, waits=False)

    def _planned_anew(self, attempt: Attempt, binding: Binding) -> list[Binding]:
        """A binding with what its claims are given; none, and the pod waits, where that cannot be had now."""
        try:
            return self._allocator.plan([binding], self.pods)
        except Unfit:
            self._stand_up(attempt, binding.uid)
            return []

    def stop(self, order: StopGang, *, for_others: bool = False) -> None:
        """Delete the pods of an attempt; of one that is being bound, as soon as that is over.

        for_others: it leaves for another gang's sake, so its pods are evicted.
        """
        name = (order.job, order.attempt)
        attempt = self._attempts.setdefault(name, Attempt(order.job, order.attempt, 0))
        attempt.stopping, attempt.grace_s, attempt.evicts = True, order.grace_s, for_others
        self._touched[name] = None
        if attempt.is_leaving:
            self._let_go(attempt)

    def step(self, decided: LedgerView, now: float) -> None:
        """Start what pods were missing for; and from time to time ask again for what is to go.

        The server may have refused that, and no order may stand.
        """
        for order, is_late in self._to_come.due(now):
            if is_late:
                self._give_up(order)
            self.start(order, decided)
        if now < self._again_at:
            return
        self._again_at = now + AGAIN_S
        for attempt in self._attempts.values():
            if attempt.is_leaving:
                self._let_go(attempt)

    def pods_of(self, job: str, attempt: int) -> list[Pod]:
        """The pods of an attempt that are not over, in member order."""
        found = self._attempts.get((job, attempt))
        seats = sorted(found.seats.values(), key=lambda seat: seat.member) if found else ()
        pods = (self.pods.get(seat.uid or "") for seat in seats if not seat.is_over)
        return [pod for pod in pods if pod is not None]

    def _seat(self, attempt: Attempt, order: StartGang, state: JobView) -> list[Binding]:
        """Bindings for the members that have no pod yet.

        Where pods are missing, or may not be there beside others, the attempt has failed.
        """
        take = self._taker(order, state)
        bindings, missing = [], 0
        for launch, marks in marks_of(order):
            seat = attempt.seats.get(launch.node_rank)
            if seat is not None and seat.uid is not None:
                continue
            pod = take(launch)
            if pod is None:
                missing += 1
                continue
            uid = pod.metadata.uid
            seat = Seat(launch.node_rank, launch.first_rank, launch.role, uid)
            attempt.seats[launch.node_rank] = seat
            self._sit_down(attempt, seat, pod)
            bindings.append(_binding(pod, launch.node, marks))
        if missing:
            attempt.failed = f"{missing} of {attempt.size} pods are not there any more"
        else:
            placed = [(self.pods[each.uid], each.node) for each in bindings]
            attempt.failed = self._whereabouts.admit(placed)
        for binding in bindings if attempt.failed else ():
            self._stand_up(attempt, binding.uid)
        return [] if attempt.failed else bindings

    def _planned(self, attempt: Attempt, bindings: list[Binding]) -> list[Binding]:
        """Bindings with what their claims are given; where that cannot be had the attempt has failed."""
        try:
            return self._allocator.plan(bindings, self.pods)
        except Unfit as error:
            attempt.failed = str(error)
            for binding in bindings:
                self._stand_up(attempt, binding.uid)
            return []

    def _taker(self, order: StartGang, state: JobView) -> Callable[[MemberLaunch], Pod | None]:
        """What gives each member a pod that waits: of an elastic gang its own, else the next of its shape."""
        if state.spec.elastic is not None:
            own = pods_by_index(self._waiting.pods_of_job(order.job), state)
            return lambda launch: own.get(launch.node_rank)
        waiting = self._waiting.pods_of_job(order.job)
        if len(order.members) == len(waiting) == 1:
            shape = without_node_restrictions(state.spec.roles[0].shape)
            alone = waiting[0] if asked_by(waiting[0]).shape == shape else None
            return lambda launch: alone
        shape_of_role = {
            role.name: without_node_restrictions(role.shape) for role in state.spec.roles
        }
        free = self._free_pods(order.job)

        def take(launch: MemberLaunch) -> Pod | None:
            line = free.get(shape_of_role[launch.role])
            return line.popleft() if line else None

        return take

    def _has_to_wait(self, attempt: Attempt, order: StartGang, state: JobView) -> bool:
        """Whether pods are missing that are yet to be made here."""
        if not self._waiting.is_made_here(order.job):
            return False
        take, seats = self._taker(order, state), attempt.seats
        empty = [
            each
            for each in order.members
            if (seat := seats.get(each.node_rank)) is None or not seat.uid
        ]
        return any(take(each) is None for each in empty)

    def _give_up(self, order: StartGang) -> None:
        """A start whose pods were not made in time has failed."""
        attempt = self._attempts[order.job, order.attempt]
        if attempt.is_leaving:
            return
        attempt.failed = f"not all of its {attempt.size} pods were made within {COME_WITHIN_S:g} s"
        self._touched[attempt.key] = None
        self._let_go(attempt)

    def _free_pods(self, job: str) -> dict[Shape, deque[Pod]]:
        """Pods of a job's gang that wait, by shape, in member order."""
        found: dict[Shape, deque[Pod]] = {}
        for pod in in_order(self._waiting.pods_of_job(job)):
            found.setdefault(asked_by(pod).shape, deque()).append(pod)
        return found

    def _let_go(self, attempt: Attempt) -> None:
        """Have its pods go that are not over: evicted where they go for others, else deleted."""
        pods = [pod for pod in self.pods_of(*attempt.key) if not pod.metadata.deletion_timestamp]
        if attempt.evicts:
            grace_s = attempt.grace_s or 0.0
            self._link.write(lambda client: self._evictions.evict(client, pods, grace_s))
            return
        for meta in (pod.metadata for pod in pods):
            self._link.delete(meta.namespace, meta.name, meta.uid, attempt.grace_s)


def _told_by(attempt: Attempt, now: float, *, waits: bool) -> list[Event]:
    """What an attempt tells by now. Before its end comes that its job waits for new pods, unless it succeeded.

    waits: whether it has to be held until they are there.
    """
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
    if attempt.is_over and attempt.exit_code != 0 and waits:
        held = HoldRequested(
            id=f"{attempt.name}/hold", observed_at=now, job=attempt.job, reason=FOR_PODS
        )
        told.insert(-1, held)
    return told


def _binding(pod: Pod, node: str, annotations: dict[str, str]) -> Binding:
    meta = pod.metadata
    marks = {**annotations, **isolation_of(pod, annotations)}
    return Binding(meta.namespace, meta.name, meta.uid, node, marks)
