"""Statements as tables, HTML and PDF, and bills as FOCUS: that they add up and say what they are made of."""

import csv
import io
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from gantree.accounting.billing.bill import MICROS, Bill, BookRow, bill
from gantree.accounting.billing.cloud_comparison import compared
from gantree.accounting.billing.energy import energy_of
from gantree.accounting.billing.statement import By, Statement, statement
from gantree.accounting.billing.tariff import PowerTerms, Tariff
from gantree.accounting.buckets import DAY_S, Bucket
from gantree.accounting.usage import UsageAmounts, UsageKey
from gantree.cli.billing.comparison_report import comparison_json, comparison_lines
from gantree.cli.billing.focus import COLUMNS, csv_cells, focus_rows
from gantree.cli.billing.months import Month, month_of
from gantree.cli.billing.output_files import write_file
from gantree.cli.billing.statement_report import Jobs, report_of
from gantree.cli.billing.statement_rows import TYPES, statement_json, statement_lines, table_rows
from gantree.cli.output.csv_text import csv_text
from gantree.cli.report.document import Column, Table
from gantree.cli.report.html import html_of
from gantree.cli.report.pdf import latin, pdf_of
from gantree.formats.prices.reader import read_tariff
from gantree.model.errors import BadInput

NOVEMBER = Month(2026, 11)
NOW = float(NOVEMBER.until + 5 * DAY_S)
PRICES = """
gpus:
  H100-80GB: {on_demand: 3.337, owned: {USD: 35040, years: 4}, source: contract 7, date: 2026-10-01}
cpu_core: 0.031
storage: {USD_per_GiB_month: 0.01, GiB: {research: 333}}
markets: [{market: owned, labels: {pool: own}}]
power: {USD_per_kWh: 0.1, gCO2_per_kWh: 400, pue: 1.25, source: the meter}
"""
TARIFF = read_tariff(PRICES, "prices.yaml")
JOBS = Jobs(
    [
        {"name": "<b>llama</b>", "user": "ann", "gpus": 8, "gpu_model": "H100-80GB", "held_gpu_s": 7200.0,
         "useful_gpu_s": 3600.0, "lost_gpu_s": 0.0, "outcome": "succeeded"},
    ]
)  # fmt: skip


def rows_of(month: Month, factor: float = 1.0) -> list[BookRow]:
    """Three users of two queues, some of whom compute, on a day that is not whole cents."""
    bucket, model = Bucket(DAY_S, month.since + DAY_S), "H100-80GB"
    there = UsageAmounts(capacity_gpu_s=8 * DAY_S, down_gpu_s=1000.0, capacity_cpu_s=64.0 * DAY_S)
    rows = [BookRow(bucket, UsageKey("", "", model), there)]
    for queue, user, hours in (
        ("research/nlp", "ann", 70.01),
        ("research", "bob", 33.33),
        ("prod", "cat", 51.7),
    ):
        held = hours * 3600 * factor
        amounts = UsageAmounts(allocated_gpu_s=held, useful_gpu_s=held * 0.7, idle_gpu_s=held * 0.2,
                               slower_gpu_s=held * 0.013, cpu_s=held * 2)  # fmt: skip
        rows.append(BookRow(bucket, UsageKey(queue, user, model, "p1"), amounts))
    return rows


def billed(month: Month, tariff: Tariff = TARIFF, factor: float = 1.0) -> Bill:
    markets = {"H100-80GB": (("on_demand", 0.5), ("owned", 0.5))}
    return bill(rows_of(month, factor), tariff, markets, month.since, month.until)  # type: ignore[arg-type]  # literals


def stated(by: By = "queue", queue: str = "", tariff: Tariff = TARIFF) -> Statement:
    before = billed(NOVEMBER.before, tariff, 0.5)
    return statement(rows_of(NOVEMBER), billed(NOVEMBER, tariff), tariff, by, queue, before)


def cents(cell: str) -> int:
    return int(re.sub(r"[,.]", "", cell))


