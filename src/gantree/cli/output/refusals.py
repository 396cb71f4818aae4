"""Refusals in JSON as lines for people, from `gantree place` and from the daemon."""

from typing import Any

from gantree.cli.output.figures import amount_text
from gantree.model.verdicts import Gate


def refusal_lines(refused: dict[str, Any]) -> list[str]:
    """Gate, shortage, nearest domain and what would help, a line each; not the sentence."""
    lines = [f"gate: {refused['gate']}{_for_ever(refused['gate']) if refused['never'] else ''}"]
    if refused["short_by"] is not None:
        short = refused["short_by"]
        lines.append(f"short by: {amount_text(short['amount'])} {short['resource']}")
    if refused["nearest"] is not None:
        lines.append(f"nearest: {refused['nearest']['domain']}, room {refused['nearest']['room']}")
    return lines + [f"fits now with: {relaxation_text(each)}" for each in refused["would_fit_if"]]


def _for_ever(gate: str) -> str:
    """Why time alone changes nothing; a limit is that of a queue, or the job's own budget."""
    if gate in (Gate.LIMIT, Gate.QUOTA):
        return " (never fits, however much is free)"
    return " (never fits, not even on the empty cluster)"


def relaxation_text(relaxation: dict[str, Any]) -> str:
    """One patch and its cost: "topology.required: spine (communication 7 % slower)"."""
    patch = ", ".join(f"{field}: {_value(value)}" for field, value in relaxation["patch"].items())
    ratio = relaxation["comm_ratio"]
    if ratio is None:
        return patch
    percent = round((ratio - 1) * 100)
    if percent == 0:
        return f"{patch} (communication as fast)"
    return f"{patch} (communication {abs(percent)} % {'slower' if percent > 0 else 'faster'})"


def _value(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    if isinstance(value, dict):
        return _constraint(value)
    return "none" if value is None else str(value)


def _constraint(constraint: dict[str, Any]) -> str:
    """In short: slices "2 of role worker per rack", a spread "at most 2 per leaf", apart "a, b not in its node"."""
    if "members" in constraint:
        of_role = f" of role {constraint['role']}" if "role" in constraint else ""
        tier = constraint.get("required") or f"{constraint['preferred']} if there is room"
        return f"{constraint['members']}{of_role} per {tier}"
    if "jobs" in constraint:
        return f"{', '.join(constraint['jobs'])} not in its {constraint['tier']}"
    most = f"at most {constraint['at_most']}" if "at_most" in constraint else "evenly"
    return f"{most} per {constraint['tier']}"
