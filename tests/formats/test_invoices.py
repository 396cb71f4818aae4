"""Invoices of clouds, and how they differ from a bill."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.accounting.billing.bill import GPU, Bill, CapacityLine, Pool
from gantree.accounting.billing.reconciliation import InvoiceLine, reconciled
from gantree.accounting.billing.tariff import Sku
from gantree.accounting.buckets import DAY_S
from gantree.cli.billing.comparison_report import differences_lines
from gantree.formats.invoices import read_invoice
from gantree.model.errors import BadFields, GantreeError
from gantree.topology.hardware.prices import Market

START = 1_793_577_600
"""2026-11-02."""
SKUS = {"p5.48xlarge": Sku("H100-80GB", 8)}
SIMPLE = """\
date,sku,hours,cost
2026-11-02,p5.48xlarge,24,1000.5
2026-11-02,egress,,14.2
2026-11-03,h100-80gb,10,40
"""
FOCUS = """\
ChargePeriodStart,ChargePeriodEnd,BilledCost,BillingCurrency,ChargeCategory,SkuId,ConsumedQuantity,ConsumedUnit
2026-11-02T00:00:00Z,2026-11-03T00:00:00Z,1000.5,USD,Usage,p5.48xlarge,24,Hours
2026-11-02T00:00:00Z,2026-11-04T00:00:00Z,-10,USD,Credit,p5.48xlarge,24,Hours
2026-11-02T12:00:00+02:00,2026-11-02T13:00:00+02:00,14.2,USD,Usage,egress,3,GB
"""


def bill_of(*lines: tuple[int, str, Market, float, float]) -> Bill:
    """Capacity by (day from START, model, market, hours, dollars)."""
    capacity = tuple(
        CapacityLine(START + day * DAY_S, Pool(GPU, model, market), hours, round(USD * 1e6))
        for day, model, market, hours, USD in lines
    )
    return Bill(START, START + 3 * DAY_S, "none", (), capacity, {})


def test_a_simple_invoice() -> None:
    assert read_invoice(SIMPLE, "i.csv", SKUS) == [
        InvoiceLine(START, START + DAY_S, "H100-80GB", "p5.48xlarge", 192.0, 1000.5),
        InvoiceLine(START, START + DAY_S, "", "egress", None, 14.2),
        InvoiceLine(START + DAY_S, START + 2 * DAY_S, "H100-80GB", "h100-80gb", 10.0, 40.0),
    ]


def test_an_invoice_of_focus() -> None:
    used, credit, other = read_invoice(FOCUS, "i.csv", SKUS)
    assert (used.model, used.hours, used.USD) == ("H100-80GB", 192.0, 1000.5)
    assert (credit.model, credit.hours, credit.USD) == ("H100-80GB", None, -10.0)
    assert (other.model, other.sku, other.hours) == ("", "egress", None)
    assert other.since == START + 10 * 3600


@pytest.mark.parametrize(
    ("text", "line", "field", "words"),
    [
        (SIMPLE.replace("2026-11-03", "3.11.2026"), 4, "date", "a date such as"),
        (SIMPLE.replace(",24,", ",x,"), 2, "hours", "a number"),
        ("date,sku,hours,cost\n2026-11-02,egress,abc,2\n", 2, "hours", "a number"),
        (SIMPLE.replace("14.2", "inf"), 3, "cost", "a number"),
        (SIMPLE.replace("cost\n", "price\n"), 1, "cost", "those of FOCUS"),
        ("", 1, "date, sku, hours, cost", "those of FOCUS"),
        (FOCUS.replace("USD,Usage,p5", "EUR,Usage,p5"), 2, "BillingCurrency", "USD"),
        (FOCUS.replace("2026-11-03T", "2026-11-01T"), 2, "ChargePeriodEnd", "after its start"),
        (FOCUS.replace(",24,", ",,"), 2, "ConsumedQuantity", "a number"),
        (FOCUS.replace("BilledCost", "Cost"), 1, "EffectiveCost", "those of FOCUS"),
        ('date,sku,hours,cost\n2026-11-02,"a"b,1,2\n', 2, "row", "a file of CSV"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(BadFields) as caught:
        read_invoice(text, "i.csv", SKUS)
    (problem, *_) = caught.value.problems
    assert (problem.source, problem.line, problem.field) == ("i.csv", line, field)
    assert words in problem.allowed


@given(st.text(alphabet='adte,skuhors\n"0123456789.-TZ', max_size=120))
def test_whatever_the_text_it_is_read_or_refused_in_words(text: str) -> None:
    for head in ("", "date,sku,hours,cost\n", FOCUS.splitlines()[0] + "\n"):
        try:
            read_invoice(head + text, "i.csv", SKUS)
        except GantreeError as error:
            assert str(error)


def test_the_difference_by_model_and_day_and_what_one_side_has() -> None:
    bill = bill_of(
        (0, "H100-80GB", "on_demand", 100, 400),
        (0, "H100-80GB", "reserved", 92, 200),
        (0, "H100-80GB", "owned", 50, 50),
        (2, "L4-24GB", "spot", 24, 12),
    )
    invoice = read_invoice(SIMPLE, "i.csv", SKUS)
    told = [
        (each.day, each.name, each.hours, each.USD, each.only) for each in reconciled(bill, invoice)
    ]
    assert told == [
        (START, "H100-80GB", 0.0, 400.5, ""),
        (START, "egress", 0.0, 14.2, "invoice"),
        (START + DAY_S, "H100-80GB", 10.0, 40.0, "invoice"),
        (START + 2 * DAY_S, "L4-24GB", -24.0, -12.0, "bill"),
    ]
    text = "\n".join(differences_lines(reconciled(bill, invoice), "November 2026"))
    lines = text.splitlines()
    assert "4 of 4 days and models differ:" in lines
    assert "-$12.00" in text
    only = {line.split()[0]: line.split()[-1] for line in lines[2:6]}
    assert only["egress"] == "invoice" and only["L4-24GB"] == "bill"
    assert {"bill", "invoice"}.isdisjoint((only["H100-80GB"], only["all"]))
    days = [line.split()[:2] for line in lines[lines.index("4 of 4 days and models differ:") + 2 :]]
    assert days == [
        ["2026-11-02", "H100-80GB"],
        ["2026-11-03", "H100-80GB"],
        ["2026-11-02", "egress"],
        ["2026-11-04", "L4-24GB"],
    ]
    same = read_invoice("date,sku,hours,cost\n2026-11-04,L4-24GB,24,12\n", "i.csv", {})
    assert list(differences_lines(reconciled(bill_of((2, "L4-24GB", "spot", 24, 12)), same), "x"))[
        -1
    ] == ("No day differs.")


def test_a_charge_of_several_days_is_divided_over_them_and_other_months_are_left_out() -> None:
    line = InvoiceLine(START - 12 * 3600, START + 12 * 3600, "L4-24GB", "l4", 24.0, 12.0)
    (found,) = reconciled(bill_of(), [line])
    assert (found.day, found.invoice_hours, found.invoice_USD) == (START, 12.0, 6.0)
