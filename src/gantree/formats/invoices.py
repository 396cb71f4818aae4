"""Invoices of clouds as CSV: files of FOCUS, or with the columns date, sku, hours and cost.

A FOCUS file has the columns ChargePeriodStart, ChargePeriodEnd, BilledCost (or EffectiveCost, where BilledCost is not
there), SkuId or another column that names what was bought, ConsumedQuantity and ConsumedUnit. Credits, taxes and
adjustments are charges as others, of no hours.
"""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from math import isfinite

from gantree.accounting.billing.reconciliation import InvoiceLine
from gantree.accounting.billing.tariff import Sku
from gantree.accounting.buckets import DAY_S
from gantree.model.errors import BadFields, Problem
from gantree.text.words import shortened
from gantree.topology.hardware.gpu_models import GPU_MODELS, gpu_model

MAX_FILE_BYTES = 256 * 1024 * 1024
MAX_PROBLEMS = 100
SIMPLE = ("date", "sku", "hours", "cost")
SKU_COLUMNS = ("x_GpuModel", "SkuMeter", "SkuId", "ResourceType", "SkuPriceId", "ChargeDescription")
"""Of a FOCUS file: the first whose value is a SKU of the site's prices, or a GPU model, names what was bought."""
HOUR_UNITS = ("hours", "hour", "gpu-hours", "gpu hours", "instance-hours", "hrs")
UNNAMED = "(unnamed)"
_Row = Mapping[str, str]


class _BadCell(Exception):
    def __init__(self, field: str, found: str, allowed: str) -> None:
        self.field, self.found, self.allowed = field, found, allowed
        super().__init__(field)


def read_invoice(text: str, source: str, skus: Mapping[str, Sku]) -> list[InvoiceLine]:
    """The lines of an invoice. skus: what units with these names are. Raises BadFields, with all that is wrong."""
    reader = csv.DictReader(io.StringIO(text), strict=True)
    problems, lines = list[Problem](), list[InvoiceLine]()
    try:
        header = [name.strip() for name in reader.fieldnames or ()]
        reader.fieldnames = header
        read = _reader_of(header, source)
        for row in reader:
            try:
                lines.append(read(row, skus))
            except _BadCell as bad:
                found = f"`{shortened(bad.found, 80)}`" if bad.found else "nothing"
                problems.append(Problem(source, reader.line_num, bad.field, found, bad.allowed))
            if len(problems) >= MAX_PROBLEMS:
                break
    except csv.Error as error:
        line = reader.reader.line_num
        problems.append(Problem(source, line, "row", str(error), "a file of CSV"))
    if problems:
        raise BadFields(problems)
    return lines


def _reader_of(
    header: Sequence[str], source: str
) -> Callable[[_Row, Mapping[str, Sku]], InvoiceLine]:
    """What reads a row of a file with these columns. Raises BadFields where some are missing."""
    is_focus = "ChargePeriodStart" in header
    name = "model" if "model" in header else "sku"
    cost = "BilledCost" if "BilledCost" in header else "EffectiveCost"
    wanted = ("ChargePeriodEnd", cost) if is_focus else ("date", name, "hours", "cost")
    missing = [each for each in wanted if each not in header]
    if missing:
        found = f"the columns {', '.join(header)}" if any(header) else "no columns"
        allowed = f"{', '.join(SIMPLE)}, or those of FOCUS"
        raise BadFields([Problem(source, 1, ", ".join(missing), shortened(found, 300), allowed)])
    return _focus_line if is_focus else _simple_line


def _simple_line(row: _Row, skus: Mapping[str, Sku]) -> InvoiceLine:
    since = _date(_cell(row, "date"))
    sku = _cell(row, "model") or _cell(row, "sku") or UNNAMED
    model, gpus = _what(sku, skus) or ("", 0.0)
    hours = _number(row, "hours") if model or _cell(row, "hours") else 0.0
    cost = _number(row, "cost")
    return InvoiceLine(since, since + DAY_S, model, sku, hours * gpus if model else None, cost)


def _focus_line(row: _Row, skus: Mapping[str, Sku]) -> InvoiceLine:
    since, until = _moment(row, "ChargePeriodStart"), _moment(row, "ChargePeriodEnd")
    if until <= since:
        raise _BadCell("ChargePeriodEnd", _cell(row, "ChargePeriodEnd"), "a time after its start")
    currency = _cell(row, "BillingCurrency")
    if currency not in ("", "USD"):
        raise _BadCell("BillingCurrency", currency, "USD; convert other currencies first")
    cost = _number(row, "BilledCost" if "BilledCost" in row else "EffectiveCost")
    names = [_cell(row, column) for column in SKU_COLUMNS]
    what = next((found for name in names if (found := _what(name, skus)) is not None), None)
    sku = next(filter(None, names[1:]), UNNAMED)
    is_usage = _cell(row, "ChargeCategory") in ("", "Usage")
    model, gpus = what or ("", 0.0)
    hours = None
    if model and is_usage and _cell(row, "ConsumedUnit").lower() in HOUR_UNITS:
        hours = _number(row, "ConsumedQuantity") * gpus
    return InvoiceLine(since, until, model, sku, hours, cost)


def _what(name: str, skus: Mapping[str, Sku]) -> tuple[str, float] | None:
    """The GPU model and the count of GPUs of a unit; None for what is no GPU, as far as the names tell."""
    if name in skus:
        known = gpu_model(skus[name].model)
        return (known.name if known else skus[name].model), skus[name].gpus
    model = gpu_model(name) if name else None
    return (model.name, 1.0) if model is not None and model.name in GPU_MODELS else None


def _cell(row: _Row, column: str) -> str:
    """A cell without the space around it; "" where the row is too short."""
    return (row.get(column) or "").strip()


def _number(row: _Row, column: str) -> float:
    text = _cell(row, column)
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise _BadCell(column, text, "a number such as 12.5")
    return number


def _date(text: str) -> int:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise _BadCell("date", text, "a date such as 2026-11-01") from None
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _moment(row: _Row, column: str) -> int:
    text = _cell(row, column)
    try:
        moment = datetime.fromisoformat(text)
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(aware.timestamp())
    except (ValueError, OverflowError):
        raise _BadCell(column, text, "a time such as 2026-11-01T00:00:00Z") from None
