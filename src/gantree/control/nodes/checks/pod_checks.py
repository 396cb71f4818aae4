"""What checks before the start on Kubernetes need of the rest: pods' results read and judged, prices, marks, policy."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gantree.control.nodes.checks.check_marks import marks_of_check
from gantree.control.nodes.checks.check_prices import prices_of_check
from gantree.core.ledger.ledger import Ledger
from gantree.executors.kubernetes.controllers.link_checks import LinkCheckCalls
from gantree.model.errors import BadInput
from gantree.policy.rules import Policy
from gantree.telemetry.checking.figures import KINDS, Figure, in_order
from gantree.telemetry.checking.judge import CheckedMember, Verdict, judge
from gantree.telemetry.checking.report import (
    Found,
    Rules,
    backend_of,
    device_fault,
    report_json,
    report_lines,
)

MOST_FIGURES, MOST_MEMBERS, MOST_GPUS, MOST_WORDS = 500, 4096, 64, 300
MOST_RATE = 1e9
NOTHING = Verdict((), (), hung=False)
Json = dict[str, Any]
BAD = "result: expected what gantree.telemetry.checking.pod posts"


@dataclass(frozen=True, slots=True)
class PodResult:
    """What a pod found: figures, (GPU, words) of its own devices that cannot compute, measurements done and all.

    skipped: why it could not check; why: what kept its ranks from the end.
    """

    figures: tuple[Figure, ...] = ()
    faults: tuple[tuple[int, str], ...] = ()
    done: tuple[int, int] = (0, 0)
    warnings: tuple[str, ...] = ()
    why: str = ""
    skipped: str = ""

    @property
    def is_decisive(self) -> bool:
        """Whether the results of the others cannot change what follows."""
        return bool(self.faults or self.skipped)


def pod_result_in(told: Mapping[str, Any]) -> PodResult:
    """The result that a pod posted. Raises BadInput for what is none."""
    if "skipped" in told:
        return PodResult(skipped=_words(told["skipped"]))
    try:
        figures, faults, warnings = told["figures"], told["faults"], told["warnings"]
        if max(len(figures), len(faults), len(warnings)) > MOST_FIGURES:
            raise BadInput(BAD)
        done, total = told["done"]
        return PodResult(
            tuple(_figure(each) for each in figures),
            tuple((_number(gpu, MOST_GPUS), _words(words)) for gpu, words in faults),
            (_number(done, 10**6), _number(total, 10**6)),
            tuple(_words(each) for each in warnings),
            _words(told["why"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(BAD) from error


def _figure(told: Mapping[str, Any]) -> Figure:
    if told["kind"] not in KINDS:
        raise BadInput(BAD)
    return Figure(
        told["kind"],
        tuple(_number(each, MOST_MEMBERS) for each in told["members"]),
        _rate(told["measured"]),
        _rate(told["expected"]),
        tuple(_number(each, MOST_GPUS) for each in told["gpus"]),
    )


def _rate(told: object) -> float | None:
    if told is None:
        return None
    is_number = isinstance(told, int | float) and not isinstance(told, bool)
    if not is_number or not 0 <= (rate := float(told)) <= MOST_RATE:  # type: ignore[arg-type]  # it is a number
        raise BadInput(BAD)
    return rate


def _number(told: object, limit: int) -> int:
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told < limit:
        raise BadInput(BAD)
    return told


def _words(told: object) -> str:
    if not isinstance(told, str):
        raise BadInput(BAD)
    return "".join(each if each.isprintable() else " " for each in told)[:MOST_WORDS]


def judged(
    plan: Mapping[str, Any], results: Mapping[int, PodResult], why: str, began_at: float
) -> Json:
    """The report of a check, with the lines of its log; why: what kept it from being done."""
    members = tuple(_member(each) for each in plan["members"])
    report = report_json(
        _found(plan, members, results, why),
        members,
        Rules(plan["required"], plan["may_replace"]),
        began_at,
        time.time(),
    )
    return {**report, "lines": list(report_lines(report))}


def _member(told: Mapping[str, Any]) -> CheckedMember:
    domains = tuple((tier, path) for tier, path in told["domains"])
    return CheckedMember(told["node"], tuple(told["gpus"]), tuple(told["nics"]), domains)


def _found(
    plan: Mapping[str, Any],
    members: tuple[CheckedMember, ...],
    results: Mapping[int, PodResult],
    why: str,
) -> Found:
    own = [(number, results[number]) for number in sorted(results) if number < len(members)]
    backend = backend_of(cuda=plan["cuda"])
    skipped = next((each.skipped for _, each in own if each.skipped), "")
    if skipped:
        return Found("", NOTHING, why=skipped, skipped=True)
    faults = tuple(
        device_fault(members, number, *each) for number, one in own for each in one.faults
    )
    if faults:
        return Found(backend, Verdict(faults, (), hung=False))
    figures = merged((each for _, one in own for each in one.figures), len(members))
    warnings = next((each.warnings for _, each in own if each.warnings), ())
    why = why or next((each.why for _, each in own if each.why), "") or _not_all(plan, dict(own))
    return Found(backend, judge(members, figures), figures, warnings, why)


def _not_all(plan: Mapping[str, Any], results: Mapping[int, PodResult]) -> str:
    done, total = results[0].done if 0 in results else (0, 0)
    if done >= total:
        return ""
    return f"{plan['seconds']:g} s were enough for {done} of {total} measurements"


def merged(figures: Iterable[Figure], members: int) -> tuple[Figure, ...]:
    """One figure of each group: the first that has a rate; without one where none has ended it."""
    found: dict[tuple[str, tuple[int, ...], tuple[int, ...]], Figure] = {}
    for each in figures:
        key = (each.kind, each.members, each.gpus)
        known = found.get(key)
        if all(number < members for number in each.members) and (
            known is None or known.measured is None
        ):
            found[key] = each
    return in_order(found.values())


def link_check_calls(
    image: str,
    ledger: Callable[[], Ledger],
    policy: Callable[[], Policy],
    clock: Callable[[], float],
) -> LinkCheckCalls:
    """Return what the executor needs for checks in an image."""
    return LinkCheckCalls(
        image,
        lambda queue: policy().check_of(queue),
        lambda order: prices_of_check(order, ledger().fabric),
        pod_result_in,
        judged,
        lambda job, attempt, faults: marks_of_check(ledger(), job, attempt, faults, clock()),
    )
