"""The form of prices.yaml, and the kinds of value that only it has: dates, times of day, days, time zones."""

import re
from functools import lru_cache
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    QueuePath,
    Text,
    number,
    one_of,
    wrong,
)
from gantree.formats.validation.forms import Form, Listed, empty
from gantree.text.document import written

_DATE_PATTERN = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_DATE = re.compile(_DATE_PATTERN)
_TIME_PATTERN = r"(?:([01][0-9]|2[0-3]):(00|15|30|45)|(24):(00))"
_TIME = re.compile(_TIME_PATTERN)
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAYS_PATTERN = rf"(?:{'|'.join(DAYS)})(?:-(?:{'|'.join(DAYS)}))?"
MARKETS = ("on_demand", "spot", "reserved", "owned")
RULES = ("even", "weighted", "none")


def _date(value: Any) -> str:
    text = written(value)
    if text is None or not _DATE.fullmatch(text):
        raise wrong("a date such as 2026-10-01")
    return text


def _minute(value: Any) -> int:
    """The minute of the day of a time."""
    found = _TIME.fullmatch(written(value) or "")
    if found is None:
        raise wrong('a time in quarters of an hour, such as "19:30"')
    hour, minute = (part for part in found.groups() if part is not None)
    return int(hour) * 60 + int(minute)


def _days(value: Any) -> tuple[int, ...]:
    """The numbers of the days of a name, or of a range such as mon-fri."""
    text = written(value) or ""
    if not re.fullmatch(_DAYS_PATTERN, text):
        raise wrong(f"one of {', '.join(DAYS)}, or a range such as mon-fri")
    first, last = DAYS.index(text[:3]), DAYS.index(text[-3:])
    return tuple((first + n) % 7 for n in range((last - first) % 7 + 1))


@lru_cache(maxsize=16)
def zone_of(name: str) -> ZoneInfo | None:
    """A time zone of the IANA database; None where there is none of that name."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _time_zone(value: Any) -> str:
    text = written(value) or ""
    if not text or zone_of(text) is None:
        raise wrong("a time zone such as Europe/Berlin or UTC")
    return text


Date = Annotated[
    str,
    PlainValidator(_date),
    WithJsonSchema({"type": "string", "pattern": f"^{_DATE_PATTERN}$"}),
]
Minute = Annotated[
    int,
    PlainValidator(_minute),
    WithJsonSchema({"type": "string", "pattern": f"^{_TIME_PATTERN}$"}),
]
DaySpan = Annotated[
    tuple[int, ...],
    PlainValidator(_days),
    WithJsonSchema({"type": "string", "pattern": f"^{_DAYS_PATTERN}$"}),
]
TimeZone = Annotated[str, PlainValidator(_time_zone), WithJsonSchema({"type": "string"})]
MarketName = Annotated[
    str, PlainValidator(one_of(MARKETS)), WithJsonSchema({"enum": list(MARKETS)})
]
RuleName = Annotated[str, PlainValidator(one_of(RULES)), WithJsonSchema({"enum": list(RULES)})]
Share = Annotated[
    float,
    PlainValidator(number(0, 1, "a number from 0 to 1")),
    WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1}),
]
FromOne = Annotated[
    float,
    PlainValidator(number(1, 10, "a number of 1 or more")),
    WithJsonSchema({"type": "number", "minimum": 1}),
]


class OwnedForm(Form):
    """What an own GPU cost with its part of the server, rack and network, and what it costs in a year."""

    USD: AmountAboveZero
    years: AmountAboveZero
    residual_USD: Amount = 0.0
    upkeep_USD_per_year: Amount = 0.0


class PriceForm(Form):
    """What an hour of one GPU costs, in US dollars, by market."""

    on_demand: Amount | None = None
    spot: Amount | None = None
    reserved: Amount | None = None
    owned: OwnedForm | None = None
    source: Text
    date: Date
    region: Text | None = None


class WindowForm(Form):
    """A time of the week with prices of its own."""

    name: Text
    begin: Minute = 0
    end: Minute = 1440
    days: Listed[DaySpan] = empty(list)
    factor: Amount = 1.0
    gpus: dict[Text, Amount] = empty(dict)


class MarketForm(Form):
    """Nodes, by labels, that are bought on one market."""

    market: MarketName
    labels: dict[Text, Text] = empty(dict)


class StorageForm(Form):
    """What a GiB costs for a month, and how many each queue has."""

    USD_per_GiB_month: Amount
    GiB: dict[QueuePath, Amount]


class PowerForm(Form):
    """What energy costs and emits, and the share of its power limit that a GPU takes."""

    USD_per_kWh: Amount | None = None
    gCO2_per_kWh: Amount | None = None
    pue: FromOne | None = None
    load: Share | None = None
    idle_load: Share | None = None
    source: Text | None = None


class SkuForm(Form):
    """What a unit of an invoice is, such as an instance type of a cloud."""

    gpu: Text
    gpus: AmountAboveZero = 1.0


class PricesForm(Form):
    """prices.yaml: prices by GPU model, of CPUs, memory and storage, and who shares the cost of what nobody held."""

    gpus: dict[Text, PriceForm] = empty(dict)
    time_zone: TimeZone = "UTC"
    windows: list[WindowForm] = empty(list)
    cpu_core: Amount | None = None
    memory_GiB: Amount | None = None
    storage: StorageForm | None = None
    markets: list[MarketForm] = empty(list)
    power: PowerForm | None = None
    shared_cost: RuleName | None = None
    skus: dict[Text, SkuForm] = empty(dict)
