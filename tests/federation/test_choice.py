"""Which cluster a job gets, and in what words."""

from typing import Any

import pytest

from gantree.federation.api.route_table import ClusterTable, divided, merged
from gantree.federation.jobs.choice import DataMove, Offer, chosen, move_of, offer_of, reason_of
from gantree.model.federation import ChooseBy, FederatedCluster, Federation, RegionLink

EAST = FederatedCluster("east", "http://e", None, "eu", frozenset({"imagenet"}))
WEST = FederatedCluster("west", "http://w", None, "us", price_factor=0.5)
SOUTH = FederatedCluster("south", "http://s", None, "af", frozenset({"imagenet"}))
LINKS = (
    RegionLink("eu", "us", 0.02, 1.0),
    RegionLink("af", "us", 0.08, 10.0),
    RegionLink("us", "eu", 0.02, 1.0),
)
WORLD = Federation("world", (EAST, WEST, SOUTH), LINKS)


def told(
    starts_in: float | None = None, *, now: bool = False, cost: float | None = None, never: str = ""
) -> dict[str, Any]:
    start = None if starts_in is None else {"starts_at": 100.0 + starts_in}
    refused = {"never": bool(never), "sentence": never} if never else None
    forecast = {"now": now, "start": start, "refused": refused, "cost_USD": cost}
    return {"asked_at": 100.0, "forecast": forecast}


def test_data_moves_from_where_that_is_cheapest_and_data_of_nobody_costs_nothing() -> None:
    assert move_of(WORLD, EAST, [("imagenet", 100.0)]) == DataMove()
    move = move_of(WORLD, WEST, [("imagenet", 100.0), ("unknown", 5.0)])
    assert pytest.approx(2.0) == move.USD
    assert move.seconds == pytest.approx(107.4, rel=0.01)  # 100 GiB are 107.4 GB, at 1 GB/s
    assert move.words == ("imagenet (100 GiB) from eu", "unknown, which no cluster has")


@pytest.mark.parametrize(
    ("east", "west", "by", "best"),
    [
        (told(now=True), told(now=True), ChooseBy.START, "east"),  # no data to move
        (told(3600.0), told(now=True), ChooseBy.START, "west"),  # moving takes less than waiting
        (told(50.0), told(now=True), ChooseBy.START, "east"),
        (told(), told(9000.0), ChooseBy.START, "west"),  # a known start before an unknown one
        (told(now=True, cost=10.0), told(now=True, cost=12.0), ChooseBy.COST, "west"),
        (told(now=True, cost=7.0), told(now=True, cost=12.0), ChooseBy.COST, "east"),
        (told(never="too large"), told(9000.0), ChooseBy.START, "west"),
        (told(now=True), told(now=True), ChooseBy.COST, "east"),  # prices unknown: the start
    ],
)
def test_the_first_or_the_cheapest_with_the_move_counted(
    east: dict[str, Any], west: dict[str, Any], by: ChooseBy, best: str
) -> None:
    data = [("imagenet", 100.0)]
    offers = [offer_of(WORLD, "east", data, east), offer_of(WORLD, "west", data, west)]
    found = chosen(offers, by)
    assert found is not None
    assert found.cluster == best


def test_nobody_gets_what_nobody_can_ever_start() -> None:
    assert chosen([Offer("east", None, refusal="too large")], ChooseBy.START) is None


def test_the_reason_has_the_figures_of_each_cluster() -> None:
    offers = [
        offer_of(WORLD, "east", [("imagenet", 100.0)], told(2400.0, cost=10.0)),
        offer_of(WORLD, "west", [("imagenet", 100.0)], told(now=True, cost=12.0)),
        offer_of(WORLD, "south", [], told(never="a member needs 8 GPUs; nodes have 4")),
        offer_of(WORLD, "south", [], told()),
    ]
    assert reason_of(offers, offers[1], ChooseBy.COST) == (
        "west has the lowest cost: east starts it in 40 min, costs 10.00 USD; west starts it at once, moves imagenet"
        " (100 GiB) from eu: 2 min, 2.00 USD, costs 8.00 USD; south cannot start it (a member needs 8 GPUs; nodes have"
        " 4); south starts it at an unknown time"
    )


