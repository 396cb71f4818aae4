"""The statement of a period: what the whole site was used for adds up."""

from gantree.accounting.billing.bill import BookRow, bill
from gantree.accounting.billing.statement import statement
from gantree.accounting.billing.tariff import Tariff
from gantree.accounting.buckets import HOUR_S, Bucket
from gantree.accounting.usage import PURPOSES, UsageAmounts, UsageKey
from gantree.topology.hardware.prices import PriceList, Quote

START = 1_793_577_600
"""2026-11-02."""
TARIFF = Tariff(PriceList([Quote("H100-80GB", "on_demand", 4.0, "2026-01-01", "x")]))


def row(key: UsageKey, **hours: float) -> BookRow:
    amounts = UsageAmounts()
    for name, amount in hours.items():
        setattr(amounts, f"{name}_gpu_s", amount * HOUR_S)
    return BookRow(Bucket(HOUR_S, START), key, amounts)


def test_purposes_of_the_site_add_up_to_its_capacity() -> None:
    rows = [
        row(UsageKey("", "", "H100-80GB"), capacity=8, down=1),
        row(UsageKey("a", "ann", "H100-80GB"), allocated=4, used=4, useful=3, idle=1),
        row(UsageKey("b", "bob", "H100-80GB"), allocated=1, starting=1),
    ]
    made = statement(rows, bill(rows, TARIFF, {}, START, START + HOUR_S), TARIFF, "queue")
    hours = made.fleet
    assert (hours["free"], hours["down"], hours["useful"], hours["capacity"]) == (2, 1, 3, 8)
    assert sum(hours[purpose] for purpose in PURPOSES) == hours["capacity"]
