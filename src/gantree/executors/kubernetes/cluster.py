"""The cluster behind a Kubernetes API server: pods become jobs, orders become bindings and deletions.

All of it runs on the controller's thread but for `link`, which watches and writes. `poll` takes what was seen, and
emits what follows: first of nodes, then of attempts, then of gangs that wait. Everything that is emitted can be derived
again from a list, so after a restart nothing is missing: what was bound says itself whose it is (`marks`).

A required topology that the site does not have is an error of the manifest: such a gang is not handed in until its
pods or the site are others, for it must not run where its author did not want it.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gantree.core.ledger import Ledger
from gantree.core.state import JobState
from gantree.executors.guests import Awaited, Terminal
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.attempts import Attempt, Seat, happened
from gantree.executors.kubernetes.dialects import GroupKind, terms_of_group
from gantree.executors.kubernetes.gangs import Key, job_of, order_of
from gantree.executors.kubernetes.link import Link
from gantree.executors.kubernetes.marks import Mark, mark_of, marks_of
from gantree.executors.kubernetes.nodes import Nodes
from gantree.executors.kubernetes.objects import Group, Node, Pod
from gantree.executors.kubernetes.others import Others
from gantree.executors.kubernetes.shapes import asked_by
from gantree.executors.kubernetes.telling import MISCONFIGURED, Saying, Telling
from gantree.executors.kubernetes.waiting import Crowd, Waiting
from gantree.executors.kubernetes.writes import Binding, Bound, Said
from gantree.executors.progress import Progress
from gantree.model.errors import NotFound
from gantree.model.events import (
    CancelRequested,
    Event,
    GangEnded,
    GangStartFailed,
    HoldRequested,
    JobSubmitted,
    ReleaseRequested,
)
from gantree.model.jobs import Shape
from gantree.model.orders import Order, StartGang, StopGang
from gantree.model.phases import ENDED, Phase

log = logging.getLogger(__name__)

FOR_PODS = "its pods are not all there; whoever makes them has to make new ones"

TOO_FEW, NOT_HONOURED = "WaitingForPodsReady", "NotHonoured"

Name = tuple[str, int]
"""A job and the number of an attempt."""


class KubernetesCluster:
    """A `ClusterPort`. Not safe for threads, but for what `link` does."""

    def __init__(
        self,
        link: Link,
        nodes: Nodes,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        ledger: Callable[[], Ledger],
        *,
        scheduler: str = "gantree",
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """scheduler is the schedulerName of pods that are ours; leads says whether we may write."""
        self._link, self._nodes, self._emit, self._clock = link, nodes, emit, clock
        self._ledger, self._scheduler, self._leads = ledger, scheduler, leads
        self._epoch = 0
        self._pods: dict[str, Pod] = {}
        self._waiting, self._others = Waiting(), Others()
        self._attempts: dict[Name, Attempt] = {}
        self._seat_of_pod: dict[str, tuple[Name, int]] = {}
        self._touched: dict[Name, None] = {}
        self._told: dict[Name, set[str]] = {}
        self._unsettled: dict[str, None] = {}
        self._counted = 0
        self._telling = Telling(self._say)

    # ----- ClusterPort

    def adopt(self, epoch: int) -> None:
        """See everything once, with the attempts of the ledger; tell what became of them."""
        self._epoch = epoch
        ledger = self._ledger()
        for state in ledger.holding.values():
            name = (state.job, state.attempt)
            self._attempts[name] = Attempt(state.job, state.attempt, state.present.members)
        for state in ledger.jobs.values():
            if state.phase not in ENDED:
                namespace, _, rest = state.spec.name.partition("/")
                self._waiting.adopt(state.job, _key_in(state.job, namespace, rest))
        self._take_seen()
        for state in ledger.holding.values():
            if state.phase is not Phase.STARTING:
                self._miss(self._attempts[state.job, state.attempt])
        self._tell_attempts()

    def poll(self) -> None:
        """Take what was seen, and tell what follows."""
        self._take_seen()
        now = self._clock()
        ledger = self._ledger()
        for event in self._nodes.events(ledger, now, self._epoch):
            self._emit(event)
        for event in self._others.changes(self._nodes.gpus_of_node(), now, self._epoch):
            self._emit(event)
        self._tell_attempts()
        self._review(ledger)
        self._telling.step(ledger, self._waiting.job_of, now)

    def carry_out(self, order: Order) -> None:
        """Begin to bind or to delete. Nobody is asked to save or to take turns here: no such job is handed in."""
        if not self._leads():
            return
        match order:
            case StartGang():
                self._start(order)
            case StopGang():
                self._stop(order)
            case _:
                log.warning("order %s: Kubernetes pods cannot do that", order.id)

    def inventory(self) -> Inventory:
        """The status of every attempt that has pods."""
        return Inventory({name: attempt.status() for name, attempt in self._attempts.items()})

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        ended = self._attempts.pop((job, attempt), None)
        self._told.pop((job, attempt), None)
        for seat in ended.seats.values() if ended else ():
            self._seat_of_pod.pop(seat.uid or "", None)

    def has_run(self, job: str) -> bool:
        """Ids are made of the uids of pods: none is used twice."""
        return False

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Raises NotFound: output is where kubectl finds it."""
        raise NotFound(f"output of {job} is with its pods: kubectl logs -l gantree.io/job={job}")

    def progress(self, job: str, attempt: int) -> Progress | None:
        """Nothing is known of it here."""
        return None

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """Nothing is known of it here."""
        return None

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Nothing is known of it here."""
        return ()

    def guest(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> Awaited:
        """Raises NotFound: kubectl does that."""
        raise NotFound(f"{job} runs as pods: use kubectl exec")

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Raises NotFound: kubectl does that."""
        raise NotFound(f"{job} runs as pods: use kubectl port-forward")

    def close(self) -> None:
        """End the link; pods go on."""
        self._link.close()

    # ----- what was seen

    def _take_seen(self) -> None:
        seen = self._link.seen
        while seen:
            noun, key, before, after = seen.popleft()
            match noun:
                case "node":
                    self._see_node(key[1], before, after)
                case "pod":
                    self._see_pod(before, after)
                case "group":
                    kind, of_group = key
                    self._see_group(kind, of_group, after)
                case "bound":
                    self._see_bound(key)
                case "broken":
                    raise key

    def _see_node(self, name: str, before: Node | None, after: Node | None) -> None:
        self._nodes.see(name, before, after, self._clock())

    def _see_group(self, kind: GroupKind, key: tuple[str, str], group: Group | None) -> None:
        terms = None if group is None else terms_of_group(kind, group)
        namespace, name = key
        self._waiting.group((namespace, name, kind.group), terms)

    def _see_pod(self, before: Pod | None, after: Pod | None) -> None:
        pod = after or before
        assert pod is not None, "a pod comes, changes or goes"
        uid = pod.metadata.uid
        if after is None:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = after
        name = self._name_of(pod)
        if name is not None:
            self._see_member(name, pod, gone=after is None)
        elif pod.spec.scheduler_name == self._scheduler and not pod.spec.node_name:
            self._waiting.see(pod, waits=after is not None and _may_be_bound(after))
        elif after is None:
            self._others.forget(uid)
            self._waiting.see(pod, waits=False)
        else:
            self._others.see(after)

    def _name_of(self, pod: Pod) -> Name | None:
        """The attempt that a pod is a member of, if it is one that counts."""
        seat = self._seat_of_pod.get(pod.metadata.uid)
        if seat is not None:
            return seat[0]
        mark = mark_of(pod.metadata.annotations)
        if mark is None or (mark.job, mark.attempt) not in self._attempts:
            return None
        self._sit(pod, mark)
        return mark.job, mark.attempt

    def _sit(self, pod: Pod, mark: Mark) -> None:
        """A pod that was bound by an earlier process has its seat again."""
        attempt = self._attempts[mark.job, mark.attempt]
        seat = attempt.seats.setdefault(mark.member, Seat(mark.member, mark.rank, mark.role))
        seat.uid = pod.metadata.uid
        self._seat_of_pod[pod.metadata.uid] = ((mark.job, mark.attempt), mark.member)

    def _see_member(self, name: Name, pod: Pod, *, gone: bool) -> None:
        uid = pod.metadata.uid
        attempt, member = self._attempts[name], self._seat_of_pod[uid][1]
        seat = attempt.seats[member]
        attempt.see(pod, seat)
        seat.gone = gone
        self._others.forget(uid)
        self._waiting.see(pod, waits=False)
        self._touched[name] = None

    def _see_bound(self, done: Bound) -> None:
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

    def _stand_up(self, attempt: Attempt, uid: str) -> None:
        """A pod leaves its seat unbound, and waits again if it is still there."""
        _, member = self._seat_of_pod.pop(uid)
        attempt.seats[member] = Seat(member, attempt.seats[member].rank, attempt.seats[member].role)
        pod = self._pods.get(uid)
        if pod is not None and not pod.spec.node_name:
            self._waiting.see(pod, waits=_may_be_bound(pod))

    def _miss(self, attempt: Attempt) -> None:
        """Members of an attempt that ran, and have no pod: they went while nobody looked."""
        for member in range(attempt.size):
            seat = attempt.seats.setdefault(member, Seat(member, member, "worker"))
            seat.gone = seat.gone or seat.uid is None
            seat.uid = seat.uid or ""
        self._touched[attempt.job, attempt.attempt] = None

    # ----- what is told

    def _tell_attempts(self) -> None:
        now = self._clock()
        for name in list(self._touched):
            attempt = self._attempts.get(name)
            if attempt is not None:
                for event in self._of_attempt(attempt, now):
                    self._tell_once(name, event)
        self._touched.clear()

    def _of_attempt(self, attempt: Attempt, now: float) -> list[Event]:
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
        if isinstance(told[-1] if told else None, GangEnded) and attempt.exit_code != 0:
            held = HoldRequested(
                id=f"{attempt.name}/hold", observed_at=now, job=attempt.job, reason=FOR_PODS
            )
            told.insert(-1, held)
        return told

    def _tell_once(self, name: Name, event: Event) -> None:
        told = self._told.setdefault(name, set())
        if event.id not in told:
            told.add(event.id)
            self._emit(event)
            if isinstance(event, GangEnded):
                self._unsettled[event.job] = None

    def _review(self, ledger: Ledger) -> None:
        for job in list(self._unsettled):
            state = ledger.jobs.get(job)
            is_decided = state is not None or job in ledger.rejected
            if is_decided and (
                state is None or state.phase in ENDED or state.phase is Phase.PENDING
            ):
                del self._unsettled[job]
                key = self._waiting.key_of_job.get(job)
                if key is not None:
                    self._waiting.changed[key] = None
        for key in self._waiting.take_changed():
            crowd = self._waiting.crowds.get(key)
            if crowd is not None:
                self._review_crowd(crowd, ledger)

    def _review_crowd(self, crowd: Crowd, ledger: Ledger) -> None:
        if crowd.pods:
            self._telling.waits(crowd.key, self._clock())
        else:
            self._telling.is_over(crowd.key)
        state = None if crowd.job is None else ledger.jobs.get(crowd.job)
        if crowd.job is not None and crowd.job not in self._unsettled:
            if state is None or state.phase in ENDED:
                if state is None or state.phase is not Phase.SUCCEEDED:
                    crowd.refused = frozenset(crowd.pods)
                self._waiting.part(crowd.job)
            elif state.phase is Phase.PENDING:
                self._review_job(crowd, state)
        if crowd.job is None:
            self._hand_in(crowd)

    def _review_job(self, crowd: Crowd, state: JobState) -> None:
        """A job waits: it is held while its pods are not all there, and ended where they never will be."""
        gang = self._waiting.gang(crowd.key)
        if self._waiting.is_gone(crowd.key):
            self._ask(CancelRequested, state.job, "pods-gone")
        elif gang is None or len(gang.pods) < state.present.members:
            if not state.held:
                self._ask(HoldRequested, state.job, "hold", reason=FOR_PODS)
        elif _shapes(gang.pods[: state.present.members]) != _shapes_of(state):
            self._ask(CancelRequested, state.job, "pods-changed")
        elif state.held_for:
            self._ask(ReleaseRequested, state.job, "release")

    def _hand_in(self, crowd: Crowd) -> None:
        gang = self._waiting.gang(crowd.key)
        site = self._nodes.site
        if gang is None and crowd.pods:
            self._telling.say(crowd.key, Saying(TOO_FEW, self._waiting.what_is_missing(crowd.key)))
        if gang is None or site is None or frozenset(crowd.pods) == crowd.refused:
            return
        namespace, name, kind = crowd.key
        spec, lost = job_of(gang, site.tier, namespace)
        if gang.terms.required and spec.topology.required is None:
            sentence = f"Waiting: the site has no {lost[0]}; its tiers are {', '.join(site.cluster.tiers)}."
            self._telling.say(crowd.key, Saying(MISCONFIGURED, sentence))
            return
        for word in (*gang.unknown, *lost):
            self._say(
                crowd.key, Saying(NOT_HONOURED, f"gantree does not act on {word}."), only_event=True
            )
        job = f"{namespace}.{name}.{kind}.{gang.pods[0].metadata.uid}"
        self._waiting.adopt(job, crowd.key)
        self._waiting.changed.pop(crowd.key, None)
        self._unsettled[job] = None
        self._emit(
            JobSubmitted(id=f"{job}/submitted", observed_at=self._clock(), job=job, spec=spec)
        )

    def _say(self, key: Key, saying: Saying, *, only_event: bool = False) -> None:
        """Tell the pods of a gang that wait; only_event: put an event beside them, and leave their conditions."""
        crowd = self._waiting.crowds.get(key)
        pods = sorted(crowd.pods.values(), key=order_of) if crowd else []
        if pods:
            self._link.say(
                Said(
                    tuple((pod.metadata.namespace, pod.metadata.name) for pod in pods),
                    pods[0].metadata.uid,
                    saying.reason,
                    saying.sentence,
                    None if only_event else self._link.status_of_group(key),
                    only_event,
                )
            )

    def _ask(self, kind: type[Event], job: str, word: str, **fields: Any) -> None:
        self._counted += 1
        told: Any = {"job": job, **fields}
        event_id = f"{job}/{word}/{self._epoch}.{self._counted}"
        self._emit(kind(id=event_id, observed_at=self._clock(), **told))
        self._unsettled[job] = None

    # ----- orders

    def _start(self, order: StartGang) -> None:
        name = (order.job, order.attempt)
        attempt = self._attempts.get(name)
        if attempt is None:
            attempt = Attempt(order.job, order.attempt, len(order.members))
            self._attempts[name] = attempt
        if attempt.binding or attempt.stopping or attempt.failed:
            return
        bindings = self._seat(attempt, order)
        self._touched[name] = None
        if attempt.failed:
            self._delete_all(attempt, None)
        elif bindings:
            attempt.binding = True
            self._link.bind(order.job, order.attempt, bindings)

    def _seat(self, attempt: Attempt, order: StartGang) -> list[Binding]:
        """Bindings for the members that have no pod yet; where pods are missing the attempt has failed."""
        state = self._ledger().jobs[order.job]
        shape_of_role = {role.name: role.shape for role in state.spec.roles}
        free = self._free_pods(order.job)
        bindings, missing = [], 0
        for launch in sorted(order.members, key=lambda each: each.node_rank):
            seat = attempt.seats.get(launch.node_rank)
            if seat is not None and seat.uid is not None:
                continue
            line = free.get(shape_of_role[launch.role])
            if not line:
                missing += 1
                continue
            pod = line.popleft()
            seat = Seat(launch.node_rank, launch.first_rank, launch.role, pod.metadata.uid)
            attempt.seats[launch.node_rank] = seat
            self._seat_of_pod[pod.metadata.uid] = ((order.job, order.attempt), launch.node_rank)
            bindings.append(_binding(pod, launch.node, marks_of(order, launch)))
        if missing:
            attempt.failed = f"{missing} of {attempt.size} pods are not there any more"
            for binding in bindings:
                self._stand_up(attempt, binding.uid)
            return []
        for binding in bindings:
            self._waiting.see(self._pods[binding.uid], waits=False)
        return bindings

    def _free_pods(self, job: str) -> dict[Shape, deque[Pod]]:
        """Pods of a job's gang that wait, by shape, in member order."""
        key = self._waiting.key_of_job.get(job)
        crowd = self._waiting.crowds.get(key) if key is not None else None
        found: dict[Shape, deque[Pod]] = {}
        for pod in sorted(crowd.pods.values() if crowd else (), key=order_of):
            found.setdefault(asked_by(pod).shape, deque()).append(pod)
        return found

    def _stop(self, order: StopGang) -> None:
        name = (order.job, order.attempt)
        attempt = self._attempts.setdefault(name, Attempt(order.job, order.attempt, 0))
        attempt.stopping = True
        self._touched[name] = None
        if not attempt.binding:
            self._delete_all(attempt, order.grace_s)

    def _delete_all(self, attempt: Attempt, grace_s: float | None) -> None:
        """Have its pods deleted that are not over; asked again with each standing order until they are gone."""
        for seat in attempt.seats.values():
            pod = self._pods.get(seat.uid or "")
            if pod is not None and not seat.is_over and pod.metadata.deletion_timestamp is None:
                self._link.delete(
                    pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, grace_s
                )


def _may_be_bound(pod: Pod) -> bool:
    return (
        not pod.has_ended
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
    )


def _binding(pod: Pod, node: str, annotations: dict[str, str]) -> Binding:
    meta = pod.metadata
    return Binding(meta.namespace, meta.name, meta.uid, node, annotations)


def _key_in(job: str, namespace: str, name: str) -> Key:
    """The gang that a job was made of; the kind of its group stands in its id, behind namespace and name."""
    kind = job.removeprefix(f"{namespace}.{name}.").rpartition(".")[0]
    return namespace, name, kind


def _shapes(pods: Sequence[Pod]) -> list[Shape]:
    return sorted((asked_by(pod).shape for pod in pods), key=repr)


def _shapes_of(state: JobState) -> list[Shape]:
    roles = state.present.roles
    return sorted((role.shape for role in roles for _ in range(role.members)), key=repr)