@pytest.mark.parametrize("by", ["queue", "user", "project", "model", "device"])
@pytest.mark.parametrize("queue", ["", "research"])
def test_rows_and_columns_of_the_table_add_up(by: By, queue: str) -> None:
    made = stated(by, queue)
    table = report_of(made, "hall", "November 2026", NOW, JOBS).tables[0]
    titles = [column.title.replace("\u00a0", " ") for column in table.columns]
    money = [n for n, title in enumerate(titles) if title.endswith("$")]
    total = titles.index("Total $")
    assert table.total is not None
    for column in money:
        sums = sum(cents(row[column]) for row in table.rows)
        assert sums == cents(table.total[column]), titles[column]
    for row in (*table.rows, table.total):
        assert sum(cents(row[n]) for n in money if n < total) == cents(row[total])
    exact = round(made.all.micros / 10_000)
    assert abs(cents(table.total[total]) - exact) <= len(money)


def test_a_statement_of_all_is_the_price_of_the_capacity_and_that_of_a_queue_is_its_part() -> None:
    made, of_queue = stated(), stated("user", "research")
    assert made.all.micros == billed(NOVEMBER).capacity_micros
    names = dict(made.rows)
    assert set(names) == {"research/nlp", "research", "prod"}
    both = names["research"].micros + names["research/nlp"].micros
    assert of_queue.all.micros == both
    assert {name for name, _ in of_queue.rows} == {"ann", "bob", ""}  # storage has no user
    assert names["prod"].before_micros is not None
    assert of_queue.all.held_hours == pytest.approx(103.34)
    price = names["prod"].micros_of["gpu"] / names["prod"].held_hours
    assert names["prod"].wasted_micros == pytest.approx(51.7 * 0.2 * price, rel=1e-6)


def test_html_has_every_figure_and_no_markup_of_a_job() -> None:
    html = html_of(report_of(stated(), "hall", "November 2026", NOW, JOBS))
    assert "&lt;b&gt;llama&lt;/b&gt;" in html and "<b>llama" not in html
    assert not re.search(r"(?:src|href)=|https?:|@import|url\(", html)
    for words in ("All queues, November 2026", "contract 7", "Page", "in proportion to", "kg CO2"):
        assert words in html, words


def test_a_report_says_what_was_wasted_what_jobs_cost_and_that_a_month_is_not_over() -> None:
    made = stated()
    whole = report_of(made, "hall", "November 2026", NOW, JOBS)
    (jobs,) = (table for table in whole.tables if table.title == "What ran")
    price = sum(each.hours * each.mean_USD for each in made.prices) / 192
    assert cents(jobs.rows[0][6]) == round(2 * price * 100)
    wasted = 155.04 * 0.2
    (purposes,) = (table for table in whole.tables if table.title == "What the GPU-hours were for")
    assert f"{wasted:.1f} GPU-hours were wasted" in purposes.note
    paid = made.all.micros_of["gpu"] * 0.2 / 10_000
    assert cents(purposes.note.split("$")[1].split(" ")[0]) == pytest.approx(paid, abs=1)
    partial = report_of(made, "hall", "November 2026", NOVEMBER.until - 1.0, JOBS)
    is_final = ["Not final" not in dict(each.notes) for each in (whole, partial)]
    assert is_final == [True, False]


def test_pdf_has_numbered_pages_and_letters_that_its_fonts_have() -> None:
    many = Jobs([{**JOBS.rows[0], "name": f"job-{n} Łódź 東京"} for n in range(25)])
    report = report_of(stated("user"), "hall", "November 2026", NOW, many)
    first, again = pdf_of(report), pdf_of(report)
    assert first[:5] == b"%PDF-"
    text = pages_text(first)
    assert re.findall(r"\(Page (\d) of \) Tj \((\d)\)", text) == [("1", "2"), ("2", "2")]
    assert text.count("GPU-hours") > 2
    assert re.sub(rb"/ID \[.*?\]", b"", first) == re.sub(rb"/ID \[.*?\]", b"", again)


def test_figures_of_a_large_site_fit_the_page() -> None:
    columns = [Column("Queue", is_figure=False), *(Column("GPUs\u00a0$") for _ in range(10))]
    row = ("research/vision", *("1,234,567,890.12" for _ in range(10)))
    table = Table("Cost", columns, [row], row)
    report = replace(report_of(stated(), "hall", "x", NOW, JOBS), tables=[table])
    text = pages_text(pdf_of(report))
    assert text.count("1,234,567,890.12") == 20
    sizes = {float(size) for size in re.findall(r"/F\d ([\d.]+) Tf", text)}
    assert min(sizes) < 7.5


