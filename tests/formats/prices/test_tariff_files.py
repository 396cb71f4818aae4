"""What prices.yaml says beyond prices by GPU model: markets, times of day, own GPUs, power, storage."""

import pytest

from gantree.accounting.billing.tariff import DAY_S, NodeGroup, market_shares
from gantree.formats.prices.reader import read_tariff
from gantree.model.errors import BadFields

FILE = """\
time_zone: Europe/Berlin
gpus:
  H100-80GB: {on_demand: 4, reserved: 2.5, source: contract 7, date: 2026-10-01}
  A100-80GB:
    owned: {USD: 21912, years: 2, residual_USD: 4380, upkeep_USD_per_year: 876}
    source: ours
    date: 2026-10-01
windows:
  - {name: night, begin: "20:00", end: "06:00", days: mon-fri, factor: 0.5}
  - {name: weekend, days: [sat, sun], gpus: {H100-80GB: 1}}
cpu_core: 0.04
memory_GiB: 0.005
storage: {USD_per_GiB_month: 0.08, GiB: {research: 20000}}
markets:
  - {market: owned, labels: {pool: own}}
  - {market: reserved, labels: {contract: "7"}}
power: {USD_per_kWh: 0.1, gCO2_per_kWh: 380, pue: 1.25, load: 0.8, source: the meter of hall 3}
shared_cost: even
"""
MONDAY = 1_793_577_600
"""2026-11-02 00:00 UTC, 01:00 in Berlin."""
HOUR = 3600


def test_prices_by_market_and_hour_of_the_site() -> None:
    tariff = read_tariff(FILE, "prices.yaml")

    def price(hour: float, width: int = HOUR, day: int = 0) -> float | None:
        start = MONDAY + day * DAY_S + int(hour * HOUR)
        return tariff.USD_per_hour("H100-80GB", "on_demand", start, width)

    assert price(12) == 4
    assert price(19) == 2  # 20:00 in Berlin
    assert price(18.75) == pytest.approx(2.5)  # a quarter before, three quarters in it
    assert price(0, day=1) == 2  # Tuesday 01:00, of Monday's night
    assert (
        price(23, day=-1) == 4
    )  # Monday 00:00 is of no night: Sunday's days are those of the weekend
    assert price(12, day=5) == 1
    assert price(0, DAY_S, day=1) == pytest.approx((14 * 4 + 10 * 2) / 24)
    assert tariff.USD_per_hour("H100-80GB", "spot", MONDAY, HOUR) is None
    assert tariff.factor(MONDAY + 20 * HOUR, HOUR) == 0.5


def test_an_hour_is_that_of_the_clock_when_summer_ends() -> None:
    """On 2026-10-25 Berlin's clocks go back at 01:00 UTC: 05:30 UTC is 06:30 there, 04:30 on the day before."""
    file = FILE.replace("days: mon-fri, ", "").replace("days: [sat, sun]", "days: mon")
    tariff = read_tariff(file, "prices.yaml")
    day = MONDAY - 8 * DAY_S
    assert tariff.USD_per_hour("H100-80GB", "on_demand", day - DAY_S + 4 * HOUR, HOUR) == 4
    assert tariff.USD_per_hour("H100-80GB", "on_demand", day + 4 * HOUR, HOUR) == 2
    assert tariff.USD_per_hour("H100-80GB", "on_demand", day + 5 * HOUR, HOUR) == 4


def test_an_own_gpu_costs_depreciation_upkeep_and_power_by_the_hour() -> None:
    tariff = read_tariff(FILE, "prices.yaml")
    owned = tariff.owned["A100-80GB"]
    assert owned.depreciation == pytest.approx((21912 - 4380) / (2 * 8760))
    assert owned.upkeep == pytest.approx(0.1)
    assert owned.power == pytest.approx(400 * 0.8 * 1.25 / 1000 * 0.1)
    quote = tariff.prices.quote("A100-80GB", "owned")
    assert quote is not None
    assert quote.USD_per_hour == pytest.approx(owned.USD_per_hour)


def test_nodes_are_of_the_market_that_their_labels_say_else_of_spot_or_on_demand() -> None:
    tariff = read_tariff(FILE, "prices.yaml")
    groups = [
        NodeGroup("A", 8, labels=(("pool", "own"),)),
        NodeGroup("A", 16, labels=(("contract", "7"), ("pool", "b"))),
        NodeGroup("A", 8, is_spot=True),
        NodeGroup("B", 4),
    ]
    assert market_shares(groups, tariff) == {
        "A": (("reserved", 0.5), ("owned", 0.25), ("spot", 0.25)),
        "B": (("on_demand", 1.0),),
    }
    assert tariff.label_names == ("pool", "contract")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("Europe/Berlin", "Europe/Berlim", 1, "time_zone", "a time zone such as"),
        ("Europe/Berlin", "../etc/passwd", 1, "time_zone", "a time zone such as"),
        ('"20:00"', '"20:10"', 9, "windows[0].begin", "quarters of an hour"),
        ('"06:00"', '"20:00"', 9, "windows[0].end", "another time"),
        ('"20:00"', '"24:00"', 9, "windows[0].begin", "before 24:00"),
        ("mon-fri", "monday", 9, "windows[0].days", "mon-fri"),
        ("factor: 0.5", "factor: -1", 9, "windows[0].factor", "0 or more"),
        ("market: reserved", "market: leased", 16, "markets[1].market", "on_demand, spot"),
        ("residual_USD: 4380", "residual_USD: 30000", 5, "residual_USD", "at most `USD`"),
        ("years: 2", "years: 0", 5, "gpus.A100-80GB.owned.years", "above 0"),
        ("pue: 1.25", "pue: 0.5", 17, "power.pue", "1 or more"),
        ("load: 0.8", "load: 80", 17, "power.load", "from 0 to 1"),
        ("shared_cost: even", "shared_cost: fair", 18, "shared_cost", "even, weighted, none"),
        ("{research: 20000}", "{research: 9, research/nlp: 2}", 13, "storage", "one of the two"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in FILE
    with pytest.raises(BadFields) as caught:
        read_tariff(FILE.replace(old, new, 1), "p.yaml")
    problem = caught.value.problems[0]
    assert problem.line == line
    assert field in problem.field
    assert words in problem.allowed
