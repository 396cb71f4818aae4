"""Limits of connections, with a clock of the test: which one gives way, whose time is over, what descriptors allow."""

import pytest

from gantree.api.http.connections import (
    Connection,
    ConnectionLimits,
    Connections,
    Phase,
    socket_limits,
    tcp_limits,
)
from gantree.model.errors import BadInput


class Site:
    """Connections that say when they are ended, by the name of their peer and a number."""

    def __init__(self, most: int, most_of_peer: int) -> None:
        self.now = 0.0
        self.connections = Connections(
            ConnectionLimits(most, most_of_peer, head_within_s=10.0), lambda: self.now
        )
        self.ended: list[str] = []
        self._count = 0

    def connect(self, peer: str) -> Connection | None:
        """One more."""
        made = self.connections.admit(peer)
        if made is not None:
            self._count += 1
            name = f"{peer}{self._count}"
            made.end = lambda: self.ended.append(name)
        return made

    def connected(self, peer: str) -> Connection:
        made = self.connect(peer)
        assert made is not None
        return made


def test_at_the_limit_of_an_address_its_oldest_gives_way_and_no_other_address_notices() -> None:
    site = Site(most=10, most_of_peer=2)
    for peer in ("a", "b", "a", "a", "a"):
        site.connected(peer)
    assert site.ended == ["a1", "a3"]
    assert len(site.connections) == 3


def test_at_the_limit_of_all_the_oldest_stranger_gives_way() -> None:
    site = Site(most=3, most_of_peer=3)
    site.connected("a").authenticate()
    for peer in ("b", "c", "d"):
        site.connected(peer)
    assert site.ended == ["b2"]


def test_who_is_waiting_for_an_answer_gives_way_after_those_that_asked_nothing() -> None:
    site = Site(most=3, most_of_peer=3)
    site.connected("a").enter(Phase.ANSWER)
    site.connected("b").enter(Phase.BODY)
    site.connected("c")
    site.connected("d")
    assert site.ended == ["b2"]
    site.connected("e")
    site.connected("f").enter(Phase.ANSWER)
    assert site.ended == ["b2", "c3", "d4"]


def test_who_has_shown_credentials_gives_way_to_nobody() -> None:
    site = Site(most=2, most_of_peer=1)
    for _ in range(2):
        site.connected("a").authenticate()
    assert site.connect("b") is None
    assert site.ended == []
    assert site.connections.ended == {"refused": 1}


def test_a_connection_that_has_ended_counts_no_more() -> None:
    site = Site(most=1, most_of_peer=1)
    site.connected("a").release()
    site.connected("a")
    assert site.ended == []


@pytest.mark.parametrize(
    ("phase", "is_stranger", "within_s"),
    [
        (Phase.NEW, True, 10.0),
        (Phase.HEAD, True, 10.0),
        (Phase.HEAD, False, 10.0),
        (Phase.IDLE, False, 10.0),
        (Phase.BODY, True, 40.0),
        (Phase.BODY, False, 40.0),
        (Phase.ANSWER, True, 40.0),
        (Phase.ANSWER, False, None),
    ],
)
def test_each_phase_has_its_time(phase: Phase, is_stranger: bool, within_s: float | None) -> None:
    site = Site(most=1, most_of_peer=1)
    connection = site.connected("a")
    site.now = 5.0
    connection.enter(phase)
    if not is_stranger:
        connection.authenticate()
    if phase is Phase.NEW:
        site.now = 0.0
        connection.enter(phase)
    begun = site.now
    site.now = begun + (within_s or 1e9) - 0.1
    assert site.connections.overdue() == []
    if within_s is not None:
        site.now = begun + within_s
        assert site.connections.overdue() == [connection]


@pytest.mark.parametrize(
    ("descriptors", "over_tcp", "of_address", "over_socket"),
    [(300, 129, 32, 43), (1024, 576, 144, 192), (20_000, 4096, 1024, 3750), (64, 24, 6, 8)],
)
def test_the_limits_follow_from_the_descriptors_and_leave_some_for_the_engine(
    descriptors: int, over_tcp: int, of_address: int, over_socket: int
) -> None:
    tcp, unix = tcp_limits(descriptors), socket_limits(descriptors, for_all=False)
    assert (tcp.most, tcp.most_of_peer) == (over_tcp, of_address)
    assert (unix.most, unix.most_of_peer) == (over_socket, over_socket)
    assert socket_limits(descriptors, for_all=True).most_of_peer == over_socket // 4


def test_more_connections_than_descriptors_allow_are_refused_with_the_way_out() -> None:
    assert tcp_limits(300, 100).most == 100
    with pytest.raises(BadInput, match=r"300, which leaves 129 .*ulimit -Hn"):
        tcp_limits(300, 500)
