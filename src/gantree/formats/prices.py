"""prices.yaml: GPU prices of a site, which override the list prices of the catalogue.

gpus:
  H100-80GB: {on_demand: 3.9, spot: 1.5, source: contract 7, date: 2026-10-01, region: eu-north}
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.validation.fields import Amount, Text, wrong
from gantree.formats.validation.forms import Form, only_document, read_form, refuse
from gantree.model.errors import Problem
from gantree.text.document import read_documents, written
from gantree.topology.hardware.prices import LIST_PRICES, PriceList, Quote

MAX_FILE_BYTES = 1024 * 1024
_DATE_PATTERN = r"[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_DATE = re.compile(_DATE_PATTERN)


def _date(value: Any) -> str:
    text = written(value)
    if text is None or not _DATE.fullmatch(text):
        raise wrong("a date such as 2026-10-01")
    return text


Date = Annotated[
    str,
    PlainValidator(_date),
    WithJsonSchema({"type": "string", "pattern": f"^{_DATE_PATTERN}$"}),
]


class PriceForm(Form):
    """What an hour of one GPU costs, in US dollars."""

    on_demand: Amount | None = None
    spot: Amount | None = None
    source: Text
    date: Date
    region: Text | None = None


class PricesForm(Form):
    """prices.yaml: prices by GPU model."""

    gpus: dict[Text, PriceForm]


def read_prices(text: str, source: str) -> PriceList:
    """Read the text of a prices file, over the catalogue's prices. source names it in errors. Raises BadFields."""
    problems: list[Problem] = []
    documents = read_documents(text, source, problems, MAX_FILE_BYTES)
    document = only_document(PricesForm, documents, problems)
    form = read_form(PricesForm, document, problems) if document else None
    for gpu, price in form.gpus.items() if form else ():
        if price.on_demand is None and price.spot is None and not price.lost:
            assert form is not None
            found, allowed = "no price", "on_demand, spot or both"
            problems.append(form.problem("gpus", found, allowed, at=(gpu,)))
    refuse(problems, source)
    assert form is not None
    return LIST_PRICES.replaced_by(_quotes(form))


def _quotes(form: PricesForm) -> Iterator[Quote]:
    for gpu, price in form.gpus.items():
        region = price.region or ""
        if price.on_demand is not None:
            yield Quote(gpu, "on_demand", price.on_demand, price.date, price.source, region)
        if price.spot is not None:
            yield Quote(gpu, "spot", price.spot, price.date, price.source, region)
