"""Fields of a queue in policy.yaml: weight, guarantees and limits in amounts or in cells, and its queues.

Rules that join fields stand in `queue_rules`.
"""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gantree.formats.job.check_form import CheckForm
from gantree.formats.validation.fields import (
    Amount,
    AmountAboveZero,
    Count,
    CountFromOne,
    Name,
    Text,
    number,
    plain_text,
    wrong,
)
from gantree.formats.validation.forms import AlsoWritten, Form, Listed
from gantree.text.document import Table

ANY_MODEL = "any"
"""How `gpus` names GPUs of all models together."""
_GPUS = "a number of GPUs of 0 or more, or a mapping of models (or any) to numbers"


def _number_alone(value: Any) -> Any:
    """Make `{any: 64}` of a bare 64."""
    if isinstance(value, Table):
        return value
    table = Table("", 0)
    table[ANY_MODEL] = number(0, 1e15, _GPUS)(value)
    return table


def _tier(value: Any) -> str:
    tier = plain_text(value)
    if tier == "gpu":
        raise wrong("a tier, or gpus for GPUs anywhere", "Did you mean `gpus`?")
    return tier


GpuAmounts = Annotated[
    dict[Text, Amount], AlsoWritten(_number_alone, {"type": "number", "minimum": 0})
]
Tier = Annotated[str, PlainValidator(_tier), WithJsonSchema({"type": "string"})]


class AmountsForm(Form):
    """How much of each resource. A resource that is not named is not spoken of."""

    gpus: GpuAmounts = {}
    cpus: Amount | None = None
    memory_GiB: Amount | None = None
    nics: Amount | None = None
    devices: dict[Text, Amount] = {}

    def amounts(self) -> dict[str, float]:
        """Return amounts by the keys of `policy.rules`."""
        found = {gpus_key(model): amount for model, amount in self.gpus.items()}
        plain = {"cpus": self.cpus, "memory_GiB": self.memory_GiB, "nics": self.nics}
        found |= {name: amount for name, amount in plain.items() if amount is not None}
        return found | {f"devices/{name}": amount for name, amount in self.devices.items()}


def gpus_key(model: str) -> str:
    """Return the key of GPUs of a model, or of ANY_MODEL."""
    return "gpus" if model == ANY_MODEL else f"gpus/{model}"


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
    lend: AmountsForm = AmountsForm()
    borrow: AmountsForm = AmountsForm()
    cells: Listed[dict[Tier, CountFromOne]] = []
    most_running: Count | None = None
    most_waiting: Count | None = None
    user: UserForm = UserForm()
    check: CheckForm | None = None
    queues: "list[QueueForm]" = []

    def cells_in_order(self) -> tuple[tuple[str, int], ...]:
        """Return (tier, how many), as written."""
        return tuple(cell for cells in self.cells for cell in cells.items())
