"""Services: their replicas are jobs that begin, drain and end as the service asks."""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from gantree.api.views.service_view import service_row
from gantree.core.explain.explain import when, why
from gantree.core.ledger.ledger_copy import copy_of
from gantree.core.ledger.state import JobState
from gantree.core.snapshot.ledger_snapshot import snapshot_of
from gantree.core.snapshot.restore import restored
from gantree.journal.encoding.codec import EVENT_CODEC, FACT_CODEC
from gantree.journal.encoding.snapshots import SnapshotCodec
from gantree.model.events import (
    CancelRequested,
    CordonRequested,
    EndedJobsDue,
    GangEnded,
    GangIdlenessObserved,
    GangStarted,
    GangStartFailed,
    HealthObserved,
    PolicySubmitted,
    ReplicaDrained,
    ReplicaReadinessChanged,
    ServiceScaleRequested,
    ServiceSubmitted,
    UncordonRequested,
)
from gantree.model.facts import AttemptEnded, Fact, JobEnded, JobRejected, JobRequeued
from gantree.model.idle_facts import GangIdleWarned
from gantree.model.jobs import Job
from gantree.model.orders import StartGang, StopGang
from gantree.model.phases import Phase, StopCause
from gantree.model.replicas import Endpoint, Readiness
from gantree.model.service_facts import (
    ReplicaDraining,
    ServiceEnded,
    ServiceRejected,
    ServiceScaled,
    ServiceUpdated,
)
from gantree.model.services import Autoscaling, ReplicaCount, ScaleTarget, ServiceSpec, Update
from gantree.policy.idle import IdleRule
from gantree.policy.rules import Policy, QueueRule
from gantree.testing.builders import cluster, job
from gantree.testing.stage import Stage
from support.same_ledger import differences

SCALED = Autoscaling((ScaleTarget("concurrency", 8.0),))


def chat(replicas: int = 2, gpus: int = 4, image: str = "v1", **fields: Any) -> ServiceSpec:
    """A service of so many replicas, of one member each."""
    (role,) = job("chat", 1, gpus).roles
    template = replace(job("chat", priority="serving"), roles=(replace(role, image=image),))
    count = fields.pop("count", ReplicaCount(replicas, replicas))
    return ServiceSpec("chat", fields.pop("replica", template), count, **fields)


class Serving(Stage):
    """A stage on which the service `chat` runs."""

    def serve(self, spec: ServiceSpec) -> None:
        """Hand in the service, or another description of it."""
        self.tell(ServiceSubmitted, service=spec.name, spec=spec)

    def scale(self, replicas: int, **fields: Any) -> None:
        """Ask for another number of replicas."""
        self.tell(ServiceScaleRequested, service="chat", replicas=replicas, **fields)

    def ready(self, *numbers: int, ready: bool = True, reason: str = "") -> None:
        """Replicas run, and are ready, or not any more."""
        for number in numbers:
            state = self.replica(number)
            if state.phase is Phase.STARTING:
                at = (Endpoint("worker", 0, "127.0.0.1", 40000 + number),)
                self.tell(GangStarted, job=state.job, attempt=state.attempt, endpoints=at)
            told = {"ready": ready, "reason": reason}
            self.tell(ReplicaReadinessChanged, job=state.job, attempt=state.attempt, **told)

    def drained(self, number: int) -> None:
        """No request is left on a replica, and it has stopped."""
        self.tell(ReplicaDrained, job=f"chat.{number}", attempt=self.replica(number).attempt)
        self.ended(f"chat.{number}", 143)

    def replica(self, number: int) -> JobState:
        """A replica by its number."""
        return self.state(f"chat.{number}")

    def row(self) -> str:
        """The replicas that have not ended: number, revision, and * ready, d draining, ! stopping, - waiting."""
        words = []
        for name in self.scheduler.ledger.services["chat"].replicas:
            state = self.state(name)
            assert state.spec.service is not None
            mark = "*" if state.replica.ready else ""
            mark = "d" if state.replica.draining else mark
            mark = {Phase.STOPPING: "!", Phase.PENDING: "-"}.get(state.phase, mark)
            words.append(f"{state.spec.service.number}r{state.spec.service.revision}{mark}")
        return " ".join(words)

    def why(self, name: str = "chat") -> str:
        """The explanation of the service, or of a job."""
        return why(self.scheduler.ledger, name, self.now).sentence

    def of_kind(self, *kinds: type[Fact]) -> list[Any]:
        """The facts of these kinds so far."""
        return [fact for fact in self.facts if isinstance(fact, kinds)]