def replica(name: str, **fields: Any) -> dict[str, Any]:
    row = {"replica": name, "attempt": 1, "place": ["s0", "n0"], "ready": True}
    return row | fields


def test_tables_are_merged_with_the_region_as_widest_domain() -> None:
    chat = {"service": "chat", "wanted": 1, "models": ["m"], "replicas": [replica("chat.1")]}
    rows = merged(
        WORLD,
        [
            ClusterTable("east", "7", (chat,), is_reachable=True),
            ClusterTable("west", "3", (chat,), is_reachable=False),
        ],
    )
    assert rows == [
        {
            "service": "chat",
            "wanted": 1,
            "models": ["m"],
            "replicas": [
                replica("east/chat.1", place=["eu", "eu/east", "s0", "n0"]),
                replica("west/chat.1", place=["us", "us/west", "s0", "n0"], ready=False),
            ],
        }
    ]


def of_replica(name: str, requests: int = 0, in_flight: int = 0) -> dict[str, Any]:
    return {
        "replica": name,
        "attempt": 1,
        "requests": requests,
        "in_flight": in_flight,
        "errors": 0,
    }


def report(*replicas: dict[str, Any], **counts: float) -> dict[str, Any]:
    row = {
        "service": "chat", "requests": 0, "errors": 0, "shed": 0, "in_flight": 0, "queued": 0, "concurrency": 0.0,
        "rate": 0.0, "latency_p50_s": 0.2, "latency_p99_s": 0.9, "ttft_p99_s": 0.1, "itl_p99_s": None,
        "tokens_per_s": None, "replicas": list(replicas),
    }  # fmt: skip
    return {"router": "r", "window_s": 5.0, "version": "9", "services": [{**row, **counts}]}


def parts(told: dict[str, Any], *unreachable: str) -> dict[str, dict[str, Any]]:
    """The parts of east and west, which have the service; south has another one."""
    service = {"service": "chat", "replicas": []}
    tables = [
        ClusterTable(name, version, rows, is_reachable=name not in unreachable)
        for name, version, rows in (
            ("east", "7", (service,)),
            ("west", "3", (service,)),
            ("south", "5", ({"service": "other", "replicas": []},)),
        )
    ]
    found = divided(told, tables)
    assert {name: each["version"] for name, each in found.items()} == {
        each.cluster: each.version for each in tables if each.is_reachable
    }
    assert found["south"]["services"] == []
    return {name: each["services"][0] for name, each in found.items() if name != "south"}


def test_a_report_is_divided_by_the_requests_on_the_replicas_of_each_cluster() -> None:
    east, west = of_replica("east/chat.1", 30, 1), of_replica("west/chat.4", 10, 3)
    found = parts(report(east, west, requests=40, in_flight=4, queued=1, concurrency=8.0, rate=8.0))
    keys = ("requests", "rate", "in_flight", "queued", "concurrency")
    assert [found["east"][key] for key in keys] == [30, 6.0, 1, 1, 2.0]
    assert [found["west"][key] for key in keys] == [10, 2.0, 3, 1, 6.0]
    assert found["west"]["replicas"] == [of_replica("chat.4", 10, 3)]
    assert found["west"]["latency_p99_s"] == 0.9


def test_what_takes_longer_than_a_window_loads_the_cluster_that_works_on_it() -> None:
    found = parts(report(of_replica("east/chat.1", 0, 8), of_replica("west/chat.4"), concurrency=8))
    assert (found["east"]["concurrency"], found["west"]["concurrency"]) == (8.0, 0.0)
    assert (found["east"]["latency_p99_s"], found["west"]["latency_p99_s"]) == (0.9, None)


def test_a_request_that_waits_for_a_first_replica_is_reported_to_the_first_cluster() -> None:
    waits = report(queued=1, concurrency=1.0)
    found = parts(waits)
    assert [found[name]["queued"] for name in ("east", "west")] == [1, 0]
    assert parts(waits, "east")["west"]["queued"] == 1
