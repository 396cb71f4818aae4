"""Conditions in CEL: of webhooks on requests, of classes and claims on devices.

Imported for the first of them: cel-python takes a second.
"""

from typing import Any

import celpy
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError
from celpy.evaluation import CELEvalError

from support.kubernetes.server.statuses import Json


def value(expression: str, request: Json) -> bool:
    """What a condition says of a request and its object. Raises ValueError for one that fails."""
    rest = {key: each for key, each in request.items() if key not in ("object", "oldObject")}
    told: Any = {"object": json_to_cel(request["object"]), "request": json_to_cel(rest)}
    environment = celpy.Environment()
    try:
        return bool(environment.program(environment.compile(expression)).evaluate(told))
    except (CELEvalError, CELParseError) as error:
        raise ValueError(f"{expression!r}: {error}") from error


def is_cel(expression: str) -> bool:
    """Whether an expression can be parsed. Optional fields (`.?`, `[?`) are CEL that cel-python does not know."""
    try:
        celpy.Environment().compile(expression.replace(".?", ".").replace("[?", "["))
    except CELParseError:
        return False
    return True
