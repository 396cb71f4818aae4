"""What another policy would change, in words: a diff of the rules, then what would be decided at once."""

from collections.abc import Iterator
from typing import Any

from gantree.text.words import plural

JOBS_SHOWN = 12


def change_text(change: dict[str, Any]) -> str:
    """Several lines; the first say the rules as a diff does."""
    rules = list(_rules(change["rules"])) or ["The rules are those in force."]
    effects = list(_effects(change)) or ["Nothing would be decided otherwise now."]
    return "\n".join([*rules, "", *effects])


def _rules(rules: list[dict[str, Any]]) -> Iterator[str]:
    for each in rules:
        if each["before"] is not None:
            yield f"- {each['rule']}: {_value(each['before'])}"
        if each["after"] is not None:
            yield f"+ {each['rule']}: {_value(each['after'])}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _effects(change: dict[str, Any]) -> Iterator[str]:
    if change["starts"]:
        yield f"{plural(len(change['starts']), 'job')} would start: {_named(change['starts'])}"
    for stop in change["stops"]:
        whom = f" for {stop['by']}" if stop["by"] else ""
        yield f"{stop['job']} would be stopped{whom} ({stop['cause']})"
    if change["loses_guarantee"]:
        yield f"would run on borrowed room: {_named(change['loses_guarantee'])}"
    if change["gains_guarantee"]:
        yield f"would be within the guarantee of their queue: {_named(change['gains_guarantee'])}"
    for each in change["priorities"]:
        yield f"{each['job']} would have priority {each['after']} instead of {each['before']}"
    for queue, jobs in change["without_queue"].items():
        yield f"queue {queue} would be gone, and its jobs go on: {_named(jobs)}"


def _named(jobs: list[str]) -> str:
    more = len(jobs) - JOBS_SHOWN
    return ", ".join(jobs[:JOBS_SHOWN]) + (f" and {more} more" if more > 0 else "")
