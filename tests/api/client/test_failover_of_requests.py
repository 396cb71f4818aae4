"""The way of a request past several daemons: who is asked next, and what is never sent twice."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from gantree.api.client import requests
from gantree.api.client.failover import RETRY_WITHIN_S, Failover
from gantree.api.client.request import Request
from gantree.api.client.target import NotSent, Target, targets
from gantree.api.http.unix_socket import present
from gantree.model.errors import Conflict, JournalError, NotLeading

TWO = targets("http://a:1,http://b:2")
READ = requests.jobs()
KEYED = requests.submit("x", idempotency_key="k")
WISH = requests.cancel("j")
REFUSED = NotSent(ConnectionRefusedError())


def failover(request: Request[Any], at: tuple[Target, ...] = TWO) -> Failover:
    return Failover(at, 0, request, lambda: 0.0)


def test_each_is_asked_in_turn_with_a_pause_after_all() -> None:
    way = failover(WISH)
    assert [way.pause_s(REFUSED), way.place] == [0.0, 1]
    assert [way.pause_s(NotLeading("b stands by")), way.place] == [0.2, 0]


@pytest.mark.parametrize("error", [ConnectionResetError(), TimeoutError(), JournalError("cut off")])
def test_what_may_have_been_done_is_sent_again_only_where_that_does_no_harm(
    error: Exception,
) -> None:
    assert failover(READ).pause_s(error) is not None
    assert failover(KEYED).pause_s(error) is not None
    assert failover(WISH).pause_s(error) is None
    assert failover(requests.submit("x")).pause_s(error) is None


def test_what_is_wrong_with_the_request_or_the_certificate_is_not_asked_of_another() -> None:
    assert failover(READ).pause_s(Conflict("it has ended")) is None
    assert failover(READ).pause_s(NotSent(ssl.SSLCertVerificationError())) is None


def test_it_is_given_up_after_a_while() -> None:
    now = [0.0]
    way = Failover(TWO, 0, READ, lambda: now[0])
    assert way.pause_s(REFUSED) is not None
    now[0] = RETRY_WITHIN_S
    assert way.pause_s(REFUSED) is None


def test_one_daemon_alone_is_asked_once(tmp_path: Path) -> None:
    assert failover(READ, targets("http://a:1")).pause_s(REFUSED) is None
    assert failover(READ, targets(tmp_path)).pause_s(REFUSED) is None
    with present(tmp_path):
        assert failover(READ, targets(tmp_path)).pause_s(REFUSED) is not None
    assert failover(READ, targets(tmp_path)).pause_s(REFUSED) is None


def test_one_that_is_too_slow_is_passed_over_for_a_while_and_then_has_more_time() -> None:
    now = [0.0]
    way = Failover(TWO, 0, READ, lambda: now[0])
    assert way.timeout_s(60.0) == 4.0
    way.pause_s(TimeoutError())
    asked = []
    for _ in range(8):
        asked.append(way.place)
        now[0] += 1.0
        way.pause_s(NotLeading("b stands by: a leads"))
    assert asked == [1, 1, 1, 1, 1, 0, 1, 0]
    assert way.timeout_s(60.0) == 8.0


def test_an_answer_is_waited_for_in_full_where_nobody_else_answers_or_it_must_not_be_sent_again() -> (
    None
):
    assert failover(READ, targets("http://a:1")).timeout_s(60.0) == 60.0
    assert failover(WISH).timeout_s(60.0) == 60.0
    assert failover(requests.job("j", wait_s=30.0)).timeout_s(60.0) == 34.0


def test_it_is_looked_first_if_anybody_is_there_where_the_answer_takes_its_time() -> None:
    waits, follows = requests.job("j", wait_s=30.0), requests.events()
    assert failover(waits).probes_first and Failover(TWO, 0, follows).probes_first
    assert not failover(READ).probes_first
    assert not failover(waits, targets("http://a:1")).probes_first
