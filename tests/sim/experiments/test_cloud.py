"""cloud: its arithmetic against the long way round."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.experiments.money.cloud import (
    annuity,
    break_even,
    months_until_cheaper,
    own_node,
    own_USD_per_hour,
    values,
)


@given(st.floats(1, 1e6), st.floats(0.001, 0.3), st.integers(1, 10))
def test_an_annuity_pays_a_debt_off(debt: float, rate: float, years: int) -> None:
    yearly, left = annuity(debt, rate, years), debt
    for _ in range(years):
        left = left * (1 + rate) - yearly
    assert left == pytest.approx(0, abs=debt * 1e-9)


def test_without_interest_capital_is_the_price_less_the_resale() -> None:
    costs = values(interest=0.0)
    bought = costs["server_USD"] * (1 - costs["residual"]) + costs["network_USD"]
    assert own_node(costs).capital == pytest.approx(bought + costs["storage_USD"])


@given(st.floats(0.05, 1), st.floats(2, 12))
def test_at_the_break_even_an_hour_of_use_costs_the_same(used: float, price: float) -> None:
    own = own_USD_per_hour(values())
    assert (own / used < price) == (used > break_even(own, price))


def test_months_until_cheaper_follow_the_two_bills_month_by_month() -> None:
    costs, price = values(residual=0.0), 6.88
    own = own_node(costs)
    rented = 0.6 * price * 8 * 730 * (1 - costs["down"])
    bill, month = own.capital, 0
    while bill > month * rented:
        bill += (own.total - own.capital) / 36
        month += 1
    found = months_until_cheaper(costs, 0.6, 4.0, price)
    assert month - 1 <= found - 4.0 <= month
    assert months_until_cheaper(costs, 0.6, 4.0, 1.0) == inf
