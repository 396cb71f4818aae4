"""List prices, each with its source and date, and a site's own over them."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.formats.prices.reader import read_prices
from gantree.model.errors import BadFields, GantreeError
from gantree.topology.hardware.gpu_models import GPU_MODELS
from gantree.topology.hardware.prices import LIST_PRICES, PriceList, Quote

OWN = """\
gpus:
  H100-80GB: {on_demand: 3.9, source: contract 7, date: 2026-10-01, region: eu}
  Own9000-1GB: {on_demand: 0, spot: 0.5, source: ours, date: 2026-10-02}
"""


@pytest.mark.parametrize(
    "quote", LIST_PRICES.quotes, ids=lambda quote: f"{quote.gpu}-{quote.market}"
)
def test_every_list_price_has_a_known_gpu_a_source_and_a_date(quote: Quote) -> None:
    assert quote.gpu in GPU_MODELS
    assert 0 < quote.USD_per_hour < 20
    assert quote.source
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", quote.date)


def test_a_gpu_without_a_quotation_has_no_price() -> None:
    assert LIST_PRICES.quote("V100-32GB") is None
    assert LIST_PRICES.quote("H100-96GB") is None
    assert LIST_PRICES.quote(None) is None


def test_a_quote_is_of_one_market_and_of_a_name_however_it_is_written() -> None:
    quote = Quote("H100-80GB", "spot", 1.5, "2026-01-01", "x")
    prices = PriceList([quote])
    assert prices.quote("h100-80gb", "spot") == quote
    assert prices.quote("H100-80GB") is None


def test_what_a_site_says_of_a_gpu_replaces_all_that_the_catalogue_says_of_it() -> None:
    prices = read_prices(OWN, "prices.yaml")
    assert prices.quote("H100-80GB") == Quote(
        "H100-80GB", "on_demand", 3.9, "2026-10-01", "contract 7", "eu"
    )
    assert LIST_PRICES.quote("H100-80GB", "spot") is not None
    assert prices.quote("H100-80GB", "spot") is None
    own = prices.quote("Own9000-1GB")
    assert own is not None
    assert own.USD_per_hour == 0
    assert prices.quote("A100-40GB") == LIST_PRICES.quote("A100-40GB")


@pytest.mark.parametrize(
    ("old", "new", "line", "field", "words"),
    [
        ("on_demand: 3.9, ", "", 2, "gpus.H100-80GB", "on_demand, spot, reserved or owned"),
        ("on_demand: 3.9", "on_demand: -1", 2, "gpus.H100-80GB.on_demand", "0 or more"),
        (
            "on_demand: 3.9",
            "ondemand: 3.9",
            2,
            "gpus.H100-80GB.ondemand",
            "Did you mean `on_demand`?",
        ),
        (", date: 2026-10-01", "", 2, "gpus.H100-80GB.date", "required"),
        ("source: contract 7, ", "", 2, "gpus.H100-80GB.source", "required"),
        ("2026-10-01", "1.10.2026", 2, "gpus.H100-80GB.date", "2026-10-01"),
        ("2026-10-01", "2026-13-01", 2, "gpus.H100-80GB.date", "a date"),
        ("gpus:", "gpu:", 1, "gpu", "Did you mean `gpus`?"),
        (OWN, "", 1, "document", "an empty file"),
    ],
)
def test_a_wrong_price_is_named_with_its_line(
    old: str, new: str, line: int, field: str, words: str
) -> None:
    assert old in OWN
    with pytest.raises(BadFields) as caught:
        read_prices(OWN.replace(old, new, 1), "p.yaml")
    told = [problem for problem in caught.value.problems if problem.field == field]
    assert told, str(caught.value)
    assert told[0].line == line
    assert words in str(told[0])


_odd = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
_fields = st.sampled_from(["on_demand", "spot", "source", "date", "region", "gpus"])


@given(
    st.text(max_size=80)
    | st.dictionaries(
        st.just("gpus") | st.text(max_size=3),
        _odd | st.dictionaries(st.text(max_size=9), _odd | st.dictionaries(_fields, _odd)),
    ).map(json.dumps)
)
def test_whatever_the_text_prices_are_read_or_refused_in_words(text: str) -> None:
    try:
        prices = read_prices(text, "p.yaml")
    except GantreeError as error:
        assert str(error)
    else:
        assert all(quote.USD_per_hour >= 0 for quote in prices.quotes)
