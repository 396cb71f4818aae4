"""Election by a Lease: who may take it, by whose clock, and what becomes of writes whose answers are lost."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gantree.executors.kubernetes.apiserver.connection import Connection
from gantree.executors.kubernetes.apiserver.lease import LOOK_EVERY_S, LeaseElection
from gantree.journal.sqlite import SqliteJournal
from gantree.model.errors import JournalError
from support.kubernetes.server.thread import Api, ServerThread

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
FOR_S = 15.0


class Stage:
    """A server, and daemons with a journal and a clock of their own each."""

    def __init__(self, place: Path, running: ServerThread) -> None:
        self.place, self.running, self.api = place, running, Api(running.url)
        self.now_s = 0.0
        self.open: list[LeaseElection | SqliteJournal] = []

    def daemon(self, name: str) -> LeaseElection:
        journal = SqliteJournal(self.place / name)
        election = LeaseElection(
            Connection(self.running.url), "gantree", journal, lambda: self.now_s
        )
        self.open += [election, journal]
        return election

    def later(self, seconds: float = LOOK_EVERY_S) -> None:
        self.now_s += seconds

    def spec(self) -> dict[str, object]:
        told: dict[str, object] = self.api.get(f"{LEASES}/gantree").json()["spec"]
        return told

    def fault(self, **told: object) -> None:
        faults = self.running.server.faults
        self.running.call(lambda: faults.add(resource="leases", **told))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ServerThread() as running:
        stage = Stage(tmp_path, running)
        yield stage
        for each in stage.open:
            each.close()
        stage.api.http.close()


def test_one_leads_and_gives_back_what_the_next_takes_at_once(stage: Stage) -> None:
    a, b = stage.daemon("a"), stage.daemon("b")
    epoch = a.lead("a", FOR_S)
    assert epoch == 1
    assert (b.lead("b", FOR_S), b.leader()[1]) == (None, "a")
    assert stage.spec()["leaseDurationSeconds"] == 15
    a.resign(epoch)
    stage.later()
    assert b.lead("b", FOR_S) == 1
    assert (stage.spec()["holderIdentity"], stage.spec()["leaseTransitions"]) == ("b", 1)
    assert a.renew(epoch, FOR_S) is False


def test_a_lease_that_is_not_renewed_may_be_taken_by_the_clock_of_who_looks(stage: Stage) -> None:
    a, b = stage.daemon("a"), stage.daemon("b")
    epoch = a.lead("a", FOR_S)
    assert epoch is not None
    assert b.lead("b", FOR_S) is None
    stage.later(FOR_S - 1)
    assert a.renew(epoch, FOR_S)
    assert b.lead("b", FOR_S) is None, "it was renewed meanwhile"
    stage.later(FOR_S - 1)
    assert b.lead("b", FOR_S) is None
    stage.later(LOOK_EVERY_S)
    assert b.lead("b", FOR_S) == 1
    assert a.renew(epoch, FOR_S) is False


def test_a_holder_that_starts_again_does_not_wait(stage: Stage) -> None:
    assert stage.daemon("a").lead("same", FOR_S) == 1
    assert stage.daemon("b").lead("same", FOR_S) == 1


@pytest.mark.parametrize("verb", ["create", "patch"])
def test_what_was_written_counts_though_its_answer_is_lost(stage: Stage, verb: str) -> None:
    a = stage.daemon("a")
    epoch = None if verb == "create" else a.lead("a", FOR_S)
    stage.fault(verb=verb, is_lost=True)
    act: Callable[[], object] = (
        (lambda: a.lead("a", FOR_S)) if epoch is None else (lambda: a.renew(epoch, FOR_S))
    )
    with pytest.raises(JournalError, match=r"lease default/gantree: .* does not answer"):
        act()
    stage.later()
    assert act()
    assert stage.spec()["holderIdentity"] == "a"


def test_of_two_that_take_it_at_the_same_time_one_leads(stage: Stage) -> None:
    """b writes between the look and the write of a."""
    a, b = stage.daemon("a"), stage.daemon("b")
    first = stage.daemon("c")
    epoch = first.lead("c", FOR_S)
    assert epoch is not None
    first.resign(epoch)
    look = a._look

    async def slow() -> object:
        found = await look()
        stage.api.patch(f"{LEASES}/gantree", {"spec": {"holderIdentity": "b"}})
        return found

    a._look = slow  # type: ignore[method-assign,assignment]  # the moment between two requests
    assert a.lead("a", FOR_S) is None
    assert b.lead("b", FOR_S) == 1


def test_one_that_somebody_deletes_is_made_anew(stage: Stage) -> None:
    a = stage.daemon("a")
    epoch = a.lead("a", FOR_S)
    assert epoch is not None
    assert stage.api.delete(f"{LEASES}/gantree").status_code == 200
    assert a.renew(epoch, FOR_S)
    assert stage.spec()["holderIdentity"] == "a"


def test_who_may_not_write_leases_is_told_so(stage: Stage) -> None:
    stage.fault(verb="create", code=403)
    with pytest.raises(JournalError, match="lease default/gantree: 403"):
        stage.daemon("a").lead("a", FOR_S)


def test_who_stands_by_asks_the_server_now_and_then(stage: Stage) -> None:
    a, b = stage.daemon("a"), stage.daemon("b")
    a.lead("a", FOR_S)
    b.lead("b", FOR_S)
    faults = stage.running.server.faults
    fault = stage.running.call(
        lambda: faults.add(verb="get", resource="leases", times=None, delay_s=0)
    )
    for _ in range(9):
        assert b.lead("b", FOR_S) is None
    assert fault.met == 0
    stage.later()
    assert b.lead("b", FOR_S) is None
    assert fault.met == 1
