"""Reports of routers: the load of a service is that of all, and a drain ends when no router has a request left."""

from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.control.services.router_reports import (
    MOST_ROUTERS,
    Drain,
    ReplicaReport,
    RouterReport,
    RouterReports,
    ServiceLoad,
    ServiceReport,
)
from support.examples import examples

SINCE, VERSION = 100.0, 40
DRAIN = Drain("chat", "chat.3", 1, SINCE, VERSION)


def report(
    router: str = "r1",
    at: float = 107.0,
    in_flight: int = 0,
    version: int | None = None,
    service: str = "chat",
    window_s: float = 5.0,
) -> RouterReport:
    """A report of a router with so many requests on the draining replica."""
    replicas = (ReplicaReport("chat.3", 1, in_flight), ReplicaReport("chat.4", 1, 7))
    services = (ServiceReport(service, replicas=replicas),)
    return RouterReport(router, window_s, at, services, version)


def is_drained(*told: RouterReport, now: float = 107.0) -> bool:
    """Whether the drain is over after these reports."""
    reports = RouterReports()
    for each in told:
        reports.take(each)
    return list(reports.drained([DRAIN], now)) == [DRAIN]


def test_a_drain_is_over_when_no_router_has_a_request_left() -> None:
    assert is_drained(report())
    assert is_drained(report("r1"), report("r2"))
    assert not is_drained(report("r1"), report("r2", in_flight=1))


def test_without_a_router_it_is_not() -> None:
    assert not is_drained()


def test_where_no_router_reports_nobody_waits_for_the_drain_of_a_replica_whose_place_is_taken() -> (
    None
):
    reports, drain = RouterReports(), replace(DRAIN, is_urgent=True)
    assert list(reports.drained([drain], 107.0)) == [drain]
    reports.take(report(in_flight=1))
    assert list(reports.drained([drain], 107.0)) == []


def test_a_router_of_other_services_says_nothing() -> None:
    assert not is_drained(report(service="other"))
    assert is_drained(report(), report("r2", service="other", in_flight=3))


def test_a_report_from_before_the_drain_was_known_says_nothing() -> None:
    assert not is_drained(report(at=104.9), now=105.0)
    assert is_drained(report(at=105.0), now=105.0)
    assert not is_drained(report(version=VERSION - 1))
    assert is_drained(report(at=100.5, version=VERSION), now=100.5)


def test_a_router_that_is_silent_for_three_windows_does_not_count() -> None:
    silent = report("r2", at=100.0, in_flight=1)
    assert not is_drained(silent, report(at=115.0), now=115.0)
    assert is_drained(silent, report(at=115.1), now=115.1)


def test_the_last_report_of_a_router_counts() -> None:
    assert is_drained(report(in_flight=5), report())
    assert not is_drained(report(), report(in_flight=5))


def test_another_attempt_of_the_replica_does_not_count() -> None:
    other = ServiceReport("chat", replicas=(ReplicaReport("chat.3", 2, 9),))
    assert is_drained(RouterReport("r1", 5.0, 107.0, (other,)))


def test_so_many_routers_are_remembered() -> None:
    reports = RouterReports()
    for number in range(MOST_ROUTERS + 10):
        reports.take(report(f"r{number}"))
    found = reports.lately(107.0)
    assert (len(found), found[0].router) == (MOST_ROUTERS, "r10")


rates = st.floats(0, 100)
latencies = st.none() | st.floats(0, 10)
parts = st.builds(
    ServiceReport,
    st.sampled_from(["chat", "other"]),
    *[st.integers(0, 9)] * 5,
    rates,
    rates,
    *[latencies] * 4,
    st.none() | rates,
)
told = st.builds(
    RouterReport,
    st.sampled_from(["r1", "r2", "r3"]),
    st.just(2.0),
    st.floats(0, 20),
    st.lists(parts, max_size=2, unique_by=lambda each: each.service).map(tuple),
)


def plain_load(every: list[RouterReport], now: float) -> ServiceLoad | None:
    """The load of chat, added up field by field."""
    newest = {each.router: each for each in every}
    counted = [each for each in newest.values() if now - each.at <= 6.0]
    found = [
        (each.at, part) for each in counted for part in each.services if part.service == "chat"
    ]
    if not found:
        return None
    values: dict[str, Any] = {"at": min(at for at, _ in found)}
    for field in [each.name for each in fields(ServiceLoad)][1:]:
        known = [value for _, part in found if (value := getattr(part, field)) is not None]
        is_quantile = "_p" in field and field != "tokens_per_s"
        total = max(known, default=None) if is_quantile else sum(known)
        values[field] = None if field == "tokens_per_s" and not known else total
    return ServiceLoad(**values)


@settings(max_examples=examples(200))
@given(st.lists(told, max_size=6), st.floats(0, 25))
def test_the_load_is_that_of_all_routers_together(every: list[RouterReport], now: float) -> None:
    reports = RouterReports()
    for each in every:
        reports.take(each)
    found, expected = reports.load("chat", now), plain_load(every, now)
    if found is None or expected is None:
        assert found == expected
        return
    for field in fields(ServiceLoad):
        one, other = getattr(found, field.name), getattr(expected, field.name)
        assert one == other or abs(one - other) < 1e-9, field.name
