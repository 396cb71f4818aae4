"""A bill as rows of FOCUS 1.2, the FinOps Open Cost and Usage Specification (focus.finops.org).

All columns that 1.2 or 1.0 makes mandatory, and those of the conditions that hold here: a site is a billing account, a
queue a sub-account. Shared cost is an adjustment, the discount of a slower place a credit, all else usage. Columns that
begin with x_ are gantree's own.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from gantree.accounting.billing.bill import (
    CPU,
    GPU,
    MEMORY,
    MICROS,
    SHARED,
    SLOWER,
    STORAGE,
    UNIT_OF,
    Bill,
    BillLine,
)
from gantree.accounting.billing.tariff import Tariff

_TEXT, _AMOUNT, _TIME = "VARCHAR", "DOUBLE", "TIMESTAMP"
COLUMNS: Mapping[str, str] = {
    "BilledCost": _AMOUNT,
    "BillingAccountId": _TEXT,
    "BillingAccountName": _TEXT,
    "BillingAccountType": _TEXT,
    "BillingCurrency": _TEXT,
    "BillingPeriodEnd": _TIME,
    "BillingPeriodStart": _TIME,
    "ChargeCategory": _TEXT,
    "ChargeClass": _TEXT,
    "ChargeDescription": _TEXT,
    "ChargeFrequency": _TEXT,
    "ChargePeriodEnd": _TIME,
    "ChargePeriodStart": _TIME,
    "CommitmentDiscountCategory": _TEXT,
    "CommitmentDiscountId": _TEXT,
    "CommitmentDiscountName": _TEXT,
    "CommitmentDiscountStatus": _TEXT,
    "CommitmentDiscountType": _TEXT,
    "ConsumedQuantity": _AMOUNT,
    "ConsumedUnit": _TEXT,
    "ContractedCost": _AMOUNT,
    "ContractedUnitPrice": _AMOUNT,
    "EffectiveCost": _AMOUNT,
    "InvoiceIssuer": _TEXT,
    "ListCost": _AMOUNT,
    "ListUnitPrice": _AMOUNT,
    "PricingCategory": _TEXT,
    "PricingQuantity": _AMOUNT,
    "PricingUnit": _TEXT,
    "Provider": _TEXT,
    "Publisher": _TEXT,
    "RegionId": _TEXT,
    "RegionName": _TEXT,
    "ResourceId": _TEXT,
    "ResourceName": _TEXT,
    "ResourceType": _TEXT,
    "ServiceCategory": _TEXT,
    "ServiceName": _TEXT,
    "ServiceSubcategory": _TEXT,
    "SkuId": _TEXT,
    "SkuMeter": _TEXT,
    "SkuPriceId": _TEXT,
    "SubAccountId": _TEXT,
    "SubAccountName": _TEXT,
    "SubAccountType": _TEXT,
    "Tags": _TEXT,
    "x_Charge": _TEXT,
    "x_Cause": _TEXT,
    "x_Device": _TEXT,
    "x_GpuModel": _TEXT,
    "x_Market": _TEXT,
    "x_Project": _TEXT,
    "x_User": _TEXT,
}
"""Each column with its type of SQL."""

_CATEGORY_OF_MARKET = {
    "on_demand": "Standard", "spot": "Dynamic", "reserved": "Committed", "owned": "Other", None: "Standard",
}  # fmt: skip
_CATEGORY_OF_CHARGE = {SHARED: "Adjustment", SLOWER: "Credit"}
_NAMES = {
    GPU: "GPU-hours held", CPU: "Core-hours held", MEMORY: "GiB-hours of memory held", STORAGE: "GiB-months of storage",
}  # fmt: skip


def focus_rows(bill: Bill, tariff: Tariff, site: str) -> Iterator[Mapping[str, str]]:
    """A row for each line of the bill: cells by column, "" for null. site is the name of the cluster."""
    common = {
        "BillingAccountId": site,
        "BillingAccountName": site,
        "BillingAccountType": "Cluster",
        "BillingCurrency": "USD",
        "BillingPeriodStart": _moment(bill.since),
        "BillingPeriodEnd": _moment(bill.until),
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuer": site,
        "Provider": site,
        "Publisher": site,
    }
    for line in bill.lines:
        row = {**dict.fromkeys(COLUMNS, ""), **common, **_of_line(line, tariff)}
        yield {**row, **_pricing(line)}


def csv_cells(rows: Iterable[Mapping[str, str]]) -> Iterator[list[str]]:
    """Rows as cells in the order of COLUMNS."""
    return ([row[name] for name in COLUMNS] for row in rows)


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _amount(amount: float) -> str:
    """With a point, so that no reader takes a column of whole amounts for counts."""
    text = f"{amount:.10f}".rstrip("0")
    return f"{text}0" if text.endswith(".") else text


def _of_line(line: BillLine, tariff: Tariff) -> dict[str, str]:
    cost, owner = _amount(line.micros / MICROS), line.owner
    quote = tariff.prices.quote(line.model, line.market) if line.market else None
    region = quote.region if quote is not None else ""
    is_storage = line.charge == STORAGE
    return {
        "BilledCost": cost,
        "EffectiveCost": cost,
        "ContractedCost": cost,
        "ListCost": cost,
        "ChargeCategory": _CATEGORY_OF_CHARGE.get(line.charge, "Usage"),
        "ChargeDescription": _description(line),
        "ChargePeriodStart": _moment(line.since),
        "ChargePeriodEnd": _moment(line.until),
        "RegionId": region,
        "RegionName": region,
        "ServiceCategory": "Storage" if is_storage else "Compute",
        "ServiceSubcategory": "File Storage" if is_storage else "Virtual Machines",
        "ServiceName": "Storage" if is_storage else "GPU cluster",
        "SubAccountId": owner.queue,
        "SubAccountName": owner.queue,
        "SubAccountType": "Queue" if owner.queue else "",
        "Tags": json.dumps(_tags(line), ensure_ascii=False),
        "x_Charge": line.charge,
        "x_Cause": line.cause,
        "x_Device": line.device,
        "x_GpuModel": line.model,
        "x_Market": line.market or "",
        "x_Project": owner.project,
        "x_User": owner.user,
    }


def _tags(line: BillLine) -> dict[str, Any]:
    tags = {"user": line.owner.user, "project": line.owner.project}
    return {name: value for name, value in tags.items() if value}


def _description(line: BillLine) -> str:
    what = " ".join(filter(None, (line.model, line.device, (line.market or "").replace("_", " "))))
    if line.charge == SHARED:
        return f"Shared cost of {what or 'the cluster'}: {line.cause}"
    if line.charge == SLOWER:
        return f"Discount for a slower place on {what}"
    return f"{_NAMES[line.charge]}{f' of {what}' if what else ''}"


def _pricing(line: BillLine) -> dict[str, str]:
    """Quantities and prices of usage; adjustments and credits have none."""
    if line.charge in _CATEGORY_OF_CHARGE or not line.quantity:
        return {}
    unit, quantity = UNIT_OF[line.charge], _amount(line.quantity)
    listed = line.micros if line.list_micros is None else line.list_micros
    sku = "/".join(filter(None, (line.charge, line.model, line.device)))
    return {
        "ConsumedQuantity": quantity,
        "ConsumedUnit": unit,
        "PricingQuantity": quantity,
        "PricingUnit": unit,
        "PricingCategory": _CATEGORY_OF_MARKET[line.market],
        "ContractedUnitPrice": _amount(line.micros / MICROS / line.quantity),
        "ListCost": _amount(listed / MICROS),
        "ListUnitPrice": _amount(listed / MICROS / line.quantity),
        "ResourceId": "",
        "ResourceType": "",
        "SkuId": sku,
        "SkuMeter": _NAMES[line.charge],
        "SkuPriceId": f"{sku}/{line.market or 'site'}",
    }