def serving(
    spec: ServiceSpec | None = None, nodes: int = 4, policy: Policy | None = None, ready: int = 0
) -> Serving:
    """The service on nodes of 8 GPUs, with its first replicas ready."""
    stage = Serving(cluster(leaves=1, nodes=nodes), policy)
    stage.serve(spec or chat())
    stage.ready(*range(1, ready + 1))
    return stage


def test_a_service_has_as_many_replicas_as_it_wants_and_they_are_jobs() -> None:
    stage = serving(chat(2, ready=Readiness("/health"), port=8000))
    assert stage.row() == "1r1 2r1"
    replica = stage.replica(2).spec.service
    assert replica is not None and (replica.service, replica.number, replica.revision) == (
        "chat",
        2,
        1,
    )
    (_, start) = [order for order in stage.orders if isinstance(order, StartGang)]
    assert start.service == replica and (replica.port, replica.ready.http_path) == (8000, "/health")
    stage.ready(1)
    assert stage.replica(1).replica.endpoints[0].port == 40001
    assert stage.row() == "1r1* 2r1"


def test_what_is_known_of_services_survives_the_journal_a_snapshot_and_a_copy() -> None:
    stage = serving(chat(count=ReplicaCount(1, 4), scaling=SCALED))
    stage.scale(2, reason="concurrency 9", automatic=True)
    stage.ready(1)
    stage.serve(replace(chat(), replica=job("chat", 1, 0, priority="nonsense")))
    ledger = stage.scheduler.ledger
    assert "nonsense" in ledger.rejected_services["chat"] and "nonsense" in stage.why()
    assert differences(copy_of(ledger), ledger) == []
    later = restored(
        SnapshotCodec().decode(SnapshotCodec().encode(snapshot_of(stage.scheduler))), stage.policy
    )
    assert differences(later.ledger, ledger) == []
    assert [FACT_CODEC.decode(FACT_CODEC.encode(fact)) for fact in stage.facts] == stage.facts
    event = stage.event(ServiceSubmitted, service="chat", spec=chat(scaling=SCALED))
    assert EVENT_CODEC.decode(EVENT_CODEC.encode(event)) == event


@pytest.mark.parametrize(
    ("count", "scaling", "first"),
    [
        (ReplicaCount(2, 8), SCALED, 2),
        (ReplicaCount(2, 8, spare=1), SCALED, 3),
        (ReplicaCount(2, 2, spare=1), SCALED, 2),
        (ReplicaCount(0, 8), SCALED, 0),
        (ReplicaCount(0, 8), Autoscaling(), 1),
    ],
)
def test_the_first_number(count: ReplicaCount, scaling: Autoscaling, first: int) -> None:
    assert len(serving(chat(1, count=count, scaling=scaling)).scheduler.ledger.jobs) == first


def test_scaled_within_its_bounds_and_numbers_are_never_used_again() -> None:
    stage = serving(chat(count=ReplicaCount(1, 3)), ready=1)
    stage.scale(9, reason="concurrency 12.4 per replica, target 8", automatic=True)
    assert stage.row() == "1r1* 2r1 3r1"
    assert stage.why() == (
        "chat wants 3 replicas (autoscaler: concurrency 12.4 per replica, target 8): 1 is ready, 2 start."
    )
    stage.ready(2)
    stage.scale(1)
    assert stage.row() == "1r1* 2r1d 3r1!", "the one that was never ready does not drain"
    stage.ended("chat.3", 143)
    stage.drained(2)
    assert stage.of_kind(JobEnded)[-1].reason == "scaled down to 1"
    assert stage.phase("chat.3") is Phase.CANCELLED
    stage.scale(2)
    assert stage.row() == "1r1* 4r1"
    scaled = [(fact.before, fact.replicas, fact.automatic) for fact in stage.of_kind(ServiceScaled)]
    assert scaled == [(1, 3, True), (3, 1, False), (1, 2, False)]
    stage.scale(2)
    assert len(stage.of_kind(ServiceScaled)) == 3


