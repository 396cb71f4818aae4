"""The queues of a policy file as `QueueRule`s, and rules between them, with the line of what breaks them.

What a queue is guaranteed is what it says itself; a queue that says nothing of a resource is guaranteed what the queues
below it are guaranteed together. Amounts are compared by the keys of `policy.rules`: "gpus" is at least the sum of all
"gpus/MODEL", and at least one model's share of it.
"""

from collections.abc import Iterator, Sequence

from gantree.formats.policy.amounts_form import AmountsForm
from gantree.formats.policy.budget_form import budget_problems
from gantree.formats.policy.queue_form import QueueForm
from gantree.model.errors import Problem
from gantree.policy.rules import LOOSE, Amounts, QueueRule

_EACH_MODEL = f"{LOOSE}/"


def queue_rules(queues: Sequence[QueueForm], above: str = "") -> Iterator[QueueRule]:
    """Yield the queues of a tree, parents before their children."""
    for form in queues:
        path = f"{above}/{form.name}" if above else form.name
        yield QueueRule(
            path=path,
            weight=form.weight,
            cohort=form.cohort,
            guarantee=form.guarantee.amounts(),
            limit=form.limit.amounts(),
            lend=form.lend.amounts(),
            borrow=form.borrow.amounts(),
            lend_idle=form.lend.lend_idle(),
            return_within_s=form.lend.return_within,
            cells=form.cells_in_order(),
            most_running=form.most_running,
            most_waiting=form.most_waiting,
            user_limit=form.user.limit.amounts(),
            most_running_per_user=form.user.most_running,
            check=form.check.check() if form.check else None,
            budgets=tuple(budget.budget() for budget in form.budget),
            idle=form.idle.rule() if form.idle else None,
        )
        yield from queue_rules(form.queues, path)


def queue_paths(queues: Sequence[QueueForm], above: str = "") -> Iterator[str]:
    """Yield the paths of the queues of a tree, parents before their children; the forms may have problems."""
    for form in queues:
        path = f"{above}/{form.name}" if above else form.name
        yield path
        yield from queue_paths(form.queues, path)


def queue_problems(queues: Sequence[QueueForm]) -> Iterator[Problem]:
    """Yield what is wrong between the queues of one level and below."""
    line_of_name: dict[str, int] = {}
    for form in queues:
        if form.name in line_of_name:
            found = f"`{form.name}` again (first in line {line_of_name[form.name]})"
            yield form.problem("name", found, "each name once below one parent")
        line_of_name.setdefault(form.name, form.line_of("name"))
        yield from _limit_problems(form)
        yield from _guarantee_problems(form)
        yield from _lend_problems(form)
        yield from _lend_idle_problems(form)
        yield from _cell_problems(form)
        yield from budget_problems(form.budget)
        yield from form.idle.problems() if form.idle else ()
        yield from queue_problems(form.queues)


def guaranteed(form: QueueForm) -> dict[str, float]:
    """Return what a queue is guaranteed, in amounts; whole domains of its cells are not counted."""
    cells = dict(form.cells_in_order())
    loose = {LOOSE: float(cells[LOOSE])} if LOOSE in cells else {}
    return _guaranteed_below(form) | loose | form.guarantee.amounts()


def _guaranteed_below(form: QueueForm) -> dict[str, float]:
    together: dict[str, float] = {}
    for child in form.queues:
        for resource, amount in guaranteed(child).items():
            together[resource] = together.get(resource, 0.0) + amount
    return together


def at_least(amounts: Amounts, resource: str) -> float | None:
    """Return the least of a resource that amounts speak of, None where they do not speak of it."""
    of_models = [amount for key, amount in amounts.items() if key.startswith(_EACH_MODEL)]
    if resource == LOOSE and of_models:
        return max(sum(of_models), amounts.get(LOOSE, 0.0))
    return amounts.get(resource)


