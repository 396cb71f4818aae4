"""Reads prices.yaml: prices of a site, which override the list prices of the catalogue, and how cost is shared.

gpus:
  H100-80GB: {on_demand: 3.9, spot: 1.5, source: contract 7, date: 2026-10-01, region: eu-north}
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import cast

from gantree.accounting.billing.tariff import (
    HOURS_OF_YEAR,
    OwnedCost,
    PowerTerms,
    Sku,
    StoragePrice,
    Tariff,
    Window,
)
from gantree.formats.prices.form import OwnedForm, PowerForm, PriceForm, PricesForm, zone_of
from gantree.formats.validation.forms import only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.text.document import read_documents
from gantree.topology.hardware.prices import LIST_PRICES, Market, PriceList, Quote

MAX_FILE_BYTES = 1024 * 1024
_EVERY_DAY = tuple(range(7))


@dataclass(frozen=True, slots=True)
class PricesFile:
    """The text of a prices file, which has been read without errors, and its name."""

    text: str
    source: str
    tariff: Tariff

    @classmethod
    def read(cls, text: str, source: str) -> "PricesFile":
        """Read it. Raises BadFields."""
        return cls(text, source, read_tariff(text, source))


def read_prices(text: str, source: str) -> PriceList:
    """Read the text of a prices file, over the catalogue's prices. source names it in errors. Raises BadFields."""
    return read_tariff(text, source).prices


def read_tariff(text: str, source: str) -> Tariff:
    """Read all that a prices file says, over the catalogue's prices. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(PricesForm, documents, problems)
    form = read_form(PricesForm, document, problems) if document else None
    if form is not None:
        problems += _problems(form)
    refuse(problems, source)
    assert form is not None
    return _tariff(form)


def _problems(form: PricesForm) -> Iterator[Problem]:
    for gpu, price in form.gpus.items():
        amounts = (price.on_demand, price.spot, price.reserved, price.owned)
        if all(each is None for each in amounts) and not price.lost:
            allowed = "on_demand, spot, reserved or owned, or several"
            yield form.problem("gpus", "no price", allowed, at=(gpu,))
        owned = price.owned
        if owned is not None and owned.residual_USD > owned.USD:
            yield owned.problem("residual_USD", f"{owned.residual_USD:g}", "at most `USD`")
    for window in form.windows:
        if window.begin >= 1440:
            yield window.problem("begin", "24:00", "a time before 24:00")
        if window.begin == window.end:
            yield window.problem("end", "the time of `begin`", "another time")
    storage = form.storage
    for queue in storage.GiB if storage is not None else ():
        above = next((other for other in storage.GiB if queue.startswith(f"{other}/")), None)  # type: ignore[union-attr]  # without it there are no queues
        if above is not None:
            yield form.problem(
                "storage", f"{queue} and {above}", "one of the two", at=("GiB", queue)
            )


def _tariff(form: PricesForm) -> Tariff:
    power = _power(form.power)
    owned = {
        gpu: _owned(gpu, price.owned, power)
        for gpu, price in form.gpus.items()
        if price.owned is not None
    }
    quotes = [quote for gpu, price in form.gpus.items() for quote in _quotes(gpu, price, owned)]
    storage = form.storage
    return Tariff(
        prices=LIST_PRICES.replaced_by(quotes),
        windows=tuple(_windows(form)),
        time_zone=form.time_zone,
        offset_s=partial(utc_offset_s, form.time_zone),
        USD_per_core_hour=form.cpu_core,
        USD_per_GiB_hour=form.memory_GiB,
        storage=None
        if storage is None
        else StoragePrice(storage.USD_per_GiB_month, dict(storage.GiB)),
        markets=tuple((cast(Market, each.market), dict(each.labels)) for each in form.markets),
        owned=owned,
        power=power,
        rule=form.shared_cost or "weighted",  # type: ignore[arg-type]  # the form has checked it
        skus={name: Sku(each.gpu, each.gpus) for name, each in form.skus.items()},
    )


def utc_offset_s(time_zone: str, at: int) -> int:
    """By how many seconds a time zone is ahead of UTC at a second since 1970."""
    moment = datetime.fromtimestamp(at, UTC).astimezone(zone_of(time_zone))
    offset = moment.utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


def _windows(form: PricesForm) -> Iterator[Window]:
    for each in form.windows:
        days = frozenset(day for span in each.days for day in span) or frozenset(_EVERY_DAY)
        yield Window(each.name, each.begin, each.end, days, each.factor, dict(each.gpus))


def _power(form: PowerForm | None) -> PowerTerms:
    if form is None:
        return PowerTerms()
    terms = {field: getattr(form, field) for field in form.written_fields()}
    return PowerTerms(**terms)


def _owned(gpu: str, form: OwnedForm, power: PowerTerms) -> OwnedCost:
    """By the hour of its life. Power is that of a GPU in use, where a price of energy is stated and its limit known."""
    watts = power.watts(gpu, power.load)
    USD_per_kWh = power.USD_per_kWh
    return OwnedCost(
        (form.USD - form.residual_USD) / (form.years * HOURS_OF_YEAR),
        form.upkeep_USD_per_year / HOURS_OF_YEAR,
        0.0 if watts is None or USD_per_kWh is None else watts / 1000 * USD_per_kWh,
    )


def _quotes(gpu: str, price: PriceForm, owned: dict[str, OwnedCost]) -> Iterator[Quote]:
    region = price.region or ""
    USD_of: dict[Market, float | None] = {
        "on_demand": price.on_demand,
        "spot": price.spot,
        "reserved": price.reserved,
        "owned": owned[gpu].USD_per_hour if gpu in owned else None,
    }
    for market, USD in USD_of.items():
        if USD is not None:
            yield Quote(gpu, market, USD, price.date, price.source, region)