def test_a_number_whose_id_is_a_jobs_is_skipped() -> None:
    stage = Serving(cluster(leaves=1, nodes=4))
    stage.submit(job("chat.1"))
    stage.serve(chat())
    assert stage.row() == "2r1 3r1"
    stage.submit(job("other"))
    stage.tell(ServiceSubmitted, service="other", spec=replace(chat(), name="other"))
    assert stage.of_kind(ServiceRejected)[0].reason == "other is the id of a job"
    stage.submit(job("chat"))
    assert stage.scheduler.ledger.rejected["chat"] == "chat is the name of a service"


def test_a_number_whose_id_is_the_name_of_a_service_is_skipped() -> None:
    stage = Serving(cluster(leaves=1, nodes=4))
    stage.tell(ServiceSubmitted, service="chat.2", spec=replace(chat(1), name="chat.2"))
    stage.serve(chat())
    assert stage.row() == "1r1 3r1"


def test_a_drain_ends_with_the_last_request_or_at_its_deadline() -> None:
    stage = serving(chat(drain_s=30.0), ready=2)
    stage.scale(2)
    stage.serve(chat(1, drain_s=30.0))
    assert (stage.row(), stage.of_kind(ServiceUpdated)[0].revision) == ("1r1* 2r1d", 1)
    assert not [order for order in stage.orders if isinstance(order, StopGang)]
    assert stage.scheduler.wake_at() == 30.0
    assert "gets no new requests and ends: scaled down to 1" in stage.why("chat.2")
    stage.wait(30.0)
    assert stage.row() == "1r1* 2r1!"
    stage.ended("chat.2", 0)
    assert (stage.row(), stage.phase("chat.2")) == ("1r1*", Phase.CANCELLED)


def test_a_draining_replica_that_exits_has_ended() -> None:
    stage = serving(ready=2)
    stage.serve(chat(1))
    stage.ended("chat.2", 1)
    assert (stage.row(), stage.state("chat.2").reason) == ("1r1*", "scaled down to 1")


def test_one_that_was_told_to_stop_and_exited_by_itself_was_cancelled() -> None:
    stage = serving(ready=1)
    stage.serve(chat(1))
    told = {"exit_code": 0, "unprompted": True}
    stage.tell(GangEnded, job="chat.2", attempt=1, **told)
    assert (stage.phase("chat.2"), stage.state("chat.2").reason) == (
        Phase.CANCELLED,
        "scaled down to 1",
    )
    assert not stage.of_kind(JobRequeued)


def test_replicas_that_are_to_publish_cache_events_are_of_another_revision() -> None:
    stage = serving(chat(), ready=1)
    stage.serve(chat(cache_events_port=0))
    assert stage.scheduler.ledger.services["chat"].revision == 2


def test_a_rolling_update_replaces_one_after_the_other() -> None:
    stage = serving(chat(2), nodes=2, ready=2)
    stage.serve(chat(2, image="v2"))
    assert stage.row() == "1r1* 2r1* 3r2"
    assert "Update to revision 2: 0 of 2 run it." in stage.why()
    stage.ready(3)
    assert "Update to revision 2: 1 of 2 run it." in stage.why()
    assert stage.row() == "1r1* 2r1d 3r2* 4r2"
    assert stage.of_kind(ReplicaDraining)[0].reason == "replaced by revision 2"
    stage.ready(4)
    assert stage.row() == "1r1d 2r1d 3r2* 4r2*"
    stage.drained(1)
    stage.drained(2)
    assert (stage.row(), stage.replica(3).spec.roles[0].image) == ("3r2* 4r2*", "v2")
    assert "Update" not in stage.why()


def test_an_update_that_never_becomes_ready_leaves_the_old_ones_alone() -> None:
    stage = serving(chat(2), ready=2)
    stage.serve(chat(2, image="broken"))
    for _ in range(3):
        stage.started("chat.3")
        stage.ended("chat.3", 1)
        stage.wait(1000.0)
    assert stage.row() == "1r1* 2r1* 3r2"
    stage.serve(chat(2, image="v1"))
    assert stage.row() == "1r1* 2r1* 3r2!", "taken back: what still runs it stays"
    row = service_row(stage.scheduler.ledger, stage.scheduler.ledger.services["chat"])
    assert (row["state"], row["current"], row["revision"]) == ("ready", 2, 3)
    assert stage.scheduler.ledger.services["chat"].revision == 3 and "Update" not in stage.why()