def _limit_problems(form: QueueForm) -> Iterator[Problem]:
    """What a queue is guaranteed it may also use."""
    own = guaranteed(form)
    bound = "its guarantee" if form.guarantee.amounts() else "the guarantees below it"
    for resource, most in form.limit.amounts().items():
        amount = at_least(own, resource)
        if amount is not None and amount > most:
            allowed = f"at least {bound}, {amount:g}"
            yield _problem_of_amount(form.limit, resource, most, allowed)


def _guarantee_problems(form: QueueForm) -> Iterator[Problem]:
    """A guarantee is at least what the queues below it are guaranteed together."""
    below = _guaranteed_below(form)
    for resource, amount in form.guarantee.amounts().items():
        needed = at_least(below, resource)
        if needed is not None and needed > amount:
            allowed = f"at least the sum of the guarantees below it, {needed:g}"
            yield _problem_of_amount(form.guarantee, resource, amount, allowed)


def _lend_problems(form: QueueForm) -> Iterator[Problem]:
    """A queue lends of what it is guaranteed. What its cells come to in GPUs the cluster says, not the policy."""
    if form.any_lost("guarantee") or form.any_lost("queues") or form.any_lost("cells"):
        return
    own, has_cells = guaranteed(form), _has_cells(form)
    for resource, amount in form.lend.amounts().items():
        if has_cells and (resource == LOOSE or resource.startswith(_EACH_MODEL)):
            continue
        most = at_least(own, resource)
        if most is None and resource.startswith(_EACH_MODEL):
            most = own.get(LOOSE)
        if amount > (most or 0.0):
            allowed = f"at most its guarantee, {most or 0:g}"
            yield _problem_of_amount(form.lend, resource, amount, allowed)


def _lend_idle_problems(form: QueueForm) -> Iterator[Problem]:
    """What is lent by use is of a guarantee in amounts, less what is kept."""
    lend, kept = form.lend, form.lend.keep.amounts()
    if kept and lend.idle_after is None and not lend.any_lost("idle_after"):
        yield lend.problem("keep", "keep without idle_after", "it beside idle_after, such as 1h")
    if form.any_lost("guarantee") or form.any_lost("queues") or form.any_lost("cells"):
        return
    if lend.idle_after is not None and _has_cells(form):
        yield lend.problem("idle_after", "idle_after of cells", "it beside a guarantee in amounts")
        return
    own = guaranteed(form)
    if lend.idle_after is not None and not any(own.values()):
        yield lend.problem("idle_after", "idle_after without a guarantee", "it beside a guarantee")
    for resource, amount in kept.items():
        most = (at_least(own, resource) or 0.0) - lend.amounts().get(resource, 0.0)
        if amount > most:
            allowed = f"at most what it is guaranteed and does not lend at any time, {most:g}"
            yield _problem_of_amount(lend.keep, resource, amount, allowed)


def _has_cells(form: QueueForm) -> bool:
    return bool(form.cells) or any(_has_cells(child) for child in form.queues)


def _cell_problems(form: QueueForm) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, cells in enumerate(form.cells):
        for tier in cells:
            if tier in seen:
                found = f"`{tier}` again"
                yield form.problem("cells", found, "each tier once", at=(index, tier))
            seen.add(tier)
    if form.cells and form.queues:
        allowed = "cells only on queues without queues below them"
        yield form.problem("cells", "cells of a queue with queues below it", allowed)
    if form.cells and any(key.partition("/")[0] == LOOSE for key in form.guarantee.amounts()):
        allowed = f"one of them; the cell `{LOOSE}` guarantees GPUs outside whole domains"
        yield form.problem("cells", "cells beside a guarantee of GPUs", allowed)


def _problem_of_amount(amounts: AmountsForm, resource: str, amount: float, allowed: str) -> Problem:
    kind, _, name = resource.partition("/")
    found = f"`{amount:g}` {name} {kind}" if name else f"`{amount:g}` {kind}"
    return amounts.problem(kind, found, allowed, at=(name,) if name else ())
