"""When the lease of a federation holds in its cluster, whatever the network does to renewals."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.federation.lease import Lease, check_assignment, renewed
from gantree.model.errors import Conflict
from gantree.model.federation import Renewal, Stamp
from support.examples import examples

LEASE_S = 60.0


def at(seconds: float, boot: str = "b") -> Stamp:
    return Stamp(boot, seconds)


def renewal(number: int = 1, stamp: Stamp | None = None, federation: str = "f") -> Renewal:
    return Renewal(federation, number, LEASE_S, stamp)


HELD = Lease("f", 3, LEASE_S, at(160.0))


def test_a_renewal_counts_from_the_stamp_and_not_from_its_arrival() -> None:
    lease = renewed(None, renewal(stamp=at(100.0)), at(130.0))
    assert lease.remaining_s(at(130.0)) == 30.0
    assert not lease.is_valid(at(160.0))
    assert lease.is_running_out(at(130.0))


def test_without_a_stamp_nothing_is_renewed_and_no_number_is_taken() -> None:
    assert not renewed(None, renewal(), at(0.0)).is_valid(at(0.0))
    assert renewed(HELD, renewal(3), at(101.0)) == HELD
    assert renewed(HELD, renewal(4), at(161.0)) == HELD


def test_a_late_renewal_shortens_nothing_and_one_of_another_boot_does_nothing() -> None:
    assert renewed(HELD, renewal(3, at(50.0)), at(101.0)) == HELD
    assert renewed(HELD, renewal(3, at(150.0, "other")), at(101.0)) == HELD
    assert not HELD.is_valid(at(0.0, "other"))


@pytest.mark.parametrize(
    ("asked", "now", "sentence"),
    [
        (renewal(2, at(160.0)), 200.0, "lease 2 is over: this cluster has seen lease 3"),
        (renewal(4, at(150.0)), 150.0, "lease 4 comes too early: lease 3 holds, its lease ends in"),
        (renewal(9, at(150.0), "g"), 150.0, "this cluster is in federation f; its lease ends in"),
    ],
)
def test_older_and_foreign_and_early_leases_are_refused(
    asked: Renewal, now: float, sentence: str
) -> None:
    with pytest.raises(Conflict, match=sentence):
        renewed(HELD, asked, at(now))


def test_after_its_end_a_lease_may_have_another_number_or_belong_to_another_federation() -> None:
    assert renewed(HELD, renewal(4, at(160.0)), at(160.0)).until == at(220.0)
    assert renewed(HELD, renewal(1, at(160.0), "g"), at(160.0)).federation == "g"


@pytest.mark.parametrize(
    ("federation", "number", "now", "sentence"),
    [
        ("f", 2, 110.0, "lease 2 of federation f is not held here: lease 3 of federation f is"),
        ("f", 4, 110.0, "lease 4 of federation f is not held here"),
        ("g", 3, 110.0, "lease 3 of federation g is not held here"),
        ("f", 3, 130.0, "lease 3 of federation f runs out"),
    ],
)
def test_a_job_is_taken_under_the_lease_that_holds_alone(
    federation: str, number: int, now: float, sentence: str
) -> None:
    check_assignment(HELD, "f", 3, at(110.0))
    with pytest.raises(Conflict, match=sentence):
        check_assignment(HELD, federation, number, at(now))


@dataclass
class Exchange:
    """A front that renews, a network that keeps messages for any time, in any order, and the cluster."""

    now: float = 0.0
    lease: Lease | None = None
    believed_until: float = 0.0
    stamp: Stamp | None = None
    under_way: list[Renewal] = field(default_factory=list)
    answers: list[Stamp] = field(default_factory=list)

    def send(self) -> None:
        self.under_way.append(renewal(stamp=self.stamp))
        if self.stamp is not None:
            self.believed_until = self.now + LEASE_S

    def deliver(self, which: int) -> None:
        if self.under_way:
            asked = self.under_way[which % len(self.under_way)]  # it may come again
            self.lease = renewed(self.lease, asked, at(self.now + 1000.0))
            self.answers.append(at(self.now + 1000.0))

    def answer(self, which: int) -> None:
        if self.answers:
            self.stamp = self.answers[which % len(self.answers)]


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["send", "deliver", "answer"]),
            st.integers(0, 5),
            st.floats(0.0, 50.0),
        ),
        max_size=60,
    )
)
def test_the_cluster_never_holds_a_lease_for_longer_than_the_front_believes(
    steps: list[tuple[str, int, float]],
) -> None:
    exchange = Exchange()
    for kind, which, pause_s in steps:
        exchange.now += pause_s
        if kind == "send":
            exchange.send()
        elif kind == "deliver":
            exchange.deliver(which)
        else:
            exchange.answer(which)
        if exchange.lease is not None and exchange.lease.until.boot:
            assert exchange.lease.until.at_s - 1000.0 <= exchange.believed_until
