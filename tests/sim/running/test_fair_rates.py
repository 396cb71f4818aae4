"""Max-min fair rates: against a twin that raises all rates by bisection, and by what defines them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gantree.sim.running.fair_rates import Demand, fair_shares

LINKS = "abcd"


@st.composite
def demands(draw: st.DrawFn) -> list[Demand[str]]:
    """Up to six gangs over up to four links."""
    return [
        Demand(
            draw(
                st.dictionaries(st.sampled_from(LINKS), st.integers(1, 40).map(float), min_size=1)
            ),
            draw(st.sampled_from([1.0, 2.0, 8.0])),
            draw(st.sampled_from([1.0, 1.0, 0.5])),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]


CAPACITIES = st.dictionaries(st.sampled_from(LINKS), st.integers(1, 60).map(float))


def load(gangs: list[Demand[str]], shares: list[float], link: str) -> float:
    """GB/s on a link."""
    return sum(g.GBps_of_link.get(link, 0) * s for g, s in zip(gangs, shares, strict=True))


def twin(gangs: list[Demand[str]], capacity: dict[str, float]) -> list[float]:
    """Raise all gangs that can still rise to the highest common rate that fits; then see who is held up."""
    fixed: dict[int, float] = {}

    def shares_at(rate: float) -> list[float]:
        return [
            fixed.get(n, min(gang.most, rate / gang.connection_GBps))
            for n, gang in enumerate(gangs)
        ]

    def fits(shares: list[float]) -> bool:
        return all(
            load(gangs, shares, link) <= GBps * (1 + 1e-12) for link, GBps in capacity.items()
        )

    while len(fixed) < len(gangs):
        low, high = 0.0, 1e3
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if fits(shares_at(middle)) else (low, middle)
        now = shares_at(low)
        for number, gang in enumerate(gangs):
            held = any(
                link in gang.GBps_of_link and load(gangs, now, link) > GBps * (1 - 1e-6)
                for link, GBps in capacity.items()
            )
            if held or now[number] >= gang.most:
                fixed.setdefault(number, now[number])
    return [fixed[number] for number in range(len(gangs))]


@given(demands(), CAPACITIES)
def test_shares_are_those_of_the_twin(gangs: list[Demand[str]], capacity: dict[str, float]) -> None:
    assert fair_shares(gangs, capacity) == pytest.approx(twin(gangs, capacity), rel=1e-4)


@given(demands(), CAPACITIES)
def test_no_link_is_overfull_and_who_is_slowed_has_a_full_link_on_which_nobody_is_faster(
    gangs: list[Demand[str]], capacity: dict[str, float]
) -> None:
    shares = fair_shares(gangs, capacity)
    rates = [share * gang.connection_GBps for gang, share in zip(gangs, shares, strict=True)]
    full = {
        link for link, GBps in capacity.items() if load(gangs, shares, link) > GBps * (1 - 1e-9)
    }
    assert all(load(gangs, shares, link) <= GBps * (1 + 1e-9) for link, GBps in capacity.items())
    for gang, share, rate in zip(gangs, shares, rates, strict=True):
        assert 0 < share <= gang.most
        if share < gang.most * (1 - 1e-9):
            bottlenecks = full & gang.GBps_of_link.keys()
            assert any(
                all(
                    other <= rate * (1 + 1e-9)
                    for each, other in zip(gangs, rates, strict=True)
                    if link in each.GBps_of_link
                )
                for link in bottlenecks
            )


def test_two_equal_gangs_halve_a_link_and_a_small_one_keeps_its_rate() -> None:
    assert fair_shares([Demand({"a": 80}), Demand({"a": 80})], {"a": 80}) == [0.5, 0.5]
    assert fair_shares([Demand({"a": 80}), Demand({"a": 20})], {"a": 80}) == [0.75, 1.0]


def test_eight_connections_get_eight_times_what_one_gets() -> None:
    assert fair_shares([Demand({"a": 90}, 8), Demand({"a": 90}, 1)], {"a": 90}) == pytest.approx(
        [8 / 9, 1 / 9]
    )
