"""Jobs of a federation stop as its lease runs out, and go on once it is renewed; others do not notice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gantree.control.engine.controller import Controller
from gantree.control.federation.leased_jobs import WITHOUT_LEASE_S, LeasedJobs, rows_of_federation
from gantree.control.requests.submissions import JobSubmission, Key
from gantree.executors.local.shim.lease import FILE
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import BadInput, Conflict, GantreeError, Unsupported
from gantree.model.events import GangEnded, GangStarted
from gantree.model.federation import Assignment, Renewal, Stamp
from gantree.model.jobs import Job
from gantree.model.orders import StartGang, StopGang
from gantree.model.services import ReplicaCount, ServiceSpec
from gantree.policy.rules import Policy
from gantree.testing.builders import cluster, job
from support.recording import RecordingCluster

LEASE_S = 60.0


@dataclass
class Member:
    """A cluster of a federation whose lease clock the test sets."""

    state_dir: Path
    now: float = 1000.0

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        self.leases = LeasedJobs(self.state_dir, now=lambda: Stamp("b", self.now))
        journal, site = SqliteJournal(self.state_dir), cluster(leaves=1, nodes=2)
        self.controller = Controller(
            journal, Policy(), RecordingCluster, site=site, leased_jobs=self.leases
        )
        self.controller.recover()

    def crash(self) -> None:
        self.controller.close()
        self.start()

    def renew(self, number: int = 1) -> dict[str, Any]:
        self.leases.renew(Renewal("f", number, LEASE_S, Stamp("b", self.now)))
        return self.leases.renew(Renewal("f", number, LEASE_S, Stamp("b", self.now)))

    def submit(self, *jobs: Job, lease: int = 1, number: int = 1) -> object:
        assignment = Assignment("f", jobs[0].name, number, lease)
        key = Key("front", str(assignment), "digest")
        (outcome,) = self.controller.submit_batch(
            [JobSubmission(jobs, "/", key=key, assignment=assignment)]
        )
        if isinstance(outcome, GantreeError):
            raise outcome
        self.controller.step()
        return outcome

    def tell(self, *events: object) -> None:
        for event in events:
            self.controller.inbox.enqueue(event)  # type: ignore[arg-type]  # events, as tests make them
        self.controller.step()

    def orders(self, kind: type[StartGang] | type[StopGang]) -> list[str]:
        recording = self.controller.cluster
        assert isinstance(recording, RecordingCluster)
        return [order.id for order in recording.told if isinstance(order, kind)]

    def pass_s(self, seconds: float) -> None:
        self.now += seconds
        self.controller.step()

    def phase(self, name: str) -> tuple[str, bool]:
        state = self.controller.ledger.jobs[name]
        return str(state.phase), state.held


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    member = Member(tmp_path)
    yield member
    member.controller.close()


def started(name: str, attempt: int = 1) -> GangStarted:
    return GangStarted(id=f"{name}/{attempt}/started", observed_at=0.0, job=name, attempt=attempt)


def ended(name: str, attempt: int = 1) -> GangEnded:
    event_id = f"{name}/{attempt}/ended"
    return GangEnded(id=event_id, observed_at=0.0, job=name, attempt=attempt, exit_code=143)


def test_half_of_the_lease_without_a_renewal_stops_leased_jobs_and_a_renewal_releases_them(
    member: Member,
) -> None:
    member.renew()
    member.submit(job("a", gpus=8))
    member.submit(job("waits", gpus=64))
    member.controller.submit([job("own", gpus=8)], "/", {})
    member.controller.step()
    member.tell(started("a"), started("own"))
    member.pass_s(LEASE_S / 2 - 1)
    assert member.phase("a") == ("running", False)
    member.pass_s(1)
    assert member.phase("a") == ("stopping", True)
    assert member.phase("waits") == ("pending", True)
    assert member.phase("own") == ("running", False)
    member.tell(ended("a"))
    assert member.phase("a") == ("pending", True)
    member.renew()
    member.controller.step()
    assert member.phase("a") == ("starting", False)
    assert member.phase("waits") == ("pending", False)


def test_what_a_user_holds_stays_held_when_the_lease_is_renewed(member: Member) -> None:
    member.renew()
    member.submit(job("a", gpus=64))
    member.controller.jobs.hold("a")
    member.controller.step()
    member.pass_s(LEASE_S)
    member.renew()
    member.controller.step()
    assert member.phase("a") == ("pending", True)


def test_a_daemon_that_returns_stops_leased_jobs_before_it_reads_how_they_ended(
    member: Member,
) -> None:
    member.renew()
    member.submit(job("a", gpus=8))
    member.tell(started("a"))
    member.now += LEASE_S
    member.crash()
    assert member.phase("a") == ("stopping", True)
    member.tell(ended("a"))
    assert member.phase("a") == ("pending", True)
    member.crash()
    member.renew(2)
    member.controller.step()
    assert member.phase("a") == ("starting", False)
    assert member.controller.ledger.jobs["a"].failures == 0


def test_what_is_released_by_hand_while_there_is_no_lease_is_stopped_again(
    member: Member,
) -> None:
    member.renew()
    member.submit(job("a", gpus=64))
    member.pass_s(LEASE_S)
    member.controller.jobs.release("a")
    member.controller.step()
    member.pass_s(2)
    assert member.phase("a") == ("pending", True)


def test_jobs_are_taken_under_the_lease_that_holds_alone_and_once(member: Member) -> None:
    with pytest.raises(Conflict, match="lease 1 of federation f is not held here: none is"):
        member.submit(job("a"))
    member.renew()
    assert member.submit(job("a")) == member.submit(job("a"))
    with pytest.raises(Conflict, match="lease 2 of federation f is not held here"):
        member.submit(job("b"), lease=2)
    member.pass_s(LEASE_S)
    member.renew(2)
    with pytest.raises(Conflict, match="lease 1 of federation f is not held here"):
        member.submit(job("a"))  # a request that was under way for long, of what was taken, too
    rows = rows_of_federation(member.controller.ledger, "f")
    assert [(row["job"], row["assignment"]) for row in rows] == [("a", "f/a/1")]
    assert rows_of_federation(member.controller.ledger, "g") == []


def test_arrays_and_successors_are_no_jobs_of_a_federation(member: Member) -> None:
    member.renew()
    with pytest.raises(Unsupported, match="after: a job of a federation has none"):
        member.submit(job("a", after=("b",)))
    with pytest.raises(Unsupported, match="array: a job of a federation has none"):
        member.submit(replace(job("a"), array=((0, 3),)))


def test_a_daemon_without_the_file_of_the_lease_waits_for_a_front_and_then_stops_jobs(
    member: Member,
) -> None:
    member.renew()
    member.submit(job("a", gpus=64))
    (member.state_dir / FILE).unlink()
    member.crash()
    member.pass_s(WITHOUT_LEASE_S - 1)
    assert member.phase("a") == ("pending", False)
    member.pass_s(1)
    assert member.phase("a") == ("pending", True)
    member.renew()
    member.controller.step()
    assert member.phase("a") == ("pending", False)


def test_a_cluster_that_is_in_no_federation_takes_nothing_of_one(tmp_path: Path) -> None:
    site = cluster(leaves=1, nodes=1)
    controller = Controller(SqliteJournal(tmp_path), Policy(), RecordingCluster, site=site)
    controller.recover()
    submission = JobSubmission([job("a")], "/", assignment=Assignment("f", "a", 1, 1))
    (outcome,) = controller.submit_batch([submission])
    assert isinstance(outcome, Conflict)
    assert "no lease of federation f is held here" in str(outcome)
    controller.close()


def test_services_of_a_federation_and_of_the_cluster_stay_apart(member: Member) -> None:
    member.renew()

    def submit(name: str, number: int = 0, most: int = 3) -> None:
        spec = ServiceSpec(name, replace(job(name), priority="batch"), ReplicaCount(1, most))
        assignment = Assignment("f", name, number, 1) if number else None
        asked = JobSubmission((), "/", assignment=assignment, services=[spec])
        (outcome,) = member.controller.submit_batch([asked])
        if isinstance(outcome, GantreeError):
            raise outcome
        member.controller.step()

    submit("own")
    asked = JobSubmission(
        (), "/", assignment=Assignment("f", "own", 1, 1), services=[ServiceSpec("own", job("own"))]
    )
    with pytest.raises(BadInput, match="a service own is here"):
        member.controller.first_event(asked)  # the front asks for a forecast first
    with pytest.raises(BadInput, match="a service own is here that did not come from federation f"):
        submit("own", number=1)
    submit("chat", number=1)
    with pytest.raises(BadInput, match="chat came from federation f; submit it to the front"):
        submit("chat")
    submit("chat", number=2, most=4)
    service = member.controller.ledger.services["chat"]
    assert (service.spec.replica.assignment, service.spec.replicas.max) == ("f/chat/2", 4)
    assert service.revision == 1  # its replicas are as they were
