"""Services: their replicas are jobs that begin, drain and end as the service asks."""

from dataclasses import replace
from typing import Any

from gantree.core.ledger.ledger_copy import copy_of
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.events import (
    GangStarted,
    ReplicaDrained,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
)
from gantree.model.facts import Fact
from gantree.model.phases import Phase
from gantree.model.replicas import Endpoint, Readiness
from gantree.model.services import Autoscaling, ReplicaCount, ScaleTarget, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.same_ledger import differences


def chat(replicas: int = 2, gpus: int = 4, **fields: Any) -> ServiceSpec:
    """A service of so many replicas, of one member each."""
    count = fields.pop("count", ReplicaCount(replicas, replicas))
    return ServiceSpec("chat", job("chat", 1, gpus), count, **fields)


class Town(Stage):
    """A stage on which services run."""

    def serve(self, spec: ServiceSpec) -> None:
        """Hand in a service, or another description of it."""
        self.tell(ServiceSubmitted, service=spec.name, spec=spec)

    def scale(self, replicas: int, **fields: Any) -> None:
        """Ask for another number of replicas."""
        self.tell(ServiceScaleRequested, service="chat", replicas=replicas, **fields)

    def ready(self, *jobs: str, ready: bool = True, reason: str = "") -> None:
        """Replicas run, and are ready, or not any more."""
        for each in jobs:
            state = self.state(each)
            if state.phase is Phase.STARTING:
                at = (Endpoint("worker", 0, "127.0.0.1", 40000 + self._told),)
                self.tell(GangStarted, job=each, attempt=state.attempt, endpoints=at)
            self.tell(
                ReplicaReadinessChanged,
                job=each,
                attempt=state.attempt,
                ready=ready,
                reason=reason,
            )

    def drained(self, each: str) -> None:
        """No request is left on a replica, and it has stopped."""
        self.tell(ReplicaDrained, job=each, attempt=self.state(each).attempt)
        self.ended(each, 143)

    def alive(self) -> dict[str, Phase]:
        """The replicas that have not ended."""
        jobs = self.scheduler.ledger.jobs.values()
        return {state.job: state.phase for state in jobs if state.ended_at is None}

    def of_kind(self, *kinds: type[Fact]) -> list[Any]:
        """The facts of these kinds so far."""
        return [fact for fact in self.facts if isinstance(fact, kinds)]


def town(spec: ServiceSpec | None = None, nodes: int = 4, policy: Policy | None = None) -> Town:
    """A service on nodes of 8 GPUs."""
    stage = Town(cluster(leaves=1, nodes=nodes), policy)
    stage.serve(spec or chat())
    return stage


def test_a_service_has_as_many_replicas_as_it_wants_and_they_are_jobs() -> None:
    stage = town(chat(2, ready=Readiness("/health"), port=8000))
    assert stage.alive() == {"chat.1": Phase.STARTING, "chat.2": Phase.STARTING}
    replica = stage.state("chat.2").spec.service
    assert replica is not None and (replica.service, replica.number, replica.revision) == (
        "chat",
        2,
        1,
    )
    assert (replica.port, replica.ready.http_path) == (8000, "/health")
    stage.ready("chat.1")
    state = stage.state("chat.1")
    assert state.replica.ready and state.replica.endpoints[0].host == "127.0.0.1"


def test_what_is_known_of_services_survives_a_snapshot_and_a_copy() -> None:
    stage = town(
        chat(1, count=ReplicaCount(1, 4), scaling=Autoscaling((ScaleTarget("queue", 2.0),)))
    )
    stage.scale(2, reason="queue 9", automatic=True)
    stage.ready("chat.1")
    stage.serve(replace(chat(), replica=job("chat", 1, 0, priority="nonsense")))
    assert "chat" in stage.scheduler.ledger.rejected_services
    ledger = stage.scheduler.ledger
    assert differences(copy_of(ledger), ledger) == []
    text = SnapshotCodec().encode(snapshot_of(stage.scheduler))
    later = restored(SnapshotCodec().decode(text), stage.policy)
    assert differences(later.ledger, ledger) == []