def test_numbers_that_do_not_concern_what_runs_replace_nothing() -> None:
    stage = serving(chat(2), ready=2)
    stage.serve(chat(2, scaling=SCALED, update=Update(2, 1), drain_s=5.0))
    stage.serve(chat(2, scaling=SCALED, update=Update(2, 1), drain_s=5.0))
    assert (stage.row(), len(stage.of_kind(ServiceUpdated))) == ("1r1* 2r1*", 1)


def test_without_surge_an_update_gives_up_what_may_be_unavailable() -> None:
    stage = serving(chat(2, update=Update(0, 1)), nodes=1, ready=2)
    stage.serve(chat(2, image="v2", update=Update(0, 1)))
    assert stage.row() == "1r1* 2r1d 3r2-", "its room is not free yet"
    stage.drained(2)
    stage.ready(3)
    assert stage.row() == "1r1d 3r2* 4r2-"


def test_cancelled_all_replicas_drain_and_then_the_service_has_ended() -> None:
    stage = serving(chat(3), nodes=1, ready=2)  # the third waits
    stage.cancel("chat")
    assert stage.row() == "1r1d 2r1d"
    assert stage.why() == "chat ends (cancelled): 2 drain or stop."
    stage.scale(3)
    stage.serve(chat(1))
    assert "submit it again once it has ended" in stage.of_kind(ServiceRejected)[0].reason
    stage.drained(1)
    stage.drained(2)
    assert len(stage.of_kind(ServiceEnded)) == 1
    stage.tell(EndedJobsDue, keep=0, ended_before=stage.now + 1)
    assert not stage.scheduler.ledger.jobs
    stage.serve(chat(1))
    assert stage.row() == "4r2", "ids and revisions are not used again"


def test_a_replica_that_is_cancelled_drains_and_is_replaced() -> None:
    stage = serving(ready=2)
    stage.cancel("chat.1")
    assert stage.row() == "1r1d 2r1* 3r1"
    stage.cancel("chat.3")
    assert stage.row() == "1r1d 2r1* 3r1! 4r1"


@pytest.mark.parametrize("code", [0, 1])
def test_a_replica_that_exits_starts_again_for_ever_ever_later(code: int) -> None:
    stage = serving(ready=2)
    waits = []
    for _ in range(12):
        stage.ended("chat.1", code)
        waits.append(stage.of_kind(JobRequeued)[-1].not_before - stage.now)
        assert not stage.replica(1).replica.ready and stage.row() == "1r1- 2r1*"
        stage.wait(waits[-1])
        stage.ready(1)
    assert waits == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, *[300.0] * 6]
    stage.wait(600.0)
    stage.ended("chat.1", code)
    assert stage.of_kind(JobRequeued)[-1].not_before - stage.now == 5.0, "it ran for long enough"
    assert not any(fact.gpu_s_lost for fact in stage.of_kind(AttemptEnded)), "it has answered"


def test_one_that_can_never_start_is_tried_again_and_its_service_says_why() -> None:
    stage = serving(chat(1))
    told = {"reason": "no such file: serve", "final": True}
    stage.tell(GangStartFailed, job="chat.1", attempt=1, **told)
    stage.ended("chat.1", 127)
    assert (stage.row(), stage.replica(1).not_before) == ("1r1-", 5.0)
    assert "Last failure: no such file: serve." in stage.why()
    assert stage.scheduler.wake_at() == 5.0


def test_one_that_is_not_ready_in_time_is_stopped_as_a_failed_start() -> None:
    stage = serving(chat(1, ready=Readiness(within_s=60.0)))
    stage.started("chat.1")
    stage.ready(1, ready=False, reason="connection refused")
    assert stage.scheduler.wake_at() == 60.0
    stage.wait(60.0)
    assert stage.replica(1).stop_cause is StopCause.START_FAILED
    assert "not ready within 60 s" in stage.replica(1).reason
    stage.ended("chat.1", 143)
    assert stage.replica(1).failures == 1
    stage.wait(5.0)
    stage.ready(1)
    stage.ready(1, ready=False, reason="503")
    stage.wait(1000.0)
    assert stage.row() == "1r1", "one that was ready before is not stopped"
    assert "chat.1 is not ready: 503." in stage.why()


