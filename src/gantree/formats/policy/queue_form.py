"""Fields of a queue in policy.yaml: weight, guarantees and limits in amounts or in cells, and its queues.

Rules that join fields stand in `queue_rules`.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.check_form import CheckForm
from gantree.formats.policy.amounts_form import AmountsForm
from gantree.formats.policy.budget_form import BudgetForm
from gantree.formats.policy.idle_form import NONE, IdleForm, none_alone
from gantree.formats.validation.fields import (
    AmountAboveZero,
    Count,
    CountFromOne,
    DurationAboveZero,
    Name,
    plain_text,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed
from gantree.policy.rules import LendIdle


def _tier(value: Any) -> str:
    tier = plain_text(value)
    if tier == "gpu":
        raise wrong("a tier, or gpus for GPUs anywhere", "Did you mean `gpus`?")
    return tier


Tier = Annotated[str, PlainValidator(_tier), WithJsonSchema({"type": "string"})]


class LendForm(AmountsForm):
    """What a queue lends of its guarantee: at any time, and of what it has not used of late."""

    idle_after: DurationAboveZero | None = None
    keep: AmountsForm = AmountsForm()
    return_within: DurationAboveZero | None = None

    def lend_idle(self) -> LendIdle | None:
        """Return the rule of what is lent by use; None where there is none."""
        return None if self.idle_after is None else LendIdle(self.idle_after, self.keep.amounts())


class UserForm(Form):
    """What each user of a queue may have."""

    limit: AmountsForm = AmountsForm()
    most_running: CountFromOne | None = None


class QueueForm(Form):
    """One queue, and the queues below it."""

    name: Name
    weight: AmountAboveZero = 1.0
    cohort: Name | None = None
    guarantee: AmountsForm = AmountsForm()
    limit: AmountsForm = AmountsForm()
    lend: LendForm = LendForm()
    borrow: AmountsForm = AmountsForm()
    cells: Listed[dict[Tier, CountFromOne]] = []
    most_running: Count | None = None
    most_waiting: Count | None = None
    user: UserForm = UserForm()
    check: CheckForm | None = None
    budget: Listed[BudgetForm] = []
    idle: Annotated[IdleForm | None, AlsoWritten(none_alone, {"const": NONE})] = None
    queues: "list[QueueForm]" = []

    def cells_in_order(self) -> tuple[tuple[str, int], ...]:
        """Return (tier, how many), as written."""
        return tuple(cell for cells in self.cells for cell in cells.items())