def pages_text(pdf: bytes) -> str:
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S)
    words = []
    for stream in streams:
        try:
            words.append(zlib.decompress(stream))
        except zlib.error:
            continue
    return b"".join(words).decode("latin-1")


@pytest.mark.parametrize(
    ("text", "told"),
    [("müller", "müller"), ("Łódź", "Lódz"), ("1\u20132", "1-2"), ("東京", "??"), ("ő", "o")],
)
def test_letters_become_those_of_the_fonts(text: str, told: str) -> None:
    assert latin(text) == told


def test_csv_is_exact_and_the_lines_of_a_terminal_say_the_rule() -> None:
    made = stated("user")
    table = list(csv.DictReader(io.StringIO(csv_text(list(TYPES), table_rows(made, "2026-11")))))
    assert [row["name"] for row in table][:3] == ["ann", "cat", "bob"]
    assert sum(float(row["USD"]) for row in table) == pytest.approx(made.all.micros / MICROS)
    lines = list(statement_lines(made, "November 2026"))
    assert lines[0] == "November 2026, shared cost weighted"
    assert "-$" in lines[1]
    assert "$-" not in lines[1]
    assert statement_json(made, "2026-11", "hall")["capacity_USD"] == made.all.micros / MICROS


def test_cost_that_is_not_distributed_is_a_row_and_models_without_a_price_are_named() -> None:
    none = replace(TARIFF, rule="none")
    assert "(not distributed)" in "\n".join(statement_lines(stated(tariff=none), "x"))
    rows = [*rows_of(NOVEMBER)]
    rows[1] = rows[1]._replace(key=UsageKey("research/nlp", "ann", "T4-16GB"))
    made = bill(rows, none, {}, NOVEMBER.since, NOVEMBER.until)
    lines = list(statement_lines(statement(rows, made, none, "queue"), "x"))
    assert lines[-1].endswith("70.0 held of 0.0 GPU-hours of T4-16GB.")


MANDATORY = (
    "BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory",
    "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuer", "ListCost",
    "Provider", "Publisher", "ServiceCategory", "ServiceName",
)  # fmt: skip
"""Columns of FOCUS 1.2 that are never null."""


def test_focus_has_every_line_of_the_bill_with_its_mandatory_columns() -> None:
    made = billed(NOVEMBER)
    rows = [dict(zip(COLUMNS, cells, strict=True))
            for cells in csv_cells(focus_rows(made, TARIFF, "hall"))]  # fmt: skip
    assert len(rows) == len(made.lines)
    assert all(row[name] for row in rows for name in MANDATORY)
    total = sum(round(float(row["BilledCost"]) * MICROS) for row in rows)
    assert total == made.micros
    assert {row["ChargeCategory"] for row in rows} == {"Usage", "Credit", "Adjustment"}
    for row in rows:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:00:00Z", row["ChargePeriodStart"])
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"] <= row["BillingPeriodEnd"]
        has_price = bool(row["SkuPriceId"])
        assert has_price == (row["ChargeCategory"] == "Usage")
        if has_price:
            cost = float(row["ContractedUnitPrice"]) * float(row["PricingQuantity"])
            assert cost == pytest.approx(float(row["ContractedCost"]), abs=1e-5)
    listed = [row for row in rows if row["x_Charge"] == "gpu" and row["x_Market"] == "owned"]
    assert all(float(row["ListUnitPrice"]) == pytest.approx(3.337, rel=1e-5) for row in listed)
    for row in listed:
        cost = 3.337 * float(row["PricingQuantity"])
        assert float(row["ListCost"]) == pytest.approx(cost, abs=1e-5)
    there = read_tariff(PRICES.replace("source: contract 7", "source: x, region: eu-north"), "p")
    regions = {row["x_Charge"]: row["RegionId"] for row in focus_rows(made, there, "hall")}
    assert (regions["gpu"], regions["storage"]) == ("eu-north", "")


