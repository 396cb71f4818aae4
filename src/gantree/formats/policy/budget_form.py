"""The budgets of a queue in policy.yaml, what may stand in them and what they become.

Prices are settled when the policy is read, so that what has been decided does not depend on list prices of another day.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.notify_form import Mail, Webhook
from gantree.formats.policy.amounts_form import ANY_MODEL, GpuAmounts, gpus_key
from gantree.formats.policy.gpu_weights import list_prices
from gantree.formats.validation.fields import Amount, one_of, wrong
from gantree.formats.validation.forms import Form, Listed
from gantree.model.errors import Problem
from gantree.model.jobs import BUDGET_EVENT, Notify
from gantree.policy.rules import AtLimit, Budget, Period
from gantree.text.document import Truth, written

PERIODS: tuple[Period, ...] = get_args(Period)
AT_LIMIT: tuple[str, ...] = get_args(AtLimit)
HOUR_S = 3600.0
SECONDS_OF_UNIT = {"GPU-minutes": 60.0, "GPU-hours": HOUR_S}
"""The units that are no money, and the seconds of a GPU of weight 1 in one."""
LISTED = "USD"
"""The currency of list prices."""
MAX_PERCENT = 1000.0
_AMOUNT_PATTERN = r"([0-9]{1,15}(?:\.[0-9]{1,6})?) (GPU-minutes|GPU-hours|[A-Z]{3})"
_AMOUNT = re.compile(_AMOUNT_PATTERN)
_PERCENT_PATTERN = r"([0-9]{1,4}(?:\.[0-9]{1,3})?) ?%"
_PERCENT = re.compile(_PERCENT_PATTERN)


def _amount_of_unit(value: Any) -> tuple[float, str]:
    """Return the number and the unit of "10000 USD"."""
    text = None if isinstance(value, Truth) else written(value)
    found = _AMOUNT.fullmatch(text) if text is not None else None
    if found is None or not float(found[1]):
        raise wrong("an amount above 0 such as 10000 USD, 5000 GPU-hours or 300000 GPU-minutes")
    return float(found[1]), found[2]


def _percent(value: Any) -> float:
    text = None if isinstance(value, Truth) else written(value)
    found = _PERCENT.fullmatch(text) if text is not None else None
    if found is None or not 0 < float(found[1]) <= MAX_PERCENT:
        raise wrong(f"a percentage such as 80%, at most {MAX_PERCENT:g}%")
    return float(found[1]) / 100


AmountOfUnit = Annotated[
    tuple[float, str],
    PlainValidator(_amount_of_unit),
    WithJsonSchema({"type": "string", "pattern": f"^{_AMOUNT_PATTERN}$"}),
]
Percent = Annotated[
    float,
    PlainValidator(_percent),
    WithJsonSchema({"type": "string", "pattern": f"^{_PERCENT_PATTERN}$"}),
]
AtLimitWord = Annotated[
    str, PlainValidator(one_of(AT_LIMIT)), WithJsonSchema({"enum": list(AT_LIMIT)})
]


class WeightsForm(Form):
    """What one GPU of each model, one CPU and one GiB of memory cost, or count."""

    gpus: GpuAmounts = {}
    cpus: Amount | None = None
    memory_GiB: Amount | None = None


class BudgetNotifyForm(Form):
    """Where a message goes when a level is reached, and when the budget is used up."""

    webhook: Webhook | None = None
    mail: Mail | None = None


class BudgetForm(Form):
    """How much a queue may use in one period, and what happens as it does."""

    day: AmountOfUnit | None = None
    week: AmountOfUnit | None = None
    month: AmountOfUnit | None = None
    total: AmountOfUnit | None = None
    prices: WeightsForm | None = None
    weights: WeightsForm | None = None
    alerts: Listed[Percent] | None = None
    at_limit: AtLimitWord | None = None
    notify: BudgetNotifyForm | None = None

    def amounts(self) -> dict[Period, tuple[float, str]]:
        """Return the amount of each period that is written."""
        found: dict[Period, tuple[float, str] | None] = {
            "day": self.day,
            "week": self.week,
            "month": self.month,
            "total": self.total,
        }
        return {period: amount for period, amount in found.items() if amount is not None}

    def budget(self) -> Budget:
        """Return the budget; the form must be without problems."""
        ((period, (amount, unit)),) = self.amounts().items()
        weights, other_gpus = _weights(self, unit)
        more: dict[str, Any] = {}
        if self.alerts is not None:
            more["alerts"] = tuple(sorted(set(self.alerts)))
        if self.at_limit is not None:
            more["at_limit"] = self.at_limit
        if self.notify is not None:
            more["notify"] = Notify((BUDGET_EVENT,), self.notify.webhook, self.notify.mail)
        per_s = SECONDS_OF_UNIT.get(unit, HOUR_S)
        return Budget(period, amount, unit, per_s, weights, other_gpus, **more)


def _weights(form: BudgetForm, unit: str) -> tuple[dict[str, float], float]:
    """Weights by resource, and that of a GPU of any other model.

    Money: the prices that are written, else list prices; a model without any costs as much as the dearest.
    """
    is_money = unit not in SECONDS_OF_UNIT
    written_weights = (form.prices if is_money else form.weights) or WeightsForm()
    gpus = dict(written_weights.gpus)
    other = gpus.pop(ANY_MODEL, None if is_money else 1.0)
    if other is None and unit == LISTED:
        gpus = list_prices() | gpus
    weights = {gpus_key(model): weight for model, weight in gpus.items()}
    plain = {"cpus": written_weights.cpus, "memory_GiB": written_weights.memory_GiB}
    weights |= {name: weight for name, weight in plain.items() if weight is not None}
    return weights, max(gpus.values()) if other is None else other


def budget_problems(forms: Sequence[BudgetForm]) -> Iterator[Problem]:
    """Yield what is wrong between the fields of the budgets of one queue."""
    seen: dict[Period, int] = {}
    for form in forms:
        amounts = form.amounts()
        if len(amounts) != 1 and not form.lost:
            found = " and ".join(amounts) or "no amount"
            yield form.problem(next(iter(amounts), "month"), found, f"one of {', '.join(PERIODS)}")
        for period, (_, unit) in amounts.items():
            if period in seen:
                again = f"`{period}` again (first in line {seen[period]})"
                yield form.problem(period, again, "one budget for each period")
            seen.setdefault(period, form.line_of(period))
            yield from _unit_problems(form, unit)


def _unit_problems(form: BudgetForm, unit: str) -> Iterator[Problem]:
    is_money = unit not in SECONDS_OF_UNIT
    if is_money and form.weights is not None:
        yield form.problem(
            "weights", f"weights of a budget in {unit}", "prices: what an hour of one costs"
        )
    if not is_money and form.prices is not None:
        yield form.problem("prices", f"prices of a budget in {unit}", "weights: as what one counts")
    has_gpus = form.prices is not None and (form.prices.gpus or form.prices.any_lost("gpus"))
    if is_money and unit != LISTED and not has_gpus and "prices" not in form.lost:
        allowed = f"prices.gpus in {unit}: list prices are in {LISTED}"
        yield form.problem("prices", f"no prices in {unit}", allowed)
