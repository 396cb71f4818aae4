"""One replica of a GangService as it stands: its GangJob, its job as decided, and its pods. Pure."""

from collections.abc import Collection
from dataclasses import dataclass

from gantree.core.view import JobView
from gantree.executors.kubernetes.apiserver.conditions import seconds_of
from gantree.executors.kubernetes.apiserver.objects import Condition, Group, Pod
from gantree.executors.kubernetes.services.replica_jobs import REVISION, drain_until
from gantree.executors.kubernetes.workloads.gangjob import index_of
from gantree.model.phases import Phase

FINISHED = frozenset({"Succeeded", "Failed", "Cancelled", "TimedOut"})
"""Phases of a GangJob that never starts again."""


@dataclass(frozen=True, slots=True)
class Replica:
    """A replica. state is its job, None before it is one or after it is none any more."""

    number: int
    gangjob: Group
    state: JobView | None
    pods: tuple[Pod, ...]

    @property
    def name(self) -> str:
        """The name of its GangJob."""
        return self.gangjob.metadata.name

    @property
    def revision(self) -> str:
        """What it was made of."""
        return self.gangjob.metadata.labels.get(REVISION, "")

    @property
    def is_finished(self) -> bool:
        """Whether its GangJob is over, however it ended."""
        return self.gangjob.status.get("phase") in FINISHED

    @property
    def is_placed(self) -> bool:
        """Whether it has its place."""
        return self.state is not None and self.state.placement is not None

    @property
    def first(self) -> Pod | None:
        """The pod that answers requests, once it was made."""
        return next((pod for pod in self.pods if index_of(pod) == 0 and not pod.has_ended), None)

    @property
    def is_ready(self) -> bool:
        """Whether requests may be sent to it: all its pods run and are ready, and none is to go."""
        runs = self.state is not None and self.state.phase is Phase.RUNNING
        there = [pod for pod in self.pods if not pod.has_ended]
        return runs and self.first is not None and all(map(is_ready, there))

    @property
    def has_started(self) -> bool:
        """Whether it may have got requests: its startup probe has succeeded."""
        first = self.first
        statuses = () if first is None else first.status.container_statuses
        return bool(statuses) and all(each.started for each in statuses)

    @property
    def drain_until(self) -> float | None:
        """When it is deleted at the latest, if it is to end."""
        return drain_until(self.gangjob)

    @property
    def is_ending(self) -> bool:
        """Whether it is to end: it drains, or its GangJob was deleted."""
        return self.drain_until is not None or self.gangjob.metadata.deletion_timestamp is not None

    @property
    def ran_s(self) -> float:
        """How long the last attempt of one that is over has run."""
        began = seconds_of(self.gangjob.status.get("startTime"))
        ended = seconds_of(self.gangjob.status.get("finishTime"))
        return 0.0 if began is None or ended is None else ended - began

    @property
    def reason(self) -> str:
        """Why it is not ready, as far as the cluster says so."""
        told = self.gangjob.status
        if self.is_finished:
            return f"its processes ended ({told.get('phase')}): another replica takes its place"
        if told.get("phase") != "Running" and isinstance(told.get("message"), str):
            return str(told["message"])
        there = (pod for pod in self.pods if not pod.has_ended)
        return next((why for pod in there if (why := unready_reason(pod))), "")

    @property
    def since(self) -> float | None:
        """When it became ready; of one that was and is not, when it ceased to be."""
        if not self.is_ready and not self.has_started:
            return None
        times = [ready_since(pod) for pod in self.pods if not pod.has_ended]
        return max((each for each in times if each is not None), default=None)


def is_ready(pod: Pod) -> bool:
    """Whether the kubelet says that a pod is ready, and it is not to go."""
    told = _ready_condition(pod)
    return told is not None and told.status == "True" and pod.metadata.deletion_timestamp is None


def ready_since(pod: Pod) -> float | None:
    """When a pod became ready, or ceased to be."""
    told = _ready_condition(pod)
    return None if told is None else seconds_of(told.last_transition_time)


def unready_reason(pod: Pod) -> str:
    """Why the kubelet says that a pod is not ready; "" where it is, or says nothing."""
    told = _ready_condition(pod)
    return "" if told is None or told.status == "True" else told.message


def _ready_condition(pod: Pod) -> Condition | None:
    return next((each for each in pod.status.conditions if each.type == "Ready"), None)


def ready_of(replicas: Collection[Replica]) -> int:
    """How many of them get requests."""
    return sum(each.is_ready and not each.is_ending for each in replicas)
