"""Rules between the fields of a policy file, with the line of what breaks them.

Those of its queues stand in `queue_rules`.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from gantree.formats.job.rules import part_problems
from gantree.formats.policy.form import BY, NONE, WEIGHED_BY, RulesForm
from gantree.formats.policy.idle_form import IdleExemptForm
from gantree.formats.policy.queue_form import QueueForm
from gantree.formats.policy.queue_rules import queue_paths, queue_problems
from gantree.model.errors import Problem
from gantree.policy.rules import BY_HELD, Policy
from gantree.text.words import did_you_mean

LAST_KEY = "arrival"
"""No two jobs are equal in it."""


def policy_problems(form: RulesForm, base: Policy) -> list[Problem]:
    """Return everything wrong between the fields of a policy. base is what it overrides."""
    classes = list(dict.fromkeys((*base.priorities, *form.priorities)))
    return [
        *_order_problems(form),
        *_level_problems(form),
        *_weight_problems(form),
        *_share_problems(form, base),
        *(problem for usual in form.demand or () for problem in part_problems(usual)),
        *queue_problems(form.queues or ()),
        *_return_problems(form.queues or (), _grace_s(form, base)),
        *_boost_problems(form),
        *_placement_problems(form),
        *_class_problems(form, classes),
        *_idle_problems(form, classes),
    ]


def _order_problems(form: RulesForm) -> Iterator[Problem]:
    if form.order == [] and not form.any_lost("order"):
        yield form.problem("order", "an empty list", "at least one key")
    seen: list[str] = []
    for index, key in enumerate(form.order or ()):
        if key in seen:
            yield form.problem("order", f"`{key}` again", "each key once", at=(index,))
        elif seen[-1:] == [LAST_KEY]:
            found = f"`{key}` after {LAST_KEY}, which breaks all ties"
            yield form.problem("order", found, f"{LAST_KEY} as the last key", at=(index,))
        seen.append(key)


def _level_problems(form: RulesForm) -> Iterator[Problem]:
    for index, (lower, upper) in enumerate(pairwise(form.attained_levels or ())):
        if upper <= lower:
            found, allowed = f"{upper:g} s after {lower:g} s", "increasing levels"
            yield form.problem("attained_levels", found, allowed, at=(index + 1,))


def _weight_problems(form: RulesForm) -> Iterator[Problem]:
    """Models have numbers, and `by` has a word."""
    for model, weight in (form.gpu_weights or {}).items():
        if isinstance(weight, str) != (model == BY):
            allowed = f"one of {', '.join(WEIGHED_BY)}" if model == BY else "a number"
            yield form.problem("gpu_weights", f"`{weight}`", allowed, at=(model,))


def _share_problems(form: RulesForm, base: Policy) -> Iterator[Problem]:
    """Counters and losses tell of the past, which counts in shares only with a half-life."""
    if form.share_by is None or form.share_by.weights() == BY_HELD or form.any_lost("half_life"):
        return
    has_past = form.half_life != NONE if form.half_life else base.half_life_s is not None
    if not has_past:
        found = "weights of past use beside `half_life: none`"
        yield form.problem("share_by", found, "it with a half_life such as 7d, or `held`")


def placed_by(form: RulesForm) -> str | None:
    """Return how gangs are placed; `topology: false` is the older way to write first-fit."""
    if form.placement is None and form.topology is not None:
        return "topology" if form.topology else "first-fit"
    return form.placement


def _placement_problems(form: RulesForm) -> Iterator[Problem]:
    """`topology` says less than `placement`, and must not say otherwise."""
    if None not in (form.topology, form.placement) and form.topology != (
        form.placement == "topology"
    ):
        found = f"{str(form.topology).lower()} beside `placement: {form.placement}`"
        yield form.problem("topology", found, "`placement` alone")


def _grace_s(form: RulesForm, base: Policy) -> float:
    return base.grace_s if form.evictions.grace is None else form.evictions.grace


def _return_problems(queues: Sequence[QueueForm], grace_s: float) -> Iterator[Problem]:
    """What is given back is stopped within that time, with the time that processes have to end."""
    for form in queues:
        within_s = form.lend.return_within
        if within_s is not None and within_s < grace_s:
            found, allowed = f"{within_s:g} s", f"at least evictions.grace, {grace_s:g} s"
            yield form.lend.problem("return_within", found, allowed)
        yield from _return_problems(form.queues, grace_s)


def _boost_problems(form: RulesForm) -> Iterator[Problem]:
    """A boost of a queue is of one that there is, where the policy says which there are."""
    paths = list(queue_paths(form.queues or ()))
    if not paths or form.any_lost("queues"):
        return
    for boost in form.boosts or ():
        if boost.queue is not None and boost.queue not in paths:
            hint = did_you_mean(boost.queue, paths)
            yield boost.problem("queue", f"`{boost.queue}`", "a queue of `queues`", hint)


def _idle_problems(form: RulesForm, classes: list[str]) -> Iterator[Problem]:
    """Times of the policy's own rule, and the classes that it and those of queues exempt."""
    if form.idle is not None:
        yield from form.idle.problems()
    if form.any_lost("priorities"):
        return
    allowed = f"a class of priorities ({', '.join(classes)})"
    for exempt in _exempt(form):
        for index, word in enumerate(exempt.priorities):
            if word not in classes:
                hint = did_you_mean(word, classes)
                yield exempt.problem("priorities", f"`{word}`", allowed, hint, at=(index,))


def _exempt(form: RulesForm | QueueForm) -> Iterator[IdleExemptForm]:
    if form.idle is not None:
        yield form.idle.exempt
    for below in form.queues or ():
        yield from _exempt(below)


def _class_problems(form: RulesForm, classes: list[str]) -> Iterator[Problem]:
    """Classes that are named elsewhere are classes of `priorities`."""
    if form.any_lost("priorities"):
        return
    allowed = f"a class of priorities ({', '.join(classes)})"
    for name, victims in (form.preempt.who or {}).items():
        for place, word in ((name,), name), *(((name, i), v) for i, v in enumerate(victims)):
            if word not in classes:
                hint = did_you_mean(word, classes)
                yield form.preempt.problem("who", f"`{word}`", allowed, hint, at=place)
    sharing = form.time_sharing
    for index, word in enumerate(sharing.classes if sharing else ()):
        if sharing and word not in classes:
            hint = did_you_mean(word, classes)
            yield sharing.problem("classes", f"`{word}`", allowed, hint, at=(index,))
