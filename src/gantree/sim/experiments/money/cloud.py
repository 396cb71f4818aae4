"""cloud: own machines against rented ones, by how busy they are."""

from collections.abc import Mapping
from dataclasses import dataclass

from gantree.sim.experiments.experiment import (
    Bench,
    Judgement,
    Outcome,
    Plot,
    Table,
    Verdict,
)
from gantree.sim.experiments.inputs import figures

GPUS_OF_NODE = 8
HOURS_OF_YEAR = 8_760
COMMITTED = "committed for 3 years"
WEEKS_OF_MONTH = 365 / 12 / 7

Costs = Mapping[str, float]
"""Figures of inputs/costs.csv by name."""


@dataclass(frozen=True, slots=True)
class Own:
    """What a node costs over its life, in USD: capital is less what it is sold for, and with its interest."""

    capital: float
    space: float
    energy: float
    staff: float
    support: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.capital + self.space + self.energy + self.staff + self.support


def own_node(costs: Costs) -> Own:
    """Return what a node of 8 GPUs costs over its life; energy as if it were always in use."""
    bought = costs["server_USD"] + costs["network_USD"] + costs["storage_USD"]
    sold = costs["residual"] * costs["server_USD"]
    years, rate = costs["years"], costs["interest"]
    drawn_kW = costs["node_kW"] * costs["drawn_share"] * costs["PUE"]
    return Own(
        capital=years * (annuity(bought, rate, years) - annuity(sold / (1 + rate) ** years, rate, years)),
        space=years * 12 * costs["space_USD_per_kW_month"] * costs["node_kW"],
        energy=years * HOURS_OF_YEAR * drawn_kW * costs["energy_USD_per_kWh"],
        staff=years * costs["staff_USD"] / costs["staff_nodes"],
        support=years * costs["support"] * costs["server_USD"],
    )  # fmt: skip


def annuity(sum_now: float, rate: float, years: float) -> float:
    """Return what is paid at the end of each year so that all of it is worth a sum now."""
    return sum_now * rate / (1 - (1 + rate) ** -years) if rate else sum_now / years


def own_USD_per_hour(costs: Costs) -> float:
    """Return what an hour costs in which an own GPU can be used, whether it is or not."""
    hours = costs["years"] * HOURS_OF_YEAR * GPUS_OF_NODE * (1 - costs["down"])
    return own_node(costs).total / hours


def break_even(own: float, rented: float) -> float:
    """Return the utilisation above which own GPUs cost less for each hour of use than ones rented by the hour."""
    return own / rented


def months_until_cheaper(
    costs: Costs, utilisation: float, lead_months: float, price: float
) -> float:
    """Return months from the order until owning has cost less in all than renting; inf if it never does within life.

    Until the machines work, what is needed is rented either way. All capital is spent with the order, nothing is sold.
    """
    own = own_node({**costs, "residual": 0.0})
    months = 12 * costs["years"]
    running = (own.total - own.capital) / months
    rented = utilisation * price * GPUS_OF_NODE * HOURS_OF_YEAR / 12 * (1 - costs["down"])
    paid_back = own.capital / (rented - running) if rented > running else float("inf")
    return lead_months + paid_back if paid_back <= months else float("inf")


def values(**changed: float) -> dict[str, float]:
    """Return the likeliest figures of the costs, some of them changed."""
    return {name: figure.value for name, figure in figures("costs").items()} | changed


def run(bench: Bench) -> Outcome:
    """Work out what an hour costs; nothing here is drawn, so seeds do not matter."""
    costs = values()
    own = own_USD_per_hour(costs)
    prices = _prices(costs)
    sensitivity = _sensitivity(costs)
    return Outcome(
        verdicts=(
            _of_break_even(own, prices),
            _of_three_years(own, prices),
            _of_lead_time(costs),
        ),
        tables=(
            _breakdown(costs),
            _rents(own, prices),
            Table(
                "Break-even utilisation against the on-demand price, one figure at a time at the ends of its range",
                ("figure", "low", "high", "break-even % at low", "at high", "swing, points"),
                tuple(sensitivity),
            ),
            _waiting(costs, prices),
        ),
        plots=(_plot(own, prices),),
        notes=(
            f"An hour of an own GPU costs {own:.2f} USD, used or not. Owning breaks even at 60 % where renting by the "
            f"hour costs {own / 0.6:.2f} USD.",
        ),
    )


def _prices(costs: Costs) -> dict[str, float]:
    """USD of an hour by how it is rented; the last is paid for every hour of three years."""
    return {
        "on demand, large cloud": costs["on_demand_USD"],
        "on demand, GPU cloud": costs["gpu_cloud_USD"],
        COMMITTED: costs["on_demand_USD"] * (1 - costs["committed_discount"]),
    }


