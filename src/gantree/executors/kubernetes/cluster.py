"""The executor of a Kubernetes cluster: pods become jobs, orders become bindings and deletions.

All of it runs on the controller's thread, except `ApiThread`, which watches and writes. `poll` applies the changes
that were watched and emits events: of nodes, then of attempts (`AttemptController`), then of pending gangs
(`GangAdmission`). Every event can be derived again from a list of objects, so a restart loses nothing: annotations of
bound pods say which attempt they belong to.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gantree.core.view import LedgerView
from gantree.executors.check_status import CheckStatus
from gantree.executors.exec_session import PendingExecSession, Terminal
from gantree.executors.inventory import Inventory
from gantree.executors.kubernetes.apiserver.objects import Group, Metadata, Pod
from gantree.executors.kubernetes.constraints.inter_pod_feasibility import InterPodFeasibility
from gantree.executors.kubernetes.controllers.adoption import Adoption
from gantree.executors.kubernetes.controllers.allocator import Allocator
from gantree.executors.kubernetes.controllers.attempts.controller import AttemptController
from gantree.executors.kubernetes.controllers.claim_controller import ClaimController
from gantree.executors.kubernetes.controllers.gang_admission import GangAdmission
from gantree.executors.kubernetes.controllers.gangjob_checks import GangJobChecks
from gantree.executors.kubernetes.controllers.gangjobs import GangJobs, Name
from gantree.executors.kubernetes.controllers.group_conditions import GroupConditions
from gantree.executors.kubernetes.controllers.idle_events import IdleEvents
from gantree.executors.kubernetes.controllers.late_bindings import LateBindings
from gantree.executors.kubernetes.controllers.link_checks import (
    LinkCheckCalls,
    LinkChecks,
    no_link_checks,
)
from gantree.executors.kubernetes.controllers.mig_repartitioning import MigRepartitioning
from gantree.executors.kubernetes.controllers.node_events import NodeEvents
from gantree.executors.kubernetes.controllers.nodes import Nodes
from gantree.executors.kubernetes.controllers.provisioning import Provisioning
from gantree.executors.kubernetes.controllers.rank_reports import RankReports
from gantree.executors.kubernetes.federation.federated_objects import FederatedObjects
from gantree.executors.kubernetes.nodes.foreign_pods import ForeignPods
from gantree.executors.kubernetes.pods.checkpoint_protocol import CheckpointProtocol
from gantree.executors.kubernetes.pods.gang_spec import GroupKind
from gantree.executors.kubernetes.services.controller import GangServices
from gantree.executors.kubernetes.watch.api_thread import ApiThread
from gantree.executors.kubernetes.workloads.gang_labels import gang_spec_of_group
from gantree.executors.kubernetes.workloads.gangjob import GANGJOB
from gantree.executors.kubernetes.workloads.keys import Key
from gantree.executors.kubernetes.workloads.pending_pods import PendingPods, may_be_bound
from gantree.executors.kubernetes.workloads.pod_groups import CORE
from gantree.executors.kubernetes.workloads.provisioning_requests import PROVISIONING
from gantree.executors.kubernetes.workloads.serving import GANGSERVICE
from gantree.executors.kubernetes.writes.nominations import Nominations
from gantree.executors.kubernetes.writes.patches import annotate, nominate
from gantree.executors.progress import Progress, StepReports
from gantree.model.errors import NotFound
from gantree.model.events import Event
from gantree.model.host_use import HostUse
from gantree.model.mig_configs import PartitionNodes
from gantree.model.node_groups import NodeGroup
from gantree.model.orders import (
    Order,
    ReplaceMember,
    SaveCheckpoint,
    StartGang,
    StopGang,
    WriteToLog,
)
from gantree.model.phases import StopCause

FOR_OTHERS = frozenset(
    {
        StopCause.PREEMPTED,
        StopCause.MOVED,
        StopCause.RESIZED,
        StopCause.DRAINED,
        StopCause.IDLE,
        StopCause.BUDGET,
    }
)
"""Causes of a stop that are not the gang's own: its pods are evicted, within their disruption budgets."""

