"""Objects from the templates of a list: YAML with as much of Go's templates as the lists use.

`{{.Index}}` and `{{.Count}}`, and calls of one function on these and on integers, such as `{{Mod .Index 25}}`.
"""

import operator
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "AddInt": operator.add,
    "SubtractInt": operator.sub,
    "MultiplyInt": operator.mul,
    "DivideInt": operator.floordiv,
    "Mod": operator.mod,
    "MaxInt": max,
    "MinInt": min,
}
Json = dict[str, Any]


class CannotRun(Exception):
    """A list asks for what this interpreter does not have."""


def rendered(file: Path, index: int = 0, count: int = 1) -> Json:
    """The object of a template, the index-th of count. Raises CannotRun."""
    text = file.read_text()
    values = {".Index": index, ".Count": count}
    found: Json = yaml.safe_load(ACTION.sub(lambda action: _value(action[1], values), text))
    return found


def _value(action: str, values: dict[str, int]) -> str:
    words = action.split()
    if len(words) == 1:
        return str(_operand(words[0], values))
    name, *operands = words
    if name not in FUNCTIONS or len(operands) != 2:
        raise CannotRun(f"the template has {{{{{action}}}}}")
    return str(FUNCTIONS[name](*(_operand(each, values) for each in operands)))


def _operand(word: str, values: dict[str, int]) -> int:
    if word in values:
        return values[word]
    if re.fullmatch(r"-?\d+", word):
        return int(word)
    raise CannotRun(f"the template has {word}")