def test_own_gpus_beside_the_cloud() -> None:
    (row,) = compared(rows_of(NOVEMBER), billed(NOVEMBER), TARIFF)
    assert row.there_hours == pytest.approx(192)
    assert row.own_hours == pytest.approx(96)
    assert row.depreciation_USD == pytest.approx(96.0)
    assert row.power_USD == pytest.approx(96 * 700 * 0.76 * 1.25 / 1000 * 0.1)
    assert row.on_demand is not None and row.on_demand_USD == pytest.approx(155.04 * 6.88)
    assert row.break_even == pytest.approx(row.paid_USD / 192 / 6.88)
    assert comparison_json([row])[0]["on_demand"]["source"] == row.on_demand.source
    assert any("depreciation" in line for line in comparison_lines([row], "x"))


def test_energy_follows_from_the_stated_assumptions() -> None:
    terms = PowerTerms(USD_per_kWh=0.1, gCO2_per_kWh=400, pue=1.25, load=0.5, idle_load=0.1)
    (row,) = energy_of(rows_of(NOVEMBER), terms)
    assert row.held_kWh == pytest.approx(155.04 * 700 * 0.5 * 1.25 / 1000)
    assert row.idle_kWh == pytest.approx((192 - 155.04) * 700 * 0.1 * 1.25 / 1000)
    assert row.kgCO2 == pytest.approx(row.kWh * 0.4)
    assert row.measured_kWh == 0.0
    assert row.assumed_hours == pytest.approx(155.04)
    (plain,) = energy_of(rows_of(NOVEMBER), PowerTerms())
    assert (plain.USD, plain.kgCO2) == (None, None)


def test_energy_is_measured_where_counters_told_it_and_all_of_it_adds_up() -> None:
    terms = PowerTerms(USD_per_kWh=0.1, pue=1.25, load=0.5, idle_load=0.1)
    rows = rows_of(NOVEMBER)
    rows[1].amounts.powered_gpu_s, rows[1].amounts.energy_kWh = 40 * 3600.0, 24.0
    rows[2].amounts.powered_gpu_s, rows[2].amounts.energy_kWh = 10 * 3600.0, 1.0
    unknown = UsageAmounts(allocated_gpu_s=7200.0, powered_gpu_s=3600.0, energy_kWh=0.3)
    rows.append(BookRow(rows[1].bucket, UsageKey("prod", "cat", "prototype"), unknown))
    row, prototype = energy_of(rows, terms)
    assert row.measured_hours == 50.0
    assert row.assumed_hours == pytest.approx(155.04 - 50)
    assert row.measured_kWh == pytest.approx(25.0 * 1.25)
    assert row.assumed_kWh == pytest.approx((155.04 - 50) * 700 * 0.5 * 1.25 / 1000)
    assert row.kWh == pytest.approx(row.measured_kWh + row.assumed_kWh + row.idle_kWh)
    assert row.held_kWh + row.idle_kWh == pytest.approx(row.kWh)
    assert pytest.approx(0.1 * row.kWh) == row.USD
    assert (prototype.kWh, prototype.assumed_hours) == (0.3 * 1.25, 0.0), "no limit is known"
    made = statement(rows, billed(NOVEMBER), TARIFF, "queue")
    (told, _) = statement_json(made, "2026-11", "")["energy"]
    assert told["kWh"] == pytest.approx(
        told["measured_kWh"] + told["assumed_kWh"] + told["idle_kWh"]
    )
    report = report_of(made, "hall", "November 2026", NOW, Jobs([], more=False))
    assert "Measured in 33% of the GPU-hours held" in dict(report.notes)["Energy"]


def test_months() -> None:
    assert month_of(None, NOW) == Month(2026, 12)
    assert (str(Month(2027, 1).before), Month(2026, 12).until) == ("2026-12", Month(2027, 1).since)
    for wrong in ("2026-13", "2026", "26-11", "2027-01", "0000-01"):
        with pytest.raises(BadInput, match="--month"):
            month_of(wrong, NOW)


def test_a_file_that_cannot_be_put_in_its_place_leaves_nothing_beside_it(tmp_path: Path) -> None:
    out = tmp_path / "s.html"
    out.mkdir()
    with pytest.raises(BadInput, match=r"--html: .*s\.html: is a directory"):
        write_file("--html", out, b"text")
    assert list(tmp_path.iterdir()) == [out]