def _of_break_even(own: float, prices: Mapping[str, float]) -> Verdict:
    large, small, _ = (100 * break_even(own, price) for price in prices.values())
    return Verdict(
        "owning breaks even at 60 % utilisation",
        f"{large:.0f} % against on demand at a large cloud, {small:.0f} % at a GPU cloud",
        Judgement.PARTLY,
        "60 % lies between the two kinds of provider; a commitment of three years is paid when idle too, as owning is, "
        "so utilisation does not decide between these two",
    )  # fmt: skip


def _of_three_years(own: float, prices: Mapping[str, float]) -> Verdict:
    found = [price / own for price in prices.values()]
    within = [2 <= ratio <= 3 for ratio in found]
    judged = (
        Judgement.HOLDS if all(within) else Judgement.PARTLY if any(within) else Judgement.MISSED
    )
    named = ", ".join(f"{ratio:.2g}x {name}" for name, ratio in zip(prices, found, strict=True))
    why = "only against the list price of a large cloud, and for machines that are always in use"
    return Verdict("renting costs 2 to 3 times as much over three years", named, judged, why)  # fmt: skip


def _of_lead_time(costs: Costs) -> Verdict:
    short, usual, scarce = _lead_months(costs)
    return Verdict(
        "3 to 6 months of lead time",
        f"{short:.1f} months at best, {usual:.1f} usual, {scarce:.1f} when GPUs were scarce",
        Judgement.HOLDS if short >= 3 and scarce <= 6 else Judgement.PARTLY,
        "at the end of 2023 it was nearly a year",
    )


def _lead_months(costs: Costs) -> tuple[float, ...]:
    return tuple(
        (costs[f"lead_{kind}_weeks"] + costs["install_weeks"]) / WEEKS_OF_MONTH
        for kind in ("short", "usual", "scarce")
    )


def _breakdown(costs: Costs) -> Table:
    node = own_node(costs)
    parts = {
        "servers, network, storage with interest, less resale": node.capital,
        "space and cooling": node.space,
        "energy": node.energy,
        "staff": node.staff,
        "support and spares": node.support,
        "all": node.total,
    }
    hours = costs["years"] * HOURS_OF_YEAR * GPUS_OF_NODE * (1 - costs["down"])
    rows = tuple((name, usd, usd / hours, 100 * usd / node.total) for name, usd in parts.items())
    return Table("A node of 8 H100 over three years", ("what", "USD", "USD a GPU-hour", "%"), rows)


def _rents(own: float, prices: Mapping[str, float]) -> Table:
    rows = tuple(
        (name, price, None if name == COMMITTED else 100 * break_even(own, price), price / own)
        for name, price in prices.items()
    )
    head = ("rented", "USD a GPU-hour", "break-even utilisation %", "rent / own, always in use")
    return Table("Renting against owning", head, rows)


def _sensitivity(costs: Costs) -> list[tuple[str, float, float, float, float, float]]:
    """Rows of figures that matter, the largest swing first."""
    rows = []
    for name, figure in figures("costs").items():
        if name.endswith(("_weeks", "cloud_USD", "discount")) or figure.low == figure.high:
            continue
        low, high = (_break_even_with(costs, name, end) for end in (figure.low, figure.high))
        rows.append((name, figure.low, figure.high, low, high, abs(high - low)))
    return sorted(rows, key=lambda row: -row[-1])


def _break_even_with(costs: Costs, name: str, value: float) -> float:
    own = own_USD_per_hour({**costs, name: value})
    return 100 * break_even(own, costs["on_demand_USD"])


def _waiting(costs: Costs, prices: Mapping[str, float]) -> Table:
    rows = []
    for lead_months in (0.0, *_lead_months(costs)):
        found = (
            months_until_cheaper(costs, share, lead_months, price)
            for price in list(prices.values())[:2]
            for share in (0.6, 0.9)
        )
        rows.append(
            (lead_months, *(None if months == float("inf") else months for months in found))
        )
    head = ("lead time, months", "large cloud, 60 % used", "90 %", "GPU cloud, 60 %", "90 %")
    title = "Months from the order until owning has cost less (empty: not within three years)"
    return Table(title, head, tuple(rows))


def _plot(own: float, prices: Mapping[str, float]) -> Plot:
    from gantree.sim import charts  # noqa: PLC0415 - Altair is an extra

    large, small, committed = prices.values()
    rows = []
    for percent in range(20, 101, 2):
        used = {
            "own": 100 * own / percent,
            "on demand, large cloud": large,
            "on demand, GPU cloud": small,
            COMMITTED: 100 * committed / percent,
        }
        rows += [{"who": who, "used": percent, "USD": usd} for who, usd in used.items()]
    chart = charts.lines(
        rows,
        "used",
        "USD",
        "who",
        x_title="utilisation, %",
        y_title="USD for a GPU-hour of use",
    )
    return Plot("cloud", "What an hour of use costs, by utilisation", charts.to_svg(chart))