def test_the_floor_is_not_preemptible_in_each_revision() -> None:
    policy = Policy(queues=(QueueRule("default", guarantee={"gpus": 32}),))
    stage = serving(chat(3, count=ReplicaCount(3, 3, floor=1)), policy=policy, ready=3)
    assert [stage.replica(n).spec.preemptible for n in (1, 2, 3)] == [False, True, True]
    stage.serve(chat(3, image="v2", count=ReplicaCount(3, 3, floor=1)))
    stage.ready(4)
    assert [stage.replica(n).spec.preemptible for n in (4, 5)] == [False, True]


@pytest.mark.parametrize(("required", "nodes"), [(False, 3), (True, 2)])
def test_replicas_stand_apart_as_far_as_they_can_or_wait(required: bool, nodes: int) -> None:
    stage = serving(chat(3, spread="node", spread_required=required), nodes=nodes)
    stands = [stage.nodes(f"chat.{n}") for n in (1, 2, 3) if stage.replica(n).placement]
    assert len(stands) == nodes and len({node for each in stands for node in each}) == nodes
    if not required:
        stage.serve(chat(4, spread="node"))
        assert stage.row() == "1r1 2r1 3r1 4r1", (
            "there is no fourth node, and it stands beside another"
        )


def test_a_replica_is_never_reclaimed_as_idle_nor_moved_by_defragmentation() -> None:
    stage = serving(chat(1), policy=Policy(idle=IdleRule()), ready=1)
    stage.wait(600.0)
    stage.tell(GangIdlenessObserved, job="chat.1", attempt=1, since=0.0)
    stage.wait(7200.0)
    stage.tell(GangIdlenessObserved, job="chat.1", attempt=1, since=0.0)
    assert not stage.of_kind(GangIdleWarned) and stage.row() == "1r1*"


def test_a_drained_node_is_left_once_another_replica_is_ready() -> None:
    stage = serving(chat(1), nodes=2, ready=1)
    (node,) = stage.nodes("chat.1")
    stage.tell(CordonRequested, node=node, drain=True, deadline_at=600.0)
    assert stage.row() == "1r1* 2r1" and stage.nodes("chat.2") != [node]
    assert "Update" not in stage.why()
    stage.ready(2)
    assert stage.row() == "1r1d 2r1*"
    assert "its node is to be left" in stage.of_kind(ReplicaDraining)[0].reason


def test_at_the_deadline_of_a_drain_a_replica_drains_in_any_case() -> None:
    stage = serving(chat(1, gpus=8), nodes=1, ready=1)
    stage.tell(CordonRequested, node="n0", drain=True, deadline_at=600.0)
    assert stage.row() == "1r1* 2r1-"
    assert stage.scheduler.wake_at() == 600.0
    stage.wait(600.0)
    assert stage.row() == "1r1d 2r1-"
    stage.tell(UncordonRequested, node="n0")
    stage.drained(1)
    assert stage.row() == "2r1"


def test_an_uncordoned_node_keeps_its_replica() -> None:
    stage = serving(chat(1, gpus=8), nodes=1, ready=1)
    stage.tell(CordonRequested, node="n0", drain=True, deadline_at=600.0)
    stage.tell(UncordonRequested, node="n0")
    assert stage.row() == "1r1*"
    stage.tell(HealthObserved, node="n0", source="dcgm", reason="XID 48")
    assert stage.row() == "1r1* 3r1-", "it would leave an unhealthy node, too"


def test_a_replica_takes_the_room_of_training_and_gives_it_back() -> None:
    stage = Serving(cluster(leaves=1, nodes=1))
    stage.submit(replace(job("train", 1, 8), restarts=job("x", restarts=9).restarts))
    stage.started("train")
    stage.serve(chat(1))
    stage.wait(1000.0)
    assert stage.phase("train") is Phase.STOPPING, "serving is above batch"
    stage.ended("train", 143)
    assert stage.row() == "1r1"


def test_the_end_of_a_replica_is_known_once_it_drains() -> None:
    stage = serving(chat(1, gpus=8), nodes=1, ready=1)
    stage.submit(job("next", 1, 8))
    assert when(stage.scheduler.ledger, "next", stage.now) is None
    stage.cancel("chat")
    start = when(stage.scheduler.ledger, "next", stage.now)
    assert start is not None and start.starts_at == 30.0 + stage.policy.grace_s


