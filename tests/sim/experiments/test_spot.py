"""spot: the money, and the price of an interruption."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.experiments.money.spot import Price, by_formula, prices, run_rate, saved


@given(st.floats(1, 20), st.floats(0.1, 1), st.floats(1, 3))
def test_what_is_saved_is_the_bill_on_demand_less_the_bill_on_spot(
    on_demand: float, share: float, held: float
) -> None:
    work_h = 100.0
    price = Price("gpu", on_demand, on_demand * share, "2026")
    bill, spot_bill = work_h * on_demand, work_h * held * on_demand * share
    assert saved(price, held) == pytest.approx(100 * (bill - spot_bill) / bill)
    assert saved(price, 1.0) == pytest.approx(price.saved)


def test_no_quotation_has_spot_dearer_than_on_demand() -> None:
    assert all(0 <= price.saved < 100 for price in prices())


def test_more_interruptions_hold_more_hours_and_saving_at_the_notice_costs_less_than_the_formula() -> (
    None
):
    calm, busy = run_rate(("calm", 1)), run_rate(("busy", 1))
    assert calm.held < busy.held
    assert calm.interruptions < busy.interruptions
    formula = by_formula(1.0)
    assert formula is not None
    assert busy.held < formula + 0.02
