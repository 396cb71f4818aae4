"""Amounts of resources in policy.yaml: GPUs by model or of any, CPUs, memory, NICs, devices."""

# ruff: noqa: RUF012 - Pydantic copies the default of a field for every form

from typing import Annotated, Any

from gantree.formats.validation.fields import Amount, Text, number
from gantree.formats.validation.forms import AlsoWritten, Form
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


GpuAmounts = Annotated[
    dict[Text, Amount], AlsoWritten(_number_alone, {"type": "number", "minimum": 0})
]


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
