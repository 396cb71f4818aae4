"""The report of a check: what was measured, who is at fault, and what follows. The executor reads it as JSON.

state    "passed"; "short": below what was expected; "unfinished": the time was over or a rank failed; "skipped"
outcome  "start" the command; "replace" who is at fault, at no cost for the job; "fail" the attempt
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gantree.telemetry.checking.figures import PAIR, Figure
from gantree.telemetry.checking.judge import CheckedMember, Fault, Verdict, name_of
from gantree.text.words import plural

PASSED, SHORT, UNFINISHED, SKIPPED = "passed", "short", "unfinished", "skipped"
START, REPLACE, FAIL = "start", "replace", "fail"


@dataclass(frozen=True, slots=True)
class Rules:
    """What a job asks of its check, as in `spec.CheckSpec`."""

    required: bool
    may_replace: bool


@dataclass(frozen=True, slots=True)
class Found:
    """What there is to report. why: what kept it from being done; warnings are sentences for the user."""

    backend: str
    verdict: Verdict
    figures: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()
    why: str = ""
    skipped: bool = False


def state_of(found: Found) -> str:
    """Return the state of a check."""
    if found.skipped:
        return SKIPPED
    if found.verdict.faults or (found.verdict.short and not found.why):
        return SHORT
    return UNFINISHED if found.why else PASSED


def outcome_of(found: Found, rules: Rules) -> str:
    """Return what follows. A collective that does not end would not end in the job either."""
    if state_of(found) == PASSED:
        return START
    if found.verdict.faults and rules.may_replace:
        return REPLACE
    if rules.required:
        return FAIL
    return FAIL if found.verdict.hung and not found.verdict.faults else START


def sentence_of(found: Found, members: Sequence[CheckedMember]) -> str:
    """Return one sentence for people."""
    state = state_of(found)
    if state == SKIPPED:
        return f"links were not checked: {found.why}"
    if found.verdict.faults:
        return "; ".join(_fault_sentence(each) for each in found.verdict.faults)
    if state == UNFINISHED:
        return f"the check of its links did not end: {found.why}"
    if state == SHORT:
        more = len(found.verdict.short) - 1
        rest = f" and {more} more" if more else ""
        return f"links are slower than expected, nobody stands out: {found.verdict.short[0]}{rest}"
    if not found.figures:
        return "it has one process alone, and so no links to check"
    pairs = sum(each.kind == PAIR for each in found.figures)
    what = f", {plural(pairs, 'pair')}" if pairs else ""
    return f"links passed their check: {plural(len(members), 'member')}{what}"


def _fault_sentence(fault: Fault) -> str:
    what = f"{fault.link[0]}:{fault.link[1]}" if fault.link else f"node {fault.node}"
    return f"{what} failed the check: {fault.reason}"


def report_json(
    found: Found, members: Sequence[CheckedMember], rules: Rules, began_at: float, ended_at: float
) -> dict[str, Any]:
    """Return the report; times are seconds since 1970."""
    return {
        "state": state_of(found),
        "outcome": outcome_of(found, rules),
        "sentence": sentence_of(found, members),
        "backend": found.backend,
        "began_at": began_at,
        "ended_at": ended_at,
        "nodes": [member.node for member in members],
        "figures": [{"name": name_of(each, members), **each.to_json()} for each in found.figures],
        "short": list(found.verdict.short),
        "faults": [asdict(each) for each in found.verdict.faults],
        "warnings": list(found.warnings),
    }


def backend_of(*, cuda: bool) -> str:
    """What collectives ran over."""
    return "nccl" if cuda else "gloo"


def device_fault(members: Sequence[CheckedMember], member: int, gpu: int, words: str) -> Fault:
    """Return the fault of a device that cannot compute, by its number in the member, in words of the driver."""
    checked = members[member]
    index = checked.gpus[gpu] if gpu < len(checked.gpus) else None
    name = "" if index is None else f"GPU {index}: "
    return Fault(checked.node, index, None, 0.0, f"{name}it cannot compute: {words}")


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Return what the log of the gang's first rank has."""
    for each in report["figures"]:
        measured = "did not end" if each["measured"] is None else f"{each['measured']:g}"
        expected = f" of {each['expected']:g} expected" if each["expected"] else ""
        unit = "TFLOPS" if each["kind"] == "compute" else "GB/s"
        yield f"{each['name']} {each['kind']}: {measured}{expected} {unit}"
    yield from report["warnings"]
    yield report["sentence"]
