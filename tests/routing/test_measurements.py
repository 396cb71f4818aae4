"""What a report says of requests that have ended: counts, and times of those that were served."""

import random

import pytest

from gantree.routing.measurements import Measurements, Now, Record, quantile
from gantree.routing.table import RoutedReplica, RoutedService, RouteTable

REPLICA = RoutedReplica("chat.1", 1, "127.0.0.1", 8000)
TABLE = RouteTable((RoutedService("chat", replicas=(REPLICA,)),), version="1")


def ended(total_s: float, status: int = 200, *, is_broken_off: bool = False) -> Record:
    server = REPLICA.server
    return Record("chat", server, status, 0.1, total_s, 0, "closest", False, is_broken_off)


def test_times_are_those_of_requests_that_were_served() -> None:
    measurements = Measurements(random.Random(0))
    for each in (ended(0.2), ended(9.0, 500), ended(9.0, is_broken_off=True), ended(0.4)):
        measurements.record(each)
    report = measurements.report("r1", TABLE, Now({}, {}), 2.0)
    (row,) = report["services"]
    assert (row["requests"], row["errors"], row["shed"], row["rate"]) == (4, 2, 0, 2.0)
    assert (row["latency_p50_s"], row["latency_p99_s"]) == (0.4, 0.4)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_a_quantile_has_its_share_of_the_values_below_it(share: float, value: int) -> None:
    assert quantile(range(1, 101), share) == value
