"""The effect of another policy as text: a diff of the rules, then the decisions that follow at once."""

from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from typing import Any

from gantree.text.words import plural

JOBS_SHOWN = 12
ENTRIES_SHOWN = 4
"""Of a table in which more rules than these change; `--json` has them all."""


def change_text(change: dict[str, Any]) -> str:
    """Several lines; the first say the rules as a diff does, the last what is doubtful about them."""
    rules = list(_rules(change["rules"])) or ["No rule changes."]
    effects = list(_effects(change)) or ["No decision changes now."]
    return "\n".join([*rules, "", *effects, *change.get("warnings", [])])


def _rules(rules: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each rule before and after; many entries of one table, such as weights, share two lines."""
    for table, group in groupby(rules, key=lambda each: str(each["rule"]).rpartition(".")[0]):
        together = list(group)
        if not table or table.startswith("queues.") or len(together) <= ENTRIES_SHOWN:
            yield from (line for each in together for line in _both(each["rule"], each))
        else:
            sides = {side: _entries(together, side) for side in ("before", "after")}
            yield from _both(table, sides)


def _both(rule: str, sides: Mapping[str, Any]) -> Iterator[str]:
    for mark, side in (("-", "before"), ("+", "after")):
        if sides[side] is not None:
            yield f"{mark} {rule}: {_value(sides[side])}"


def _entries(rules: list[dict[str, Any]], side: str) -> dict[str, Any] | None:
    """What a table says on one side; None where it says nothing there."""
    found = {
        str(each["rule"]).rpartition(".")[2]: each[side] for each in rules if each[side] is not None
    }
    return found or None


def _value(value: Any) -> str:
    """A value as a policy file writes it, long tables shortened."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case dict():
            shown = [f"{key}: {_value(each)}" for key, each in islice(value.items(), ENTRIES_SHOWN)]
            more = len(value) - len(shown)
            return f"{{{', '.join(shown)}{f', and {more} more' if more else ''}}}"
        case _:
            return str(value)


def _effects(change: dict[str, Any]) -> Iterator[str]:
    if change["starts"]:
        yield f"{plural(len(change['starts']), 'job')} would start: {_named(change['starts'])}"
    for stop in change["stops"]:
        whom = f" for {stop['by']}" if stop["by"] else ""
        yield f"{stop['job']} would be stopped{whom} ({stop['cause']})"
    if change.get("resumes"):
        yield f"would run at once on a shared GPU: {_named(change['resumes'])}"
    if change.get("suspends"):
        yield f"would wait for their time slice on a shared GPU: {_named(change['suspends'])}"
    if change["loses_guarantee"]:
        yield f"would run on borrowed resources: {_named(change['loses_guarantee'])}"
    if change["gains_guarantee"]:
        yield f"would run within the guarantee of their queue: {_named(change['gains_guarantee'])}"
    for each in change["priorities"]:
        yield f"{each['job']} would have priority {each['after']} instead of {each['before']}"
    for queue, jobs in change["without_queue"].items():
        yield f"queue {queue} would be removed; its jobs continue: {_named(jobs)}"


def _named(jobs: list[str]) -> str:
    more = len(jobs) - JOBS_SHOWN
    return ", ".join(jobs[:JOBS_SHOWN]) + (f" and {more} more" if more > 0 else "")