def test_a_service_whose_queue_is_gone_gets_no_more_replicas_and_does_not_try_for_ever() -> None:
    stage = serving(chat(1, replica=replace(chat().replica, queue="serving")), ready=1)
    queues = Policy(queues=(QueueRule("other"),))
    stage.scheduler = type(stage.scheduler)(queues, now=stage.now)
    stage.scheduler.recover(stage.facts)
    stage.policy = queues
    stage.tell(PolicySubmitted, text="", source="")
    stage.cancel("chat.1")
    stage.ended("chat.1", 143)
    assert (stage.row(), stage.scheduler.wake_at()) == ("", None)
    assert not stage.of_kind(JobRejected)


def test_live_services_are_among_what_a_new_policy_must_suit() -> None:
    stage = serving(chat(0, count=ReplicaCount(0, 1), scaling=SCALED))
    named: list[tuple[str, Job]] = list(stage.scheduler.ledger.live_specs())
    assert [name for name, _ in named] == ["chat"]


def test_a_preempted_replica_drains_first_and_is_gone_within_the_grace() -> None:
    stage = serving(chat(1, gpus=8), nodes=1, ready=1, policy=Policy(grace_s=20.0))
    decision = stage.submit(job("urgent", gpus=8, priority=1000))
    assert decision.orders == () and stage.phase("chat.1") is Phase.SAVING
    assert "finishes its requests to make room for urgent" in stage.why("chat.1")
    ledger = stage.scheduler.ledger
    assert differences(copy_of(ledger), ledger) == []
    assert [FACT_CODEC.decode(FACT_CODEC.encode(fact)) for fact in stage.facts] == stage.facts
    stage.wait(5.0)
    (order,) = stage.tell(ReplicaDrained, job="chat.1", attempt=1).orders
    assert isinstance(order, StopGang) and order.grace_s == 15.0
    stage.ended("chat.1", 143)
    assert stage.phases() == {"chat.1": "pending", "urgent": "starting"}
    assert stage.replica(1).failures == 0


@pytest.mark.parametrize(("drain_s", "after_s", "grace_s"), [(8.0, 8.0, 12.0), (60.0, 20.0, 0.0)])
def test_a_preempted_replica_is_stopped_at_the_end_of_its_drain_or_of_the_grace(
    drain_s: float, after_s: float, grace_s: float
) -> None:
    spec = chat(1, gpus=8, drain_s=drain_s)
    stage = serving(spec, nodes=1, ready=1, policy=Policy(grace_s=20.0))
    stage.submit(job("urgent", gpus=8, priority=1000))
    assert stage.scheduler.wake_at() == stage.now + after_s
    (order,) = stage.wait(after_s).orders
    assert isinstance(order, StopGang) and order.grace_s == grace_s


def test_a_replica_that_never_was_ready_is_stopped_at_once_where_its_place_is_taken() -> None:
    stage = serving(chat(1, gpus=8), nodes=1)
    stage.submit(job("urgent", gpus=8, priority=1000))
    assert stage.phase("chat.1") is Phase.STOPPING


def test_a_replica_that_is_preempted_and_then_not_wanted_ends_with_its_drain() -> None:
    spec = chat(2, gpus=8, count=ReplicaCount(1, 2))
    stage = serving(spec, nodes=1, ready=1, policy=Policy(grace_s=20.0))
    stage.submit(job("urgent", gpus=8, priority=1000))
    stage.tell(CancelRequested, job="chat")
    assert stage.phase("chat.1") is Phase.SAVING
    stage.drained(1)
    assert stage.phases() == {"chat.1": "cancelled", "urgent": "starting"}


def test_replicas_are_spread_away_from_those_of_their_service_only() -> None:
    stage = serving(replace(chat(1, gpus=4), name="chat.2"), nodes=1)
    assert stage.nodes("chat.2.1") == ["n0"]
    stage.serve(chat(1, gpus=4, spread="node", spread_required=True))
    assert stage.nodes("chat.1") == ["n0"]
    (rule,) = chat(1, spread="node").replica_topology.apart
    names = ("chat.1", "chat.10", "chat.9999999", "chat.2.1", "chat.1x", "chat.", "other.1")
    found = [name for name in names if any(fnmatchcase(name, each) for each in rule.jobs)]
    assert found == ["chat.1", "chat.10", "chat.9999999"]
