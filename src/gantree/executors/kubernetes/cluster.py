"""The cluster behind a Kubernetes API server: pods become jobs, orders become bindings and deletions.

All of it runs on the controller's thread but for `link`, which watches and writes. `poll` takes what was seen, and
emits what follows: first of nodes, then of attempts (`members`), then of gangs that wait (`reception`). Everything that
is emitted can be derived again from a list, so after a restart nothing is missing: what was bound says itself whose it
is (`marks`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.guests import Awaited, Terminal
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.apiserver.objects import Metadata, Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import Whereabouts
from gantree.executors.kubernetes.controllers.adoption import Found
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempt_controller import Members
from gantree.executors.kubernetes.controllers.claim_controller import ClaimDesk
from gantree.executors.kubernetes.controllers.gang_admission import Reception
from gantree.executors.kubernetes.controllers.gangjobs import GangJobs
from gantree.executors.kubernetes.controllers.late_bindings import Latecomers
from gantree.executors.kubernetes.controllers.node_news import NodeNews
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.nodes.foreign_pods import Others
from gantree.executors.kubernetes.pods.checkpoint_protocol import Handshakes
from gantree.executors.kubernetes.watch.api_thread import Link
from gantree.executors.kubernetes.workloads.gang_labels import terms_of_group
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB
from gantree.executors.kubernetes.workloads.pending_pods import Waiting, may_be_bound
from gantree.executors.kubernetes.writes.nominations import Nominations
from gantree.executors.kubernetes.writes.patches import annotate, nominate
from gantree.executors.progress import Progress
from gantree.model.errors import NotFound
from gantree.model.events import Event
from gantree.model.orders import Order, ReplaceMember, SaveCheckpoint, StartGang, StopGang
from gantree.model.phases import StopCause

FOR_OTHERS = frozenset({StopCause.PREEMPTED, StopCause.MOVED, StopCause.RESIZED, StopCause.DRAINED})
"""Causes for which a gang leaves that nothing was wrong with: its budgets are asked."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """A `ClusterPort`. Not safe for threads, but for what `link` does."""

    def __init__(
        self,
        link: Link,
        nodes: Nodes,
        allocator: Allocator,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        decided: Callable[[], LedgerView],
        *,
        scheduler: str = "gantree",
        takes_over: bool = True,
    ) -> None:
        """scheduler is the schedulerName of pods that are ours.

        takes_over: gangs that run and are not on record are ours, too, if their pods say so.
        """
        self._link, self._nodes, self._emit, self._clock = link, nodes, emit, clock
        self._allocator = allocator
        self._desk = ClaimDesk(link, nodes, allocator, scheduler)
        self._decided, self._scheduler = decided, scheduler
        self._epoch = 0
        self._waiting, self._others = Waiting(), Others()
        self._whereabouts = Whereabouts()
        self._members = Members(link, self._waiting, allocator, self._whereabouts, emit)
        self._reception = Reception(
            link, self._waiting, self._whereabouts, emit, self._members.is_steady
        )
        self._late = Latecomers(link)
        self._found = Found(
            scheduler, self._waiting, self._members, allocator, lambda pod: self._see_pod(pod, pod)
        )
        self._takes_over = takes_over
        self._handshakes = Handshakes(self._annotate, self._members.pods_of)
        self._nominations = Nominations(self._nominate)
        self._news = NodeNews(link, self._members.pods_of)
        self._gangjobs = GangJobs(link, scheduler, self._waiting.job_of, lambda: nodes.site, emit)

    def adopt(self, epoch: int) -> None:
        """See everything once, with the attempts of the ledger; tell what became of them."""
        self._epoch = epoch
        decided = self._decided()
        self._members.adopt(decided)
        self._reception.adopt(decided, epoch)
        self._news.adopt(decided)
        self._others.adopt(decided.site.foreign_holders())
        self._allocator.adopt(decided.site.foreign_holders())
        self._take_seen()
        self._waiting.keys.keep(self._members.pods)
        self._members.miss(decided)
        self._reception.ended(self._members.tell(decided, self._clock()))
        if self._takes_over:
            self._found.due()

    def poll(self) -> None:
        """Take what was seen, and tell what follows."""
        self._take_seen()
        now, decided = self._clock(), self._decided()
        for found in self._found.step(decided, self._nodes.site, self._nodes.gpus_of_node, now):
            self._emit(found)
        self._reception.expects(self._found.asked)
        for event in self._nodes.events(decided, now, self._epoch):
            self._emit(event)
        for event in self._others.changes(self._nodes.gpus_of_node, now, self._epoch):
            self._emit(event)
        for event in self._allocator.changes(self._nodes.gpus_of_node, now, self._epoch):
            self._emit(event)
        for event in self._handshakes.answers(now):
            self._emit(event)
        self._reception.ended(self._members.tell(decided, now))
        self._members.step(decided, now)
        self._members.start_anew(decided)
        self._late.step(now)
        self._reception.step(decided, self._nodes.site, now)
        self._desk.step(self._members.pods, lambda pod: self._may_start(pod, decided))
        self._nominations.step(decided, self._waiting.gang_of_job, self._members.pods)
        self._gangjobs.step(decided, now)
        self._news.step(decided, now)
        if self._waiting.changed:
            self._link.wake()

    def carry_out(self, order: Order) -> None:
        """Begin to bind, to delete, or to ask for a checkpoint. Nobody takes turns here: no such job is handed in."""
        if not self._link.leads():
            return
        match order:
            case StartGang():
                self._members.start(order, self._decided())
            case ReplaceMember():
                self._members.replace(order)
            case StopGang():
                state = self._decided().job(order.job)
                self._handshakes.forget(order.job, order.attempt)
                self._members.stop(
                    order, for_others=state is not None and state.stop_cause in FOR_OTHERS
                )
            case SaveCheckpoint():
                self._handshakes.ask(order)
            case _:
                log.warning("order %s: Kubernetes pods cannot do that", order.id)

    def inventory(self) -> Inventory:
        """The status of every attempt that has pods."""
        return self._members.inventory()

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        self._handshakes.forget(job, attempt)
        self._members.settle(job, attempt)

    def has_run(self, job: str) -> bool:
        """Ids are made of the uids of pods: none is used twice."""
        return False

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Raises NotFound: output is where kubectl finds it."""
        raise NotFound(f"{job} runs as pods: their output is with `kubectl logs`")

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
        raise NotFound(f"{job} runs as pods: use `kubectl exec`")

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Raises NotFound: kubectl does that."""
        raise NotFound(f"{job} runs as pods: use `kubectl port-forward`")

    def close(self) -> None:
        """End the link; pods go on."""
        self._link.close()

    def _annotate(self, pod: Metadata, annotations: Mapping[str, str]) -> None:
        self._link.write(lambda client: annotate(client, pod, annotations))

    def _nominate(self, pod: Metadata, node: str) -> None:
        self._link.write(lambda client: nominate(client, pod, node))

    def _take_seen(self) -> None:
        seen = self._link.seen
        while seen:
            noun, key, before, after = seen.popleft()
            match noun:
                case "node":
                    self._nodes.see(key[1], after, self._clock())
                    self._whereabouts.scene.see_node(key[1], after)
                case "pod":
                    self._see_pod(before, after)
                case "slice" | "class" | "claim":
                    self._desk.see(noun, key, after, self._clock())
                case "volume":
                    self._whereabouts.volumes.see(key, before, after)
                case "namespace":
                    labels = None if after is None else after.metadata.labels
                    self._whereabouts.scene.see_namespace(key[1], labels)
                case "group":
                    kind, (namespace, name) = key
                    terms = None if after is None else terms_of_group(kind, after)
                    self._waiting.group((namespace, name, kind.key_word), terms)
                    if kind is GANGJOB:
                        self._gangjobs.see((namespace, name), after)
                case "topology":
                    kind, (_, name) = key
                    self._nodes.see_topology(kind, name, after, self._clock())
                case "bound":
                    self._members.see_bound(key)
                case _:
                    raise key  # a bug on the other thread
        for pod in self._desk.take_stale(self._clock()):
            self._see_pod(pod, pod)

    def _see_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None:
            after = self._desk.read(after, self._clock())
        pod = after or before
        assert pod is not None, "a pod comes, changes or goes"
        uid = pod.metadata.uid
        self._gangjobs.see_pod(pod, gone=after is None)
        if after is None:
            self._desk.forget(uid)
            self._members.pods.pop(uid, None)
        else:
            self._members.pods[uid] = after
        seated = self._members.is_member(pod)
        self._whereabouts.see(pod, gone=after is None, seated=seated)
        if seated:
            self._members.see(pod, gone=after is None)
            self._others.forget(uid)
        elif pod.spec.node_name:
            self._see_other(pod, gone=after is None)
            self._late.see(pod, self._decided(), gone=after is None)
        elif pod.spec.scheduler_name == self._scheduler:
            waits = after is not None and may_be_bound(after)
            self._waiting.see(pod, waits=waits)
            self._nominations.see(pod, waits=waits)
            self._forget_alone(uid, after)
            return
        self._nominations.see(pod, waits=False)
        self._forget_alone(uid, after)

    def _forget_alone(self, uid: str, after: Pod | None) -> None:
        if after is None:
            self._waiting.keys.forget(uid)

    def _may_start(self, pod: Pod, decided: LedgerView) -> bool:
        """Whether a pod that is not bound is being bound, or will be by an order that was given already."""
        state = decided.job(self._waiting.job_of(self._waiting.keys.of(pod)) or "")
        is_placed = state is not None and state.placement is not None
        return is_placed or self._members.has_seat(pod.metadata.uid)

    def _see_other(self, pod: Pod, *, gone: bool) -> None:
        """A pod on a node that no attempt of ours knows."""
        self._waiting.see(pod, waits=False)
        if gone:
            self._others.forget(pod.metadata.uid)
        else:
            self._others.see(pod)
