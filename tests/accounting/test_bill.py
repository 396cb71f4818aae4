"""The bill of a period: who pays what, and that the lines add up to the price of all capacity."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gantree.accounting.billing.bill import MICROS, NOBODY, Bill, BookRow, Owner, bill
from gantree.accounting.billing.distribution import divided, rounded
from gantree.accounting.billing.tariff import Rule, StoragePrice, Tariff, Window
from gantree.accounting.buckets import DAY_S, HOUR_S, Bucket
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.topology.hardware.prices import Market, PriceList, Quote
from support.examples import examples

START = 1_793_577_600
"""2026-11-02, a Monday."""
RULES: tuple[Rule, ...] = ("even", "weighted", "none")


def quote(gpu: str, USD: float, market: Market = "on_demand") -> Quote:
    return Quote(gpu, market, USD, "2026-01-01", "x")


PRICES = PriceList([quote("H100-80GB", 4), quote("H100-80GB", 1, "owned"), quote("L4-24GB", 1)])
TARIFF = Tariff(PRICES)
ANN, BOB, CAT = ("research", "ann", "p1"), ("research", "bob", ""), ("prod", "cat", "p2")


def capacity(gpus: float, model: str = "H100-80GB", hour: int = 0, **others: float) -> BookRow:
    amounts = UsageAmounts(capacity_gpu_s=gpus * HOUR_S)
    for name, hours in others.items():
        setattr(amounts, f"{name}_gpu_s", hours * HOUR_S)
    return BookRow(Bucket(HOUR_S, START + hour * HOUR_S), UsageKey("", "", model), amounts)


def held(
    owner: tuple[str, str, str],
    gpus: float,
    model: str = "H100-80GB",
    hour: int = 0,
    slower: float = 0,
) -> BookRow:
    queue, user, project = owner
    amounts = UsageAmounts(allocated_gpu_s=gpus * HOUR_S, slower_gpu_s=slower * HOUR_S)
    bucket = Bucket(HOUR_S, START + hour * HOUR_S)
    return BookRow(bucket, UsageKey(queue, user, model, project), amounts)


def made(rows: Iterable[BookRow], tariff: Tariff = TARIFF) -> Bill:
    return bill(rows, tariff, {}, START, START + 2 * DAY_S)


def dollars(found: Bill, **wanted: object) -> float:
    lines = [
        line
        for line in found.lines
        if all(getattr(line, name) == value for name, value in wanted.items())
    ]
    return sum(line.micros for line in lines) / MICROS


DAY = [capacity(16, down=2, reserved=1), held(ANN, 6), held(BOB, 2, slower=0.5), held(CAT, 4)]


@pytest.mark.parametrize(
    ("rule", "ann", "bob", "cat", "nobody"),
    [
        # 64 dollars of GPUs: 48 held less 2 of discount, 18 shared
        ("none", 24, 6, 16, 18),
        ("weighted", 24 + 9, 6 + 3, 16 + 6, 0),
        ("even", 24 + 6.75, 6 + 2.25, 16 + 9, 0),
    ],
)
def test_who_pays_for_what_nobody_held(
    rule: Rule, ann: float, bob: float, cat: float, nobody: float
) -> None:
    found = made(DAY, replace(TARIFF, rule=rule))
    owners = [Owner(*ANN), Owner(*BOB), Owner(*CAT), NOBODY]
    assert [dollars(found, owner=owner) for owner in owners] == [ann, bob, cat, nobody]
    assert dollars(found) == 64 == found.capacity_micros / MICROS


def test_a_queue_that_held_cores_alone_has_an_even_share_only_where_nobody_held_gpus() -> None:
    tariff = replace(TARIFF, rule="even", USD_per_core_hour=1.0)
    cores = BookRow(Bucket(HOUR_S, START), UsageKey("etl", "", ""), UsageAmounts(cpu_s=4 * HOUR_S))
    shared = [
        dollars(
            made([*rows, cores], tariff), charge="shared", owner=Owner("etl"), model="H100-80GB"
        )
        for rows in (DAY, [capacity(1)])
    ]
    assert shared == [0, 4]


def test_shared_cost_says_what_it_is_of() -> None:
    day = [*DAY, capacity(4, held=1, stranded=0.5)]
    found = made(day, replace(TARIFF, rule="none"))
    told = {line.cause: line.micros / MICROS for line in found.lines if line.charge == "shared"}
    assert told == {
        "down": 8, "reserved": 4, "held": 4, "stranded": 2, "discounts": 2, "free": 4 + 10,
    }  # fmt: skip


def test_a_slower_place_is_cheaper() -> None:
    found = made(DAY)
    assert dollars(found, owner=Owner(*BOB), charge="gpu") == 8
    assert dollars(found, owner=Owner(*BOB), charge="slower") == -2


def test_the_price_is_that_of_the_hour() -> None:
    night = Window("night", 0, 60, factor=0.5)
    rows = [row for hour in (0, 1) for row in (capacity(2, hour=hour), held(ANN, 2, hour=hour))]
    found = made(rows, replace(TARIFF, windows=(night,)))
    assert dollars(found, charge="gpu") == 2 * 2 + 2 * 4
    (line,) = found.lines
    assert line.list_micros == 16 * MICROS


def test_cores_cost_what_their_hour_costs_by_the_factor_of_its_window() -> None:
    night = Window("night", 0, 60, factor=0.5, USD_of_model={"H100-80GB": 9.0})
    tariff = replace(TARIFF, windows=(night,), USD_per_core_hour=1.0)
    rows = [
        BookRow(
            Bucket(HOUR_S, START + hour * HOUR_S),
            UsageKey(*ANN[:2], ""),
            UsageAmounts(cpu_s=2 * HOUR_S),
        )
        for hour in (0, 1)
    ]
    assert dollars(made(rows, tariff), charge="cpu") == 2 * 0.5 + 2 * 1.0


def test_a_model_on_two_markets_costs_the_mean_and_says_both() -> None:
    markets = {"H100-80GB": (("owned", 0.75), ("on_demand", 0.25))}
    rows = [capacity(8), held(ANN, 8)]
    found = bill(rows, TARIFF, markets, START, START + DAY_S)  # type: ignore[arg-type]  # literals
    assert dollars(found) == 8 * (0.75 * 1 + 0.25 * 4)
    assert {line.market for line in found.lines} == {"owned", "on_demand"}


def test_a_model_without_a_price_costs_nothing_and_is_named() -> None:
    found = made([capacity(8, "T4-16GB"), held(ANN, 3, "T4-16GB"), *DAY])
    assert found.unpriced_hours == {"T4-16GB": (3, 8)}
    assert dollars(found) == 64


def test_cores_memory_and_storage_are_paid_where_they_have_prices() -> None:
    storage = StoragePrice(0.1, {"research": 1000})
    tariff = replace(TARIFF, USD_per_core_hour=0.05, USD_per_GiB_hour=0.01, storage=storage)
    key, bucket = UsageKey(*ANN[:2], "H100-80GB", ANN[2]), Bucket(HOUR_S, START)
    rows = [
        *DAY,
        BookRow(bucket, UsageKey("", "", "H100-80GB"),
                UsageAmounts(capacity_cpu_s=100 * HOUR_S, capacity_memory_GiB_s=1000 * HOUR_S)),
        BookRow(bucket, key, UsageAmounts(cpu_s=40 * HOUR_S, memory_GiB_s=300 * HOUR_S)),
    ]  # fmt: skip
    found = bill(rows, tariff, {}, START, START + DAY_S)
    assert dollars(found, charge="cpu") == 2
    assert dollars(found, charge="memory") == 3
    assert dollars(found, cause="idle") == 3 + 7
    stored = dollars(found, charge="storage", owner=Owner("research"))
    assert stored == pytest.approx(1000 * 0.1 * 24 / 730.5, abs=1e-6)
    assert dollars(found) == pytest.approx(64 + 5 + 10 + stored)


_hours = st.floats(0, 24 * 10_000, allow_nan=False)
_share = st.floats(0, 1)
_model = st.sampled_from(["H100-80GB", "L4-24GB"])


@st.composite
def books(draw: st.DrawFn) -> list[BookRow]:
    """Rows of which no hour of a day and model is in two purposes."""
    rows = []
    for hour in draw(st.lists(st.integers(0, 40), max_size=5, unique=True)):
        model, there = draw(_model), draw(_hours)
        left, parts = there, dict[str, float]()
        for name in ("down", "held", "reserved", "stranded"):
            parts[name] = left * draw(_share)
            left -= parts[name]
        rows.append(capacity(there, model, hour, **parts))
        for owner in draw(st.lists(st.sampled_from([ANN, BOB, CAT]), unique=True)):
            gpus = left * draw(_share)
            left -= gpus
            rows.append(held(owner, gpus, model, hour, slower=gpus * draw(_share)))
    return rows


@given(books(), st.sampled_from(RULES))
@settings(max_examples=examples(400))
def test_the_lines_add_up_to_the_price_of_all_capacity(rows: list[BookRow], rule: Rule) -> None:
    found = made(rows, replace(TARIFF, rule=rule))
    assert sum(line.micros for line in found.lines) == found.capacity_micros
    price = {"H100-80GB": 4, "L4-24GB": 1}
    USD = sum(row.amounts.capacity_gpu_s / HOUR_S * price[row.key.model] for row in rows)
    assert found.capacity_micros == pytest.approx(USD * MICROS, rel=1e-9, abs=len(rows))
    users = [line for line in found.lines if line.owner != NOBODY]
    if rule != "none" and any(line.charge == "gpu" and line.micros for line in users):
        assert sum(line.micros for line in users) == found.capacity_micros


@given(st.integers(-(10**15), 10**15), st.lists(st.floats(0, 1e12), min_size=1, max_size=20))
@settings(max_examples=examples(300))
def test_parts_add_up(amount: int, weights: list[float]) -> None:
    parts = divided(amount, weights)
    assert sum(parts) == amount
    assert all(part * amount >= 0 for part in parts)
    total = sum(weights)
    for part, weight in zip(parts, weights, strict=True):
        if total:
            assert part == pytest.approx(amount * weight / total, abs=1 + abs(amount) * 1e-9)


@given(st.lists(st.integers(-(10**9), 10**9), min_size=1, max_size=20))
@settings(max_examples=examples(300))
def test_what_is_printed_adds_up_to_the_printed_sum(amounts: list[int]) -> None:
    cents = rounded(amounts, 10_000)
    assert sum(cents) == round(sum(amounts) / 10_000)
    assert all(
        abs(cent * 10_000 - amount) <= 10_000 for cent, amount in zip(cents, amounts, strict=True)
    )
