"""Asks a Prometheus server for the value of a query now, over its HTTP API.

https://prometheus.io/docs/prometheus/latest/querying/api/#instant-queries
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from math import isfinite
from typing import Any

from gantree.model.errors import GantreeError, Unreachable

ANSWER_WITHIN_S = 5.0
MOST_BYTES = 4 << 20


def ask(server: str, query: str, lookback_s: float) -> float:
    """Return the value of a query: of a vector the sum over its series, as the HPA does with external metrics.

    Series whose last sample is older than lookback_s do not count, where the server knows `lookback_delta` (newer than
    2.42; older ones count what is five minutes old). Raises GantreeError where there is no value: with the server's own
    words for a query that it refuses.
    """
    asked = urllib.parse.urlencode({"query": query, "lookback_delta": f"{lookback_s:g}"})
    url = f"{server.rstrip('/')}/api/v1/query?{asked}"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_WITHIN_S) as answer:  # noqa: S310 - http or https, as checked
            document = json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        with error:
            raise GantreeError(f"{server}: {_refusal(error.read(MOST_BYTES), error)}") from error
    except (OSError, ValueError) as error:
        raise Unreachable(f"{server} does not answer: {error}") from error
    return _value(server, document)


def _refusal(body: bytes, error: Exception) -> str:
    try:
        return str(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError):
        return str(error)


def _value(server: str, document: Any) -> float:
    try:
        data = document["data"]
        kind, result = data["resultType"], data["result"]
        if kind == "scalar":
            values = [float(result[1])]
        elif kind == "vector":
            values = [float(series["value"][1]) for series in result]
        else:
            raise GantreeError(f"{server}: the query is a {kind}; a number or a vector is needed")
    except (KeyError, IndexError, TypeError, ValueError):
        raise GantreeError(f"{server} answers as no Prometheus does") from None
    if not values or not isfinite(sum(values)):
        raise GantreeError(f"{server}: the query has no value now")
    return sum(values)