log = logging.getLogger(__name__)


class KubernetesCluster:
    """A `ClusterPort`; on the controller's thread alone.

    Large, as the port is: each method hands on to the controller of its noun.
    """

    checks_links = False
    runs_services = False
    """Of jobs that are submitted: they have no pods. GangJobs check theirs."""

    def __init__(
        self,
        api: ApiThread,
        nodes: Nodes,
        allocator: Allocator,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        decided: Callable[[], LedgerView],
        *,
        scheduler: str = "gantree",
        takes_over: bool = True,
        node_groups: Sequence[NodeGroup] = (),
        levels: Sequence[str] = (),
        partition_nodes: PartitionNodes | None = None,
        report_url: str = "",
        link_checks: LinkCheckCalls | None = None,
        federation_namespace: str = "",
        federation_volumes: Sequence[tuple[str, str]] = (),
        lease_holds: Callable[[], bool] = lambda: False,
    ) -> None:
        """scheduler is the schedulerName of pods that are ours.

        takes_over: gangs that run and are not on record are ours, too, if their pods say so. node_groups: nodes that an
        autoscaler can make, on a site with these levels. partition_nodes: those that may be given other MIG configs.
        report_url is where ranks report; "": nowhere. link_checks: what checks before the start need; None: no checks.
        federation_namespace is where GangJobs of a federation are made, with volumes; lease_holds: they may start.
        """
        self._api, self._nodes, self._emit, self._clock = api, nodes, emit, clock
        self._allocator = allocator
        self._claims = ClaimController(api, nodes, allocator, scheduler)
        self._decided, self._scheduler = decided, scheduler
        self._epoch = 0
        self._pending, self._foreign_pods = PendingPods(), ForeignPods()
        self._feasibility = InterPodFeasibility()
        self._attempts = AttemptController(
            api,
            self._pending,
            allocator,
            self._feasibility,
            emit,
            self._explain_group,
            report_url,
            lease_holds,
        )
        self._reports = RankReports(lambda: nodes.gpus_of_node)
        calls = link_checks or no_link_checks()
        self._link_checks = LinkChecks(calls, self._reports.place_of, emit, self._attempts.fail)
        self._admission = self._admission_with(calls)
        self._provisioning = Provisioning(
            api, self._pending, node_groups, levels, self._admission.explain
        )
        self._repartitioning = MigRepartitioning(api, self._pending, nodes, partition_nodes, emit)
        self._late_bindings = LateBindings(api)
        self._adoption = self._adoption_with(allocator)
        self._takes_over = takes_over
        self._checkpoints = CheckpointProtocol(self._annotate, self._attempts.pods_of)
        self._nominations = Nominations(self._nominate)
        self._group_conditions = GroupConditions(
            api, self._pending.job_of_group, self._attempts.is_bound
        )
        self._node_events = NodeEvents(api, self._attempts.pods_of)
        self._idle_events = IdleEvents(api, self._attempts.pods_of)
        self._gangjobs = self._gangjobs_with(calls)
        self.federated_jobs = FederatedObjects(
            api, federation_namespace, scheduler, federation_volumes
        )
        self.services = GangServices(
            api, scheduler, self._pending.job_of, self._label_of_tier, int(clock() * 1000), emit
        )

    def _admission_with(self, calls: LinkCheckCalls) -> GangAdmission:
        return GangAdmission(
            self._api,
            self._pending,
            self._feasibility,
            self._emit,
            self._attempts.is_steady,
            self._nodes.ask_level,
            self._nodes.tolerate_cordons,
            self.remains,
            calls.check_of,
        )

    def _adoption_with(self, allocator: Allocator) -> Adoption:
        return Adoption(
            self._scheduler,
            self._pending,
            self._attempts,
            allocator,
            lambda pod: self._update_pod(pod, pod),
        )

    def _gangjobs_with(self, calls: LinkCheckCalls) -> GangJobs:
        return GangJobs(
            self._api,
            self._scheduler,
            self._pending.job_of,
            lambda: self._nodes.site,
            self._emit,
            GangJobChecks(calls.image, calls.check_of, self._link_checks.status),
        )

    def _label_of_tier(self, word: str) -> str | None:
        """The label of nodes that has the domains of a tier, which may be named by the label."""
        site = self._nodes.site
        return None if site is None else site.label_of_tier(word)

    def adopt(self, epoch: int) -> None:
        """Read all objects once, with the attempts on record, and emit what became of those."""
        self._epoch = epoch
        decided = self._decided()
        self._attempts.adopt(decided)
        self._admission.adopt(decided, epoch)
        self._node_events.adopt(decided)
        self._foreign_pods.adopt(decided.site.foreign_holders())
        self._allocator.taken.adopt(decided.site.foreign_holders())
        self._nodes.adopt(decided.site.foreign_holders())
        self._apply_changes()
        self._pending.keys.keep(self._attempts.pods)
        self._attempts.mark_missing(decided)
        self._admission.attempts_ended(self._attempts.emit_events(decided, self._clock()))
        if self._takes_over:
            self._adoption.start()

    def poll(self) -> None:
        """Apply what was watched, and emit what follows."""
        self._apply_changes()
        now, decided = self._clock(), self._decided()
        for adopted in self._adoption.step(
            decided, self._nodes.site, self._nodes.gpus_of_node, now
        ):
            self._emit(adopted)
        self._admission.expect_decision(self._adoption.unanswered)
        for event in self._nodes.events(decided, now, self._epoch):
            self._emit(event)
        for event in self._foreign_pods.changes(self._nodes.gpus_of_node, now, self._epoch):
            self._emit(event)
        for event in self._allocator.taken.changes(self._nodes.gpus_of_node, now, self._epoch):
            self._emit(event)
        for event in self._checkpoints.completed(now):
            self._emit(event)
        self._link_checks.step(decided)
        self._admission.attempts_ended(self._attempts.emit_events(decided, now))
        self._attempts.step(decided, now)
        self._late_bindings.step(now)
        self._admission.step(decided, self._nodes.site, now)
        self._provisioning.step(
            decided, self._nodes.site, self._admission.without_topology, self._attempts.pods, now
        )
        self._repartitioning.step(decided, now, self._epoch)
        self._claims.step(self._attempts.pods, lambda pod: self._may_start(pod, decided))
        self._nominations.step(decided, self._pending.gang_of_job, self._attempts.pods)
        self._gangjobs.step(decided, now)
        self.services.step(decided, now)
        self._group_conditions.step(decided, now)
        self._node_events.step(decided, now)
        if self._pending.changed:
            self._api.wake()

    def carry_out(self, order: Order) -> None:
        """Begin to bind, delete, or request a checkpoint. No job here is time-sliced."""
        if not self._api.leads():
            return
        match order:
            case StartGang():
                self._attempts.start(order, self._decided())
            case ReplaceMember():
                self._attempts.replace(order)
            case StopGang():
                state = self._decided().job(order.job)
                self._checkpoints.forget(order.job, order.attempt)
                self._attempts.stop(
                    order, for_others=state is not None and state.stop_cause in FOR_OTHERS
                )
            case SaveCheckpoint():
                self._checkpoints.request(order)
            case WriteToLog():
                self._idle_events.write(order)
            case _:
                log.warning("order %s: Kubernetes pods cannot do that", order.id)

    def inventory(self) -> Inventory:
        """The status of every attempt that has pods."""
        return self._attempts.inventory()

    def settle(self, job: str, attempt: int) -> None:
        """Forget an attempt whose end is on record."""
        self._idle_events.forget(job, attempt)
        self._checkpoints.forget(job, attempt)
        self._reports.forget(job, attempt)
        self._link_checks.forget(job, attempt)
        self._attempts.settle(job, attempt)

    def has_run(self, job: str) -> bool:
        """Ids are made of the uids of pods: none is used twice."""
        return False

    def remains(self, job: str) -> str:
        """What keeps an attempt that is stopped from ending, or a gang that no node can hold from starting."""
        coming = self._provisioning.told(job) or self._repartitioning.told(job)
        return self._attempts.remains(job) or coming

    def log_path(self, job: str, attempt: int, rank: int) -> Path:
        """Raises NotFound: output is where kubectl finds it."""
        raise NotFound(f"{job} runs as pods: their output is with `kubectl logs`")

    def progress(self, job: str, attempt: int) -> Progress | None:
        """How far an attempt says that it is; from any thread."""
        return self._reports.progress(job, attempt)

    def curve(self, job: str, attempt: int) -> tuple[Progress, ...]:
        """Nothing is known of it here."""
        return ()

    def host_use(self, job: str, attempt: int) -> HostUse | None:
        """It is not measured here."""
        return None

    def check(self, job: str, attempt: int) -> CheckStatus | None:
        """How the check of an attempt stands; from any thread."""
        return self._link_checks.status(job, attempt)

    def step_reports(self, job: str, attempt: int) -> StepReports | None:
        """The own times of steps that its ranks report; from any thread."""
        return self._reports.step_reports(job, attempt)

    def take_report(self, token: str, body: bytes) -> float:
        """Take the report of a rank; from any thread. Raises Unauthenticated, BadInput, Conflict, TooOften."""
        return self._reports.take(token, body)

    def take_check(self, token: str, body: bytes) -> dict[str, Any]:
        """Take what a pod posts during its check; from any thread. Raises Unauthenticated, BadInput."""
        return self._link_checks.take(token, body)

    def record(self, job: str, attempt: int) -> dict[str, Any] | None:
        """Nothing is known of it here."""
        return None

    def changes(self, job: str, attempt: int) -> tuple[str, ...]:
        """Nothing is known of it here."""
        return ()

    def exec_session(
        self, job: str, attempt: int, rank: int, command: Sequence[str], terminal: Terminal | None
    ) -> PendingExecSession:
        """Raises NotFound: kubectl does that."""
        raise NotFound(f"{job} runs as pods: use `kubectl exec`")

    def port(self, job: str, attempt: int, rank: int, port: int) -> tuple[str, int]:
        """Raises NotFound: kubectl does that."""
        raise NotFound(f"{job} runs as pods: use `kubectl port-forward`")

    def close(self) -> None:
        """End the link; pods go on."""
        self._api.close()

    def _annotate(self, pod: Metadata, annotations: Mapping[str, str]) -> None:
        self._api.write(lambda client: annotate(client, pod, annotations))

    def _nominate(self, pod: Metadata, node: str) -> None:
        self._api.write(lambda client: nominate(client, pod, node))

    def _apply_changes(self) -> None:
        seen = self._api.seen
        while seen:
            noun, key, before, after = seen.popleft()
            match noun:
                case "node":
                    self._nodes.update_node(key[1], after, self._clock())
                    self._feasibility.index.update_node(key[1], after)
                case "pod":
                    self._update_pod(before, after)
                case "slice" | "class" | "claim" | "claim again":
                    self._claims.update(noun, key, after, self._clock())
                case "volume":
                    self._feasibility.volumes.update(key, before, after)
                case "namespace":
                    labels = None if after is None else after.metadata.labels
                    self._feasibility.index.update_namespace(key[1], labels)
                case "group":
                    kind, where = key
                    self._update_group(kind, where, after)
                case "topology":
                    kind, (_, name) = key
                    self._nodes.update_topology(kind, name, after, self._clock())
                case "bound" | "answer":
                    self._apply_result(noun, key)
                case _:
                    raise key  # a bug on the other thread
        for pod in self._claims.pop_stale(self._clock()):
            self._update_pod(pod, pod)

    def _apply_result(self, noun: str, told: Any) -> None:
        """What came of a write."""
        if noun == "answer":
            on_answer, why = told
            on_answer(why)
            return
        self._attempts.on_bound(told)
        for group in self._groups_of(told.job):
            self._group_conditions.look(group)

    def _explain_group(self, job: str, sentence: str) -> None:
        """A gang waits for pods of its last attempt."""
        for group in self._groups_of(job):
            self._group_conditions.explain(group, f"Waiting: {sentence}.", self._clock())

    def _groups_of(self, job: str) -> list[Key]:
        """The groups of a job's gang."""
        key = self._pending.key_of_job.get(job)
        return [] if key is None else self._pending.keys.groups.groups_of(key)

    def _update_group(self, kind: GroupKind, where: Name, group: Group | None) -> None:
        if kind in (GANGJOB, GANGSERVICE):
            self.federated_jobs.update(kind, where, group)
        if kind is PROVISIONING:
            self._provisioning.update(where, group)
            return
        if kind is GANGSERVICE:
            self.services.update(where, group)
            return
        key = (*where, kind.key_word)
        self._pending.update_group(key, None if group is None else gang_spec_of_group(kind, group))
        if kind is CORE:
            self._group_conditions.update(key, group)
        if kind is GANGJOB:
            self._gangjobs.update(where, group)
            self.services.update_gangjob(where, group)

    def _update_pod(self, before: Pod | None, after: Pod | None) -> None:
        if after is not None:
            after = self._claims.read(after, self._clock())
        pod = after or before
        assert pod is not None, "a pod comes, changes or goes"
        uid = pod.metadata.uid
        self._gangjobs.update_pod(pod, gone=after is None)
        self.services.update_pod(pod, gone=after is None)
        if after is None:
            self._claims.forget(uid)
            self._attempts.pods.pop(uid, None)
        else:
            self._attempts.pods[uid] = after
        is_member = self._attempts.is_member(pod)
        self._reports.update(uid, after, self._attempts.place_of(uid))
        self._feasibility.update(pod, gone=after is None, is_member=is_member)
        if is_member:
            self._attempts.update(pod, gone=after is None)
            self._update_resized(pod, gone=after is None)
        elif pod.spec.node_name:
            self._update_foreign_pod(pod, gone=after is None)
            self._late_bindings.update(pod, self._decided(), gone=after is None)
        elif pod.spec.scheduler_name == self._scheduler:
            waits = after is not None and may_be_bound(after)
            self._pending.update(pod, waits=waits)
            self._nominations.update(pod, waits=waits)
            self._forget_alone(uid, after)
            return
        self._nominations.update(pod, waits=False)
        self._forget_alone(uid, after)

    def _update_resized(self, pod: Pod, *, gone: bool) -> None:
        """A pod of a gang may take more than its job holds."""
        shape = None if gone else self._attempts.shape_of(pod, self._decided())
        if shape is None:
            self._foreign_pods.forget(pod.metadata.uid)
        else:
            self._foreign_pods.update_resized(pod, shape)

    def _forget_alone(self, uid: str, after: Pod | None) -> None:
        if after is None:
            self._pending.keys.forget(uid)

    def _may_start(self, pod: Pod, decided: LedgerView) -> bool:
        """Whether a pod that is not bound is being bound, or will be by an order that was given already."""
        state = decided.job(self._pending.job_of(self._pending.keys.of(pod)) or "")
        is_placed = state is not None and state.placement is not None
        return is_placed or self._attempts.has_member(pod.metadata.uid)

    def _update_foreign_pod(self, pod: Pod, *, gone: bool) -> None:
        """A bound pod that is no member of an attempt here."""
        self._pending.update(pod, waits=False)
        if gone:
            self._foreign_pods.forget(pod.metadata.uid)
        else:
            self._foreign_pods.update(pod)
